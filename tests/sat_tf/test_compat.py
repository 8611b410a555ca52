"""Canaries: the private names of Keras that `sat_tf.compat` uses do as it needs."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from sat_tf import compat


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (keras.Model, "_maybe_symbolic_build"),
        (keras.optimizers.Adam, "_all_reduce_sum_gradients"),
        (keras.optimizers.Adam, "_var_key"),
        (keras.callbacks.TensorBoard, "_train_writer"),
        (keras.callbacks.TensorBoard, "_val_writer"),
    ],
)
def test_keras_has_the_private_name(owner, name):
    broken = f"Keras {keras.__version__} has no {owner.__name__}.{name}, which 3.15 has: see compat"
    assert hasattr(owner, name), broken


def test_fit_builds_before_its_first_batch():
    class Model(compat.BuildsBeforeFit, keras.Model):
        built_at = None

        def build_before_fit(self):
            self.built_at = int(self.optimizer.iterations)

        def call(self, inputs):
            return inputs

        def train_step(self, data):
            return {"loss": tf.zeros([])}

    model = Model()
    model.compile("sgd", "mse")
    model.fit(np.zeros([2, 1]), np.zeros([2, 1]), verbose=0)
    assert model.built_at == 0


def test_gradients_of_replicas_are_not_summed():
    class SGD(compat.GradientsAsGiven, keras.optimizers.SGD):
        pass

    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        weight, optimizer = keras.Variable([1.0]), SGD(1.0)
        optimizer.build([weight])

    @tf.function(autograph=False)
    def step():
        strategy.run(lambda: optimizer.apply_gradients([(tf.constant([0.25]), weight)]))

    step()
    np.testing.assert_allclose(weight, [0.75])

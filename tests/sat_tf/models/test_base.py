"""The train step of an objective, and means of everything that is logged."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from sat_tf.objectives.estimators import MovingAverageBaseline
from sat_tf.ops import global_mean, replica_seed
from sat_tf.train_step import RunningMeans, Terms, TrainableModel
from training.run.strategy import make_strategy


class SquaredError:
    """`(w . x - y)^2`, and a term with a gradient that dwarfs it."""

    log_names = ("output",)

    def __call__(self, model, batch, seed):
        output = model.dense(batch["images"])
        loss = tf.reduce_mean(tf.square(output - batch["labels"]))
        large = 1e6 * tf.reduce_mean(model.guess(batch["images"]))
        size = tf.cast(tf.shape(output)[0], tf.float32)
        returns = global_mean(batch["labels"])
        return Terms(loss + large, {"output": (tf.reduce_mean(output), size)}, returns)


class Line(TrainableModel):
    """`y = w . x`, and a layer with a gradient that is clipped separately."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = keras.layers.Dense(1, use_bias=False)
        self.dense.build((None, 3))
        self.guess = keras.layers.Dense(1, use_bias=False)
        self.guess.build((None, 3))
        self.baseline = MovingAverageBaseline()
        self.objective = SquaredError()
        self.built = True

    @property
    def separately_clipped(self):
        return self.guess.trainable_variables


def compiled(clip_norm: float = 0.0, **options) -> Line:
    model = Line()
    model.dense.set_weights([np.full([3, 1], 0.1)])
    model.guess.set_weights([np.full([3, 1], 0.2)])
    sgd = keras.optimizers.SGD(0.1)
    model.compile(optimizer=sgd, clip_norm=clip_norm, seed=1, jit_compile=False, **options)
    return model


BATCH = {
    "images": np.random.default_rng(0).normal(size=[6, 3]).astype(np.float32),
    "labels": np.arange(6, dtype=np.float32)[:, None],
}


def fitted(model: TrainableModel, size: int = 6) -> dict[str, float]:
    data = tf.data.Dataset.from_tensor_slices(BATCH).batch(size)
    logs = model.fit(data, epochs=1, shuffle=False, verbose=0).history
    return {name: values[0] for name, values in logs.items()}


def gradient() -> np.ndarray:
    x, y = BATCH["images"], BATCH["labels"]
    return 2.0 * x.T @ (x @ np.full([3, 1], 0.1) - y) / len(y)


def test_a_step_follows_the_gradient_and_logs_means():
    model = compiled()
    logs = fitted(model)
    np.testing.assert_allclose(model.dense.kernel, 0.1 - 0.1 * gradient(), rtol=1e-4)
    assert logs["gradient_norm"] == pytest.approx(np.linalg.norm(gradient()), rel=1e-4)
    assert logs["output"] == pytest.approx((BATCH["images"] @ np.full([3], 0.1)).mean(), rel=1e-4)
    assert set(logs) == {"loss", "gradient_norm", "output"}


def test_separately_clipped_weights_leave_the_others_their_norm():
    model = compiled(clip_norm=0.5)
    logs = fitted(model)
    assert logs["gradient_norm"] == pytest.approx(np.linalg.norm(gradient()), rel=1e-4)
    step = (0.1 - model.dense.kernel.numpy()) / 0.1
    np.testing.assert_allclose(step, gradient() * 0.5 / np.linalg.norm(gradient()), rtol=1e-4)
    own = (0.2 - model.guess.kernel.numpy()) / 0.1
    assert np.linalg.norm(own) == pytest.approx(0.5, rel=1e-4)


def test_two_replicas_with_unequal_shares_step_as_one_device():
    one = compiled()
    fitted(one, size=3)
    with make_strategy("mirrored").scope():
        two = compiled()
    fitted(two, size=3)
    np.testing.assert_allclose(two.dense.kernel, one.dense.kernel, rtol=1e-5)
    np.testing.assert_allclose(two.baseline.value, one.baseline.value, rtol=1e-6)


@pytest.mark.parametrize("strategy", [tf.distribute.get_strategy(), make_strategy("mirrored")])
def test_data_of_unknown_length_has_as_many_steps_as_batches(strategy):
    with strategy.scope():
        model = compiled()
    data = tf.data.Dataset.from_tensor_slices(BATCH).batch(3).filter(lambda _: True)
    model.fit(data, epochs=3, shuffle=False, verbose=0)
    assert np.all(keras.ops.convert_to_numpy(model.optimizer.iterations) == 6)


def test_seeds_differ_by_step_and_by_replica():
    model = compiled()
    first = model.step_seed().numpy()
    np.testing.assert_array_equal(first, model.step_seed())
    model.optimizer.iterations.assign_add(1)
    assert np.any(first != model.step_seed())
    strategy = make_strategy("mirrored")
    with strategy.scope():
        model = compiled()
    run = tf.function(lambda: (model.step_seed(), replica_seed(model.step_seed())))
    shared, own = map(strategy.experimental_local_results, strategy.run(run))
    np.testing.assert_array_equal(*shared)
    assert np.any(own[0].numpy() != own[1].numpy())


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"seed": 1.5}, "`seed`: expected int, got 1.5"),
        ({"clip_norm": -1.0}, "`clip_norm`: expected a number of at least 0, got -1.0"),
        ({"clip_norm": "5"}, "`clip_norm`: expected float, got '5'"),
    ],
)
def test_a_seed_and_a_norm_that_are_none_are_errors(options, says):
    with pytest.raises(ValueError, match=says):
        Line().compile("sgd", **options)


def scalars(*values: float) -> tuple[tf.Tensor, ...]:
    return tuple(tf.constant(value, tf.float32) for value in values)


@pytest.mark.parametrize("compiled", [False, True])
def test_means_are_weighted(compiled):
    means = RunningMeans(["a", "b"])
    update = tf.function(means.update_state) if compiled else means.update_state
    rng = np.random.default_rng(0)
    numbers, weights = rng.normal(size=[4, 2]), rng.uniform(size=[4, 2])
    for row, weight in zip(numbers, weights, strict=True):
        update({name: scalars(row[i], weight[i]) for i, name in enumerate("ab")})
    wanted = (numbers * weights).sum(0) / weights.sum(0)
    found = means.result()
    np.testing.assert_allclose([found["a"], found["b"]], wanted, rtol=1e-5)
    means.reset_state()
    assert means.result() == {"a": 0.0, "b": 0.0}


def test_what_is_left_out_or_weighs_nothing_does_not_count():
    means = RunningMeans(["a", "b"])
    means.update_state({"a": scalars(2.0, 3.0)})
    means.update_state({"a": scalars(np.nan, 0.0), "b": scalars(5.0, 1.0)})
    assert {name: float(mean) for name, mean in means.result().items()} == {"a": 2.0, "b": 5.0}

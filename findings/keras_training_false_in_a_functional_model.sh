#!/usr/bin/env bash
# base(x, training=False) in a functional model does not keep the statistics of base in fit.
#
# Seen with: Keras 3.15.1, TensorFlow 2.21.0.
# A good guess: a network called with training=False stays in inference mode, also once it is
# unfrozen, as the guide to transfer learning has it.
# What is seen: fit moves the statistics of all 52 batch normalisations of a MobileNetV2 that was
# called so, and the model called with training=True gives another output than with False. The same
# call in the call method of a subclass of keras.Model keeps them.
# It matters to: encoders that are fine-tuned with small batches, whose statistics are noise.
# What we do: our Encoder is a layer, whose call decides; a test has it in a functional model.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --disable-pip-version-check tensorflow-cpu==2.21.0 keras==3.15.1
cd "$work"
TF_CPP_MIN_LOG_LEVEL=3 KERAS_BACKEND=tensorflow "$work/venv/bin/python" -W ignore - <<'PY'
import keras
import numpy as np


def network():
    keras.utils.set_random_seed(0)
    return keras.applications.MobileNetV2(
        input_shape=(32, 32, 3), weights=None, include_top=False, pooling="avg"
    )


class Subclass(keras.Model):
    """The network, called in inference mode."""

    def __init__(self, base):
        super().__init__()
        self.base = base

    def call(self, x):
        return self.base(x, training=False)


def functional(base):
    x = keras.Input((32, 32, 3))
    return keras.Model(x, base(x, training=False))


images = np.random.default_rng(0).random([4, 32, 32, 3]).astype("float32")
moved = {}
for make in (functional, Subclass):
    base = network()
    model = make(base)
    found = [np.asarray(model(images, training=mode)) for mode in (False, True)]
    layers = [x for x in base.layers if isinstance(x, keras.layers.BatchNormalization)]
    before = [layer.moving_mean.numpy() for layer in layers]
    model.compile(keras.optimizers.SGD(0.0), "mse")
    model.fit(images, np.zeros([4, 1280]), verbose=0)
    after = [layer.moving_mean.numpy() for layer in layers]
    changed = [not np.array_equal(*pair) for pair in zip(before, after, strict=True)]
    moved[make.__name__] = sum(changed), len(changed), bool(np.allclose(*found))
print("normalisations moved in fit, of how many, outputs with training equal:", moved)
assert moved == {"functional": (52, 52, False), "Subclass": (0, 52, True)}, moved
PY

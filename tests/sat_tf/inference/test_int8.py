"""An encoder in int8 has a quarter of the bytes; training photographs take its moved means back."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from sat_tf.inference.graphs import quantised


def convolution(**options) -> bytes:
    """The graph of a large convolution."""
    layer = keras.layers.Conv2D(64, 3, bias_initializer="ones", **options)
    layer.build([1, 8, 7, 64])
    spec = [tf.TensorSpec([1, 8, 7, 64], name="pixels")]
    call = tf.function(lambda pixels: {"annotations": layer(pixels)}, spec)
    return tf.lite.TFLiteConverter.from_concrete_functions([call.get_concrete_function()]).convert()


def run(content: bytes, pixels: np.ndarray) -> np.ndarray:
    interpreter = tf.lite.Interpreter(model_content=content)
    interpreter.allocate_tensors()
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], pixels)
    interpreter.invoke()
    return interpreter.get_tensor(interpreter.get_output_details()[0]["index"])


@pytest.mark.parametrize("options", [{}, {"padding": "same"}, {"padding": "same", "strides": 2}])
def test_int8_is_a_quarter_and_keeps_the_mean_of_each_channel(options):
    exact = convolution(**options)
    images = np.random.default_rng(0).uniform(size=[5, 1, 8, 7, 64]).astype(np.float32)
    small, corrected = quantised(exact), quantised(exact, [image[0] for image in images])
    assert len(corrected) == len(small) < 0.3 * len(exact)
    wanted, plain, found = (
        np.stack([run(content, image) for image in images]) for content in (exact, small, corrected)
    )
    assert 0 < np.abs(plain - wanted).max() / np.abs(wanted).max() < 0.02
    moved = [np.abs((one - wanted).mean(axis=(0, 1, 2, 3))).mean() for one in (plain, found)]
    assert moved[1] < 0.5 * moved[0]


def test_correction_needs_a_photograph():
    with pytest.raises(ValueError, match="int8 needs at least one photograph that can be read"):
        quantised(convolution(), [])

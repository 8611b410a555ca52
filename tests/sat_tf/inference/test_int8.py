"""An encoder in int8 has a quarter of the bytes; measured means belong to its weights."""

import json
import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf

from sat_tf.inference import cache, published
from sat_tf.inference.int8 import measure_means, moved_means, quantised


@pytest.fixture(scope="module")
def convolution() -> bytes:
    """The graph of a large convolution."""
    layer = keras.layers.Conv2D(64, 3, bias_initializer="ones")
    layer.build([1, 8, 8, 64])
    spec = [tf.TensorSpec([1, 8, 8, 64], name="pixels")]
    call = tf.function(lambda pixels: {"annotations": layer(pixels)}, spec)
    converter = tf.lite.TFLiteConverter.from_concrete_functions([call.get_concrete_function()])
    return converter.convert()


def test_large_convolutions_take_a_quarter_of_the_bytes_and_biases_take_the_means_back(
    convolution,
):
    small = quantised(convolution)
    assert len(small) < 0.3 * len(convolution)
    pixels = np.random.default_rng(0).normal(size=[1, 8, 8, 64]).astype(np.float32)
    found = {}
    moved = quantised(convolution, [np.full(64, 0.5, np.float16)])
    for name, content in {"exact": convolution, "small": small, "moved": moved}.items():
        interpreter = tf.lite.Interpreter(model_content=content)
        interpreter.allocate_tensors()
        interpreter.set_tensor(interpreter.get_input_details()[0]["index"], pixels)
        interpreter.invoke()
        found[name] = interpreter.get_tensor(interpreter.get_output_details()[0]["index"])
    error = np.abs(found["small"] - found["exact"]).max() / np.abs(found["exact"]).max()
    assert 0 < error < 0.02
    np.testing.assert_allclose(found["moved"], found["small"] + 0.5, atol=1e-4)


@pytest.mark.parametrize("options", [{}, {"padding": "same"}, {"padding": "same", "strides": 2}])
def test_measured_means_are_those_that_rounding_moves(options):
    layer = keras.layers.Conv2D(64, 3, **options)
    layer.build([1, 8, 7, 64])
    call = tf.function(
        lambda pixels: {"annotations": layer(pixels)},
        [tf.TensorSpec([1, 8, 7, 64], name="pixels")],
    )
    converter = tf.lite.TFLiteConverter.from_concrete_functions([call.get_concrete_function()])
    images = np.random.default_rng(0).uniform(size=[3, 8, 7, 64]).astype(np.float32)
    (found,) = measure_means(converter.convert(), images)
    exact, (kernel, bias) = layer(images).numpy(), layer.get_weights()
    scales = np.abs(kernel).max(axis=(0, 1, 2)) / 127
    layer.set_weights([np.round(kernel / scales) * scales, bias])
    np.testing.assert_allclose(
        found, (exact - layer(images).numpy()).mean(axis=(0, 1, 2)), atol=1e-5
    )
    assert np.abs(found).max() > 1e-3
    with pytest.raises(ValueError, match="`images`: expected at least one"):
        measure_means(converter.convert(), [])


def test_means_of_other_convolutions_are_refused(convolution):
    for means in ([], [np.zeros(32)]):
        with pytest.raises(ValueError, match="`means`: expected means of 1 convolutions"):
            quantised(convolution, means)


def test_a_file_of_other_weights_is_refused_by_name_and_float32_is_a_switch(tmp_path, monkeypatch):
    monkeypatch.delenv(cache.SWITCH)
    assert cache.precision_of(published.locate("flickr8k_soft")) == "int8"
    folder = tmp_path / "mine"
    folder.mkdir()
    manifest = (published.SHIPPED / "flickr8k_soft" / published.MANIFEST).read_text()
    manifest = json.loads(manifest)
    manifest["files"]["encoder.npz"] = "0" * 64
    (folder / published.MANIFEST).write_text(json.dumps(manifest))
    assert moved_means(folder) is None and cache.precision_of(folder) == "float32"
    (shipped,) = published.SHIPPED.glob("encoder-*.int8.npz")
    copy = shutil.copy(shipped, tmp_path / f"encoder-{'0' * 16}.int8.npz")
    with pytest.raises(ValueError, match=f"{copy} was measured with other weights"):
        moved_means(folder)
    monkeypatch.setenv(cache.SWITCH, "float32")
    assert cache.precision_of(published.locate("flickr8k_soft")) == "float32"

"""One test of all that Keras asks of a layer."""

from __future__ import annotations

import json

import keras
import numpy as np
import tensorflow as tf


def run_layer_test(layer_class, init_kwargs, call_args, tmp_path, without_gradient=()):
    """Checks configuration, shapes, symbolic call, dtypes, gradients, and saving in a model.

    Args:
        layer_class: A registered subclass of `keras.layers.Layer`.
        init_kwargs: Arguments of its constructor.
        call_args: NumPy arguments of its call, nested or not, with a batch as first axis.
        tmp_path: Empty folder.
        without_gradient: Ends of the paths of weights that get none by design.
    """
    layer = layer_class(**init_kwargs)
    outputs = layer(**call_args)
    _check_configuration(layer, init_kwargs)
    _check_shapes(layer, call_args, outputs)
    _check_dtype_policy(layer, init_kwargs, call_args)
    _check_gradients(layer, call_args, without_gradient)
    _check_functional_model(layer, call_args, outputs, tmp_path)


def _check_configuration(layer, init_kwargs):
    config = layer.get_config()
    assert {name: config[name] for name in init_kwargs} == init_kwargs
    assert json.loads(json.dumps(config)) == config
    name = keras.saving.get_registered_name(type(layer))
    assert keras.saving.get_registered_object(name) is type(layer)
    assert type(layer).from_config(config).get_config() == config


def _check_shapes(layer, call_args, outputs):
    shapes = {
        f"{name}_shape": tf.nest.map_structure(lambda array: array.shape, argument)
        for name, argument in call_args.items()
    }
    found = layer.compute_output_shape(*shapes.values())
    wanted = tf.nest.map_structure(lambda output: tuple(output.shape), outputs)
    assert found == wanted


def _check_dtype_policy(layer, init_kwargs, call_args):
    mixed = type(layer)(**init_kwargs, dtype="mixed_bfloat16")
    outputs = mixed(**call_args)
    for found, wanted in zip(
        tf.nest.flatten(mixed(**_symbolic(call_args))), tf.nest.flatten(outputs), strict=True
    ):
        assert found.dtype == wanted.dtype.name
    assert {weight.dtype for weight in mixed.weights} <= {"float32"}
    assert mixed.get_config()["dtype"]["config"]["name"] == "mixed_bfloat16"
    for output in tf.nest.flatten(outputs):
        assert np.isfinite(tf.cast(output, tf.float32)).all()


def _check_gradients(layer, call_args, without_gradient):
    with tf.GradientTape() as tape:
        outputs = tf.nest.flatten(layer(**call_args))
        loss = tf.add_n([tf.reduce_sum(tf.square(output)) for output in outputs])
    gradients = tape.gradient(loss, layer.trainable_variables)
    for variable, gradient in zip(layer.trainable_variables, gradients, strict=True):
        if variable.path.endswith(tuple(without_gradient)):
            continue
        assert gradient is not None, variable.path
        assert np.abs(tf.convert_to_tensor(gradient)).max() > 0.0, variable.path


def _check_functional_model(layer, call_args, outputs, tmp_path):
    """Symbolic shapes and dtypes are those of the call; a saved model answers the same."""
    inputs = _symbolic(call_args)
    symbolic = layer(**inputs)
    tf.nest.assert_same_structure(symbolic, outputs)
    for found, wanted in zip(tf.nest.flatten(symbolic), tf.nest.flatten(outputs), strict=True):
        assert found.dtype == wanted.dtype.name
        assert tf.TensorShape(found.shape).is_compatible_with(wanted.shape), found.shape
        assert found.shape[-1] == wanted.shape[-1] or len(found.shape) == 2, found.shape
    model = keras.Model(tf.nest.flatten(inputs), tf.nest.flatten(symbolic))
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    arguments = tf.nest.flatten(call_args)
    answers = tf.nest.flatten(again(arguments))
    for found, wanted in zip(answers, tf.nest.flatten(outputs), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def _symbolic(call_args):
    return tf.nest.map_structure(
        lambda array: keras.Input(array.shape[1:], dtype=str(array.dtype)), call_args
    )

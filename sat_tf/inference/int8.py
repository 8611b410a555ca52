"""An encoder's graph with its large convolutions in int8, made of the file that TensorFlow wrote.

Weights have a scale per output channel; LiteRT quantises activations where they meet them. Rounding
weights moves the mean of each channel, for most photographs alike: the biases take back what was
measured on training photographs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

LEAST_WEIGHTS = 12_000
"""Weights of the smallest convolution in int8: smaller ones gain no time."""

_VERSION = 5  # of LiteRT's convolution with float activations and a scale per channel


def quantised(graph: bytes, images: Iterable[np.ndarray] | None = None) -> bytes:
    """Returns a float32 graph with its large convolutions in int8.

    Args:
        graph: Content of the file.
        images: Training photographs that correct the biases, float32 `[S, S, 3]` each, as the
            encoder sees them; None leaves the biases.

    Raises:
        ValueError: There are no images.
    """
    import flatbuffers
    from ai_edge_litert import schema_py_generated as schema

    model = schema.ModelT.InitFromPackedBuf(bytearray(graph), 0)
    found = list(_large_convolutions(model, schema))
    means = None if images is None or not found else _moved_means(graph, found, images, schema)
    for number, (_, tensor, values, bias) in enumerate(found):
        levels, scales = _rounded(values)
        tensor.type, tensor.quantization = schema.TensorType.INT8, schema.QuantizationParametersT()
        tensor.quantization.scale = scales.astype(np.float32)
        tensor.quantization.zeroPoint = np.zeros(len(scales), np.int64)
        model.buffers[tensor.buffer].data = levels.reshape(-1).view(np.uint8)
        if means is not None:
            bias += means[number]
    builder = flatbuffers.Builder(len(graph) // 2)
    builder.Finish(model.Pack(builder), file_identifier=b"TFL3")
    return bytes(builder.Output())


def _rounded(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns weights `[N, kh, kw, C]` as int8, and the scale of each output channel."""
    scales = np.maximum(np.abs(values).max(axis=(1, 2, 3)), 1e-9) / 127
    return np.round(values / scales[:, None, None, None]).astype(np.int8), scales


def _large_convolutions(
    model: Any, schema: Any
) -> Iterator[tuple[Any, Any, np.ndarray, np.ndarray]]:
    """Yields each with tensor and values of its weights, and its bias, which may be written to."""
    (graph,) = model.subgraphs
    for operator in graph.operators:
        code = model.operatorCodes[operator.opcodeIndex]
        if max(code.builtinCode, code.deprecatedBuiltinCode) != schema.BuiltinOperator.CONV_2D:
            continue
        weights, bias = (graph.tensors[place] for place in operator.inputs[1:3])
        if np.prod(weights.shape) < LEAST_WEIGHTS or weights.type != schema.TensorType.FLOAT32:
            continue
        code.version = max(code.version, _VERSION)
        values = np.frombuffer(bytes(model.buffers[weights.buffer].data), "<f4")
        shift = np.frombuffer(bytearray(bytes(model.buffers[bias.buffer].data)), "<f4")
        model.buffers[bias.buffer].data = shift.view(np.uint8)
        yield operator, weights, values.reshape(weights.shape), shift


def _moved_means(
    graph: bytes, found: list[tuple[Any, ...]], images: Iterable[np.ndarray], schema: Any
) -> list[np.ndarray]:
    """Measures how far int8 moves the means of the channels of large convolutions.

    A convolution is linear: rounding moves its mean by what the errors of its weights make of its
    mean input.

    Returns:
        Of each convolution, float `[channels]`.

    References:
        Nagel et al. (2019), arXiv:1906.04721, section 4.2.
    """
    import tensorflow as tf
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    interpreter = Interpreter(
        model_content=graph,
        experimental_preserve_all_tensors=True,
        # Delegates would keep to themselves what is between their operations.
        experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
    )
    interpreter.allocate_tensors()
    (pixels,), sums, count = interpreter.get_input_details(), [0.0] * len(found), 0
    for image in images:
        interpreter.set_tensor(pixels["index"], image[np.newaxis])
        interpreter.invoke()
        inputs = (interpreter.get_tensor(operator.inputs[0])[0] for operator, *_ in found)
        sums, count = [total + one for total, one in zip(sums, inputs, strict=True)], count + 1
    if not count:
        raise ValueError("int8 needs at least one photograph that can be read.")
    means = []
    for (operator, _, values, _), total in zip(found, sums, strict=True):
        levels, scales = _rounded(values)
        errors, options = values - levels * scales[:, None, None, None], operator.builtinOptions
        moved = tf.nn.conv2d(
            (total / count)[np.newaxis],
            errors.transpose(1, 2, 3, 0),
            (options.strideH, options.strideW),
            "SAME" if options.padding == schema.Padding.SAME else "VALID",
            dilations=(options.dilationHFactor, options.dilationWFactor),
        )
        means.append(tf.reduce_mean(moved, axis=(0, 1, 2)).numpy())
    return means

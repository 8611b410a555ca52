"""An encoder's graph with its large convolutions in int8, made of the file that TensorFlow wrote.

Weights have a scale per output channel; LiteRT quantises activations where they meet them. Rounding
weights moves the mean of each channel, for most photographs alike: the biases take back what was
measured on training photographs.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from sat_tf.inference import published
from sat_tf.util.errors import invalid_value

LEAST_WEIGHTS = 12_000
"""Weights of the smallest convolution in int8: smaller ones gain no time."""

_VERSION = 5  # of LiteRT's convolution with float activations and a scale per channel
_WEIGHTS = "weights"


def moved_means(captioner: Path | None) -> list[np.ndarray] | None:
    """Reads how far int8 moves the means of an encoder's channels, of a published captioner.

    Returns:
        Of each large convolution, in the graph's order, float `[channels]`; None if they were not
        measured.

    Raises:
        ValueError: The file is damaged, or of other weights.
    """
    path = published.means_file(captioner)
    if path is None:
        return None
    try:
        with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as entries:
            weights = str(entries[_WEIGHTS])
            means = [entries[name] for name in sorted(set(entries.files) - {_WEIGHTS})]
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} is damaged: {error}") from error
    if weights != published.weight_hashes(captioner)[0]:
        raise ValueError(f"{path} was measured with other weights of the encoder.")
    return means


def quantised(graph: bytes, means: list[np.ndarray] | None = None) -> bytes:
    """Returns a float32 graph with its large convolutions in int8.

    Args:
        graph: Content of the file.
        means: See `moved_means`; None leaves the biases.

    Raises:
        ValueError: The means are those of other convolutions.
    """
    import flatbuffers
    from ai_edge_litert import schema_py_generated as schema

    model = schema.ModelT.InitFromPackedBuf(bytearray(graph), 0)
    found = list(_large_convolutions(model, schema))
    shapes = [bias.shape for *_, bias in found]
    if means is not None and [mean.shape for mean in means] != shapes:
        expected = f"means of {len(shapes)} convolutions, as this encoder has"
        raise invalid_value("means", expected, f"those of {len(means)} others")
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


def measure_means(graph: bytes, images: Iterable[np.ndarray]) -> list[np.ndarray]:
    """Measures how far int8 moves the means of the channels of large convolutions.

    A convolution is linear: rounding moves its mean by what the errors of its weights make of its
    mean input.

    Args:
        graph: Content of a float32 graph.
        images: float32 `[S, S, 3]` each, as the encoder sees it.

    Returns:
        As `moved_means`.

    Raises:
        ValueError: There are no images.

    References:
        Nagel et al. (2019), arXiv:1906.04721, section 4.2.
    """
    import tensorflow as tf
    from ai_edge_litert import schema_py_generated as schema
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    model = schema.ModelT.InitFromPackedBuf(bytearray(graph), 0)
    found = [(operator, values) for operator, _, values, _ in _large_convolutions(model, schema)]
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
        inputs = (interpreter.get_tensor(operator.inputs[0])[0] for operator, _ in found)
        sums, count = [total + one for total, one in zip(sums, inputs, strict=True)], count + 1
    if not count:
        raise invalid_value("images", "at least one that can be read", "none")
    means = []
    for (operator, values), total in zip(found, sums, strict=True):
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

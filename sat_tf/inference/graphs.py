"""A captioner as three LiteRT graphs: encoder, start and step; made with TensorFlow.

The shapes are static and the operations LiteRT's built-in ones. Shapes: S side of the image, L
locations, D annotation width, N LSTM width, V vocabulary, K hypotheses of the beam.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

import keras
import numpy as np
import tensorflow as tf

from sat_tf.config import SearchConfig
from sat_tf.inference import published
from sat_tf.inference.keras_captioner import KerasCaptioner
from sat_tf.inference.litert_captioner import write_folder
from sat_tf.inference.litert_graph import STATE, without_native_log
from sat_tf.layers.lstm import State
from sat_tf.util.errors import invalid_value
from sat_tf.util.files import literal_path

Precision = Literal["float32", "float16", "int8"]
Graph = tuple[Callable[..., dict[str, tf.Tensor]], list[tf.TensorSpec]]
"""A function to convert, and its inputs."""


def make_graphs(captioner: KerasCaptioner, beam: int) -> dict[str, Graph]:
    """Returns the graphs of a captioner, for a beam of K hypotheses, by file name.

    Returns:
        `encoder`: pixels `[1, S, S, 3]`, 0 to 255, to annotations `[1, L, D]`. `start`:
        annotations to hidden and memory `[1, N]` of the LSTM, and what else the steps read. `step`:
        words int32 `[K]`, hidden and memory `[K, N]` and other inputs, to log_probs `[K, V]`, the
        next hidden and memory, and with attention alpha `[K, L]` and beta `[K]`.
    """
    model, side = captioner.model, captioner.config.encoder.image_size
    (height, width), depth = captioner.grid, model.encoder.annotation_dim
    # Of a blank image: which parts there are, and their shapes.
    blank, state = model.begin_search(tf.zeros([1, height * width, depth]), beam)
    parts = {name: part for name, part in blank._asdict().items() if tf.is_tensor(part)}

    def encode(pixels):
        return {"annotations": model.encoder(pixels, training=False)}

    def start(annotations):
        attended, state = model.begin_search(annotations, beam)
        outputs = {name: getattr(attended, name) for name in parts}
        decoder = model.decoder
        if decoder.attends and not blank.pre_projected and decoder.bottleneck is None:
            del outputs["annotations"]  # as they came
        return outputs | dict(zip(STATE, state, strict=True))

    def step(words, h, c, *given):
        attended = blank._replace(**dict(zip(parts, given, strict=True)))
        logits, state, attention = model.decoder.step(attended, words, State(h, c), model.selection)
        # Of LiteRT's operations, log_softmax is slow and softmax fast: the best token's has both.
        best, share = (
            tf.reduce_max(x, axis=-1, keepdims=True) for x in (logits, tf.nn.softmax(logits))
        )
        outputs = {"log_probs": logits - best + tf.math.log(share)}
        outputs |= dict(zip(STATE, state, strict=True))
        if model.decoder.attends:
            outputs["alpha"] = tf.nn.softmax(attention.alignment_scores)
            outputs["beta"] = attention.beta
        return outputs

    def spec(name: str, part: tf.Tensor, rows: int | None = None) -> tf.TensorSpec:
        return tf.TensorSpec([rows or part.shape[0], *part.shape[1:]], part.dtype, name)

    read = [tf.TensorSpec([beam], tf.int32, "words")]
    read += [spec(name, part, beam) for name, part in zip(STATE, state, strict=True)]
    read += [spec(name, part) for name, part in parts.items()]
    return {
        published.GRAPHS[0]: (encode, [tf.TensorSpec([1, side, side, 3], name="pixels")]),
        published.GRAPHS[1]: (
            start,
            [tf.TensorSpec([1, height * width, depth], name="annotations")],
        ),
        published.GRAPHS[2]: (step, read),
    }


def convert_graphs(
    captioner: KerasCaptioner,
    search: SearchConfig,
    precision: Precision,
    photographs: Iterable[np.ndarray] | None = None,
) -> dict[str, bytes]:
    """Converts a captioner to the files of its graphs.

    Args:
        captioner: The captioner.
        search: Its beam is K, the rows of the step.
        precision: Of the weights; int8 quantises activations too, where they meet them.
        photographs: float32 `[S, S, 3]` each, as the encoder sees them: what int8 moves on them is
            taken back. None leaves it.

    Raises:
        OSError: The disk is full.
        ValueError: The captioner has an operation that LiteRT has not built in, or `photographs`
            are none; or it draws its locations.
    """
    if captioner.model.selection == "sample":
        raise invalid_value(
            "inference", "expectation or argmax, as graphs answer the same each time", "sample"
        )
    contents = {}
    # Each by itself: the converter reads all that is saved, and the decoder's graphs are small.
    for name, graph in make_graphs(captioner, search.beam).items():
        own = name == published.GRAPHS[0] and precision == "int8"
        with tempfile.TemporaryDirectory() as made, literal_path(Path(made)) as saved:
            archive = keras.export.ExportArchive()
            archive.add_endpoint(Path(name).stem, *graph)
            try:
                archive.write_out(str(saved), verbose=False)
            except tf.errors.OpError as error:
                raise OSError(
                    f"The graphs cannot be written to {saved}: {error.message}"
                ) from error
            content = convert(str(saved), Path(name).stem, "float32" if own else precision)
        contents[name] = quantised(content, photographs) if own else content
    return contents


def write_graphs(
    folder: Path,
    captioner: KerasCaptioner,
    precision: Precision = "float32",
    photographs: Iterable[np.ndarray] | None = None,
    search: SearchConfig | None = None,
) -> None:
    """Writes the graphs of a captioner with all that `sat_tf.load` needs, the marker last.

    Args:
        folder: A new folder, or one of graphs, which are replaced.
        captioner: The captioner.
        precision: See `convert_graphs`.
        photographs: See there.
        search: The default search of the graphs; None for the captioner's.

    Raises:
        OSError: The disk is full; the folder then has no marker.
        ValueError: As `convert_graphs`.
    """
    search = search or captioner.config.search
    contents = convert_graphs(captioner, search, precision, photographs)
    write_folder(folder, captioner, contents, precision, search)


def convert(saved_model: str, signature: str, precision: str = "float32") -> bytes:
    """Converts a signature of a SavedModel to a LiteRT graph.

    Raises:
        ValueError: It has an operation that LiteRT has not built in.
    """
    converter = tf.lite.TFLiteConverter.from_saved_model(saved_model, signature_keys=[signature])
    if precision != "float32":
        # Of the weights alone; for int8, activations are quantised where they meet them.
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if precision == "float16":
        converter.target_spec.supported_types = [tf.float16]
    try:
        with without_native_log():
            return converter.convert()
    except Exception as error:  # the converter's own error, which has no public name
        found = re.findall(r"^(?:TF Select|Custom) ops: (.+)", str(error), re.MULTILINE)
        why = ", ".join(found) or str(error).strip().partition("\n")[0]
        expected = f"saved_model, as LiteRT cannot hold the {signature} of this model ({why})"
        raise invalid_value("format", expected, "litert") from error


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
        ValueError: `images` is empty.
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

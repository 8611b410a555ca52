"""A captioner as three LiteRT graphs: encoder, start and step; made with TensorFlow.

The shapes are static and the operations LiteRT's built-in ones. Shapes: S side of the image, L
locations, D annotation width, N LSTM width, V vocabulary, K hypotheses of the beam.
"""

from __future__ import annotations

import hashlib
import json
import re
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Protocol

import keras
import numpy as np
import tensorflow as tf

from sat_tf.config import CaptionerConfig, SearchConfig
from sat_tf.inference import litert_captioner as files
from sat_tf.inference.int8 import measure_means, moved_means, quantised
from sat_tf.layers.lstm import State
from sat_tf.util.errors import invalid_value
from sat_tf.util.files import literal_path, sha256_of, write_atomically

Graph = tuple[Callable[..., dict[str, tf.Tensor]], list[tf.TensorSpec]]
"""A function to convert, and its inputs."""


class Trained(Protocol):
    """A captioner, as `sat_tf.load` gives it."""

    model: Any
    config: CaptionerConfig
    vocabulary: Any
    grid: tuple[int, int]
    path: Path | None


def make_graphs(captioner: Trained, beam: int) -> dict[str, Graph]:
    """Returns the graphs of a captioner, for a beam of K hypotheses, by their files.

    Returns:
        `encoder`: pixels `[1, S, S, 3]`, 0 to 255, to annotations `[1, L, D]`. `start`:
        annotations to hidden and memory `[1, N]` of the LSTM, and what else the steps read. `step`:
        words int32 `[K]`, hidden and memory `[K, N]` and what they read, to log_probs `[K, V]`, the
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
        return outputs | dict(zip(files.STATE, state, strict=True))

    def step(words, h, c, *given):
        attended = blank._replace(**dict(zip(parts, given, strict=True)))
        logits, state, attention = model.decoder.step(
            attended, words, State(h, c), model.selection, portable=True
        )
        # Of LiteRT's operations, log_softmax is slow and softmax fast: the best token's has both.
        best, share = (
            tf.reduce_max(x, axis=-1, keepdims=True) for x in (logits, tf.nn.softmax(logits))
        )
        outputs = {"log_probs": logits - best + tf.math.log(share)}
        outputs |= dict(zip(files.STATE, state, strict=True))
        if model.decoder.attends:
            outputs["alpha"] = tf.nn.softmax(attention.alignment_scores)
            outputs["beta"] = attention.beta
        return outputs

    def spec(name: str, part: tf.Tensor, rows: int | None = None) -> tf.TensorSpec:
        return tf.TensorSpec([rows or part.shape[0], *part.shape[1:]], part.dtype, name)

    read = [tf.TensorSpec([beam], tf.int32, "words")]
    read += [spec(name, part, beam) for name, part in zip(files.STATE, state, strict=True)]
    read += [spec(name, part) for name, part in parts.items()]
    return {
        files.ENCODER: (encode, [tf.TensorSpec([1, side, side, 3], name="pixels")]),
        files.START: (start, [tf.TensorSpec([1, height * width, depth], name="annotations")]),
        files.STEP: (step, read),
    }


def write_graphs(
    folder: Path,
    captioner: Trained,
    search: SearchConfig,
    precision: str,
    encoder: Path | None = None,
    photographs: Iterable[np.ndarray] | None = None,
) -> dict[str, tuple[list[tf.TensorSpec], dict[str, tf.TensorSpec]]]:
    """Writes graphs, settings and vocabulary of a captioner: what `sat_tf.inference.load` reads.

    Args:
        folder: An empty folder.
        captioner: The captioner.
        search: Beam, length and normalisation.
        precision: `float32`, `float16` or `int8`.
        encoder: File of the encoder's graph beside the folder, if captioners share it; it is not
            made again if it is there.
        photographs: float32 `[S, S, 3]` each, as the encoder sees them: what int8 moves on them is
            taken back. None takes what was measured of a published captioner.

    Returns:
        Inputs and outputs of each graph, by its file.

    Raises:
        OSError: They cannot be written.
        ValueError: The captioner has an operation that LiteRT has not built in, or `photographs`
            are none.
    """
    paths = {name: folder / name for name in files.GRAPHS} | {
        files.ENCODER: encoder or folder / files.ENCODER
    }
    graphs = make_graphs(captioner, search.beam)
    graphs = {name: graph for name, graph in graphs.items() if not paths[name].exists()}
    traced = {}
    # Each by itself: the converter reads all that is saved, and the decoder's graphs are small.
    for name, graph in graphs.items():
        # In the cache's draft if there is one: what a killed process leaves is removed with it.
        home = folder.parent if encoder else None
        with tempfile.TemporaryDirectory(dir=home) as made, literal_path(Path(made)) as saved:
            archive = keras.export.ExportArchive()
            function = archive.add_endpoint(Path(name).stem, *graph)
            traced[name] = function.get_concrete_function()
            try:
                archive.write_out(str(saved), verbose=False)
            except tf.errors.OpError as error:
                raise OSError(
                    f"The graphs cannot be written to {saved}: {error.message}"
                ) from error
            own = name == files.ENCODER and precision == "int8"
            content = convert(str(saved), Path(name).stem, "float32" if own else precision)
            if own:
                if photographs is None:
                    means = moved_means(captioner.path)
                else:
                    means = measure_means(content, photographs)
                content = quantised(content, means)
            write_atomically(paths[name], content)
    captioner.vocabulary.save(folder / files.VOCABULARY)
    hashed = [*paths.values(), folder / files.VOCABULARY]
    settings = files.Settings(
        image_size=captioner.config.encoder.image_size,
        resize=captioner.config.encoder.resize,
        grid=captioner.grid if captioner.config.attention.kind != "none" else None,
        search=search,
        precision=precision,
        sizes={name: path.stat().st_size for name, path in paths.items()},
        encoder=paths[files.ENCODER].name,
        digests={path.name: sha256_of(path) for path in hashed},
    )
    (folder / files.SETTINGS).write_text(settings.to_json(), "utf-8")
    return {name: (graphs[name][1], f.structured_outputs) for name, f in traced.items()}


def encoder_name(captioner: Trained, precision: str) -> str:
    """Returns the file of an encoder's graph that captioners share: named by what it computes."""
    config = captioner.config.encoder
    made_of = [files.FORMAT, config.name, config.layer, config.image_size, precision]
    digest = hashlib.sha256(json.dumps(made_of).encode())
    for weight in captioner.model.encoder.weights:
        digest.update(np.ascontiguousarray(weight))
    return f"encoder-{digest.hexdigest()[:16]}.tflite"


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
        return converter.convert()
    except Exception as error:  # the converter's own error, which has no public name
        found = re.findall(r"^(?:TF Select|Custom) ops: (.+)", str(error), re.MULTILINE)
        why = ", ".join(found) or str(error).strip().partition("\n")[0]
        expected = f"saved_model, as LiteRT cannot hold the {signature} of this model ({why})"
        raise invalid_value("format", expected, "litert") from error

"""The signatures of an export, a trained captioner as functions of tensors; and their SavedModel.

Shapes: B batch, K hypotheses of the beam, T words with <end> (`max_length + 1`), h x w the grid of
the attention maps. Every output leads with B and is padded to K and T, as server-side batching
needs it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2, prediction_log_pb2

from sat_tf.config import SearchConfig
from sat_tf.images import decoding
from sat_tf.inference.captioning import TrainedCaptioner
from sat_tf.inference.confidence import UNFAMILIAR, Confidence, Familiarity, Limits
from sat_tf.search import FLOOR, Hypotheses
from sat_tf.text.vocabulary import Vocabulary
from serving.versions import WARM_UP_FILE

MODEL_NAME = "captioner"
"""The name under which callers ask for a captioner, unless its server has another."""
SERVING_DEFAULT = "serving_default"
"""Image files in, captions with the attention of the best out."""
PIXELS = "pixels"
"""The same for pixels, for callers with images that are not files, such as frames of a video."""
EVERY_BEAM = "every_beam"
"""Image files in, with the words and the attention of every hypothesis."""
CAPTION_OUTPUTS = ("captions", "scores", "valid", "reasons")
"""Outputs without attention: exports warm up this set, and all outputs."""
LIMIT_OUTPUTS = ("familiarity", "confidence")
"""Outputs of a captioner that knows its limits, see `sat_tf.inference.confidence`."""

Outputs = dict[str, tf.Tensor]

# Each may take `sat_tf.images.MAX_PIXELS` at its worst.
_DECODED_AT_ONCE = 8
_DAMAGED = "the file is damaged"


@dataclass(frozen=True)
class Signature:
    """A function to export.

    Attributes:
        name: Its name in the SavedModel.
        function: `input -> outputs by name`.
        input: Name, dtype and shape of its one input.
        filters: The sets of outputs that callers ask for, to be warmed up; an empty one is all.
    """

    name: str
    function: Callable[[tf.Tensor], dict[str, tf.Tensor]]
    input: tf.TensorSpec
    filters: Sequence[Sequence[str]] = ((),)


def make_signatures(captioner: TrainedCaptioner, search: SearchConfig) -> list[Signature]:
    """Returns the signatures that a captioner is served by.

    Outputs of `serving_default` and `pixels`: `captions` string `[B, K]`, best first; `scores`
    float32 `[B, K]`, log p / length^p in nats; `token_ids` int32 and `words` string `[B, K, T]`;
    `lengths` int32 `[B, K]`, words without <end>; `valid` bool `[B]`; `reasons` string `[B]`, empty
    where valid; and of the best caption `word_log_probs` float32 `[B, T]`, nats, <end> included,
    and with attention `attention` float32 `[B, T, h, w]` and `beta` float32 `[B, T]`; `language`
    string `[B]`, the code of the captions' language, empty if it is not known; of a captioner that
    knows its limits `familiarity` and, if the search is its own, `confidence`, float32 `[B]`, 0 for
    an image that is not valid. `every_beam`
    has these three of every hypothesis, `[B, K, T, ...]`, and two constants, string `[B]`:
    `attention_kind` (soft, hard or none) and `resize` (crop or squash).

    An image that cannot be read, or a hypothesis that does not exist, has an empty caption, length
    0 and `FLOOR` as its score; only an image makes `valid` false.

    Returns:
        `serving_default`, `pixels` and `every_beam`.
    """
    # One function below all signatures, so that the graph holds encoder and search once.
    describe = _describer(captioner, search)
    size, resize = captioner.config.encoder.image_size, captioner.config.encoder.resize

    def from_files(image_bytes: tf.Tensor) -> Outputs:
        return describe(*read_images(_batch(image_bytes, "image_bytes", 1), size, resize))

    def serving_default(image_bytes: tf.Tensor) -> Outputs:
        return _best(from_files(image_bytes))

    def every_beam(image_bytes: tf.Tensor) -> Outputs:
        outputs = from_files(image_bytes)
        batch = tf.shape(outputs["valid"])
        facts = {"attention_kind": captioner.config.attention.kind, "resize": resize}
        return outputs | {name: tf.fill(batch, fact) for name, fact in facts.items()}

    def from_pixels(pixels: tf.Tensor) -> Outputs:
        pixels = _batch(pixels, "pixels", 4)
        # What an encoded image of the same size would be refused for.
        fits = decoding.size_fits(tf.shape(pixels, tf.int64)[1:3])
        refusal = tf.debugging.Assert(fits, [f"an image in `pixels` {decoding.SIZE_LIMITS}"])
        with tf.control_dependencies([refusal]):
            pixels = tf.identity(pixels)
        scaled = tf.map_fn(
            lambda image: decoding.resize(image, size, resize),
            pixels,
            fn_output_signature=tf.TensorSpec([size, size, 3], tf.float32),
        )
        return _best(describe(scaled, tf.fill(tf.shape(scaled)[:1], "")))

    limits = known_limits(captioner.limits, search)
    more = [(*CAPTION_OUTPUTS, *LIMIT_OUTPUTS)] if limits.confidence else []
    files = tf.TensorSpec([None], tf.string, name="image_bytes")
    frames = tf.TensorSpec([None, None, None, 3], tf.uint8, name="pixels")
    return [
        Signature(SERVING_DEFAULT, serving_default, files, filters=((), CAPTION_OUTPUTS, *more)),
        Signature(PIXELS, from_pixels, frames),
        Signature(EVERY_BEAM, every_beam, files),
    ]


def read_images(image_bytes: tf.Tensor, size: int, resize: str) -> tuple[tf.Tensor, tf.Tensor]:
    """Decodes and scales a batch; an image that cannot be read harms no other.

    Returns:
        float32 `[B, size, size, 3]`, 0 to 255; string `[B]`, the reason why an image cannot be
        read and is black, empty where it could be.
    """
    black = tf.zeros([size, size, 3])

    def decode(content: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        pixels, problem = decoding.read(content)
        scaled = tf.cond(
            tf.equal(problem, ""), lambda: decoding.resize(pixels, size, resize), lambda: black
        )
        return scaled, problem

    def read(content: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        # A data set that skips errors is the one way to catch them with stock operations.
        decoded = tf.data.Dataset.from_tensors(content).map(decode).ignore_errors()
        fallback = tf.data.Dataset.from_tensors((black, _DAMAGED))
        return decoded.concatenate(fallback).take(1).get_single_element()

    specs = (tf.TensorSpec([size, size, 3], tf.float32), tf.TensorSpec([], tf.string))
    return tf.map_fn(
        read, image_bytes, fn_output_signature=specs, parallel_iterations=_DECODED_AT_ONCE
    )


def write_captions(
    token_ids: tf.Tensor, lengths: tf.Tensor, vocabulary: Vocabulary
) -> tuple[tf.Tensor, tf.Tensor]:
    """Decodes captions in the graph, as `Vocabulary.decode` does.

    Args:
        token_ids: int32 `[B, K, T]`.
        lengths: int32 `[B, K]`, words per caption.
        vocabulary: The words.

    Returns:
        UTF-8 strings: captions `[B, K]`, and words `[B, K, T]`, empty after the last.
    """
    inside = tf.range(tf.shape(token_ids)[-1]) < lengths[..., None]

    separator, pattern, replacement = vocabulary.joining()
    words = tf.where(inside, tf.gather(tf.constant(vocabulary.words), token_ids), "")
    texts = tf.strings.reduce_join(words, axis=-1, separator=separator)
    # The places after the last word leave separators behind.
    texts = tf.strings.regex_replace(texts, "^ +| +$", "")
    if pattern:
        texts = tf.strings.regex_replace(texts, pattern, replacement)
    return tf.strings.regex_replace(texts, "^ +| +$", ""), words


def _describer(captioner: TrainedCaptioner, search: SearchConfig):
    """`(pixels [B, S, S, 3], reasons [B]) -> outputs`, with the attention of every hypothesis."""
    model, vocabulary = captioner.model, captioner.vocabulary
    attends = captioner.config.attention.kind != "none"
    limits = known_limits(captioner.limits, search)
    beam, words = [search.beam], [search.beam, search.max_length + 1]
    shapes = {"scores": beam, "token_ids": words, "lengths": beam, "word_log_probs": words}
    if attends:
        shapes |= {"attention": [*words, *captioner.grid], "beta": words}
    told = dict(zip(LIMIT_OUTPUTS, limits, strict=True))
    shapes |= {name: [] for name, part in told.items() if part is not None}
    dtypes = dict.fromkeys(shapes, tf.float32) | {"token_ids": tf.int32, "lengths": tf.int32}

    def search_for(pixels: tf.Tensor) -> Outputs:
        annotations = model.encoder(pixels, training=False)
        found = model.search(annotations, search)
        outputs = found._asdict() | limit_outputs(limits, annotations, found)
        if attends:
            outputs["attention"], outputs["beta"] = found.auxiliary
        return {name: tf.reshape(outputs[name], [-1, *shape]) for name, shape in shapes.items()}

    def describe(pixels: tf.Tensor, reasons: tf.Tensor) -> Outputs:
        valid = tf.equal(reasons, "")
        rows = tf.where(valid)
        # Refused images cost neither the encoder nor the search, and get zeros.
        found = tf.cond(
            tf.reduce_any(valid),
            lambda: search_for(tf.gather_nd(pixels, rows)),
            lambda: {name: tf.zeros([0, *shapes[name]], dtypes[name]) for name in shapes},
        )
        count = tf.shape(valid, tf.int64)
        outputs = {
            name: tf.scatter_nd(rows, found[name], tf.concat([count, shape], 0))
            for name, shape in shapes.items()
        }
        outputs["scores"] = tf.where(valid[:, None], outputs["scores"], FLOOR)
        captions, words = write_captions(outputs["token_ids"], outputs["lengths"], vocabulary)
        texts = {"captions": captions, "words": words, "reasons": reasons}
        texts["language"] = tf.fill(tf.shape(valid), vocabulary.language)
        return outputs | texts | {"valid": valid}

    size = captioner.config.encoder.image_size
    specs = [tf.TensorSpec([None, size, size, 3]), tf.TensorSpec([None], tf.string)]
    return tf.function(describe, input_signature=specs, autograph=False)


def _best(outputs: Outputs) -> Outputs:
    names = ("word_log_probs", "attention", "beta")
    return outputs | {name: outputs[name][:, 0] for name in names if name in outputs}


def _batch(inputs: tf.Tensor, name: str, rank: int) -> tf.Tensor:
    """Returns `inputs`, or fails with an error that names the batch's fault."""
    inputs = tf.ensure_shape(inputs, [None] * rank)
    message = f"Received an empty batch as `{name}`: expected at least one image"
    with tf.control_dependencies([tf.debugging.assert_positive(tf.shape(inputs)[0], message)]):
        return tf.identity(inputs)


def known_limits(limits: Limits, search: SearchConfig) -> Limits:
    """Returns the limits of captions of a search: without the confidence of another search's."""
    fits = limits.confidence is not None and limits.confidence.fits(search)
    return limits if fits else limits._replace(confidence=None)


def limit_outputs(limits: Limits, annotations: tf.Tensor, found: Hypotheses) -> Outputs:
    """Computes `familiarity` and `confidence`, float32 `[B]`, as far as they are known.

    They are those of `sat_tf.inference.confidence`.
    """
    if limits.familiarity is None:
        return {}
    outputs = {"familiarity": _familiarity(limits.familiarity, annotations)}
    if limits.confidence is not None:
        outputs["confidence"] = _confidence(limits.confidence, found, outputs["familiarity"])
    return outputs


def _familiarity(known: Familiarity, annotations: tf.Tensor) -> tf.Tensor:
    moved = tf.reduce_mean(annotations, axis=1) - known.mean
    basis = tf.constant(known.basis.T)  # int8: a quarter of the export
    along = tf.matmul(moved, tf.cast(basis, tf.float32)) * known.scales
    beside = tf.reduce_sum(moved**2, -1) - tf.reduce_sum(along**2, -1)
    distance = tf.reduce_sum((along / known.deviations) ** 2, -1)
    distance += tf.maximum(beside, 0.0) / known.rest
    low, high = known.levels[:-1], known.levels[1:]
    shares = (high - distance[:, tf.newaxis]) / tf.maximum(high - low, np.finfo(np.float32).tiny)
    farther = tf.reduce_mean(tf.clip_by_value(shares, 0.0, 1.0), axis=1)
    return (1.0 + (known.images - 1.0) * farther) / (known.images + 1.0)


def _confidence(known: Confidence, found: Hypotheses, familiarity: tf.Tensor) -> tf.Tensor:
    share = tf.nn.log_softmax(found.scores)[:, 0]
    tokens = tf.cast(found.lengths[:, 0], tf.float32)
    evidence = tf.stack([found.log_probs[:, 0], tokens, share, familiarity], axis=-1)
    logit = known.bias + tf.linalg.matvec(evidence, tf.constant(known.slopes))
    return tf.sigmoid(logit) * tf.minimum(familiarity / UNFAMILIAR, 1.0)


def save_signatures(
    signatures: Sequence[Signature], folder: Path
) -> dict[str, tf.types.experimental.ConcreteFunction]:
    """Writes the SavedModel into a draft; returns each signature's traced function.

    Raises:
        OSError: It cannot be written.
    """
    from keras.export import ExportArchive

    # No `track(model)`, which would store every weight twice: variables are found by their use.
    archive = ExportArchive()
    functions = {
        signature.name: archive.add_endpoint(signature.name, signature.function, [signature.input])
        for signature in signatures
    }
    traced = {name: function.get_concrete_function() for name, function in functions.items()}
    with _writing_errors(folder.parent):
        archive.write_out(str(folder), verbose=False)
    return traced


def write_warmup(folder: Path, signatures: Sequence[Signature], image_size: int) -> None:
    """Writes requests that TF Serving runs before it lets clients at the version.

    The first call of each set of outputs is slow, so each has a record: a colour gradient.

    Raises:
        OSError: They cannot be written.
    """
    path = folder / WARM_UP_FILE
    path.parent.mkdir(exist_ok=True)
    ramp = tf.linspace(0.0, 255.0, image_size)
    image = tf.stack([*tf.meshgrid(ramp, ramp), tf.zeros([image_size, image_size])], axis=-1)
    image = tf.cast(image, tf.uint8)
    with _writing_errors(folder.parent), tf.io.TFRecordWriter(str(path)) as writer:
        for signature in signatures:
            spec = signature.input
            example = tf.io.encode_jpeg(image) if spec.dtype == tf.string else image
            tensor = tf.make_tensor_proto(example[tf.newaxis].numpy(), spec.dtype)
            for outputs in signature.filters:
                request = predict_pb2.PredictRequest(output_filter=outputs)
                request.model_spec.name = MODEL_NAME
                request.model_spec.signature_name = signature.name
                request.inputs[spec.name].CopyFrom(tensor)
                log = prediction_log_pb2.PredictLog(request=request)
                record = prediction_log_pb2.PredictionLog(predict_log=log)
                writer.write(record.SerializeToString())


@contextlib.contextmanager
def _writing_errors(out: Path) -> Iterator[None]:
    """Raises TensorFlow's errors as an `OSError`; not around tracing, which raises them too."""
    try:
        yield
    except tf.errors.OpError as error:
        raise OSError(f"The export cannot be written to {out}: {error.message}") from error

"""A SavedModel: written with its warm-up requests, and loaded into a session as TF Serving does."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import meta_graph_pb2
from tensorflow_serving.apis import predict_pb2, prediction_log_pb2

from sat_tf.util.files import literal_path
from serving.versions import WARM_UP_FILE

MODEL_NAME = "captioner"
"""The name under which callers ask for a captioner, unless its server has another."""


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
    with writing_errors(folder.parent):
        archive.write_out(str(folder), verbose=False)
    return traced


def write_warmup(folder: Path, signatures: Sequence[Signature], image_size: int) -> None:
    """Writes requests into a draft, which TF Serving runs before it lets clients at the version.

    The first call of each set of outputs costs a few hundred milliseconds, so each has a record:
    an image of a colour gradient.

    Raises:
        OSError: They cannot be written.
    """
    path = folder / WARM_UP_FILE
    path.parent.mkdir(exist_ok=True)
    ramp = tf.linspace(0.0, 255.0, image_size)
    image = tf.stack([*tf.meshgrid(ramp, ramp), tf.zeros([image_size, image_size])], axis=-1)
    image = tf.cast(image, tf.uint8)
    with writing_errors(folder.parent), tf.io.TFRecordWriter(str(path)) as writer:
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
def writing_errors(out: Path) -> Iterator[None]:
    """Raises TensorFlow's errors of files that cannot be written below `out` as an `OSError`.

    For writing alone: tracing a model raises the same types, for want of memory for example.
    """
    try:
        yield
    except tf.errors.OpError as error:
        raise OSError(f"The export cannot be written to {out}: {error.message}") from error


def load_session(
    path: Path, threads: int = 0
) -> tuple[tf.compat.v1.Session, meta_graph_pb2.MetaGraphDef]:
    """Loads a version of an export into a session of its own.

    Args:
        path: The version's folder.
        threads: Threads within an operation, and operations at a time; 0 leaves it to TensorFlow.

    Returns:
        The session, for its user to close, and the graph with its signatures.

    Raises:
        Exception: The folder is not a SavedModel with the tag `serve`; TensorFlow raises several
            types.
    """
    config = tf.compat.v1.ConfigProto(
        intra_op_parallelism_threads=threads, inter_op_parallelism_threads=threads
    )
    config.gpu_options.allow_growth = True
    session = tf.compat.v1.Session(graph=tf.Graph(), config=config)
    try:
        with session.graph.as_default(), literal_path(path) as folder:
            return session, tf.compat.v1.saved_model.load(session, ["serve"], str(folder))
    except BaseException:
        session.close()
        raise


def load_call(path: Path, threads: int = 0) -> Callable[..., dict[str, np.ndarray]]:
    """Loads a version for its signatures of one input, see `load_session`.

    Returns:
        `(signature, input, outputs) -> values by name`: of all outputs, or of those named that the
        signature has.
    """
    session, loaded = load_session(path, threads)
    session.graph.finalize()

    def call(name: str, value: np.ndarray, outputs: Collection[str] | None = None) -> dict:
        signature = loaded.signature_def[name]
        (feed,) = signature.inputs.values()
        known = signature.outputs.items()
        fetches = {key: x.name for key, x in known if outputs is None or key in outputs}
        return session.run(fetches, {feed.name: value})

    return call

"""Warm-up requests, which TF Serving runs before it lets clients at a new version.

The first call of each set of outputs costs a few hundred milliseconds, so each has a record.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import tensorflow as tf
from tensorflow_serving.apis import predict_pb2, prediction_log_pb2

from serving.client.caption_client import CAPTION_OUTPUTS
from serving.signatures import SERVING_DEFAULT, Signature
from serving.versions import WARM_UP_FILE, writing_errors

MODEL_NAME = "captioner"

# The sets of outputs that clients ask for; the empty filter asks for all.
_OUTPUT_FILTERS: dict[str, tuple[tuple[str, ...], ...]] = {
    SERVING_DEFAULT: ((), CAPTION_OUTPUTS),
}


def write_warmup(version_dir: Path, signatures: list[Signature], image_size: int) -> None:
    """Writes the requests into a draft.

    Raises:
        OSError: They cannot be written.
    """
    path = version_dir / WARM_UP_FILE
    path.parent.mkdir(exist_ok=True)
    logs = [log for signature in signatures for log in _logs(signature, image_size)]
    with writing_errors(version_dir.parent), tf.io.TFRecordWriter(str(path)) as writer:
        for log in logs:
            writer.write(log.SerializeToString())


def _logs(signature: Signature, image_size: int) -> Iterator[prediction_log_pb2.PredictionLog]:
    for outputs in _OUTPUT_FILTERS.get(signature.name, ((),)):
        request = predict_pb2.PredictRequest(output_filter=outputs)
        request.model_spec.name = MODEL_NAME
        request.model_spec.signature_name = signature.name
        request.inputs[signature.input.name].CopyFrom(_example(signature.input, image_size))
        yield prediction_log_pb2.PredictionLog(
            predict_log=prediction_log_pb2.PredictLog(request=request)
        )


def _example(spec: tf.TensorSpec, size: int):
    """A batch of one image, a colour gradient, as a `TensorProto`."""
    ramp = tf.linspace(0.0, 255.0, size)
    image = tf.stack([*tf.meshgrid(ramp, ramp), tf.zeros([size, size])], axis=-1)
    image = tf.cast(image, tf.uint8)
    if spec.dtype == tf.string:
        image = tf.io.encode_jpeg(image)
    return tf.make_tensor_proto(image[tf.newaxis].numpy(), spec.dtype)

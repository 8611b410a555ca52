"""SavedModels with the captioner's signature and nothing of the captioner, exported in a second."""

import os
import select
from pathlib import Path

import grpc
import tensorflow as tf
from tensorflow_serving.apis import get_model_status_pb2, predict_pb2, prediction_log_pb2

T, GRID = 4, 3
_IMAGES = (b"\xff\xd8", b"\x89P", b"ok", b"ho")
_MORE_THAN_A_PIPE_HOLDS = 2**18


class Toy(tf.Module):
    """Says "a cat N", where N is its number, for JPEG, PNG, `ok...` and `hold:PIPE` (`HeldCall`).

    Any other image is invalid; `explode...` fails the call with a long message, and `stuck` is
    answered never.
    """

    def __init__(self, number: int, attention: bool, grid: int, limits: bool) -> None:
        super().__init__()
        self.number, self.attention, self.grid = tf.Variable(number), attention, grid
        self.limits = limits

    def serve(self, image_bytes: tf.Tensor) -> dict[str, tf.Tensor]:
        image_bytes = tf.ensure_shape(image_bytes, [None])
        explodes = tf.strings.regex_full_match(image_bytes, b"explode.*")
        checked = tf.debugging.Assert(~tf.reduce_any(explodes), [image_bytes], summarize=10)
        with tf.control_dependencies([checked, _hold(image_bytes)]):
            start = tf.strings.substr(image_bytes, 0, 2)
        valid = tf.reduce_any(start[:, None] == tf.constant(_IMAGES), axis=1)
        best = tf.where(valid, tf.strings.join(["a cat ", tf.as_string(self.number)]), "")
        rows = tf.shape(image_bytes)[0]
        words = tf.where(valid, 3, 0)
        written = [["a", "cat", "", ""], ["a", "dog", "", ""]]
        written = tf.tensor_scatter_nd_update(written, [[0, 2]], tf.as_string(self.number)[None])
        outputs = {
            "captions": tf.stack([best, tf.where(valid, "a dog", "")], axis=1),
            "scores": tf.tile([[-0.5, -1.5]], [rows, 1]),
            "token_ids": tf.tile([[[4, 5, 6, 2], [4, 7, 2, 0]]], [rows, 1, 1]),
            "lengths": tf.stack([words, tf.where(valid, 2, 0)], axis=1),
            "words": tf.where(valid[:, None, None], written, ""),
            "valid": valid,
            "reasons": tf.where(valid, "", "not what a toy reads"),
        }
        if self.limits:
            outputs |= {"familiarity": tf.fill([rows], 0.01), "confidence": tf.fill([rows], 0.25)}
        if self.attention:
            mask = tf.sequence_mask(words, T, tf.float32)
            maps = tf.one_hot(tf.range(T), self.grid**2)  # word t looks at cell t
            maps = tf.reshape(mask[..., None] * maps, [-1, T, self.grid, self.grid])
            outputs |= {"attention": maps, "beta": 0.5 * mask, "word_log_probs": -0.25 * mask}
        return outputs


def _every_beam(resize: str):
    """A signature that tells clients how to fit photographs."""

    def every_beam(image_bytes: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"resize": tf.fill(tf.shape(image_bytes), resize)}

    return every_beam


def _brightness(pixels: tf.Tensor) -> dict[str, tf.Tensor]:
    """A second signature, of numbers."""
    return {"brightness": tf.reduce_mean(pixels, axis=[1, 2])}


def _hold(image_bytes: tf.Tensor) -> tf.Operation:
    """Writes to the pipes that the images name, which takes until they are read."""
    asked = tf.strings.regex_full_match(image_bytes, b"hold:.*")
    pipes = tf.strings.substr(tf.boolean_mask(image_bytes, asked), 5, -1)
    content = tf.strings.reduce_join(tf.repeat("x", _MORE_THAN_A_PIPE_HOLDS))

    def write(pipe: tf.Tensor) -> tf.Tensor:
        with tf.control_dependencies([tf.io.write_file(pipe, content)]):
            return tf.identity(pipe)

    stuck = tf.reduce_any(tf.equal(image_bytes, b"stuck"))
    return tf.group(tf.map_fn(write, pipes), tf.cond(stuck, _never, lambda: 0))


def _never() -> tf.Tensor:
    """Waits for a queue that stays empty, until the call's deadline."""
    queue = tf.raw_ops.FIFOQueueV2(component_types=[tf.int32], shapes=[[]])
    return tf.raw_ops.QueueDequeueV2(handle=queue, component_types=[tf.int32])[0]


class HeldCall:
    """Lets a test see that a call is in flight, and end it: no clock is needed for either.

    Args:
        folder: Takes the pipe.

    Attributes:
        image: The image to send.
    """

    def __init__(self, folder: Path) -> None:
        pipe = folder / "pipe"
        os.mkfifo(pipe)
        self.image = f"hold:{pipe}".encode()
        self._pipe = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)

    def wait_until_in_flight(self) -> None:
        assert select.select([self._pipe], [], [], 120.0)[0], "no call came"

    def release(self) -> None:
        os.set_blocking(self._pipe, True)
        while os.read(self._pipe, _MORE_THAN_A_PIPE_HOLDS):
            pass  # until the call has written all and closed

    def close(self) -> None:
        """Fails the call if it still writes."""
        os.close(self._pipe)


def export(
    folder: Path,
    version: int,
    attention: bool = True,
    grid: int = GRID,
    limits: bool = False,
    resize: str = "crop",
) -> Path:
    """Writes a toy as this version into the folder; its captions say its version."""
    toy = Toy(version, attention, grid, limits)
    spec = tf.TensorSpec([None], tf.string, name="image_bytes")
    function = tf.function(toy.serve, input_signature=[spec], autograph=False)
    toy.function = function
    spec = tf.TensorSpec([None, 2, 2], tf.float32, name="pixels")
    brightness = tf.function(_brightness, input_signature=[spec], autograph=False)
    path = folder / str(version)
    spec = tf.TensorSpec([None], tf.string, name="image_bytes")
    every_beam = tf.function(_every_beam(resize), input_signature=[spec], autograph=False)
    signatures = {"serving_default": function, "brightness": brightness, "every_beam": every_beam}
    tf.saved_model.save(toy, str(path), signatures=signatures)
    return path


def predict_request(
    *images: bytes, model: str = "captioner", outputs: tuple[str, ...] = (), **spec
) -> predict_pb2.PredictRequest:
    """A request for captions; `spec` is `label`, `version` or `signature`."""
    request = predict_pb2.PredictRequest(output_filter=outputs)
    request.model_spec.name = model
    if "version" in spec:
        request.model_spec.version.value = spec["version"]
    if "label" in spec:
        request.model_spec.version_label = spec["label"]
    request.model_spec.signature_name = spec.get("signature", "")
    request.inputs["image_bytes"].CopyFrom(tf.make_tensor_proto(list(images), tf.string))
    return request


def status_request(model: str = "captioner", **spec):
    request = get_model_status_pb2.GetModelStatusRequest()
    request.model_spec.CopyFrom(predict_request(model=model, **spec).model_spec)
    return request


def caption_of(response: predict_pb2.PredictResponse) -> str:
    """The best caption of the first image."""
    return tf.make_ndarray(response.outputs["captions"])[0, 0].decode()


def is_healthy(channel: grpc.Channel, service: str = "") -> bool:
    """Asks as the standard's stubs do: a field with the name, and an enumeration of 1 and 2."""
    name = b"\x0a" + bytes([len(service)]) + service.encode() if service else b""
    answer = channel.unary_unary("/grpc.health.v1.Health/Check")(name, timeout=120)
    return {b"\x08\x01": True, b"\x08\x02": False}[answer]


def write_warm_up(version: Path, *requests: predict_pb2.PredictRequest) -> None:
    """Adds warm-up requests to an exported version."""
    folder = version / "assets.extra"
    folder.mkdir()
    with tf.io.TFRecordWriter(str(folder / "tf_serving_warmup_requests")) as writer:
        for request in requests:
            log = prediction_log_pb2.PredictionLog()
            log.predict_log.request.CopyFrom(request)
            writer.write(log.SerializeToString())

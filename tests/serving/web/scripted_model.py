"""A model server that answers what a test wants."""

import contextlib
from collections.abc import Iterator
from concurrent import futures
from dataclasses import dataclass

import grpc
import numpy as np
import tensorflow as tf

from serving.client.channel import PREDICT, PredictRequest, PredictResponse

GRID = (3, 3)
WORDS = (("a", "dog", "runs"), ("a", "cat"))
PLACES = ((0, 0), (1, 1), (2, 2))  # where each word looks, in either hypothesis


@dataclass
class ScriptedModel:
    """Captions everything but text as "a dog runs".

    Attributes:
        kind: `soft`, `hard` or `none`.
        resize: `crop` or `squash`.
    """

    kind: str = "soft"
    resize: str = "crop"

    def predict(self, request, _) -> PredictResponse:
        """Answers one request for every hypothesis."""
        assert request.model_spec.signature_name == "every_beam"
        (content,) = request.inputs["image_bytes"].string_val
        outputs = self._outputs(valid=not content.startswith(b"text"))
        response = PredictResponse()
        response.model_spec.version.value = 1
        for name, value in outputs.items():
            write_tensor(response.outputs[name], value)
        return response

    def _outputs(self, valid: bool) -> dict:
        count = len(WORDS)
        lengths = [len(words) * valid for words in WORDS]
        outputs = {
            "captions": [[" ".join(words) if valid else "" for words in WORDS]],
            "scores": np.array([[-1.0, -2.0]], np.float32),
            "lengths": np.array([lengths], np.int32),
            "words": [
                [[*words, *[""] * (4 - len(words))] if valid else [""] * 4 for words in WORDS]
            ],
            "valid": np.array([valid]),
            "reasons": ["" if valid else "the bytes are no image"],
            "word_log_probs": np.full([1, count, 4], np.log(0.5), np.float32),
            "language": ["de"],
            "attention_kind": [self.kind],
            "resize": [self.resize],
        }
        if self.kind != "none":
            maps = np.full([1, count, 4, *GRID], 0.02, np.float32)
            for hypothesis, order in enumerate((PLACES, PLACES[::-1])):
                for word, place in enumerate(order):
                    maps[(0, hypothesis, word, *place)] = 0.84
            outputs |= {"attention": maps, "beta": np.full([1, count, 4], 0.5, np.float32)}
        return outputs


def write_tensor(tensor, value) -> None:
    """Writes an array, or lists of texts, into a tensor of a response."""
    tensor.ParseFromString(tf.make_tensor_proto(value).SerializeToString())


@contextlib.contextmanager
def serve(model, port: int = 0, credentials: grpc.ServerCredentials | None = None) -> Iterator[int]:
    """Serves a scripted model inside the `with`; yields its port."""
    method = grpc.unary_unary_rpc_method_handler(
        model.predict, PredictRequest.FromString, PredictResponse.SerializeToString
    )
    service, _, name = PREDICT.strip("/").partition("/")
    server = grpc.server(futures.ThreadPoolExecutor(4), options=[("grpc.so_reuseport", 0)])
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(service, {name: method})])
    address = f"127.0.0.1:{port}"
    if credentials is None:
        bound = server.add_insecure_port(address)
    else:
        bound = server.add_secure_port(address, credentials)
    server.start()
    try:
        yield bound
    finally:
        server.stop(None).wait()

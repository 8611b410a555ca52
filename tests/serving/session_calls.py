"""Calls exports as TF Serving does: through the C++ session, in a process without the project.

Run as a script: `session_calls.py REQUESTS.json ANSWERS.json`. It imports TensorFlow and NumPy
alone. Inputs are `{"bytes": [base64, ...]}` or `{"pixels": nested list}`, of the shape beside them.
"""

import base64
import json
import sys

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import config_pb2


def load(folder: str):
    """A session with the SavedModel inside, and its meta graph."""
    session = tf.compat.v1.Session(graph=tf.Graph())
    with session.graph.as_default():
        meta_graph = tf.compat.v1.saved_model.load(session, ["serve"], folder)
    return session, meta_graph


def unknown_operations(graph) -> list[str]:
    """Operations that are not among plain TensorFlow's public ones."""
    nodes = [*graph.node, *(node for f in graph.library.function for node in f.node_def)]
    functions = {f.signature.name for f in graph.library.function}
    return sorted({n.op for n in nodes if not hasattr(tf.raw_ops, n.op)} - functions)


class Caller:
    """Calls of one export; each set of outputs is compiled once, which takes seconds."""

    def __init__(self, session, signatures) -> None:
        self._session, self._signatures = session, signatures
        self._functions: dict[tuple, object] = {}

    def __call__(self, request: dict) -> dict:
        """The outputs by name, or the error's name and message."""
        signature = self._signatures[request["signature"]]
        names = tuple(request["outputs"] or signature.outputs)
        key = (request["signature"], names)
        if key not in self._functions:
            self._functions[key] = self._compile(signature, names)
        try:
            outputs = self._functions[key](_input(request))
        except tf.errors.OpError as error:
            return {"error": type(error).__name__, "message": error.message}
        return {name: _plain(value) for name, value in zip(names, outputs, strict=True)}

    def _compile(self, signature, names: tuple[str, ...]):
        (feed,) = (info.name for info in signature.inputs.values())
        # Like TF Serving, this leaves it to the graph to judge the feed. It is private: all that is
        # public, `make_callable` included, goes through `session.run`, which refuses a feed of
        # another rank than the placeholder's by itself.
        options = config_pb2.CallableOptions(
            feed=[feed], fetch=[signature.outputs[name].name for name in names]
        )
        return self._session._make_callable_from_options(options)


def _input(request: dict):
    value, shape = request["input"], request["shape"]
    if "pixels" in value:
        return np.array(value["pixels"], np.uint8).reshape(shape)
    content = [base64.b64decode(text) for text in value["bytes"]]
    return np.array(content, object).reshape(shape)


def _plain(value: np.ndarray):
    if value.dtype == object:
        value = np.vectorize(bytes.decode, otypes=[object])(value)
    return value.tolist()


def main(requests_path: str, answers_path: str) -> None:
    """Answer all requests of all exports."""
    with open(requests_path) as file:
        exports = json.load(file)
    answers = {}
    for name, export in exports.items():
        session, meta_graph = load(export["folder"])
        call = Caller(session, meta_graph.signature_def)
        answers[name] = {
            "unknown_operations": unknown_operations(meta_graph.graph_def),
            "calls": {key: call(request) for key, request in export["calls"].items()},
        }
    ours = {"sat_tf", "training", "serving"}
    answers["imported"] = sorted(ours & {name.split(".")[0] for name in sys.modules})
    with open(answers_path, "w") as file:
        json.dump(answers, file, allow_nan=False)


if __name__ == "__main__":
    main(*sys.argv[1:])

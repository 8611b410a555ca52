"""TF Serving's own models and cases against the local server (`SAT_TF_TEST_DATA/conformance`)."""

import json
from pathlib import Path

import pytest
import tensorflow as tf
from tensorflow_serving.apis import get_model_metadata_pb2, predict_pb2

# TF Serving's tests send the shape [1]; TensorFlow's session in Python, unlike the one in C++,
# refuses a shape that is not the placeholder's [-1, 1].
TWO = [[2.0]]


@pytest.fixture
def models(conformance) -> Path:
    """TF Serving's test data."""
    return conformance / "tf_serving"


@pytest.fixture
def served(models, serving):
    """Starts a server of one of the models, under the name `default`."""

    def start(name: str, **options):
        return serving(models / name, model="default", **options)

    return start


def request(inputs: dict | None = None, signature: str = "") -> predict_pb2.PredictRequest:
    made = predict_pb2.PredictRequest()
    made.model_spec.name = "default"
    made.model_spec.signature_name = signature
    for name, value in (inputs or {}).items():
        made.inputs[name].CopyFrom(tf.make_tensor_proto(value, tf.float32))
    return made


def value_of(caller, made: predict_pb2.PredictRequest, output: str = "y"):
    return tf.make_ndarray(caller.predict(made).outputs[output]).tolist()


@pytest.mark.parametrize(
    ("model", "y"), [("saved_model_half_plus_two_cpu", 3.0), ("saved_model_half_plus_three", 4.0)]
)
def test_predict_gives_the_value_that_tf_serving_expects(served, model, y):
    with served(model) as caller:
        assert value_of(caller, request({"x": TWO})) == [[y]]
        assert value_of(caller, request({"x": [[2.0], [4.0]]})) == [[y], [y + 1.0]]
        response = caller.predict(request({"x": TWO}))
        assert response.model_spec.version.value == 123
        assert response.model_spec.signature_name == "serving_default"


def test_metadata_is_that_of_tf_serving(served, models):
    expected = json.loads((models / "half_plus_two_model_metadata.json").read_text())
    asked = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
    asked.model_spec.name = "default"
    with served("saved_model_half_plus_two_cpu") as caller:
        response = caller.prediction.GetModelMetadata(asked, timeout=120)
    found = get_model_metadata_pb2.SignatureDefMap()
    assert response.metadata["signature_def"].Unpack(found)
    assert str(response.model_spec.version.value) == expected["model_spec"]["version"]
    for name, signature in expected["metadata"]["signature_def"]["signature_def"].items():
        given = found.signature_def[name]
        assert given.method_name == signature["method_name"]
        for side in ("inputs", "outputs"):
            tensors = {key: info["name"] for key, info in signature[side].items()}
            assert {key: info.name for key, info in getattr(given, side).items()} == tensors

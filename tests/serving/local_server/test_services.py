"""Answers of the services, over real gRPC."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import get_model_metadata_pb2, get_model_status_pb2

from tests.serving.toys import GRID, T, metadata_request, predict_request, status_request

AVAILABLE = get_model_status_pb2.ModelVersionStatus.AVAILABLE
OUTPUTS = {"attention", "beta", "captions", "lengths", "reasons", "scores", "token_ids", "valid"}
OUTPUTS |= {"word_log_probs"}


def test_every_output_comes_by_default(caller):
    response = caller.predict(predict_request(b"ok", b"nonsense"))
    values = {name: tf.make_ndarray(proto) for name, proto in response.outputs.items()}
    assert set(values) == OUTPUTS
    assert values["captions"].tolist() == [[b"a cat 3", b"a dog"], [b"", b""]]
    assert values["valid"].dtype == bool and values["valid"].tolist() == [True, False]
    assert values["lengths"].dtype == np.int32 and values["lengths"].tolist() == [[3, 2], [0, 0]]
    assert values["attention"].shape == (2, T, GRID, GRID)
    np.testing.assert_allclose(values["beta"], [[0.5, 0.5, 0.5, 0.0], [0.0] * 4])
    np.testing.assert_allclose(values["scores"], [[-0.5, -1.5]] * 2)


def test_the_output_filter_chooses(caller):
    response = caller.predict(predict_request(b"ok", outputs=("valid", "captions")))
    assert set(response.outputs) == {"valid", "captions"}


def test_no_images_give_no_rows(caller):
    response = caller.predict(predict_request())
    assert tf.make_ndarray(response.outputs["captions"]).shape == (0, 2)


@pytest.mark.parametrize(
    ("spec", "version"), [({}, 3), ({"version": 1}, 1), ({"label": "stable"}, 1)]
)
def test_the_answer_says_what_answered(caller, spec, version):
    response = caller.predict(predict_request(b"ok", **spec))
    assert response.model_spec.name == "captioner"
    assert response.model_spec.version.value == version
    assert response.model_spec.signature_name == "serving_default"
    assert caller.caption(**spec) == f"a cat {version}"


def test_metadata_holds_the_signatures(caller):
    response = caller.prediction.GetModelMetadata(metadata_request("signature_def"), timeout=120)
    assert response.model_spec.name == "captioner" and response.model_spec.version.value == 3
    signatures = get_model_metadata_pb2.SignatureDefMap()
    assert response.metadata["signature_def"].Unpack(signatures)
    signature = signatures.signature_def["serving_default"]
    assert list(signature.inputs) == ["image_bytes"]
    assert "captions" in signature.outputs


def test_status_lists_versions_newest_first(caller):
    response = caller.model.GetModelStatus(status_request(), timeout=120)
    assert [s.version for s in response.model_version_status] == [3, 1]
    assert {s.state for s in response.model_version_status} == {AVAILABLE}
    assert all(s.HasField("status") for s in response.model_version_status)


@pytest.mark.parametrize("spec", [{"version": 1}, {"label": "stable"}])
def test_status_of_one_version(caller, spec):
    (status,) = caller.model.GetModelStatus(
        status_request(**spec), timeout=120
    ).model_version_status
    assert (status.version, status.state) == (1, AVAILABLE)
    assert status.status.error_code == 0

"""TF Serving's own files: parsed as it parses them, and fitting each other."""

import dataclasses
import json
import re
import subprocess
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml
from google.protobuf import text_format
from tensorflow_serving.config import model_server_config_pb2

from serving.channel import build_messages
from serving.local_server import Arguments
from serving.model_server import MAX_ROWS
from tests.browser import served_folder

ROOT = Path(__file__).resolve().parents[2]
CONFIG = ROOT / "serving" / "config"
COMPOSE = ROOT / "serving" / "compose.yaml"

# Messages of tensorflow/serving that tensorflow-serving-api leaves out: (number, name, type).
NUMBER = "Int64Value"
MESSAGES = {
    NUMBER: [(1, "value", "INT64")],
    "BatchingParameters": [
        (1, "max_batch_size", NUMBER),
        (2, "batch_timeout_micros", NUMBER),
        (3, "max_enqueued_batches", NUMBER),
        (4, "num_batch_threads", NUMBER),
        (6, "allowed_batch_sizes", ["INT64"]),
        (7, "pad_variable_length_inputs", "BOOL"),
    ],
}


CLASSES = build_messages(MESSAGES, "tensorflow.serving")


def parse(name: str, message):
    return text_format.Parse((CONFIG / name).read_text("utf-8"), message)


@pytest.fixture(scope="module")
def batching():
    return parse("batching.config", CLASSES["BatchingParameters"]())


@pytest.fixture(scope="module")
def services() -> dict[str, dict]:
    return yaml.safe_load(COMPOSE.read_text("utf-8"))["services"]


def test_the_model_is_the_one_that_clients_ask_for():
    parsed = parse("models.config", model_server_config_pb2.ModelServerConfig())
    (model,) = parsed.model_config_list.config
    defaults = {field.name: field.default for field in dataclasses.fields(Arguments)}
    assert model.name == defaults["model"] and model.model_platform == "tensorflow"
    assert dict(model.version_labels) == {"stable": 1, "canary": 1}
    assert model.model_version_policy.latest.num_versions == 2


def test_batching_leaves_out_what_lets_a_caller_end_the_process(batching):
    assert not batching.allowed_batch_sizes and not batching.pad_variable_length_inputs
    assert batching.num_batch_threads.value >= 1 and batching.max_enqueued_batches.value >= 1


def test_the_local_server_takes_as_many_images_as_the_real_one(batching):
    assert batching.max_batch_size.value == MAX_ROWS


def test_compose_mounts_what_it_names(services):
    assert set(services) == {"cpu", "gpu"}
    for service in services.values():
        flags = dict(flag.removeprefix("--").split("=") for flag in service["command"])
        files = [value for value in flags.values() if value.startswith("/config/")]
        assert len(files) == 3
        for file in files:
            assert (CONFIG / Path(file).name).is_file()
        mounts = [volume.rsplit(":", 2)[1:] for volume in service["volumes"]]
        assert mounts == [["/models/captioner", "ro"], ["/config", "ro"]]
        assert [port.split(":")[1:] for port in service["ports"]] == [
            [flags["port"]] * 2,
            [flags["rest_api_port"]] * 2,
        ]
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])


@pytest.mark.parametrize(
    ("state", "error_code", "healthy"),
    [("AVAILABLE", "OK", True), ("LOADING", "OK", False), ("END", "UNAVAILABLE", False)],
)
def test_healthy_is_when_a_version_is_available(services, tmp_path, state, error_code, healthy):
    status = {"error_code": error_code, "error_message": ""}
    answer = {"model_version_status": [{"version": "1", "state": state, "status": status}]}
    (tmp_path / "v1" / "models").mkdir(parents=True)
    (tmp_path / "v1" / "models" / "captioner").write_text(json.dumps(answer, indent=1))
    kind, *command = services["cpu"]["healthcheck"]["test"]
    with served_folder(tmp_path / "v1") as address:
        port = urlsplit(address).port
        command = [word.replace("127.0.0.1/8501", f"127.0.0.1/{port}") for word in command]
        assert kind == "CMD" and str(port) in command[-1]
        assert (subprocess.run(command, timeout=300).returncode == 0) is healthy


def test_the_image_can_be_chosen_and_reads_the_exports_of_the_oldest_tensorflow(services):
    image = r"tensorflow/serving:\$\{TF_SERVING_VERSION:-(\d+\.\d+)\.\d+\}"
    (default,) = re.fullmatch(image, services["cpu"]["image"]).groups()
    requirements = (ROOT / "requirements.txt").read_text("utf-8")
    (oldest,) = re.findall(r"^tensorflow>=([\d.]+),", requirements, flags=re.M)
    assert default == oldest

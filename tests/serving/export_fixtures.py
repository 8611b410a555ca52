"""Tiny runs, exported once, and the answers of a process without the project."""

import base64
import functools
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import keras
import numpy as np
import pytest
import tensorflow as tf
from PIL import Image
from tensorflow_serving.apis import prediction_log_pb2

import sat_tf
from sat_tf import weights
from sat_tf.captioner import Captioner
from sat_tf.config import CaptionerConfig
from sat_tf.fields import from_dict, to_dict
from sat_tf.run_folder import RunFolder
from sat_tf.trained import runs
from sat_tf.vocabulary import Vocabulary
from serving import export as export_module
from serving.versions import WARM_UP_FILE
from tests.built_once import built_once
from tests.image_files import encode, smooth

CAPTIONS = ["a red dog über two blue dots", "the naïve cat sat near a box of green tea"]
KINDS = {kind: {"kind": kind} for kind in ("soft", "hard", "none")}
KINDS["hard"]["inference"] = "argmax"
BATCHES = (1, 7)


@dataclass(frozen=True)
class Exported:
    """A run of one kind and its export, each made once asked for; `none` writes characters."""

    factory: pytest.TempPathFactory
    kind: str

    @functools.cached_property
    def captioner(self) -> runs.TrainedCaptioner:
        unit = "characters" if self.kind == "none" else "words"
        return sat_tf.load(write_run(self.factory.mktemp("run") / "run", KINDS[self.kind], unit))

    @functools.cached_property
    def version(self) -> Path:
        folder = built_once(
            self.factory,
            f"export-{self.kind}",
            lambda folder: export_module.export(self.captioner, folder / self.kind),
        )
        return folder / self.kind / "1"


def write_run(
    folder: Path,
    attention: dict,
    unit: str = "words",
    encoder: dict | None = None,
    vocabulary: Vocabulary | None = None,
):
    """The folder of a finished run whose random weights tell images apart."""
    decoder = {"embedding_dim": 8, "attention_dim": 8, "hidden_dim": 16}
    search = {"beam": 3, "max_length": 6, "length_power": 0.7}
    if attention["kind"] == "hard":  # so that one of the kinds has the layer, and consensus
        decoder["bottleneck_dim"] = 12
        search["consensus"] = 3.0
    if attention["kind"] == "none":
        search |= {"min_length": 4, "no_repeat_ngram": 2}
    values = {
        "encoder": encoder or {"name": "scenes_cnn", "image_size": 32},
        "decoder": decoder,
        "attention": attention,
        "search": search,
    }
    config = from_dict(CaptionerConfig, values)
    vocabulary = vocabulary or Vocabulary.from_captions(CAPTIONS, 1, unit=unit, language="en")
    folder.mkdir(parents=True)
    RunFolder(folder).config.write_text(json.dumps(to_dict(config)))
    vocabulary.save(RunFolder(folder).vocabulary)
    keras.utils.set_random_seed(1)
    model = Captioner(config, len(vocabulary), load_encoder_weights=False)
    for variable in model.decoder.trainable_variables:
        if len(variable.shape) == 2:
            variable.assign(variable * 4.0)
    weights.save_weights(model, RunFolder(folder).best_weights)
    return folder


def good_images() -> dict[str, bytes]:
    """Every format that is read."""
    colour = smooth()
    deep = np.asarray(colour.convert("L")).astype(np.uint16) * 257
    return {
        "jpeg": encode(colour, "JPEG"),
        "jpeg_grey": encode(colour.convert("L"), "JPEG"),
        "jpeg_cmyk": encode(colour.convert("CMYK"), "JPEG"),
        "jpeg_progressive": encode(colour, "JPEG", progressive=True),
        "png": encode(colour, "PNG"),
        "png_palette": encode(colour.convert("P"), "PNG"),
        "png_alpha": encode(colour.convert("RGBA"), "PNG"),
        "png_16_bit": encode(Image.fromarray(deep), "PNG"),
        "gif": encode(colour, "GIF"),
        "gif_animated": encode(colour, "GIF", save_all=True, append_images=[smooth(seed=1)]),
        "bmp": encode(colour, "BMP"),
        "webp": encode(colour, "WEBP"),
    }


def bad_images() -> dict[str, bytes]:
    """Files to be refused without harm to others."""
    png = encode(smooth(), "PNG")
    return {
        "empty": b"",
        "text": b"no image at all",
        "cut": encode(smooth(), "JPEG")[:200],
        "flipped": png[:60] + bytes(255 - byte for byte in png[60:]),
        "huge": encode(Image.new("1", (1, 2**15 + 1)), "PNG"),
        "tiff": encode(smooth(), "TIFF"),
    }


def request(signature: str, images: list[bytes] | np.ndarray, outputs=(), shape=None) -> dict:
    """A call for `session_calls`."""
    if isinstance(images, np.ndarray):
        value, shape = {"pixels": images.tolist()}, shape or images.shape
    else:
        value = {"bytes": [base64.b64encode(content).decode() for content in images]}
        shape = shape or [len(images)]
    return {"signature": signature, "input": value, "shape": shape, "outputs": list(outputs)}


def calls_of() -> dict[str, dict]:
    """Everything an export is asked."""
    files = [encode(smooth(seed=n), "PNG") for n in range(max(BATCHES))]
    frames = np.stack([np.asarray(smooth(seed=n)) for n in range(max(BATCHES))])
    signatures = ["serving_default", "pixels", "every_beam"]
    calls = {
        f"{name}_{size}": request(name, frames[:size] if name == "pixels" else files[:size])
        for name in signatures
        for size in BATCHES
    }
    mixed = [
        content for pair in zip(files, bad_images().values(), strict=False) for content in pair
    ]
    calls["mixed"] = request("serving_default", mixed)
    calls["formats"] = request("serving_default", list(good_images().values()))
    calls["captions_only"] = request("serving_default", files[:2], ["captions"])
    calls["all_bad"] = request("serving_default", list(bad_images().values()))
    calls["no_images"] = request("serving_default", [])
    calls["no_pixels"] = request("pixels", np.zeros([0, 8, 8, 3], np.uint8))
    calls["no_height"] = request("pixels", np.zeros([1, 0, 8, 3], np.uint8))
    calls["long_strip"] = request("pixels", np.zeros([1, 1, 2**15 + 1, 3], np.uint8))
    calls["two_axes"] = request("serving_default", files[:2], shape=[1, 2])
    return calls


def warm_up_calls(version: Path) -> dict[str, dict]:
    """The requests of an export's warm-up file."""
    calls = {}
    for record in tf.data.TFRecordDataset(str(version / WARM_UP_FILE)).as_numpy_iterator():
        log = prediction_log_pb2.PredictionLog.FromString(record)
        assert log.WhichOneof("log_type") == "predict_log"
        sent = log.predict_log.request
        ((name, proto),) = sent.inputs.items()
        value = tf.make_ndarray(proto)
        value = list(value) if name == "image_bytes" else value
        asked = request(sent.model_spec.signature_name, value, sent.output_filter)
        calls[f"warm_up_{len(calls)}"] = asked
    return calls


@pytest.fixture(scope="session")
def make_run():
    """`write_run`, for tests that need their own."""
    return write_run


@pytest.fixture(scope="session")
def make_request():
    """`request`, for tests with calls of their own."""
    return request


@pytest.fixture(scope="session")
def exports(tmp_path_factory) -> dict[str, Exported]:
    """A run of each kind, with its export."""
    return {kind: Exported(tmp_path_factory, kind) for kind in KINDS}


@pytest.fixture(scope="session")
def ask(tmp_path_factory):
    """Runs `session_calls` once: `{name: (folder, calls)} -> answers`."""

    def ask(exports: dict[str, tuple[Path, dict]]) -> dict:
        folder = tmp_path_factory.mktemp("calls")
        asked = {k: {"folder": str(path), "calls": calls} for k, (path, calls) in exports.items()}
        (folder / "requests.json").write_text(json.dumps(asked))
        script = Path(__file__).with_name("session_calls.py")
        environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONPATH": ""}
        command = [sys.executable, script, "requests.json", "answers.json"]
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return json.loads((folder / "answers.json").read_text())

    return ask


@pytest.fixture(scope="session")
def answers(exports, ask, tmp_path_factory) -> Callable[[str], dict]:
    """Answers of a process without the project to `calls_of` and the warm-up, of one kind."""

    @functools.cache
    def answers(kind: str) -> dict:
        def write(folder: Path) -> None:
            calls = calls_of() | warm_up_calls(exports[kind].version)
            found = ask({kind: (exports[kind].version, calls)})
            found = found[kind] | {"imported": found["imported"]}
            (folder / "answers.json").write_text(json.dumps(found))

        folder = built_once(tmp_path_factory, f"answers-{kind}", write)
        return json.loads((folder / "answers.json").read_text())

    return answers


@pytest.fixture(scope="session")
def images():
    """The files that `calls_of` sends."""
    files = [encode(smooth(seed=n), "PNG") for n in range(max(BATCHES))]
    return SimpleNamespace(files=files, good=good_images(), bad=bad_images())


@pytest.fixture(scope="session")
def litert_exports(exports, tmp_path_factory) -> Callable[[str], Path]:
    """The LiteRT export of a kind of run in float32, or of the soft one in `float16` or `int8`."""

    @functools.cache
    def made(name: str) -> Path:
        kind, precision = (name, "float32") if name in exports else ("soft", name)
        captioner = exports[kind].captioner
        folder = built_once(
            tmp_path_factory,
            f"litert-{name}",
            lambda folder: export_module.export(captioner, folder, None, "litert", precision),
        )
        return folder / "1"

    return made

"""Tiny runs, exported once, and the answers of their exports."""

import functools
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image
from tensorflow_serving.apis import prediction_log_pb2

import sat_tf
from sat_tf.inference.captioning import TrainedCaptioner
from sat_tf.inference.graphs import write_graphs
from sat_tf.text.vocabulary import Vocabulary
from sat_tf.util.files import literal_path
from serving import export_saved_model
from serving.versions import WARM_UP_FILE
from tests.built_once import built_once
from tests.image_files import encode, smooth
from tests.sat_tf.tiny_runs import write_random

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
    def captioner(self) -> TrainedCaptioner:
        unit = "characters" if self.kind == "none" else "words"
        return sat_tf.load(write_run(self.factory.mktemp("run") / "run", KINDS[self.kind], unit))

    @functools.cached_property
    def version(self) -> Path:
        folder = built_once(
            self.factory,
            f"export-{self.kind}",
            lambda folder: export_saved_model.export(self.captioner, folder / self.kind),
        )
        return folder / self.kind / "1"

    @functools.cached_property
    def call(self) -> Callable[..., dict[str, np.ndarray]]:
        """Calls the export as TF Serving does, see `load_call`."""
        return load_call(self.version)


def write_run(
    folder: Path,
    attention: dict,
    unit: str = "words",
    encoder: dict | None = None,
    vocabulary: Vocabulary | None = None,
):
    """The folder of a finished run with random weights that distinguish images."""
    decoder = {"embedding_dim": 8, "attention_dim": 8, "hidden_dim": 16}
    search = {"beam": 3, "max_length": 6, "length_power": 0.7}
    if attention["kind"] == "hard":  # so that one of the kinds has the layer, and consensus
        decoder["bottleneck_dim"] = 12
        search["consensus"] = 3.0
    if attention["kind"] == "none":
        search |= {"no_repeat_ngram": 2}
    values = {
        "encoder": encoder or {"name": "scenes_cnn", "image_size": 32},
        "decoder": decoder,
        "attention": attention,
        "search": search,
    }
    vocabulary = vocabulary or Vocabulary.from_captions(CAPTIONS, 1, unit=unit, language="en")
    return write_random(folder, values, vocabulary, scale=4.0)


def good_images() -> dict[str, bytes]:
    """Every format that the graph reads."""
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
        "webp": encode(smooth(), "WEBP"),
    }


def files_of(count: int) -> list[bytes]:
    """Different images."""
    return [encode(smooth(seed=n), "PNG") for n in range(count)]


def calls_of() -> dict[str, tuple[str, np.ndarray]]:
    """Everything an export is asked: signatures and their inputs."""
    files = files_of(max(BATCHES))
    frames = np.stack([np.asarray(smooth(seed=n)) for n in range(max(BATCHES))])
    calls = {}
    for size in BATCHES:
        calls[f"serving_default_{size}"] = ("serving_default", files[:size])
        calls[f"every_beam_{size}"] = ("every_beam", files[:size])
        calls[f"pixels_{size}"] = ("pixels", frames[:size])
    bad = bad_images().values()
    mixed = [content for pair in zip(files, bad, strict=False) for content in pair]
    calls["mixed"] = ("serving_default", mixed)
    calls["formats"] = ("serving_default", list(good_images().values()))
    calls["all_bad"] = ("serving_default", list(bad))
    calls["no_images"] = ("serving_default", [])
    calls["no_pixels"] = ("pixels", np.zeros([0, 8, 8, 3], np.uint8))
    calls["no_height"] = ("pixels", np.zeros([1, 0, 8, 3], np.uint8))
    calls["long_strip"] = ("pixels", np.zeros([1, 1, 2**15 + 1, 3], np.uint8))
    return {
        name: (signature, np.array(value, object) if isinstance(value, list) else value)
        for name, (signature, value) in calls.items()
    }


def warm_up_calls(version: Path) -> list[tuple[str, np.ndarray, tuple[str, ...]]]:
    """The requests of an export's warm-up file: signatures, inputs and filters."""
    calls = []
    for record in tf.data.TFRecordDataset(str(version / WARM_UP_FILE)).as_numpy_iterator():
        log = prediction_log_pb2.PredictionLog.FromString(record)
        assert log.WhichOneof("log_type") == "predict_log"
        sent = log.predict_log.request
        (proto,) = sent.inputs.values()
        filters = tuple(sent.output_filter)
        calls.append((sent.model_spec.signature_name, tf.make_ndarray(proto), filters))
    return calls


def load_call(version: Path) -> Callable[..., dict[str, np.ndarray]]:
    """Loads a version into a C++ session: `(signature, input, outputs) -> values by name`."""
    session = tf.compat.v1.Session(graph=tf.Graph())
    with session.graph.as_default(), literal_path(version) as folder:
        loaded = tf.compat.v1.saved_model.load(session, ["serve"], str(folder))

    def call(name: str, value: np.ndarray, outputs: Collection[str] | None = None) -> dict:
        signature = loaded.signature_def[name]
        (feed,) = signature.inputs.values()
        known = signature.outputs.items()
        fetches = {key: x.name for key, x in known if outputs is None or key in outputs}
        return session.run(fetches, {feed.name: value})

    return call


def texts_of(value: np.ndarray) -> np.ndarray | list:
    """An output, with texts as `str`."""
    if value.dtype != object:
        return value
    return np.vectorize(bytes.decode, otypes=[object])(value).tolist()


@pytest.fixture(scope="session")
def exports(tmp_path_factory) -> dict[str, Exported]:
    """A run of each kind, with its export."""
    return {kind: Exported(tmp_path_factory, kind) for kind in KINDS}


@pytest.fixture(scope="session")
def answers(exports) -> Callable[[str, str], dict]:
    """Answers of an export of a kind, in TensorFlow's C++ session, to one of `calls_of`."""
    calls = calls_of()

    @functools.cache
    def answers(kind: str, name: str) -> dict:
        return {k: texts_of(value) for k, value in exports[kind].call(*calls[name]).items()}

    return answers


@pytest.fixture(scope="session")
def images():
    """The files that `calls_of` sends."""
    return SimpleNamespace(files=files_of(max(BATCHES)), good=good_images(), bad=bad_images())


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
            lambda folder: write_graphs(folder / "graphs", captioner, precision),
        )
        return folder / "graphs"

    return made

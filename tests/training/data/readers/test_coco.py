"""COCO through TensorFlow Datasets: a small substitute is prepared and read by number."""

import io

import numpy as np
import pytest
import tensorflow_datasets as tfds
from PIL import Image

from tests.image_files import encode
from training.data.examples import DataError, StoredImage
from training.data.readers import coco, load_split
from training.run.config import DataConfig

COUNTS = {"train": 5, "val": 2, "test": 2, "restval": 3}


def name_of(part: str, number: int) -> str:
    return f"COCO_{part}_{number:012d}.jpg"


def jpeg(part: str, number: int) -> bytes:
    """A different image for each."""
    pixels = np.random.default_rng([len(part), number]).integers(0, 256, [40, 50, 3], np.uint8)
    return encode(Image.fromarray(pixels), "JPEG")


class StandIn(tfds.core.GeneratorBasedBuilder):
    """The features of `coco_captions` that are read, and its four parts."""

    VERSION = tfds.core.Version("1.0.0")

    def _info(self):
        features = {
            "image": tfds.features.Image(encoding_format="jpeg"),
            "image/filename": tfds.features.Text(),
            "image/id": np.int64,
            "captions": tfds.features.Sequence({"text": np.str_, "id": np.int64}),
        }
        features = tfds.features.FeaturesDict(features)
        return tfds.core.DatasetInfo(builder=self, features=features)

    def _split_generators(self, dl_manager):
        return {part: self._generate_examples(part) for part in COUNTS}

    def _generate_examples(self, part):
        for number in range(COUNTS[part]):
            texts = [f"Träge\tdogs {number}.", "A dog 🐕"]
            yield (
                number,
                {
                    "image": io.BytesIO(jpeg(part, number)),
                    "image/filename": name_of(part, number),
                    "image/id": number,
                    "captions": [{"text": text, "id": k} for k, text in enumerate(texts)],
                },
            )


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    """Folder of the substitute, prepared once."""
    return tmp_path_factory.mktemp("tfds")


@pytest.fixture(autouse=True)
def _stand_in(monkeypatch):
    def builder(name, data_dir):
        assert name == "coco_captions/2014"
        return StandIn(data_dir=data_dir)

    monkeypatch.setattr(tfds, "builder", builder)


def test_train_includes_restval_and_val_is_dev(data_dir):
    names = {
        split: {
            example.image_id
            for example in load_split(DataConfig("coco_captions"), split, data_dir).examples
        }
        for split in ("train", "dev", "test")
    }
    assert names["train"] == {name_of(p, n) for p in ("train", "restval") for n in range(COUNTS[p])}
    assert names["dev"] == {name_of("val", n) for n in range(2)}
    assert names["test"] == {name_of("test", n) for n in range(2)}
    assert len(load_split(DataConfig("coco_captions", limit=1), "train", data_dir)) == 1
    for example in coco.load("train", data_dir).examples:
        part, number = example.image_id[5:-4].rsplit("_", 1)
        assert isinstance(example.image, StoredImage)
        assert example.image.read_bytes() == jpeg(part, int(number))
        assert example.captions == (f"Träge\tdogs {int(number)}.", "A dog 🐕")


def test_captions_are_gathered_once(data_dir, monkeypatch):
    first = coco.load("test", data_dir)
    records = type(first.examples[0].image.source)
    with monkeypatch.context() as patch:
        patch.setattr(records, "__getitem__", lambda *_: pytest.fail("an image was read"))
        assert coco.load("test", data_dir).fingerprint() == first.fingerprint()
    path = next(data_dir.rglob("captions-test.json"))
    path.write_text("[]")
    assert coco.load("test", data_dir).fingerprint() == first.fingerprint()
    assert path.read_text() != "[]"


def test_a_copy_that_is_not_read_by_number_is_an_error_that_says_how_to_mend_it(tmp_path):
    StandIn(data_dir=tmp_path, file_format="tfrecord").download_and_prepare()
    with pytest.raises(DataError, match="cannot be read by number.*tfds convert_format"):
        coco.load("dev", tmp_path)


def test_no_network_is_an_error_that_says_what_is_needed(tmp_path, monkeypatch):
    def fail(self, file_format):
        raise tfds.download.DownloadError("no network")

    monkeypatch.setattr(StandIn, "download_and_prepare", fail)
    with pytest.raises(DataError, match="cannot be prepared.*no network.*`--data-dir`"):
        coco.load("dev", tmp_path)

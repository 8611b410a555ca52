"""The feature store: annotations of the right images, in a file that is never half written."""

import errno
import io
import json
import os
import tarfile
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sat_tf import images
from sat_tf.images import pillow
from sat_tf.layers.encoder import Encoder
from tests.image_files import exif_of
from training.data import feature_store
from training.data.config import DataConfig
from training.data.dataset import Dataset, identified
from training.data.examples import DataError, Example
from training.data.feature_store import FeatureStore, fingerprint
from training.data.image_loader import Views

SIZE = 16  # pixels: a 2 x 2 grid


def open_store(cache: Path, encoder: Encoder, examples: list[Example], **options) -> FeatureStore:
    return FeatureStore.open(cache, encoder, examples, **{"resize": "crop"} | options)


def arrays(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, [count, SIZE, SIZE, 3], np.uint8)


def drawn(count: int, seed: int = 0) -> list[Example]:
    return [Example(str(i), pixels, ()) for i, pixels in enumerate(arrays(count, seed))]


def files(folder: Path, count: int) -> list[Example]:
    folder.mkdir(exist_ok=True)
    examples = []
    for index, pixels in enumerate(arrays(count)):
        path = folder / f"{index}.png"
        Image.fromarray(pixels).save(path)
        examples.append(Example(path.name, path, ()))
    return examples


def expected(encoder: Encoder, pixels: np.ndarray) -> np.ndarray:
    return np.asarray(encoder(np.asarray(pixels, np.float32))).astype(np.float16)


def close(actual: np.ndarray, desired: np.ndarray) -> None:
    np.testing.assert_allclose(actual.astype("f4"), desired.astype("f4"), atol=2e-3, rtol=2e-3)


def before_each_batch(monkeypatch, act: Callable[[int], None]) -> None:
    """Calls `act` with the number of images before the encoder annotates a batch."""
    original = feature_store.compile_encoder

    def compile_encoder(encoder, batch_size):
        annotate = original(encoder, batch_size)

        def annotated(pixels):
            act(len(pixels))
            return annotate(pixels)

        return annotated

    monkeypatch.setattr(feature_store, "compile_encoder", compile_encoder)
    monkeypatch.setattr(feature_store, "default_batch_size", lambda: 3)
    monkeypatch.setattr(feature_store, "BLOCK", 4)


def raise_at_fourth(error: BaseException) -> Callable[[int], None]:
    """For `before_each_batch`: lets three batches pass."""
    calls = iter(range(3))

    def act(_: int) -> None:
        if next(calls, None) is None:
            raise error

    return act


@pytest.fixture
def encoder() -> Encoder:
    return Encoder("scenes_cnn", SIZE)


def seen_in(mirrored) -> Views:
    return Views(np.array(mirrored, bool), np.zeros([len(mirrored), 2]))


def test_annotations_are_those_of_the_encoder_in_any_order(tmp_path, encoder):
    store = open_store(tmp_path, encoder, drawn(10))
    assert not store.rotated and store.spec.shape.as_list() == [None, 4, 32]
    order = np.array([9, 0, 4, 3, 4, 7])
    read = store.read(order)
    assert read.dtype == np.float16 and read.shape == (6, 4, 32)
    close(read, expected(encoder, arrays(10)[order]))
    assert store.read(np.array([], int)).shape == (0, 4, 32)
    store = open_store(tmp_path, encoder, drawn(6), mirrored=True)
    pixels = arrays(6)
    flip = np.array([True, False, True, True, False, False])
    seen = np.where(flip[:, None, None, None], pixels[:, :, ::-1], pixels)
    close(store.read(np.arange(6), seen_in(flip)), expected(encoder, seen))
    close(store.read(np.arange(6)), expected(encoder, pixels))


def test_unreadable_images_are_skipped_with_the_reason(tmp_path, encoder):
    examples = files(tmp_path / "images", 9)
    broken = {1: b"", 4: b"\0\0\0\x18ftypheic", 7: examples[7].image.read_bytes()[:60]}
    for index, content in broken.items():
        examples[index].image.write_bytes(content)
    examples[8].image.unlink()
    store = open_store(tmp_path, encoder, examples, mirrored=True)
    assert sorted(store.skipped) == [1, 4, 7, 8]
    assert "empty" in store.skipped[1] and "No such file" in store.skipped[8]
    assert "HEIC" in store.skipped[4]
    assert all(reason and "\n" not in reason for reason in store.skipped.values())
    assert not store.read(np.array([1, 4, 7, 8]), seen_in([0, 1, 0, 1])).any()
    close(store.read(np.array([0, 5])), expected(encoder, arrays(9)[[0, 5]]))
    assert open_store(tmp_path, encoder, examples, mirrored=True).skipped == store.skipped


@pytest.mark.parametrize("change", ["vanish", "replace", "appear"])
def test_annotations_are_of_the_content_that_was_hashed(tmp_path, encoder, monkeypatch, change):
    examples = files(tmp_path / "images", 10)
    late = examples[8].image
    other = late.with_name("other.png")
    Image.fromarray(arrays(1, seed=9)[0]).save(other)
    content = late.read_bytes()
    if change == "appear":
        late.unlink()
    fill = feature_store.fill

    def changed_first(*given) -> None:
        late.unlink() if change == "vanish" else late.write_bytes(other.read_bytes())
        fill(*given)

    with monkeypatch.context() as patch:
        before_each_batch(patch, lambda count: None)
        patch.setattr(feature_store, "fill", changed_first)
        with pytest.raises(DataError, match=r"image '8.png' changed, vanished or appeared"):
            open_store(tmp_path, encoder, examples)
    late.write_bytes(content)
    sizes: list[int] = []
    before_each_batch(monkeypatch, sizes.append)
    store = open_store(tmp_path, encoder, examples)
    close(store.read(np.arange(10)), expected(encoder, arrays(10)))
    if change != "appear":  # then the store is of all ten images, six of which were done
        assert len(sizes) == 2


def test_two_tars_of_one_name_size_and_time_have_different_annotations(tmp_path, encoder):
    def read(name: str, seed: int) -> list[Example]:
        folder = tmp_path / name
        folder.mkdir()
        with tarfile.open(folder / "train.tar", "w") as tar:
            for index, pixels in enumerate(arrays(30, seed)):
                file = io.BytesIO()
                Image.fromarray(pixels).save(file, "PNG")
                for part, content in (("png", file.getvalue()), ("txt", b"A red thing.")):
                    member = tarfile.TarInfo(f"{index:03}.{part}")
                    member.size = len(content)
                    tar.addfile(member, io.BytesIO(content))
        os.utime(folder / "train.tar", (1e9, 1e9))
        config = DataConfig(name="folder", min_count=1)
        return Dataset.open(config, folder, tmp_path / "cache").split("train").examples

    first, second = read("one", 0), read("two", 1)
    assert all(len(example.sha256) == 64 for example in first)
    stores = [open_store(tmp_path / "cache", encoder, examples) for examples in (first, second)]
    for store, examples, seed in zip(stores, (first, second), (0, 1), strict=True):
        rows = [int(example.image_id[:3]) for example in examples]
        close(store.read(np.arange(len(rows))), expected(encoder, arrays(30, seed)[rows]))


def test_rotated_photographs_are_turned_upright_and_listed(tmp_path, encoder):
    examples = files(tmp_path / "images", 6)
    Image.fromarray(arrays(1)[0]).save(examples[5].image, exif=exif_of(6))
    store = open_store(tmp_path, encoder, examples)
    assert store.rotated == [5]
    (tmp_path / "upright").write_bytes(pillow.read_upright(examples[5].image.read_bytes()))
    upright = Example("upright", tmp_path / "upright", ("a",))
    turned = open_store(tmp_path, encoder, [upright])
    np.testing.assert_array_equal(store.read([5]), turned.read([0]))


def test_values_beyond_half_precision_are_clipped_and_nan_becomes_zero(tmp_path, encoder):
    scale, shift = encoder.weights[-2:]
    shift.assign(np.r_[1e6, np.nan, np.zeros(30)])
    scale.assign(np.zeros(scale.shape))
    read = open_store(tmp_path, encoder, drawn(2)).read(np.arange(2))
    np.testing.assert_array_equal(read[..., 0], np.float16(65504))
    assert not read[..., 1:].any()


def test_no_examples_or_a_trained_encoder_are_errors(tmp_path, encoder):
    with pytest.raises(DataError, match="`examples`: it is empty"):
        open_store(tmp_path, encoder, [])
    with pytest.raises(ValueError, match="--encoder.trainable"):
        open_store(tmp_path, Encoder("scenes_cnn", SIZE, trainable=True), drawn(2))


def identity_of(encoder, examples, cache, resize="crop", mirrored=False):
    return fingerprint(encoder, identified(examples, cache), resize, mirrored)


def test_the_fingerprint_follows_all_that_annotations_depend_on(tmp_path, monkeypatch):
    encoder, on_disk = Encoder("scenes_cnn", SIZE), files(tmp_path, 3)

    def identity(encoder=encoder, examples=on_disk, resize="crop", mirrored=False):
        return identity_of(encoder, examples, tmp_path, resize, mirrored)

    same = Encoder.from_config(encoder.get_config())
    assert identity(same) != identity()
    same.set_weights(encoder.get_weights())
    assert identity(same) == identity() == identity()
    others = [
        identity(Encoder("scenes_cnn", SIZE, tap="conv4")),
        identity(resize="squash"),
        identity(mirrored=True),
        identity(examples=on_disk[:2]),
        identity(examples=on_disk[::-1]),
        identity(examples=drawn(3)),
        identity(examples=drawn(3, seed=1)),
    ]
    before = identity()
    on_disk[1].image.write_bytes(on_disk[1].image.read_bytes() + b"\0")
    assert len({*others, before, identity()}) == len(others) + 2
    encoder = Encoder("scenes_cnn", SIZE)
    before = identity_of(encoder, drawn(1), tmp_path)
    monkeypatch.setattr(images, "VERSION", images.VERSION + 1)
    assert identity_of(encoder, drawn(1), tmp_path) != before


def test_a_finished_store_is_not_computed_again(tmp_path, encoder, monkeypatch):
    first = open_store(tmp_path, encoder, drawn(10))
    stamps = {path: path.stat().st_mtime_ns for path in first.path.parent.iterdir()}
    monkeypatch.setattr(feature_store, "compile_encoder", None)  # calling it would fail
    second = open_store(tmp_path, encoder, drawn(10))
    assert {path: path.stat().st_mtime_ns for path in second.path.parent.iterdir()} == stamps


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(errno.ENOSPC, "No space left")])
def test_an_interrupted_run_resumes_with_what_is_missing(tmp_path, encoder, monkeypatch, error):
    with monkeypatch.context() as patch:
        before_each_batch(patch, raise_at_fourth(error))
        with pytest.raises((KeyboardInterrupt, DataError)) as raised:
            open_store(tmp_path, encoder, drawn(13))
    if isinstance(error, OSError):
        assert "No room for the feature store" in str(raised.value)
        assert "--cache-dir" in str(raised.value)
    (notes,) = (tmp_path / "features").glob("*.json")
    assert json.loads(notes.read_text())["done"] == 6  # of nine written
    sizes: list[int] = []
    before_each_batch(monkeypatch, sizes.append)
    store = open_store(tmp_path, encoder, drawn(13))
    assert len(sizes) == 3  # 13 - 6 images, in batches padded to three
    close(store.read(np.arange(13)), expected(encoder, arrays(13)))


@pytest.mark.parametrize("damage", ["truncate", "lengthen", "remove", "notes", "no notes"])
def test_a_damaged_store_is_computed_again(tmp_path, encoder, damage):
    store = open_store(tmp_path, encoder, drawn(10))
    before, notes = store.path.read_bytes(), store.path.with_suffix(".json")
    match damage:
        case "truncate":
            os.truncate(store.path, 1001)
            with pytest.raises(DataError, match="was cut while it was in use"):
                store.read(np.arange(2))
        case "lengthen":
            store.path.write_bytes(before + b"x")
        case "remove":
            store.path.unlink()
        case "notes":
            notes.write_text('{"set_as')
        case "no notes":
            notes.unlink()
    open_store(tmp_path, encoder, drawn(10))
    assert store.path.read_bytes() == before


def test_one_process_fills_a_store_and_others_wait(tmp_path, monkeypatch):
    encoder, sizes, stores = Encoder("scenes_cnn", SIZE), [], []
    before_each_batch(monkeypatch, sizes.append)
    threads = [
        threading.Thread(target=lambda: stores.append(open_store(tmp_path, encoder, drawn(24))))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(stores) == 3 and len(sizes) == 8
    for store in stores:
        close(store.read(np.arange(24)), expected(encoder, arrays(24)))

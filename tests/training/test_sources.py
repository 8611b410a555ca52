"""What training is fed: only pictures that can be read, the same batches for the same seed."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sat_tf.layers.encoder import Encoder
from sat_tf.vocabulary import Vocabulary
from training.datasets.base import DataError, Example, Split
from training.datasets.batches import Share, caption_table
from training.datasets.sources import (
    AnnotationSource,
    ImageSource,
    open_source,
    rows_with_pictures,
    scoring_batches,
    training_batches,
)
from training.datasets.views import Views

SIZE = 16


def drawn(count: int, side: int = SIZE) -> tuple[Example, ...]:
    """Pictures whose every pixel is their index, but for a bright left column."""
    examples = []
    for index in range(count):
        pixels = np.full([side, side, 3], index, np.uint8)
        pixels[:, 0] = 200
        captions = (f"w{index} a", f"w{index} a b", f"w{index}")
        examples.append(Example(f"i{index}", pixels, captions))
    return tuple(examples)


def files(folder: Path, corrupt: tuple[int, ...] = ()) -> tuple[Example, ...]:
    folder.mkdir(exist_ok=True)
    examples = []
    for index, example in enumerate(drawn(4)):
        path = folder / f"{index}.png"
        Image.fromarray(example.image).save(path)
        if index in corrupt:
            path.write_bytes(b"no picture")
        examples.append(Example(example.image_id, path, example.captions))
    return tuple(examples)


def table_of(examples: tuple[Example, ...]):
    split = Split("train", examples)
    captions = (caption for example in examples for caption in example.captions)
    vocabulary = Vocabulary.from_captions(captions, min_count=1)
    return caption_table(split, vocabulary, 10), vocabulary


def seen(*mirrored: bool) -> Views:
    return Views(np.array(mirrored), np.zeros([len(mirrored), 2]))


def epochs(source, table, first: int, count: int, seed: int = 0, size: int = 4, **options):
    dataset, steps = training_batches(source, table, size, seed, first, **options)
    taken = list(itertools.islice(dataset.as_numpy_iterator(), steps * count))
    return [taken[start : start + steps] for start in range(0, steps * count, steps)]


def same(one, other) -> bool:
    return len(one) == len(other) and all(
        all(np.array_equal(a[key], b[key]) for key in a) for a, b in zip(one, other, strict=True)
    )


def test_photographs_are_turned_upright_as_their_exif_asks(tmp_path):
    upright = np.zeros([SIZE, SIZE, 3], np.uint8)
    upright[:4] = 255
    exif = Image.Exif()
    exif[0x0112] = 6  # to be shown turned clockwise
    path = tmp_path / "turned.png"
    Image.fromarray(np.rot90(upright)).save(path, exif=exif)
    source = ImageSource((Example("turned", path, ("a",)),), SIZE, "crop")
    assert source.rotated == [0]
    np.testing.assert_array_equal(source.read(np.array([0]))[0], upright)


def test_every_caption_of_an_epoch_comes_once_with_its_own_picture():
    examples = drawn(5)
    table, vocabulary = table_of(examples)
    (epoch,) = epochs(ImageSource(examples, SIZE, "crop"), table, 0, 1)
    seen = []
    for batch in epoch:
        for pixels, tokens in zip(batch["images"], batch["tokens"], strict=True):
            assert vocabulary.words[tokens[1]] == f"w{pixels[0, 1, 0]}"
            seen.append(vocabulary.decode(tokens[1:]))
    assert sorted(seen) == sorted(c for example in examples for c in example.captions)


def test_batches_depend_on_seed_and_epoch_alone():
    examples = drawn(6)
    table, _ = table_of(examples)
    source = ImageSource(examples, SIZE, "crop", mirrored=True)
    straight = epochs(source, table, 0, 3)
    resumed = epochs(source, table, 2, 1)
    assert same(straight[2], resumed[0])
    middle, steps = training_batches(source, table, 4, 0, 1, first_step=2)
    assert same(straight[1][2:], list(middle.take(steps - 2).as_numpy_iterator()))
    assert not same(straight[0], straight[1])
    assert not same(straight[0], epochs(source, table, 0, 1, seed=1)[0])


def test_half_of_the_views_are_mirrored_and_they_are_flipped():
    examples = drawn(8)
    table, _ = table_of(examples)
    source = ImageSource(examples, SIZE, "crop", mirrored=True)
    flipped = plain = 0
    for batch in itertools.chain(*epochs(source, table, 0, 20)):
        left, right = batch["images"][:, 0, 0, 0] == 200, batch["images"][:, 0, -1, 0] == 200
        assert (left ^ right).all()
        flipped, plain = flipped + right.sum(), plain + left.sum()
    assert 0.4 < flipped / (flipped + plain) < 0.6


def test_views_are_plain_unless_asked_for_and_when_scoring():
    examples = drawn(4)
    table, _ = table_of(examples)
    (epoch,) = epochs(ImageSource(examples, SIZE, "crop"), table, 0, 1)
    scored, count = scoring_batches(ImageSource(examples, SIZE, "crop", mirrored=True), table, 4)
    scored = list(scored.as_numpy_iterator())
    assert len(scored) == count and sum(len(batch["tokens"]) for batch in scored) == len(table)
    for batch in (*epoch, *scored):
        assert (batch["images"][:, 0, 0] == 200).all()


def slopes(count: int, side: int) -> tuple[Example, ...]:
    """Pictures that get brighter to the right (red) and down (green)."""
    ramp = np.linspace(0, 255, side)
    red, green = np.broadcast_to(ramp, [side, side]), np.broadcast_to(ramp[:, None], [side, side])
    pixels = np.stack([red, green, np.zeros([side, side])], -1).astype(np.uint8)
    return tuple(Example(f"i{n}", pixels, (f"w{n} a b", f"w{n} a")) for n in range(count))


def test_a_random_crop_is_a_part_of_a_larger_picture_at_a_place_of_its_own():
    examples = slopes(6, 20)
    table, _ = table_of(examples)
    source = ImageSource(examples, 16, "crop", random_crop=0.2)
    first = []
    for batch in itertools.chain(*epochs(source, table, 0, 6)):
        assert batch["images"].shape[1:] == (16, 16, 3) and batch["images"].dtype == np.uint8
        first.append(batch["images"])
    pixels = np.concatenate(first).astype(int)
    corners = {(int(p[0, 0, 1]), int(p[0, 0, 0])) for p in pixels}
    # 255 / 19 from one of the 20 pixels to the next: no pixel is scaled, and 5 x 5 places are free.
    steps = [int(value) for value in np.linspace(0, 255, 20)[:5]]
    assert {down for down, _ in corners} == {right for _, right in corners} == set(steps)
    for p in pixels:
        down, right = steps.index(p[0, 0, 1]), steps.index(p[0, 0, 0])
        np.testing.assert_array_equal(p, examples[0].image[down : down + 16, right : right + 16])


def test_crops_are_drawn_again_by_seed_and_epoch_and_not_when_scoring():
    examples = slopes(6, 16)
    table, _ = table_of(examples)
    source = ImageSource(examples, 16, "crop", mirrored=True, random_crop=0.2)
    straight = epochs(source, table, 0, 3)
    assert same(straight[2], epochs(source, table, 2, 1)[0])
    assert not same(straight[0], epochs(source, table, 0, 1, seed=1)[0])
    for batch in scoring_batches(source, table, 4)[0].as_numpy_iterator():
        assert (batch["images"] == examples[0].image).all()


def test_by_picture_all_captions_come_together_and_in_one_view(monkeypatch):
    examples = slopes(7, 20)
    table, vocabulary = table_of(examples)
    source = ImageSource(examples, 16, "crop", mirrored=True, random_crop=0.2)
    read, reads = ImageSource._load, []
    monkeypatch.setattr(ImageSource, "_load", lambda *a: (reads.append(a[1]), read(*a))[1])
    dataset, steps = training_batches(source, table, 5, 0, 0, by_picture=True)
    found, views = [], set()
    for batch in dataset.take(steps).as_numpy_iterator():
        words = [vocabulary.words[ids[1]] for ids in batch["tokens"]]
        assert words == [f"w{number}" for number in batch["picture"]]
        for number in set(batch["picture"]):
            rows = batch["images"][batch["picture"] == number]
            assert len(rows) == 2 and (rows == rows[0]).all()
            views.add(rows[0].tobytes())
        found += [vocabulary.decode(ids[1:]) for ids in batch["tokens"]]
    assert sorted(found) == sorted(c for example in examples for c in example.captions)
    assert len(views) > 2
    (epoch,) = epochs(source, table, 1, 1, size=5, by_picture=True)
    assert len(epoch) == steps == 4
    assert sorted(reads[:7]) == list(range(7))


def test_a_file_that_is_no_picture_is_set_aside_and_never_in_a_batch(tmp_path):
    examples = files(tmp_path, corrupt=(1,))
    table, vocabulary = table_of(examples)
    source = ImageSource(examples, SIZE, "crop")
    assert list(source.set_aside) == [1] and source.set_aside[1]
    batches = [*itertools.chain(*epochs(source, table, 0, 2))]
    words = {vocabulary.words[t[1]] for batch in batches for t in batch["tokens"]}
    assert words == {"w0", "w2", "w3"}


def test_a_missing_file_is_set_aside_with_the_reason(tmp_path):
    examples = files(tmp_path)
    examples[2].image.unlink()
    source = ImageSource(examples, SIZE, "crop")
    assert source.set_aside == {2: "cannot be read: No such file or directory"}


def test_files_and_arrays_of_the_same_pictures_read_alike(tmp_path):
    rows = np.array([3, 0])
    from_files = ImageSource(files(tmp_path), SIZE, "crop").read(rows)
    np.testing.assert_array_equal(from_files, ImageSource(drawn(4), SIZE, "crop").read(rows))


def test_drawn_pictures_of_another_size_are_resized():
    pixels = ImageSource(drawn(2, side=2 * SIZE), SIZE, "squash").read(np.array([1]))
    assert pixels.shape == (1, SIZE, SIZE, 3) and (pixels[:, :, 2:] == 1).all()


def test_a_frozen_encoder_is_read_from_the_store_and_a_trained_one_from_pictures(tmp_path):
    split = Split("train", drawn(3))
    frozen = open_source(Encoder("scenes_cnn", SIZE), "crop", split, tmp_path, mirrored=True)
    assert isinstance(frozen, AnnotationSource) and frozen.mirrored
    assert frozen.read(np.array([0, 2]), seen(True, False)).shape == (2, 4, 32)
    plain = open_source(Encoder("scenes_cnn", SIZE), "crop", split, tmp_path)
    assert plain.read(np.array([0, 2]), seen(True, False)).shape == (2, 4, 32)
    moving = open_source(Encoder("scenes_cnn", SIZE, trainable=True), "crop", split, tmp_path)
    assert isinstance(moving, ImageSource) and not moving.mirrored


def test_stored_and_encoded_annotations_are_the_same_pictures(tmp_path):
    encoder, split = Encoder("scenes_cnn", SIZE), Split("train", drawn(3))
    stored = open_source(encoder, "crop", split, tmp_path, mirrored=True)
    pictures = ImageSource(split.examples, SIZE, "crop", mirrored=True)
    rows, views = np.array([2, 1]), seen(False, True)
    wanted = np.asarray(encoder(pictures.read(rows, views).astype(np.float32)))
    np.testing.assert_allclose(stored.read(rows, views), wanted, atol=1e-2, rtol=1e-2)


@pytest.mark.parametrize("trainable", [False, True])
def test_a_split_without_a_readable_picture_is_an_error(tmp_path, trainable):
    split = Split("dev", files(tmp_path / "files", corrupt=(0, 1, 2, 3)))
    encoder = Encoder("scenes_cnn", SIZE, trainable=trainable)
    with pytest.raises(DataError, match="No picture of the dev split can be read"):
        open_source(encoder, "crop", split, tmp_path / "cache")


def test_rows_of_set_aside_pictures_are_left_out():
    table, _ = table_of(drawn(3))
    source = ImageSource(drawn(3), SIZE, "crop")
    assert list(rows_with_pictures(table, source)) == list(range(9))
    source.set_aside = {0: "why", 2: "why"}
    assert list(table.image_index[rows_with_pictures(table, source)]) == [1, 1, 1]


@pytest.mark.parametrize("by_picture", [False, True])
def test_what_the_workers_read_of_a_batch_is_the_batch(by_picture):
    examples = drawn(5)
    table, _ = table_of(examples)
    source = ImageSource(examples, SIZE, "crop", mirrored=True)

    def batches(share: Share, count: int) -> list[dict]:
        dataset, _ = training_batches(source, table, 4, 0, 1, 1, by_picture, share)
        return list(dataset.take(count * share.devices).as_numpy_iterator())

    whole = batches(Share(), 5)
    one, two = batches(Share(0, 1, 3), 5), batches(Share(1, 2, 3), 5)
    for number, batch in enumerate(whole):
        parts = [one[number], *two[2 * number : 2 * number + 2]]
        joined = {key: np.concatenate([part[key] for part in parts]) for key in batch}
        assert same([batch], [joined])


def test_what_the_workers_score_is_every_caption_once():
    examples = drawn(5)
    table, _ = table_of(examples)
    source = ImageSource(examples, SIZE, "crop")
    rows = []
    for share in (Share(0, 1, 3), Share(1, 2, 3)):
        dataset, steps = scoring_batches(source, table, 4, share)
        parts = list(dataset.as_numpy_iterator())
        assert len(parts) == steps * share.devices
        rows += [tuple(row[row > 0]) for part in parts for row in part["tokens"]]
    assert sorted(rows) == sorted(map(tuple, table.tokens))

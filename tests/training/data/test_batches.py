"""Batches: every caption with its image, the same for the same seed, divided among devices."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import tensorflow as tf

from tests.training.data.small_captions import SIZE, drawn, epochs, files, same, slopes, table_of
from training.data import image_loader
from training.data.batches import (
    Shard,
    prefetched,
    readable_rows,
    scoring_batches,
    training_batches,
)
from training.data.examples import DataError
from training.data.image_loader import ImageSource


def test_every_caption_of_an_epoch_comes_once_with_its_own_image():
    examples = drawn(5)
    table, vocabulary = table_of(examples)
    (epoch,) = epochs(ImageSource(examples, SIZE, "crop"), table, 0, 1)
    seen = []
    for batch in epoch:
        for pixels, tokens in zip(batch["images"], batch["tokens"], strict=True):
            assert vocabulary.words[tokens[1]] == f"w{pixels[0, 1, 0]}"
            seen.append(vocabulary.decode(tokens[1:]))
    assert sorted(seen) == sorted(c for example in examples for c in example.captions)


@pytest.mark.parametrize("by_image", [False, True])
@pytest.mark.parametrize("random_crop", [0.0, 0.2])
def test_batches_depend_on_seed_and_epoch_alone(random_crop, by_image):
    examples = slopes(6, SIZE)
    table, _ = table_of(examples)
    source = ImageSource(examples, SIZE, "crop", mirrored=True, random_crop=random_crop)
    straight = epochs(source, table, 0, 3, by_image=by_image)
    resumed = epochs(source, table, 2, 1, by_image=by_image)
    assert same(straight[2], resumed[0])
    middle, steps = training_batches(source, table, 4, 0, 1, 2, by_image)
    assert same(straight[1][2:], list(middle.take(steps - 2).as_numpy_iterator()))
    assert not same(straight[0], straight[1])
    assert not same(straight[0], epochs(source, table, 0, 1, seed=1, by_image=by_image)[0])
    for batch in scoring_batches(source, table, 4)[0].as_numpy_iterator():
        assert (batch["images"] == examples[0].image).all()


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


def test_a_random_crop_is_an_unscaled_part_of_a_larger_image():
    examples = slopes(6, 20)
    table, _ = table_of(examples)
    source = ImageSource(examples, 16, "crop", random_crop=0.2)
    batches = [batch["images"] for batch in itertools.chain(*epochs(source, table, 0, 6))]
    pixels = np.concatenate(batches).astype(int)
    assert pixels.shape[1:] == (16, 16, 3) and batches[0].dtype == np.uint8
    corners = {(int(p[0, 0, 1]), int(p[0, 0, 0])) for p in pixels}
    # 255 / 19 from each of the 20 pixels to the next; there are 5 x 5 positions.
    steps = [int(value) for value in np.linspace(0, 255, 20)[:5]]
    assert {down for down, _ in corners} == {right for _, right in corners} == set(steps)
    for p in pixels:
        down, right = steps.index(p[0, 0, 1]), steps.index(p[0, 0, 0])
        np.testing.assert_array_equal(p, examples[0].image[down : down + 16, right : right + 16])


def test_by_image_all_captions_come_together_in_one_view_and_it_is_read_once(monkeypatch):
    examples = tuple(replace(example, image=example.image.copy()) for example in slopes(7, 20))
    table, vocabulary = table_of(examples)
    source = ImageSource(examples, 16, "crop", mirrored=True, random_crop=0.2)
    read, reads = image_loader.read_image, []

    def noted(image, resize):
        reads.append(id(image))
        return read(image, resize)

    monkeypatch.setattr(image_loader, "read_image", noted)
    dataset, steps = training_batches(source, table, 5, 0, 0, by_image=True)
    found, views = [], set()
    for batch in dataset.take(steps).as_numpy_iterator():
        words = [vocabulary.words[ids[1]] for ids in batch["tokens"]]
        assert words == [f"w{number}" for number in batch["image_index"]]
        for number in set(batch["image_index"]):
            rows = batch["images"][batch["image_index"] == number]
            assert len(rows) == 2 and (rows == rows[0]).all()
            views.add(rows[0].tobytes())
        found += [vocabulary.decode(ids[1:]) for ids in batch["tokens"]]
    assert sorted(found) == sorted(c for example in examples for c in example.captions)
    assert len(views) > 2 and steps == 4
    assert len(set(reads[:7])) == 7  # those of the first epoch
    (epoch,) = epochs(source, table, 1, 1, size=5, by_image=True)
    assert len(epoch) == steps


def test_rows_of_skipped_images_are_left_out():
    table, _ = table_of(drawn(3))
    source = ImageSource(drawn(3), SIZE, "crop")
    assert list(readable_rows(table, source)) == list(range(9))
    source.found = {0: "why", 2: "why"}
    assert list(table.image_index[readable_rows(table, source)]) == [1, 1, 1]
    source.found |= {1: "why"}
    with pytest.raises(DataError, match="No image that has a caption can be read"):
        readable_rows(table, source)


@pytest.mark.parametrize("by_image", [False, True])
@pytest.mark.parametrize("size", [4, 1])
def test_another_caption_takes_the_place_of_those_of_an_unreadable_image(tmp_path, size, by_image):
    examples = files(tmp_path, corrupt=(1,))
    table, vocabulary = table_of(examples)

    def read() -> list[dict]:
        source = ImageSource(examples, SIZE, "crop", mirrored=True)
        (epoch,) = epochs(source, table, 0, 1, size=size, by_image=by_image)
        assert source.found.keys() == {1}
        return epoch

    first, again = read(), read()
    whole = [t for n in range(2) for b in (first, again)[n] for t in b["tokens"]]
    assert len(whole) == 2 * len(table)  # as many batches of the same sizes as with all images
    assert not any(vocabulary.id("w1") in tokens for tokens in whole)
    for one, other in zip(first, again, strict=True):
        assert one["images"].any(axis=(1, 2, 3)).all()
        for name in one:
            np.testing.assert_array_equal(one[name], other[name])


@pytest.mark.parametrize("by_image", [False, True])
def test_the_parts_that_workers_read_make_the_batch(by_image):
    examples = drawn(5)
    table, _ = table_of(examples)
    source = ImageSource(examples, SIZE, "crop", mirrored=True)

    def batches(shard: Shard, count: int) -> list[dict]:
        dataset, _ = training_batches(source, table, 4, 0, 1, 1, by_image, shard)
        return list(dataset.take(count * shard.devices).as_numpy_iterator())

    whole = batches(Shard(), 5)
    one, two = batches(Shard(0, 1, 3), 5), batches(Shard(1, 2, 3), 5)
    for number, batch in enumerate(whole):
        parts = [one[number], *two[2 * number : 2 * number + 2]]
        joined = {key: np.concatenate([part[key] for part in parts]) for key in batch}
        assert same([batch], [joined])


def read(index: tf.Tensor) -> dict[str, tf.Tensor]:
    number = tf.numpy_function(lambda n: n, [index], tf.int64)
    return {"number": tf.ensure_shape(number, [])}


def numbers(dataset) -> list[int]:
    return [int(batch["number"]) for batch in dataset]


def test_prefetched_from_the_first_up_to_the_last() -> None:
    assert numbers(prefetched(read, 3, 7)) == [3, 4, 5, 6]
    assert numbers(prefetched(read, 3, 3)) == []
    dataset = prefetched(read, 5)

    assert dataset.cardinality() == tf.data.INFINITE_CARDINALITY
    assert numbers(itertools.islice(dataset, 4)) == [5, 6, 7, 8]

"""Batches: every caption with its image, the same for the same seed, divided among devices."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import tensorflow as tf

from sat_tf.layers.encoder import Encoder
from tests.training.data.small_captions import SIZE, drawn, epochs, files, same, slopes, table_of
from training.data import image_loader
from training.data.batches import (
    MAX_PADDING,
    Shard,
    plan_epoch,
    plan_images,
    prefetched,
    scoring_batches,
    training_batches,
)
from training.data.dataset import identified
from training.data.examples import DataError, Split
from training.data.feature_store import FeatureStore
from training.data.image_loader import ImageSource, Views
from training.data.inputs import open_input_source


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
    steps, batches = training_batches(source, table, 4, 0, by_image)
    assert same(straight[1][2:], list(batches(1, 2).take(steps - 2).as_numpy_iterator()))
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

    def noted(image, *given):
        reads.append(id(image))
        return read(image, *given)

    monkeypatch.setattr(image_loader, "read_image", noted)
    steps, batches = training_batches(source, table, 5, 0, by_image=True)
    found, views = [], set()
    for batch in batches(0).take(steps).as_numpy_iterator():
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


def test_an_image_that_was_replaced_is_not_used_without_a_word(tmp_path):
    examples = identified(files(tmp_path)[:3], tmp_path / "cache")
    source = ImageSource(examples, SIZE, "crop")
    assert source.read(np.arange(3)).any(axis=(1, 2, 3)).all() and not source.found
    examples[1].image.write_bytes(examples[2].image.read_bytes())
    assert source.read(np.arange(3)).any(axis=(1, 2, 3)).tolist() == [True, False, True]
    assert source.found == {1: "its content has changed since it was first read"}


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

    _, planned = training_batches(source, table, 4, 0, by_image)

    def batches(shard: Shard, count: int) -> list[dict]:
        return list(planned(1, 1, shard).take(count * shard.devices).as_numpy_iterator())

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


# Shaped like Flickr8k's: a hump around 13 tokens and a long thin tail.
LENGTHS = np.clip(np.random.default_rng(1).gamma(9.0, 1.5, 30_000) + 1, 3, 42).astype(np.int32)


def padding_share(lengths, plan):
    """The share of padding among all tokens of an epoch's batches."""
    padded = sum(len(batch) * int(lengths[batch].max()) for batch in plan)
    return 1.0 - sum(int(lengths[batch].sum()) for batch in plan) / padded


def sizes_and_lengths(lengths, plan):
    return sorted((len(batch), int(lengths[batch].max())) for batch in plan)


@pytest.mark.parametrize("batch_size", [64, 128])
def test_every_caption_is_in_one_batch_and_batches_are_full_with_little_padding(batch_size):
    plan = plan_epoch(LENGTHS, batch_size, seed=0, epoch=0)
    np.testing.assert_array_equal(np.sort(np.concatenate(plan)), np.arange(len(LENGTHS)))
    sizes = sorted(map(len, plan))
    assert len(plan) == -(-len(LENGTHS) // batch_size)
    assert sizes[-1] == sizes[2] == batch_size and sizes[0] >= batch_size // 2
    assert padding_share(LENGTHS, plan) < 0.02


@pytest.mark.parametrize("count", [1, 2, 7, 50, 129, 200])
def test_padding_stays_below_the_bound_with_few_captions(count):
    lengths = LENGTHS[:count]
    plan = plan_epoch(lengths, 64, seed=0, epoch=0)
    np.testing.assert_array_equal(np.sort(np.concatenate(plan)), np.arange(count))
    assert padding_share(lengths, plan) < MAX_PADDING


def test_a_plan_depends_on_seed_and_epoch_alone_and_its_shapes_on_neither():
    lengths = LENGTHS[:3_001]
    shapes = [sizes_and_lengths(lengths, plan_epoch(lengths, 64, 0, epoch)) for epoch in range(4)]
    assert all(shape == shapes[0] for shape in shapes)
    assert len({length for _, length in shapes[0]}) <= len(np.unique(lengths))
    first = plan_epoch(LENGTHS, 64, seed=3, epoch=2)
    np.random.seed(0)
    again = plan_epoch(LENGTHS.copy(), 64, seed=3, epoch=2)
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    for seed, epoch in ((3, 3), (4, 2), (2, 3)):
        other = plan_epoch(LENGTHS, 64, seed=seed, epoch=epoch)
        assert not np.array_equal(np.concatenate(first), np.concatenate(other))


def test_whole_images_make_batches_of_about_the_size_asked_for():
    images = np.repeat(np.arange(6000) * 2, 5)  # the other numbers are of skipped images
    plan = plan_images(images, LENGTHS, 64, seed=0, epoch=0)
    np.testing.assert_array_equal(np.sort(np.concatenate(plan)), np.arange(len(LENGTHS)))
    for batch in plan:
        assert (np.unique(images[batch], return_counts=True)[1] == 5).all()
    assert sorted(map(len, plan))[3:] == [65] * (len(plan) - 3)
    assert padding_share(LENGTHS, plan) < 0.35
    images = np.array([0, 0, 0, 1, 2, 2, 3, 3, 4, 5, 5, 5])
    plans = [plan_images(images, LENGTHS[:12], 4, 0, epoch) for epoch in (0, 0, 1, 2, 3)]
    texts = [[batch.tolist() for batch in plan] for plan in plans]
    assert texts[0] == texts[1] and texts.count(texts[0]) == 2
    assert {len(plan) for plan in plans} == {len(plans[0])}


@pytest.mark.parametrize("size", [0, 1, 3, 7, 64])
@pytest.mark.parametrize(("workers", "devices"), [(1, 1), (2, 1), (2, 3), (3, 2)])
def test_the_shards_of_all_workers_make_the_batch(size, workers, devices):
    shards = [Shard(w * devices, devices, workers * devices) for w in range(workers)]
    parts = [range(size)[shard.part(size, d)] for shard in shards for d in range(devices)]
    assert [row for part in parts for row in part] == list(range(size))
    sizes = list(map(len, parts))
    assert max(sizes) - min(sizes) <= 1


def seen(*mirrored: bool) -> Views:
    return Views(np.array(mirrored), np.zeros([len(mirrored), 2]))


def test_a_frozen_encoder_reads_from_the_store_and_a_trained_one_images(tmp_path):
    split = Split("train", drawn(3))
    frozen = open_input_source(Encoder("scenes_cnn", SIZE), "crop", split, tmp_path, mirrored=True)
    assert isinstance(frozen, FeatureStore) and frozen.mirrored
    assert frozen.read(np.array([0, 2]), seen(True, False)).shape == (2, 4, 32)
    plain = open_input_source(Encoder("scenes_cnn", SIZE), "crop", split, tmp_path)
    assert plain.read(np.array([0, 2]), seen(True, False)).shape == (2, 4, 32)
    moving = open_input_source(Encoder("scenes_cnn", SIZE, trainable=True), "crop", split, tmp_path)
    assert isinstance(moving, ImageSource) and not moving.mirrored


@pytest.mark.parametrize("trainable", [False, True])
def test_a_split_without_a_readable_image_is_an_error(tmp_path, trainable):
    split = Split("dev", files(tmp_path / "files", corrupt=(0, 1, 2, 3)))
    encoder = Encoder("scenes_cnn", SIZE, trainable=trainable)
    with pytest.raises(DataError, match="No image of the dev split can be read"):
        open_input_source(encoder, "crop", split, tmp_path / "cache")

import numpy as np
import pytest

from sat_tf.vocabulary import END, SPECIAL_TOKENS, START, UNK, Vocabulary
from training.data.batches import MAX_PADDING, Shard, plan_epoch, plan_images
from training.data.captions import caption_table
from training.data.examples import DataError, Example, Split

# Shaped like Flickr8k's: a hump around 13 tokens and a long thin tail.
LENGTHS = np.clip(np.random.default_rng(1).gamma(9.0, 1.5, 30_000) + 1, 3, 42).astype(np.int32)


def split_of(*captions: tuple[str, ...]) -> Split:
    image = np.zeros((1, 1, 3), np.uint8)
    return Split("train", tuple(Example(str(i), image, texts) for i, texts in enumerate(captions)))


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


def test_captions_become_ids_between_start_and_end():
    vocabulary = Vocabulary((*SPECIAL_TOKENS, "a", "dog"))
    table = caption_table(split_of(("A dog .", " . "), ("a cat dog a",)), vocabulary, max_length=3)
    assert [row.tolist() for row in table.tokens] == [[START, 4, 5, END], [START, 4, UNK, 5, END]]
    assert all(row.dtype == np.int32 for row in table.tokens)
    assert table.image_index.tolist() == [0, 1] and table.image_index.dtype == np.int32
    assert table.caption_index.tolist() == [0, 0] and table.caption_index.dtype == np.int32
    assert table.lengths.tolist() == [4, 5]
    assert (len(table), table.dropped, table.truncated) == (2, 1, 1)
    with pytest.raises(DataError, match="No caption of the train split"):
        caption_table(split_of((".",)), Vocabulary(SPECIAL_TOKENS), max_length=3)


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

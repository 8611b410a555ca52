"""Small examples with captions, and batches of them."""

import itertools
from pathlib import Path

import numpy as np
from PIL import Image

from sat_tf.text.vocabulary import Vocabulary
from training.data.batches import training_batches
from training.data.captions import CaptionTable, caption_table
from training.data.examples import Example, Split

SIZE = 16


def drawn(count: int, side: int = SIZE) -> tuple[Example, ...]:
    """Images with their index in every pixel, except for a bright left column."""
    examples = []
    for index in range(count):
        pixels = np.full([side, side, 3], index, np.uint8)
        pixels[:, 0] = 200
        captions = (f"w{index} a", f"w{index} a b", f"w{index}")
        examples.append(Example(f"i{index}", pixels, captions))
    return tuple(examples)


def slopes(count: int, side: int) -> tuple[Example, ...]:
    """Images that get brighter to the right (red) and down (green)."""
    ramp = np.linspace(0, 255, side)
    red, green = np.broadcast_to(ramp, [side, side]), np.broadcast_to(ramp[:, None], [side, side])
    pixels = np.stack([red, green, np.zeros([side, side])], -1).astype(np.uint8)
    return tuple(Example(f"i{n}", pixels, (f"w{n} a b", f"w{n} a")) for n in range(count))


def files(folder: Path, corrupt: tuple[int, ...] = ()) -> tuple[Example, ...]:
    folder.mkdir(exist_ok=True)
    examples = []
    for index, example in enumerate(drawn(4)):
        path = folder / f"{index}.png"
        Image.fromarray(example.image).save(path)
        if index in corrupt:
            path.write_bytes(b"no image")
        examples.append(Example(example.image_id, path, example.captions))
    return tuple(examples)


def table_of(examples: tuple[Example, ...]) -> tuple[CaptionTable, Vocabulary]:
    captions = (caption for example in examples for caption in example.captions)
    vocabulary = Vocabulary.from_captions(captions, min_count=1)
    return caption_table(Split("train", examples), vocabulary), vocabulary


def epochs(source, table, first, count, *teaching, seed=0, size=4, by_image=False):
    """The batches of `count` epochs, a list per epoch."""
    steps, batches = training_batches(source, table, size, seed, by_image, teaching)
    taken = list(itertools.islice(batches(first).as_numpy_iterator(), steps * count))
    return [taken[start : start + steps] for start in range(0, steps * count, steps)]


def same(one, other) -> bool:
    return len(one) == len(other) and all(
        all(np.array_equal(a[key], b[key]) for key in a) for a, b in zip(one, other, strict=True)
    )

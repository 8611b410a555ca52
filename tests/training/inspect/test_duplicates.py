"""Images in two splits: found even if changed, and no others."""

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps

from tests.image_files import encode
from tests.training.data.own_images import encoded, photograph
from training.data.examples import Example, Split, StoredImage
from training.inspect.duplicates import Prints, find_twins


def split_of(name: str, *files: bytes, size: int = 64) -> tuple[Split, Prints]:
    """A split of encoded images, with their prints."""
    records = [{"image": content} for content in files]
    images = [StoredImage(records, n, f"{name}{n}") for n in range(len(files))]
    examples = tuple(Example(image.stamp, image, ("a",)) for image in images)
    return Split(name, examples), prints_of(map(pixels_of, files), len(files), size)


def prints_of(images, count: int, size: int) -> Prints:
    prints = Prints.empty(count)
    for index, image in enumerate(images):
        prints.take(index, np.asarray(ImageOps.fit(image, (size, size)), np.float32))
    return prints


def pixels_of(content: bytes) -> Image.Image:
    return Image.open(io.BytesIO(content)).convert("RGB")


def shrunken(image: Image.Image, scale: float, quality: int) -> bytes:
    small = image.resize((int(image.width * scale), int(image.height * scale)))
    return encode(small, "JPEG", quality=quality)


def twins(one, other) -> list[tuple[str, str, bool]]:
    return [(t.image, t.other_image, t.identical) for t in find_twins(*one, *other)]


def test_a_copy_of_a_file_is_identical():
    train = split_of("train", *(encoded(photograph(n)) for n in range(20)))
    dev = split_of("dev", encoded(photograph(50)), encoded(photograph(7)))
    assert twins(dev, train) == [("dev1", "train7", True)]
    lossless = encoded(photograph(1), "PNG")
    other = encoded(pixels_of(lossless), "BMP")
    train = split_of("train", other, lossless)
    assert twins(split_of("dev", lossless), train) == [("dev0", "train1", True)]


@pytest.mark.parametrize("quality", [75, 30])
@pytest.mark.parametrize("scale", [1, 0.5])
def test_an_image_scaled_or_compressed_again_is_the_same(scale, quality):
    train = split_of("train", *(encoded(photograph(n)) for n in range(20)))
    for n in range(20):
        copy = shrunken(pixels_of(train[0].examples[n].image.read_bytes()), scale, quality)
        assert twins(split_of("dev", copy), train) == [("dev0", f"train{n}", False)]


def test_images_that_cannot_be_read_have_no_twins():
    blank = (Split("dev", (Example("dev0", Path("dev0"), ("a",)),)), Prints.empty(1))
    black = split_of("train", encoded(Image.new("RGB", (60, 60)), "PNG"))
    assert twins(blank, black) == [] and twins(black, blank) == []


@pytest.mark.slow
def test_photographs_are_found_again_and_not_mixed_up(real_data: Path):
    folder = next((real_data / "data" / "flickr8k").glob("Flick*_Dataset"))
    names = sorted(folder.glob("*.jpg"))[::4][:1600]
    photographs = prints_of((pixels_of(name.read_bytes()) for name in names), len(names), 224)
    changes = {(1, 75): 150, (1, 15): 150, (0.5, 75): 150, (1 / 3, 40): 150}
    some = [pixels_of(name.read_bytes()) for name in names[:150]]
    train = Split("train", tuple(Example(n.name, n, ("a",)) for n in names))
    for (scale, quality), wanted in changes.items():
        files = [shrunken(image, scale, quality) for image in some]
        found = twins(split_of("dev", *files, size=224), (train, photographs))
        right = [int(image[3:]) for image, other, _ in found if names[int(image[3:])].name == other]
        assert len(right) == len(found) >= wanted
    for start in range(0, len(names), 400):
        rows = slice(start, start + 400)
        part = Prints(photographs.hashes[rows], photographs.thumbnails[rows], np.ones(400, bool))
        others = Prints(photographs.hashes, photographs.thumbnails, np.ones(len(names), bool))
        others.readable[rows] = False
        dev = Split("dev", train.examples[rows])
        assert find_twins(dev, part, train, others) == []

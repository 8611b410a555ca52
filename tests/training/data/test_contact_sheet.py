"""The sheet of images with captions: each image above its own captions, whatever can be read."""

import dataclasses

import numpy as np
from PIL import Image

from training.data.contact_sheet import IMAGES, write_contact_sheet
from training.data.examples import Example, Split


def split_of(count: int, captions=("a dog",), broken=()) -> Split:
    examples = []
    for n in range(count):
        image = np.full([30, 40, 3], 0, np.uint8)
        image[..., n % 3] = 250
        content = b"no image" if n in broken else image
        examples.append(Example(f"{n}.png", content, captions))
    return Split("train", tuple(examples))


def colours(path) -> list[int]:
    """Channel of each image on the sheet, by the middles of their cells in the first row."""
    pixels = np.asarray(Image.open(path)).astype(int)
    row = pixels[12 + 40]
    return [int(row[x].argmax()) for x in range(12 + 110, len(row), 232)]


def test_images_are_spread_over_the_split_and_unreadable_ones_replaced(tmp_path):
    path = tmp_path / "sheet.jpg"
    assert write_contact_sheet(path, split_of(24, broken=(0, 7)))
    assert colours(path) == [1, 2, 1, 0]  # 1 for 0, then 2, 4 and 6
    assert write_contact_sheet(path, split_of(3))
    assert colours(path) == [0, 1, 2]
    rows = Image.open(path).height
    write_contact_sheet(path, split_of(IMAGES + 9))
    assert 2.5 * rows < Image.open(path).height < 3.5 * rows


def test_long_captions_are_cut_and_those_of_any_language_drawn(tmp_path):
    path = tmp_path / "sheet.jpg"
    write_contact_sheet(path, split_of(1))
    short = Image.open(path).height
    write_contact_sheet(path, split_of(1, ("a very long caption " * 40, "b") * 5))
    assert short < Image.open(path).height < 2 * short


def test_without_a_readable_image_there_is_no_sheet(tmp_path):
    path = tmp_path / "sheet.jpg"
    assert not write_contact_sheet(path, split_of(2, broken=(0, 1))) and not path.exists()


def test_letters_without_a_font_cost_neither_the_sheet_nor_pass_for_captions(tmp_path):
    path, letter = tmp_path / "sheet.jpg", "\U0010fffd"  # of nobody: no font has it
    one = split_of(1, (f"a dog {letter}\n runs",)).examples[0]
    named = dataclasses.replace(one, image_id=letter * 9)
    assert write_contact_sheet(path, Split("train", (named,)))
    path.unlink()
    assert not write_contact_sheet(path, split_of(1, (letter * 5,))) and not path.exists()

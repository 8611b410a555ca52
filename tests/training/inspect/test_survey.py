"""The counts, warnings and duplicates that `training.inspect` finds before training."""

import copy
import io
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps

from sat_tf.config import EncoderConfig
from sat_tf.text.vocabulary import Vocabulary
from tests.image_files import encode
from tests.training.data.own_images import encoded, photograph
from training.data.captions import CaptionWords, split_captions
from training.data.examples import Example, Split, StoredImage
from training.inspect.survey import (
    Prints,
    caption_figures,
    find_twins,
    found_language,
    missing_weights,
    scan_images,
    scripts,
    spoken_captions,
    warnings_of,
)
from training.little_data import LEARN_ON
from training.run.config import DataConfig


def split_of(*captions: tuple[str, ...], **options) -> Split:
    image = np.zeros([4, 4, 3], np.uint8)
    examples = (Example(f"{n}", image, texts) for n, texts in enumerate(captions))
    return Split("train", tuple(examples), **options)


def words_of(split: Split) -> CaptionWords:
    return split_captions(DataConfig(), split)


def test_figures_are_those_counted_by_hand():
    split = split_of(("A dog runs.", "!!!"), ("a big dog barks at a cat",), blank_captions=2)
    vocabulary = Vocabulary.from_captions(["a dog runs", "a cat"], min_count=1)
    assert caption_figures(words_of(split), vocabulary, max_length=3) == {
        "captions": 3,
        "captions_per_image": {"min": 1, "median": 1.5, "p95": pytest.approx(1.95), "max": 2},
        "blank": 2,
        "without_words": 1,
        "repeated": 0,
        "images_with_repeats": 0,
        "nothing": 0,
        "signs": {},
        "with_signs": 0,
        "length": {"min": 3, "median": 5, "p95": pytest.approx(6.8), "max": 7},
        "cut_share": 0.5,
        "unknown_share": 3 / 10,  # big, barks, at
    }


def test_captions_twice_or_of_empty_cells_are_counted():
    split = split_of(("A dog.", "a dog", "a cat", "a dog !"), ("a dog", "!!!", "..."))
    vocabulary = Vocabulary.from_captions(["a dog"], min_count=1)
    figures = caption_figures(words_of(split), vocabulary, max_length=3)
    assert (figures["repeated"], figures["images_with_repeats"]) == (2, 1)
    figures = caption_figures(words_of(split_of(("NaN ", "a dog"))), vocabulary, max_length=3)
    assert figures["nothing"] == 1


@pytest.mark.parametrize("unit", ["words", "characters"])
def test_signs_that_tokenisation_loses_are_counted_with_what_is_left(unit):
    split = split_of(("a mass of <2 cm", "95 % water"), ("the 2nd, a t-shirt.", "in 3.5, 1950."))
    figures = caption_figures(words_of(split), Vocabulary.from_captions(["a dog"], 1, unit=unit), 9)
    assert (figures["signs"], figures["with_signs"]) == ({"<2": "2", "%": ""}, 2)


def test_images_beside_the_square_and_dark_ones_are_measured():
    sizes = {9: (10, 100), 99: (100, 50), 31: (30, 30)}
    images = [np.full([*size, 3], grey, np.uint8) for grey, size in sizes.items()]
    split = Split("train", tuple(Example(str(n), image, ("x",)) for n, image in enumerate(images)))
    scan = scan_images(split, EncoderConfig(image_size=8))
    assert scan.outside.tolist() == pytest.approx([0.9, 0.5, 0.0]) and scan.dark == 2
    assert not scan_images(split, EncoderConfig(image_size=8, resize="squash")).outside.any()


def test_captions_are_equal_whatever_their_capitals_and_punctuation():
    split = split_of(("A dog, runs!", "a dog runs", "adog runs"))
    one, other, third = spoken_captions(words_of(split))
    assert one == other != third
    assert spoken_captions(words_of(split_of(("...",)))) == []


def test_scripts_are_shares_of_letters():
    assert scripts(["Tür 12!"]) == {"LATIN": 1.0}
    assert scripts(["собака a"]) == pytest.approx({"CYRILLIC": 6 / 7, "LATIN": 1 / 7})
    assert list(scripts(["一只狗 ok?"])) == ["CJK", "LATIN"]
    assert scripts(["123 ..."]) == {}
    assert list(scripts(["\u1980\u1981\u1950"])) == ["NEW TAI LUE", "TAI LE"]


SPLIT = {
    **dict.fromkeys(("rotated", "mostly_outside", "dark", "images_of_earlier_splits"), 0),
    **dict.fromkeys(("blank", "without_words", "images_with_repeats", "no_file"), 0),
    **{"nothing": 0, "cut_share": 0},
    **{"listed": 100, "used": 100, "captions": 500, "unknown_share": 0.01},
    **{
        "outside": {"max": 91},
        "captions_per_image": {"max": 5},
        "length": {"median": 9, "p95": 12},
    },
    **{"signs": {"95%": "95"}, "with_signs": 1},
}


def warnings(changes: dict, config: DataConfig | None = None, **report) -> list[str]:
    """Warnings of good data with some of dev's figures changed."""
    splits = {"train": copy.deepcopy(SPLIT), "dev": copy.deepcopy(SPLIT) | changes}
    if {"captions_per_image", "cut_share", "length"} & set(changes):
        splits["train"] |= changes
    config = config or DataConfig()
    whole = {"splits": splits, "vocabulary": {"size": 50}, "scripts": {"LATIN": 1.0}}
    return warnings_of(whole | {"language": config.language[:2]} | report, config)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"used": 98}, "2 of 100 images of dev skipped"),
        ({"images_of_earlier_splits": 4}, "4 images of dev also in an earlier split"),
        ({"used": 9, "listed": 9}, "dev has 9 images: too few"),
        ({"captions_per_image": {"max": 1}}, "a single caption"),
        ({"length": {"median": 2.0, "p95": 3.0}}, "fewer than 4 words: BLEU-4 is undefined"),
        (
            {"length": {"median": 1.0, "p95": 1.0}},
            "Most captions are one word long: are they the words of one",
        ),
        ({"blank": 2, "without_words": 1}, "3 captions without a word"),
        ({"blank": None, "without_words": 1}, "1 caption without a word"),
        ({"images_with_repeats": 20}, "20 images of dev with a caption twice or more"),
        ({"no_file": 50}, "50 of 100 images of dev have no file: name the folder"),
        ({"nothing": 1}, "1 caption with nothing but nan"),
        ({"mostly_outside": 20}, "20 images of 200 mostly outside the central square"),
        ({"dark": 1}, "1 image nearly black"),
        ({"with_signs": 40}, "41 captions with numbers or signs .* such as '95%' .'95'."),
        ({"cut_share": 0.06}, "6% of the training captions are cut to 30 words"),
        ({"unknown_share": 0.2}, "20% of the words of dev are unknown"),
    ],
)
def test_each_defect_has_its_warning(changes, said):
    (warning,) = warnings(changes)
    assert re.search(said, warning)


def test_a_caption_that_many_images_share_has_a_warning():
    shared = {"caption": "This picture could not be shown", "share": 20 / 60, "images": 20}
    (warning,) = warnings({}, commonest_caption=shared)
    assert "33% of the images share one caption ('This picture could not be" in warning
    assert not warnings({}, commonest_caption=shared | {"images": 2})


@pytest.mark.parametrize(
    ("script", "config", "said"),
    [
        ("CJK", {"language": "ko"}, ["`--data.tokens characters`"]),
        ("TIBETAN", {}, ["`--data.tokens characters`"]),
        ("JAVANESE", {"language": "jv"}, ["`--data.tokens characters`"]),
        ("CJK", {"language": "zh"}, ["not comparable with scores over words"]),
        ("CJK", {"language": "zh", "tokens": "words"}, ["without spaces", "over characters"]),
        ("CYRILLIC", {"language": "ru"}, []),
        ("LATIN", {"language": "de"}, []),
        ("LATIN", {"language": "en-GB"}, []),
    ],
)
def test_a_script_that_tokens_or_language_do_not_suit_has_a_warning(script, config, said):
    found = warnings({}, DataConfig(**config), scripts={script: 1.0})
    assert len(found) == len(said)
    assert all(text in warning for text, warning in zip(said, found, strict=True))


def test_captions_of_another_language_than_said_have_a_warning():
    portuguese = ["um cachorro corre na grama com uma bola na boca", "duas crianças na praia"] * 5
    assert found_language(portuguese, "pt-BR") == "pt" == found_language(portuguese, "en")
    assert found_language(portuguese[:2], "en") == "en"  # too few to tell
    assert found_language(portuguese, "haw") == "haw"  # no language that is told
    sorani = ["سەگێک لە بەفردا ڕادەکات"] * 20
    assert found_language(sorani, "ku") == "ku"
    assert found_language(sorani, "en") == "ckb"
    (warning,) = warnings({}, language="pt")
    assert "look like pt: is `--data.language` really en?" in warning
    assert warnings({}) == []


def test_a_missing_file_of_weights_is_named_with_what_needs_none():
    said = missing_weights(EncoderConfig(name="resnet50", weights="gone.h5"))
    assert "There is no file gone.h5." in said and f"`--recipe {LEARN_ON}`" in said
    assert missing_weights(EncoderConfig(name="resnet50", weights="imagenet")) is None


def printed(name: str, *files: bytes, size: int = 64) -> tuple[Split, Prints]:
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
    train = printed("train", *(encoded(photograph(n)) for n in range(20)))
    dev = printed("dev", encoded(photograph(50)), encoded(photograph(7)))
    assert twins(dev, train) == [("dev1", "train7", True)]
    lossless = encoded(photograph(1), "PNG")
    other = encoded(pixels_of(lossless), "BMP")
    train = printed("train", other, lossless)
    assert twins(printed("dev", lossless), train) == [("dev0", "train1", True)]


@pytest.mark.parametrize("quality", [75, 30])
@pytest.mark.parametrize("scale", [1, 0.5])
def test_an_image_scaled_or_compressed_again_is_the_same(scale, quality):
    train = printed("train", *(encoded(photograph(n)) for n in range(20)))
    for n in range(20):
        copy = shrunken(pixels_of(train[0].examples[n].image.read_bytes()), scale, quality)
        assert twins(printed("dev", copy), train) == [("dev0", f"train{n}", False)]


def test_images_that_cannot_be_read_have_no_twins():
    blank = (Split("dev", (Example("dev0", Path("dev0"), ("a",)),)), Prints.empty(1))
    black = printed("train", encoded(Image.new("RGB", (60, 60)), "PNG"))
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
        found = twins(printed("dev", *files, size=224), (train, photographs))
        right = [int(image[3:]) for image, other, _ in found if names[int(image[3:])].name == other]
        assert len(right) == len(found) >= wanted
    for start in range(0, len(names), 400):
        rows = slice(start, start + 400)
        part = Prints(photographs.hashes[rows], photographs.thumbnails[rows], np.ones(400, bool))
        others = Prints(photographs.hashes, photographs.thumbnails, np.ones(len(names), bool))
        others.readable[rows] = False
        dev = Split("dev", train.examples[rows])
        assert find_twins(dev, part, train, others) == []

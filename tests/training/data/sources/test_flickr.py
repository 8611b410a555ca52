from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from training.data.sources import DataError, Example, Phrase, Split, canonical_split, load_split
from training.data.sources.flickr import load

TOKENS = "Flickr8k.token.txt"
TRAIN, DEV, TEST = (f"Flickr_8k.{split}Images.txt" for split in ("train", "dev", "test"))


@pytest.fixture
def folder(tmp_path) -> Path:
    """Images a, b, c; a and b in train, c in dev; two captions each; no test list."""
    images = tmp_path / "Flicker8k_Dataset"
    images.mkdir()
    lines = ["nowhere.jpg.1#0\tIn no split and no file .\n"]
    for name in "abc":
        (images / f"{name}.jpg").write_bytes(b"never opened")
        lines += [f"{name}.jpg#{k}\tCaption {k} of {name} .\n" for k in (1, 0)]
    (tmp_path / TOKENS).write_text("".join(lines))
    (tmp_path / TRAIN).write_text("b.jpg\na.jpg\n")
    (tmp_path / DEV).write_text("c.jpg\n")
    return tmp_path


def append(path: Path, text: str | bytes) -> None:
    path.write_bytes(path.read_bytes() + (text if isinstance(text, bytes) else text.encode()))


def test_a_split_holds_its_images_in_order_with_numbered_captions(folder):
    split = load("train", folder)
    assert split.name == "train" and not split.skipped
    assert [example.image_id for example in split.examples] == ["b.jpg", "a.jpg"]
    assert split.examples[1].image == folder / "Flicker8k_Dataset" / "a.jpg"
    assert split.examples[1].captions == ("Caption 0 of a .", "Caption 1 of a .")


def test_val_means_dev(folder):
    assert load("val", folder).name == "dev"
    with pytest.raises(ValueError, match="`split`.*'both'"):
        canonical_split("both")


def test_the_other_spelling_of_the_image_folder_is_accepted(folder):
    (folder / "Flicker8k_Dataset").rename(folder / "Flickr8k_Dataset")
    assert len(load("train", folder)) == 2


def test_a_missing_list_is_an_error_that_names_it_and_those_present(folder):
    with pytest.raises(DataError, match=f"{TEST} is missing.*{TRAIN}, {DEV}"):
        load("test", folder)


def test_a_folder_with_only_a_test_list_can_be_evaluated_on(folder):
    (folder / TRAIN).unlink()
    (folder / DEV).rename(folder / TEST)
    assert [example.image_id for example in load("test", folder).examples] == ["c.jpg"]
    with pytest.raises(DataError, match=f"{TRAIN} is missing. Lists there: {TEST}"):
        load("train", folder)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        *((x, "expected NAME.jpg#K<TAB>caption") for x in (b"a.jpg#2 no tab", b"a.jpg\tno number")),
        *((x, "expected NAME.jpg#K<TAB>caption") for x in (b"a.jpg#\tx", b"#1\tx")),
        (b"a.jpg#2\tcaf\xe9", "not UTF-8"),
    ],
)
def test_a_broken_caption_line_is_an_error_with_file_and_line(folder, line, said):
    append(folder / TOKENS, b"\n" + line + b"\na.jpg#3\tfine\n")
    with pytest.raises(DataError, match=f"{TOKENS}, line 9: {said}"):
        load("train", folder)


def test_one_number_with_two_captions_is_an_error_and_a_repeated_line_is_not(folder):
    append(folder / TOKENS, "a.jpg#0\tCaption 0 of a .\n")
    assert len(load("train", folder).examples[1].captions) == 2
    append(folder / TOKENS, "a.jpg#0\tAnother .\n")
    with pytest.raises(DataError, match="line 9: a second, different caption a.jpg#0"):
        load("train", folder)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "is empty"),
        ("\n  \n\n", "is empty"),
        ("x.jpg\ny.jpg\n", "can be used.*2 listed, 2 with no image file"),
    ],
)
def test_a_list_without_a_usable_image_is_an_error(folder, content, said):
    (folder / TRAIN).write_text(content)
    with pytest.raises(DataError, match=f"{TRAIN} {said}"):
        load("train", folder)


def test_images_without_file_or_captions_are_skipped_with_a_reason(folder):
    append(folder / TRAIN, "gone.jpg\n../Flickr8k.token.txt\nmute.jpg\nblank.jpg\n")
    for name in ("mute.jpg", "blank.jpg"):
        (folder / "Flicker8k_Dataset" / name).touch()
    append(folder / TOKENS, "gone.jpg#0\tA caption .\nblank.jpg#0\t \n")
    split = load("train", folder)
    assert len(split) == 2
    assert split.skipped == (
        ("gone.jpg", "no image file in Flicker8k_Dataset"),
        ("../Flickr8k.token.txt", "no image file in Flicker8k_Dataset"),
        ("mute.jpg", f"no captions in {TOKENS}"),
        ("blank.jpg", f"no captions in {TOKENS}"),
    )


def test_a_folder_of_another_shape_is_an_error_that_says_what_was_found(folder):
    (folder / TOKENS).rename(folder / "captions.txt")
    with pytest.raises(DataError) as error:
        load("train", folder)
    message = str(error.value)
    assert f"Missing: {TOKENS}. Found: Flicker8k_Dataset/, {DEV}" in message
    assert "captions.txt" in message and "`--recipe folder_soft`" in message
    empty = folder / "empty"
    empty.mkdir()
    with pytest.raises(DataError, match="Missing: .*Dataset/; .*token.txt; one of .*an empty f"):
        load("train", empty)
    with pytest.raises(DataError, match="there is no such folder"):
        load("train", folder / "nowhere")
    with pytest.raises(DataError, match="a file, not a folder"):
        load("train", folder / "captions.txt")


def test_an_image_listed_twice_counts_once(folder):
    (folder / TRAIN).write_text("a.jpg\nb.jpg\na.jpg\n")
    assert [example.image_id for example in load("train", folder).examples] == ["a.jpg", "b.jpg"]


@pytest.mark.parametrize(
    ("written", "read"),
    [("A\tdog\truns .", "A dog runs ."), ("A dog\u2028runs .", "A dog\u2028runs .")],
)
def test_later_tabs_become_spaces_and_unusual_line_separators_stay(folder, written, read):
    append(folder / TOKENS, f"a.jpg#2\t{written}\n")
    assert load("train", folder).examples[1].captions[2] == read


def test_a_byte_order_mark_and_carriage_returns_are_tolerated(folder):
    for path in (folder / TOKENS, folder / TRAIN):
        text = path.read_bytes().replace(b"nowhere.jpg.1#0", b"a.jpg#7")
        path.write_bytes(b"\xef\xbb\xbf" + text.replace(b"\n", b"\r\n"))
    split = load("train", folder)
    assert [example.image_id for example in split.examples] == ["b.jpg", "a.jpg"]
    assert split.examples[1].captions[1:] == ("Caption 1 of a .", "In no split and no file .")


def test_load_split_finds_the_data_set_by_name_and_keeps_the_first(folder):
    assert len(load_split("flickr8k", "train", folder)) == 2
    limited = load_split("flickr8k", "train", folder, limit=1)
    assert [example.image_id for example in limited.examples] == ["b.jpg"]
    gone = ("gone.jpg", "no image file in Flicker8k_Dataset")
    (folder / TRAIN).write_text("gone.jpg\nb.jpg\nmissing.jpg\na.jpg\n")
    assert load_split("flickr8k", "train", folder, limit=1).skipped == (gone,)
    with pytest.raises(ValueError, match="`limit`"):
        load_split("flickr8k", "train", folder, limit=0)


def test_load_split_draws_no_more_scenes_than_the_limit():
    assert len(load_split("scenes", "val", None, limit=2)) == 2


@pytest.mark.parametrize("data_dir", [None, Path("no/such/folder")])
def test_a_missing_folder_is_an_error_that_names_the_flag(data_dir):
    with pytest.raises(DataError, match="--data-dir"):
        load_split("flickr8k", "train", data_dir)


def test_an_unknown_data_set_is_an_error_that_names_the_known(folder):
    with pytest.raises(ValueError, match="scenes, .*, coco_captions, folder, got 'flickr9k'"):
        load_split("flickr9k", "train", folder)


def test_the_fingerprint_follows_the_content():
    box = (0.1, 0.2, 0.3, 0.4)
    image = np.zeros((2, 3, 3), np.uint8)
    example = Example("0", image, ("a red ball",), (Phrase(0, 2, box, "red ball"),))
    split = Split("dev", (example,))
    brighter = image.copy()
    brighter[1, 2, 0] = 1
    changed = [
        replace(split, name="test"),
        replace(split, examples=(example, example)),
        *(
            replace(split, examples=(replace(example, **change),))
            for change in (
                {"image_id": "1"},
                {"image": brighter},
                {"image": image.reshape(3, 2, 3)},
                {"captions": ("a red", "ball")},
                {"phrases": ()},
                {"phrases": (Phrase(0, 2, (0.1, 0.2, 0.3, 0.5), "red ball"),)},
            )
        ),
    ]
    prints = [split.fingerprint(), *(other.fingerprint() for other in changed)]
    assert len(set(prints)) == len(prints)
    same = replace(split, examples=(replace(example, image=image.copy()),))
    assert same.fingerprint() == split.fingerprint() and len(prints[0]) == 64


def test_the_real_flickr8k_loads_whole(real_data):
    folder = real_data / "data" / "flickr8k"
    train, dev = (load_split("flickr8k", split, folder) for split in ("train", "dev"))
    assert (len(train), len(dev)) == (5999, 1000)
    assert not train.skipped and not dev.skipped
    assert {len(example.captions) for example in train.examples + dev.examples} == {5}

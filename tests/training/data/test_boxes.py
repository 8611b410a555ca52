"""Boxes of Flickr30k Entities and JSON lines, and the phrases that they are of."""

import json

import numpy as np
import pytest
from PIL import Image

from sat_tf.text.vocabulary import Vocabulary
from sat_tf.text.words import tokenize
from tests.image_files import exif_of
from training.data.boxes import (
    BAD_SPAN,
    NO_CAPTION,
    NO_SENTENCE,
    NO_SPAN,
    OUTSIDE,
    SEVERAL_IMAGES,
    TURNED,
    BoxedPhrase,
    align_captions,
    image_size,
    pixel_of,
    place_boxes,
    place_phrases,
    read_boxes,
    split_words,
    visible,
)
from training.data.examples import DataError, Example, Split
from training.evaluation.pointing import centres_inside

XML = """<annotation><filename>a.jpg</filename>
<size><width>200</width><height>100</height><depth>3</depth></size>
<object><name>1</name><name>2</name>
<bndbox><xmin>20</xmin><ymin>10</ymin><xmax>100</xmax><ymax>60</ymax></bndbox></object>
<object><name>1</name>
<bndbox><xmin>120</xmin><ymin>10</ymin><xmax>200</xmax><ymax>60</ymax></bndbox></object>
<object><name>3</name><nobndbox>1</nobndbox><scene>1</scene></object></annotation>"""
SENTENCES = (
    "[/EN#1/people Two young , White males] hold [/EN#2/clothing red hats] .",
    "[/EN#1/people Some people] stand in [/EN#2/other the man 's garden] near a wall .",
    "They wait .",
)


@pytest.fixture
def folder(tmp_path):
    """Writes the sentences of `1.jpg`, by default, as a folder of Entities, and reads its boxes."""

    def write(*sentences, name="1"):
        for kind, file, text in (
            ("Annotations", f"{name}.xml", XML),
            ("Sentences", f"{name}.txt", "".join(f"{one}\n" for one in sentences)),
        ):
            (tmp_path / kind).mkdir(exist_ok=True)
            (tmp_path / kind / file).write_text(text)
        return read_boxes(tmp_path)[0]

    return write


def example(*captions, name="1_a0.jpg"):
    return Example(name, np.zeros([2, 2, 3], np.uint8), captions)


def words_placed(phrases, *examples):
    """(example, caption) -> the words at each place; and omissions."""
    placed, dropped = place_phrases(examples, phrases)
    found = {}
    for (image, caption), of_caption in placed.items():
        words = tokenize(examples[image].captions[caption])
        found[image, caption] = [" ".join(words[p.first : p.last + 1]) for p in of_caption]
    return found, dropped


PEOPLE, HATS = ["some people", "the man's garden"], ["two young white males", "red hats"]
EDITIONS = {  # of a caption: its sentences, captions, phrases found by caption, those left out
    "other order": (
        SENTENCES,
        "They wait .|Some people stand in the man 's garden near a wall .|"
        "Two young , White males hold red hats .",
        {1: ["some people", "the man 's garden"], 2: HATS},
        {},
    ),
    "as written": (
        SENTENCES,
        '"Two young, White males" hold red hats.|'
        "Some people stand in the man's garden near a wall.|"
        "They wait.",
        {0: HATS, 1: PEOPLE},
        {},
    ),
    "corrected": (
        SENTENCES,
        "Some people are standing in the man's garden near a wall.|"
        "Two young , white men hold red hats .",
        {0: PEOPLE, 1: HATS[1:]},
        {NO_SPAN: 1},
    ),
    "a word more": (
        ["[/EN#1/people A young man] runs after [/EN#2/other a bus] ."],
        "A young tall man runs after a bus .",
        {0: ["a bus"]},
        {NO_SPAN: 1},
    ),
    "unlike": (SENTENCES, "Males hold hats .|They wait .", {}, {NO_SENTENCE: 4}),
}


@pytest.mark.parametrize("name", ["1_a0.jpg", "1.jpg"])
@pytest.mark.parametrize("edition", EDITIONS)
def test_captions_have_the_phrases_that_they_still_contain(folder, edition, name):
    of_image, captions, expected, left_out = EDITIONS[edition]
    found, dropped = words_placed(folder(*of_image), example(*captions.split("|"), name=name))
    assert found == {(0, caption): phrases for caption, phrases in expected.items()}
    assert dropped == left_out


def sentences(*texts):
    return [(number, tuple(split_words(text))) for number, text in enumerate(texts)]


def captions_of(of_sentences, *captions):
    found = align_captions(of_sentences, map(split_words, captions))
    return {number: caption for (number, _), (caption, _) in found.items()}


def test_the_closest_sentence_and_caption_come_first():
    of_one = sentences("a b c d e f g x", "a b c d e f g h")
    assert captions_of(of_one, "a b c d e f g h i") == {1: 0}
    assert captions_of(of_one[:1], "a b c d e f y z", "a b c d e f g z") == {0: 1}
    # The caption with the same words is not given to the sentence that is merely close.
    assert captions_of(of_one, "a b c d e f g h") == {1: 0}


def test_crop_moves_and_cuts_boxes_and_squash_does_not():
    shape = (10, 20)
    assert visible([(0.0, 0.25, 1.0, 0.5)], shape, "crop") == [(0.0, 0.0, 1.0, 0.5)]
    cut = visible([(0.1, 0.0, 0.6, 0.5)], shape, "crop")
    assert cut == [pytest.approx((0.1, 0.0, 0.6, 0.5))]
    assert visible([(0.0, 0.8, 1.0, 1.0)], shape, "crop") == []
    assert visible([(0.1, 0.0, 0.6, 0.5)], shape, "squash") == [(0.1, 0.0, 0.6, 0.5)]


def test_a_pixel_is_one_of_the_image_that_boxes_were_drawn_on():
    assert pixel_of(None, (10, 20), "squash") == (1 / 10, 1 / 20)
    assert pixel_of(None, (10, 20), "crop") == (1 / 10, 1 / 10)
    # The file is a copy at half the size; or one that was squeezed.
    assert pixel_of((40, 20), (10, 20), "crop") == (1 / 20, 1 / 20)
    assert pixel_of((40, 20), (10, 10), "crop") == (1 / 20, 1 / 40)


@pytest.mark.parametrize("digits", [4, 17])
def test_boxes_that_only_touch_the_square_are_not_shown_and_edges_are_exact(digits):
    for width in range(100, 200, 3):
        left, side = (width - 98) // 2, 98
        shape = 98, width
        share = [round(x / width, digits) for x in range(width + 1)]
        before, after = (0.0, 0.0, 1.0, share[left]), (0.0, share[left + side], 1.0, 1.0)
        assert visible([before, after], shape, "crop") == []
        edge = left + 35  # the centre of the third of seven cells
        halves = [(0.0, 0.0, 1.0, share[edge]), (0.0, share[edge], 1.0, 1.0)]
        boxes = visible(halves, shape, "crop")
        assert len(boxes) == 2
        if digits == 17:
            assert [centres_inside([box], 7, 7)[0, 2] for box in boxes] == [True, True]


@pytest.mark.parametrize(("turn", "expected"), [(1, ((4, 6), False)), (6, ((6, 4), True))])
def test_the_size_of_a_file_is_that_of_the_image_as_it_is_shown(tmp_path, turn, expected):
    Image.new("RGB", (6, 4)).save(tmp_path / "a.jpg", exif=exif_of(turn))
    assert image_size(tmp_path / "a.jpg") == expected


@pytest.mark.parametrize("unit", ["words", "characters"])
@pytest.mark.parametrize(
    ("language", "caption", "text", "span"),
    [
        ("de", "Ein kleiner Hund bellt", "kleiner Hund", (1, 3)),
        ("zh", "\u4e24\u53ea \u72d7 \u5728\u8dd1", "\u4e24\u53ea\u72d7", None),
    ],
)
def test_a_phrase_has_its_span_among_tokens_of_every_kind(unit, language, caption, text, span):
    vocabulary = Vocabulary.from_captions([caption], 1, unit=unit, language=language)
    phrase = BoxedPhrase("1_a0.jpg", 0, text, span, (), ((0, 0, 1, 1),))
    placed, dropped = place_phrases([example(caption)], {"1_a0.jpg": [phrase]}, vocabulary)
    ((one,),) = placed.values()
    tokens = vocabulary.tokenize(caption)
    assert not dropped
    words = vocabulary.join(tokens[one.first : one.last + 1])
    assert words == text.lower()
    assert vocabulary.join(tokens[one.head : one.last + 1]) in ("hund", "\u72d7", words)


CAPTION = "A man 's red hat , on a dog ."
ROW = {
    "image": "a.jpg",
    "caption": 0,
    "phrase": "red hat",
    "span": [3, 5],
    "entity": "7",
    "type": ["clothing"],
    "boxes": [[0.1, 0.2, 0.5, 0.6]],
}


def write(path, *rows):
    path.write_text("".join(json.dumps(ROW | row) + "\n" for row in rows))
    return path


SENTENCE = "[/EN#1/people Two men] and [/EN#2/animals/other a dog] , [/EN#3/scene sun] ."


def test_a_line_of_json_is_a_phrase_with_its_boxes(tmp_path):
    phrases, dropped = read_boxes(write(tmp_path / "b.jsonl", {}))
    (phrase,) = phrases["a.jpg"]
    assert phrase.boxes == ((0.2, 0.1, 0.6, 0.5),)
    assert phrase.types == ("clothing",) and phrase.span == (3, 5) and phrase.size is None
    assert not dropped
    (phrase,) = read_boxes(write(tmp_path / "b.jsonl", {"size": [200, 100]}))[0]["a.jpg"]
    assert phrase.size == (200, 100)


def test_the_folder_of_flickr30k_entities_is_read(folder):
    phrases = folder(SENTENCE, name="a")
    men, dog = phrases["a.jpg"]
    assert men.text == "Two men" and men.span == (0, 2)
    assert men.boxes == ((0.1, 0.1, 0.6, 0.5), (0.1, 0.6, 0.6, 1.0))
    assert dog.span == (3, 5) and dog.types == ("animals", "other") and dog.size == (200, 100)
    placed, dropped = place_phrases([example("Two men and a dog , sun .", name="a.jpg")], phrases)
    assert [(p.first, p.last) for p in placed[0, 0]] == [(0, 1), (3, 4)] and not dropped


def test_places_count_tokens_of_the_tokeniser_and_what_does_not_fit_is_counted(tmp_path):
    phrases, _ = read_boxes(
        write(tmp_path / "b", {"span": None}, {"phrase": "a dog", "span": [7, 9]})
    )
    placed, dropped = place_phrases([example(CAPTION, name="a.jpg")], phrases)
    # The comma is no token.
    assert [(p.first, p.last) for p in placed[0, 0]] == [(3, 4), (6, 7)] and not dropped
    rows = (
        *[{"image": "other.jpg"}] * 4,
        {"span": None, "phrase": "red a"},
        {"span": [3, 99]},
        {"span": [0, 2]},
        {"caption": 4},
        {"caption": None},
        {"boxes": [[0.1, 0.2, 1.7, 0.6]]},
        {"boxes": [[0.5, 0.2, 0.5, 0.6]]},
    )
    phrases, outside = read_boxes(write(tmp_path / "b", *rows))
    placed, dropped = place_phrases([example(CAPTION, name="a.jpg")], phrases)
    assert not placed and outside == {OUTSIDE: 2}
    assert dropped == {NO_SPAN: 1, BAD_SPAN: 2, NO_CAPTION: 2}


@pytest.mark.parametrize(
    "text",
    ["{}", "not json", *(json.dumps(ROW | one) for one in ({"boxes": [[1, 2]]}, {"size": [0, 9]}))],
)
def test_a_line_that_is_no_phrase_is_an_error(tmp_path, text):
    (tmp_path / "b").write_text(text + "\n")
    with pytest.raises(DataError, match="line 1"):
        read_boxes(tmp_path / "b")


def test_nothing_to_read_is_an_error(tmp_path):
    with pytest.raises(DataError, match="no file or folder"):
        read_boxes(tmp_path / "none")
    with pytest.raises(DataError, match="Sentences"):
        read_boxes(tmp_path)
    (tmp_path / "instances.json").write_text(json.dumps({"images": [], "annotations": []}))
    with pytest.raises(DataError, match="COCO's instances, are converted to JSON lines"):
        read_boxes(tmp_path / "instances.json")
    (tmp_path / "empty").write_text("")
    with pytest.raises(DataError, match="no phrase"):
        read_boxes(tmp_path / "empty")


def test_boxes_with_width_and_height_or_in_pixels_are_refused(tmp_path):
    for boxes in ([[0.5, 0.6, 0.2, 0.3]], [[10, 20, 50, 60]]):
        with pytest.raises(DataError, match=r"of 2 boxes, 1 are outside .*\[x0, y0, x1, y1\]"):
            read_boxes(write(tmp_path / "b", {}, {"boxes": boxes}))


@pytest.mark.parametrize("name", ["x/a.jpg", "y/x/a.jpg"])
@pytest.mark.parametrize("image", ["a.jpg", "x/a.jpg", "data/y/x/a.jpg"])
def test_an_image_s_name_may_lack_folders_or_have_more(tmp_path, name, image):
    path = write(tmp_path / "b", {"image": image}, {"image": "z/a.jpg"})
    found, dropped = words_placed(read_boxes(path)[0], example(CAPTION, name=name))
    assert found == {(0, 0): ["red hat"]} and not dropped


def test_a_name_in_two_folders_is_counted_and_other_names_are_shown(tmp_path):
    split = Split("dev", [example(CAPTION, name=f"{n}/a.jpg") for n in "xy"])
    for image, said in (("a.jpg", f"{SEVERAL_IMAGES} (1)"), ("b.jpg", "images such as 'b.jpg'")):
        with pytest.raises(DataError) as caught:
            place_boxes(write(tmp_path / "b", {"image": image}), split, "crop")
        assert said in str(caught.value) and "split's are called 'x/a.jpg'" in str(caught.value)


def test_boxes_with_the_size_before_exif_turns_a_photograph_are_left_out(tmp_path):
    Image.new("RGB", (6, 4)).save(tmp_path / "a.jpg", exif=exif_of(6))
    split = Split("dev", [Example("a.jpg", tmp_path / "a.jpg", (CAPTION,))])
    sizes = ([60, 40], [40, 60], None)
    found = place_boxes(write(tmp_path / "b", *({"size": s} for s in sizes)), split, "squash")
    assert [one.phrase.size for one in found.phrases[0, 0]] == [(40, 60), None]
    assert found.skipped == {TURNED: 1}

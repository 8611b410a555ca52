"""Undefined scores, scores without METEOR's tables, and the verdict on captions in words."""

import numpy as np
import pytest

from sat_tf.scores.tokens import split_captions
from training.evaluation.scores import score_captions, verdict
from training.evaluation.validation import caption_frequencies, quick_scores

REFERENCES = {
    "a": ["A dog runs across the green grass .", "The brown dog is running outside ."],
    "b": ["Two children play in the sand .", "Kids build a castle on the beach ."],
    "c": ["A man in a red shirt climbs a rock .", "A climber on a steep cliff ."],
    "d": ["A black bird sits on a wire .", "A bird rests , alone ."],
}
CANDIDATES = {
    "a": "a dog runs across the grass",
    "b": "two children play on the beach",
    "c": "a man is climbing a steep rock",
    "d": "a bird sits on a wire fence near the house",
}


def test_brevity_penalty_is_all_that_the_two_bleus_differ_in():
    references = {"a": ["a dog runs on grass", "x y z u v w q"]}
    scores = score_captions({"a": "a dog runs"}, references).scores
    assert scores["brevity_ratio"] == pytest.approx(3 / 5)  # the closest reference has five words
    assert scores["bleu_1_no_bp"] == pytest.approx(100)
    assert scores["bleu_1"] == pytest.approx(100 * np.exp(1 - 5 / 3))


def test_without_tables_meteor_is_left_out_and_said_so():
    scores = score_captions(CANDIDATES, REFERENCES)
    assert scores.tokeniser == "ptb" and "tok:ptb-" in scores.signature
    assert "meteor" not in scores.scores and "meteor" not in scores.signature
    assert any("METEOR is left out: there are no tables" in note for note in scores.notes)
    assert {"bleu_4", "cider", "rouge_l"} <= set(scores.scores)
    assert scores.scores["bleu_1"] > 50


def test_a_bleu_without_a_match_is_undefined_and_said_so():
    shown = {
        "b": ["two men sit on a bench", "two men"],
        "a": ["a brown dog runs across the wet grass"],
    }
    # Nothing matches in a row of four; no caption has so many words; only one image matches.
    for a, b, undefined in (
        ("a brown dog walks on wet grass", "two men stand on a bench", "4"),
        ("a brown dog", "two men", "4"),
        ("grass", "", "2, 3, 4"),
        ("cat", "", "1, 2, 3, 4"),
        ("a brown dog runs", "", ""),
    ):
        scores = score_captions({"a": a, "b": b}, shown)
        names = [f"bleu_{n}" for n in "1234"]
        got = [name[-1] for name in names if np.isnan(scores.scores[name])]
        assert [name[-1] for name in names if np.isnan(scores.scores[f"{name}_no_bp"])] == got
        assert got == undefined.split(", ") if undefined else got == []
        said = ", ".join(f"BLEU-{n}" for n in got)
        assert sum("undefined: no caption has" in note for note in scores.notes) == bool(got)
        assert any(note.startswith(said) for note in scores.notes)


def test_captions_without_a_word_match_nothing():
    for candidate in ("", "  \n", "..."):
        scores = score_captions({"a": candidate}, {"a": ["a dog", ""]})
        rest = {name: v for name, v in scores.scores.items() if not np.isnan(v)}
        assert rest == {"brevity_ratio": 0, "rouge_l": 0}
        assert any("1 of 1 captions are empty" in note for note in scores.notes)


def test_cider_that_no_n_gram_can_tell_is_undefined():
    words = ["a dog", "a red ball"]
    for texts in ([words[0]], [words[0]] * 3, [""] * 2):  # one image; all alike; no words
        candidates = {str(i): text for i, text in enumerate(texts)}
        scores = score_captions(candidates, {i: [text] for i, text in candidates.items()})
        assert np.isnan(scores.scores["cider"]) and np.isnan(scores.per_image["cider"]).all()
        assert any("CIDEr is undefined" in note for note in scores.notes)
    # A word that no reference has tells no image from another.
    scores = score_captions({"a": "a cat sits"}, {"a": ["a dog", "a dog runs"]}).scores
    assert np.isnan(scores["cider"])
    both = dict(enumerate(words))
    scores = score_captions(both, {i: [text] for i, text in both.items()})
    assert scores.scores["cider"] > 0
    assert not any("CIDEr" in note for note in scores.notes)


def test_quick_scores_are_those_of_the_simple_tokeniser():
    scores = score_captions(CANDIDATES, REFERENCES, tokens="simple").scores
    quick = quick_scores(CANDIDATES, REFERENCES, caption_frequencies([*REFERENCES.values()]))
    assert quick == pytest.approx({name: scores[name] for name in ("bleu_4", "cider")})


NAMES = [f"thing{n}" for n in range(12)]
REFERENCES_OF_THINGS = {name: [f"a {name} stands here", "something"] for name in NAMES}


def said_of(captions: dict[str, str], references: dict[str, list[str]]) -> tuple[str, ...]:
    of_each = [references[name] for name in captions]
    return verdict(captions, *split_captions("simple", [*captions.values()], of_each))


@pytest.mark.parametrize(("images", "same", "warned"), [(20, 19, 1), (4, 4, 0)])
def test_captions_that_are_nearly_all_the_same_are_warned_of(images, same, warned):
    texts = ["a dog"] * same + [f"dog {n}" for n in range(images - same)]
    captions = {str(n): text for n, text in enumerate(texts)}
    notes = said_of(captions, {name: ["a cat"] for name in captions})
    assert len(notes) == warned
    for note in notes:
        assert note.startswith("95 % of the images get the same caption, 'a dog': train longer")


@pytest.mark.parametrize(
    ("shift", "said"),
    [
        (0, "own images: 100 % of the words of a caption are in the references of its image, 50 %"),
        (2, "other images as well: 50 % of the words"),
    ],
)
def test_captions_that_name_what_their_images_show_fit_them(shift, said):
    captions = {name: f"a {NAMES[n - shift]}" for n, name in enumerate(NAMES)}
    (note,) = said_of(captions, REFERENCES_OF_THINGS)
    assert f"The captions fit {'their ' if not shift else ''}{said}" in note
    assert note.endswith("Train longer or add data.") == bool(shift)


def test_a_small_gain_is_told_as_one_however_certain_it_is():
    """Words that fit every image are not counted for it."""
    names = [f"thing{n}" for n in range(400)]
    references = {name: [f"a {name} stands here"] for name in names}
    for right, said in (
        (100, "hardly depend on the image: 56 % of"),
        (300, "fit their own images"),
    ):
        captions = {n: f"a {n if k < right else 'dog'} stands {k}" for k, n in enumerate(names)}
        (note,) = said_of(captions, references)
        assert note.startswith(f"The captions {said}"), note

"""Undefined scores, scores without METEOR's tables, and the verdict on captions in words."""

import numpy as np
import pytest

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


@pytest.mark.parametrize(("images", "same", "warned"), [(20, 19, 1), (4, 4, 0)])
def test_captions_that_are_nearly_all_the_same_are_warned_of(images, same, warned):
    texts = ["a dog"] * same + [f"dog {n}" for n in range(images - same)]
    captions = {str(n): text for n, text in enumerate(texts)}
    notes = verdict(captions)
    assert len(notes) == warned
    for note in notes:
        assert note.startswith("95 % of the images get the same caption, 'a dog': train longer")

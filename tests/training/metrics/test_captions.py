"""Caption scores against pycocoevalcap itself, and what happens without a working Java."""

import shutil

import numpy as np
import pytest

from training.metrics import java
from training.metrics.captions import (
    bleu_scores,
    caption_frequencies,
    quick_scores,
    score_captions,
)
from training.metrics.java import JavaError

USES_JAVA = True  # see tests/training/conftest.py

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
needs_java = pytest.mark.skipif(shutil.which("java") is None, reason="needs Java")


@pytest.fixture
def no_java(monkeypatch):
    monkeypatch.setattr(java, "find_java", lambda: None)


def fake_java(monkeypatch, tmp_path, script):
    program = tmp_path / "java"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setattr(java, "find_java", lambda: str(program))


def reference_bleu(words, references):
    from pycocoevalcap.bleu.bleu import Bleu

    ids = range(len(words))
    return Bleu(4).compute_score(
        {i: references[i] for i in ids}, {i: [words[i]] for i in ids}, verbose=0
    )


def random_captions(count, seed=0, low=1, high=15):
    rng = np.random.default_rng(seed)
    vocabulary = [f"word{n}" for n in range(4)]

    def caption():
        return " ".join(rng.choice(vocabulary, rng.integers(low, high)))

    return {str(i): caption() for i in range(count)}, {
        str(i): [caption() for _ in range(3)] for i in range(count)
    }


def test_corpus_bleu_from_statistics_equals_pycocoevalcap(no_java):
    # Three random corpora: shorter than, as long as, and longer than their references.
    for high in (8, 15, 25):
        candidates, _ = random_captions(40, seed=high, high=high)
        _, references = random_captions(40, seed=1)
        scores = score_captions(candidates, references)
        expected, per_image = reference_bleu(list(candidates.values()), list(references.values()))
        recomputed = bleu_scores(scores.bleu.sum(0))
        for n in range(4):
            assert recomputed[f"bleu_{n + 1}"] == pytest.approx(100 * expected[n], abs=1e-6)
            assert scores.scores[f"bleu_{n + 1}"] == pytest.approx(100 * expected[n], abs=1e-6)
            found, theirs = scores.per_image[f"bleu_{n + 1}"], 100 * np.array(per_image[n])
            defined = ~np.isnan(found)
            np.testing.assert_allclose(found[defined], theirs[defined], atol=1e-6)
            assert np.array_equal(defined, (scores.bleu[:, : n + 1] > 0).all(axis=1))


def test_brevity_penalty_is_all_that_the_two_bleus_differ_in(no_java):
    scores = score_captions({"a": "a dog runs"}, {"a": ["a dog runs on grass", "x y z u v w q"]})
    ratio = 3 / 5  # the closest reference has five words
    assert scores.scores["brevity_ratio"] == pytest.approx(ratio)
    assert scores.scores["bleu_1_no_bp"] == pytest.approx(100)
    assert scores.scores["bleu_1"] == pytest.approx(100 * np.exp(1 - 1 / ratio))


def test_without_java_meteor_is_left_out_and_said_so(no_java):
    scores = score_captions(CANDIDATES, REFERENCES)
    assert scores.tokeniser == "simple"
    assert "meteor" not in scores.scores
    assert any("METEOR is left out" in note for note in scores.notes)
    assert {"bleu_4", "cider", "rouge_l"} <= set(scores.scores)
    assert scores.scores["bleu_1"] > 50


def test_meteor_asked_for_without_java_is_an_error(no_java):
    with pytest.raises(JavaError, match="Java was not found"):
        score_captions(CANDIDATES, REFERENCES, meteor=True)


def test_a_java_that_fails_falls_back_and_says_why(monkeypatch, tmp_path):
    fake_java(monkeypatch, tmp_path, "echo no memory >&2; exit 3")
    scores = score_captions(CANDIDATES, REFERENCES)
    assert scores.tokeniser == "simple"
    assert "meteor" not in scores.scores
    assert "no memory" in " ".join(scores.notes)


def test_a_java_that_hangs_is_an_error_after_its_time(monkeypatch, tmp_path):
    fake_java(monkeypatch, tmp_path, "exec sleep 60")
    monkeypatch.setattr(java, "SECONDS", 0.3)
    monkeypatch.setattr(java, "SECONDS_PER_IMAGE", 0.0)
    with pytest.raises(JavaError, match="no answer within"):
        score_captions(CANDIDATES, REFERENCES, meteor=True)


def test_a_bleu_without_a_match_is_undefined_and_said_so(no_java):
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
        quick = quick_scores({"a": a, "b": b}, shown)
        assert [name[-1] for name in names if np.isnan(quick[name])] == got
        assert [name[-1] for name in names if np.isnan(scores.scores[f"{name}_no_bp"])] == got
        assert got == undefined.split(", ") if undefined else got == []
        said = ", ".join(f"BLEU-{n}" for n in got)
        assert sum("undefined: no caption has" in note for note in scores.notes) == bool(got)
        assert any(note.startswith(said) for note in scores.notes)


def test_captions_without_a_word_match_nothing(no_java):
    for candidate in ("", "  \n", "..."):
        scores = score_captions({"a": candidate}, {"a": ["a dog", ""]})
        rest = {name: v for name, v in scores.scores.items() if not np.isnan(v)}
        assert rest == {"brevity_ratio": 0, "rouge_l": 0}
        assert any("1 of 1 captions are empty" in note for note in scores.notes)


def test_cider_that_no_n_gram_can_tell_is_undefined(no_java):
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


def test_quick_scores_are_those_of_the_simple_tokeniser(no_java):
    scores = score_captions(CANDIDATES, REFERENCES).scores
    quick = quick_scores(CANDIDATES, REFERENCES)
    assert set(quick) == {"bleu_1", "bleu_2", "bleu_3", "bleu_4", "cider"}
    assert quick == pytest.approx({name: scores[name] for name in quick})


@pytest.mark.parametrize(
    ("candidates", "references", "message"),
    [
        ({}, {}, "at least one image"),
        ({"a": "x"}, {"b": ["x"]}, "found in one only"),
        ({"a": "x"}, {"a": []}, "none for 'a'"),
    ],
)
def test_sets_that_cannot_be_scored_are_errors(candidates, references, message):
    for function in (score_captions, quick_scores):
        with pytest.raises(ValueError, match=message):
            function(candidates, references)


@needs_java
@pytest.mark.slow
def test_meteor_equals_that_of_pycocoevalcap_even_for_awkward_captions(capfd):
    candidates = CANDIDATES | {"e": "", "f": "a ||| dog\nruns\u2028 caf\u00e9", "g": "|||"}
    references = REFERENCES | {
        "e": ["A cat ."],
        "f": ["A dog\nruns ||| caf\u00e9 .", "..."],
        "g": ["A house ."],
    }
    scores = score_captions(candidates, references)
    assert capfd.readouterr() == ("", "")
    assert (scores.tokeniser, scores.notes[1:]) == ("ptb", [])
    found = scores.per_image["meteor"]
    assert found[4] == found[6] == 0
    assert found[5] == pytest.approx(100)  # the bars and line breaks are not words

    # What `pycocoevalcap.meteor.meteor.Meteor` 1.2 answers to the same tokens without the bars.
    expected = [0.4384876665, 0.3484981911, 0.2957709076, 0.3875551872, 0.0, 1.0, 0.0]
    np.testing.assert_allclose(found, 100 * np.array(expected), atol=1e-6)
    assert scores.scores["meteor"] == pytest.approx(36.073283754, abs=1e-6)


@needs_java
def test_ptb_tokens_equal_those_of_pycocoevalcap():
    from pycocoevalcap.tokenizer import ptbtokenizer

    lines = ["A dog's ball, isn't it?", 'Red-and-white (striped) "shirt" ...', "It costs $5 -- !"]
    try:
        expected = ptbtokenizer.PTBTokenizer().tokenize({0: [{"caption": line} for line in lines]})
    except OSError:
        pytest.skip("pycocoevalcap's tokeniser writes into its own folder, which is read-only")
    assert java.ptb_lines(lines) == expected[0]


def made_up_captions(images):
    """Captions of words in English-like proportions, with the marks captions have."""
    rng = np.random.default_rng(0)
    words = "a the dog man woman red ball runs jumps on in of grass beach water dog's isn't"
    marks = ["", " .", ".", " , alone .", "!", ' "now"', " ; two-year-old boys", " (left)"]

    def caption():
        text = " ".join(rng.choice(words.split(), rng.integers(3, 14))).capitalize()
        return text + marks[rng.integers(len(marks))]

    ids = [f"{n}.jpg" for n in range(images)]
    return {i: caption() for i in ids}, {i: [caption() for _ in range(5)] for i in ids}


@needs_java
@pytest.mark.slow
def test_every_score_equals_that_of_the_reference_code():
    from pycocoevalcap.bleu.bleu import Bleu
    from pycocoevalcap.cider.cider import Cider
    from pycocoevalcap.meteor.meteor import Meteor
    from pycocoevalcap.rouge.rouge import Rouge
    from pycocoevalcap.tokenizer.ptbtokenizer import PTBTokenizer

    candidates, references = made_up_captions(100)
    try:
        found, truth = (
            PTBTokenizer().tokenize(
                {i: [{"caption": c} for c in texts] for i, texts in all_.items()}
            )
            for all_ in ({i: [c] for i, c in candidates.items()}, references)
        )
    except OSError:
        pytest.skip("pycocoevalcap's tokeniser writes into its own folder, which is read-only")
    expected = dict(
        zip(
            ("bleu_1", "bleu_2", "bleu_3", "bleu_4"),
            Bleu(4).compute_score(truth, found, verbose=0)[0],
            strict=True,
        )
    )
    for name, scorer in {"cider": Cider(), "rouge_l": Rouge(), "meteor": Meteor()}.items():
        expected[name] = scorer.compute_score(truth, found)[0]
    scores = score_captions(candidates, references).scores
    assert {name: scores[name] / 100 for name in expected} == pytest.approx(expected, abs=1e-8)


def test_cider_by_frequencies_of_its_own_references_is_pycocoevalcap_s():
    frequencies = caption_frequencies([*REFERENCES.values()])
    found = quick_scores(CANDIDATES, REFERENCES, frequencies=frequencies)
    assert found == pytest.approx(quick_scores(CANDIDATES, REFERENCES))


def test_by_fixed_frequencies_cider_of_an_image_does_not_depend_on_the_others():
    frequencies = caption_frequencies([*REFERENCES.values(), ["a dog on a hill"], ["a red car"]])
    alone = [
        quick_scores({image: text}, {image: REFERENCES[image]}, frequencies=frequencies)["cider"]
        for image, text in CANDIDATES.items()
    ]
    whole = quick_scores(CANDIDATES, REFERENCES, frequencies=frequencies)["cider"]
    assert whole == pytest.approx(np.mean(alone)) and whole > 0

"""Scores of captions that are not English words: other languages, and characters."""

from __future__ import annotations

import pytest

from training.metrics import captions as metrics
from training.metrics.captions import quick_bleu, quick_cider, score_captions

CHINESE = {"a": "一只狗在跑。", "b": "两个 孩子"}
REFERENCES = {"a": ["一只狗在跑", "狗跑"], "b": ["两个孩子在玩"]}
SPACED = {"a": "一 只 狗 在 跑", "b": "两 个 孩 子"}
SPACED_REFERENCES = {"a": ["一 只 狗 在 跑", "狗 跑"], "b": ["两 个 孩 子 在 玩"]}
GERMAN = {"a": "Ein Hund läuft."}


@pytest.fixture(autouse=True)
def _java_fails(monkeypatch):
    """Java is there and must not be started."""
    monkeypatch.setattr(metrics, "find_java", lambda: "java")
    monkeypatch.setattr(metrics, "ask_java", lambda *_: pytest.fail("Java was started"))
    monkeypatch.setattr(metrics, "meteor_statistics", lambda *_: pytest.fail("METEOR was started"))


def test_characters_are_scored_as_words_set_apart_by_blanks():
    found = score_captions(CHINESE, REFERENCES, language="zh", unit="characters")
    wanted = score_captions(SPACED, SPACED_REFERENCES, language="zh")
    assert found.scores == pytest.approx(wanted.scores, nan_ok=True)
    assert found.scores["bleu_1_no_bp"] == pytest.approx(100.0)
    assert found.bleu[:, -2].tolist() == [5, 4]
    assert found.tokeniser == "characters" and "meteor" not in found.scores
    (note,) = found.notes
    assert note.startswith("METEOR") and "over characters" in note


def test_the_quick_scores_are_over_characters_too():
    scores = score_captions(CHINESE, REFERENCES, unit="characters").scores
    quick = quick_bleu(CHINESE, REFERENCES, "characters")
    assert quick == pytest.approx({name: scores[name] for name in quick}, nan_ok=True)
    assert quick_cider(CHINESE, REFERENCES, "characters") == pytest.approx(scores["cider"])


def test_english_programs_are_left_out_for_other_languages_with_the_reason():
    found = score_captions(GERMAN, {"a": ["Ein Hund läuft"]}, language="de")
    assert found.tokeniser == "simple" and "meteor" not in found.scores
    assert found.scores["bleu_3"] == pytest.approx(100.0)
    note, *_ = found.notes  # the others are of the undefined BLEU-4 and CIDEr
    assert note.startswith("METEOR and the PTB tokeniser") and "(`--data.language`) is 'de'" in note


def test_meteor_cannot_be_required_of_another_language():
    with pytest.raises(ValueError, match="`meteor`: .*is 'de', got True"):
        score_captions(GERMAN, {"a": ["Ein Hund"]}, language="de", meteor=True)


@pytest.mark.parametrize("language", ["en", "en-GB"])
def test_english_takes_its_own_programs(language, monkeypatch):
    asked = []
    monkeypatch.setattr(metrics, "ask_java", lambda _, lines, *__: asked.append(lines) or lines)
    found = score_captions({"a": "a dog"}, {"a": ["a dog runs"]}, language=language, meteor=False)
    assert found.tokeniser == "ptb" and asked == [["a dog", "a dog runs"]]

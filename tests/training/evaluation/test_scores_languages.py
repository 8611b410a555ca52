"""Scores of captions that are not English words: other languages, tokenisers, and characters."""

import pytest

from sat_tf.scores import tokens as score_tokens
from sat_tf.scores.meteor_scoring import STATISTICS, tables_of
from sat_tf.scores.tokens import split_lines, tokens_version
from training.evaluation import scores as metrics
from training.evaluation.scores import score_captions

CHINESE = {"a": "一只狗在跑。", "b": "两个 孩子"}
REFERENCES = {"a": ["一只狗在跑", "狗跑"], "b": ["两个孩子在玩"]}
SPACED = {"a": "一 只 狗 在 跑", "b": "两 个 孩 子"}
SPACED_REFERENCES = {"a": ["一 只 狗 在 跑", "狗 跑"], "b": ["两 个 孩 子 在 玩"]}
GERMAN = {"a": "Ein Hund läuft."}


@pytest.fixture(autouse=True)
def asked(monkeypatch) -> list[str]:
    """METEOR's tables that are asked for; they need not be there."""
    asked = []

    class Fake:
        def __init__(self, language):
            self.tables = tables_of(language)
            asked.append(str(self.tables))

        def statistics(self, captions, references):
            return metrics.np.ones((len(captions), STATISTICS))

        def grounded(self, captions, references):
            return metrics.np.ones(len(captions), bool)

    monkeypatch.setattr(metrics, "meteor_of", Fake)
    return asked


def test_characters_are_scored_as_words_set_apart_by_blanks(asked):
    found = score_captions(CHINESE, REFERENCES, language="zh", unit="characters")
    assert asked == [] and "METEOR is left out: it is over words." in found.notes
    wanted = score_captions(SPACED, SPACED_REFERENCES, language="de")
    wanted_scores = {name: wanted.scores[name] for name in found.scores}
    assert found.scores == pytest.approx(wanted_scores, nan_ok=True)
    assert found.scores["bleu_1_no_bp"] == pytest.approx(100.0)
    assert found.bleu[:, -2].tolist() == [5, 4]
    assert found.tokeniser == "characters" and "meteor" not in found.scores
    assert "not comparable with scores over words" in found.notes[0]
    assert found.signature.startswith("lang:zh|nrefs:1-2|tok:characters-")
    assert found.signature != wanted.signature


@pytest.mark.parametrize(
    ("language", "ran"),
    [
        ("de", ["de-exact+stem"]),
        ("nb", ["no-exact+stem"]),
        ("hi", ["other-exact"]),
        ("en-GB", ["en-exact+stem+synonym+paraphrase"]),
    ],
)
def test_tokeniser_and_meteor_are_those_of_the_language(language, ran, asked):
    found = score_captions(GERMAN, {"a": ["Ein Hund läuft"]}, language=language)
    assert asked == ran and "meteor" in found.scores and all("undefined" in n for n in found.notes)
    assert found.signature.startswith(f"lang:{language[:2]}|") and ran[-1] in found.signature


@pytest.mark.parametrize(
    ("name", "text", "tokens"),
    [
        ("ptb", "cafe\u0301 \uff2e\ufb01 t\u2011shirt it\u00b4s", "caf\u00e9 nfi t-shirt it 's"),
        ("simple", "Ein 3.5-m-Hund’s &amp; Ball.", "ein 3.5-m-hund's ball"),
        ("characters", "一只 NBA", "一 只 n b a"),
        ("zh", "一个 NBA球员。", "一 个 nba 球 员"),
        ("ja-mecab", "犬が 走っている。", "犬 が 走っ て いる"),
    ],
)
def test_each_tokeniser_drops_punctuation_and_has_a_version(name, text, tokens):
    if name in ("zh", "ja-mecab"):
        pytest.importorskip("ipadic" if name == "ja-mecab" else "sacrebleu")
    assert split_lines(name, [text, ""]) == [tokens, ""] and tokens_version(name)[-1].isdigit()


def test_a_tokeniser_that_is_missing_or_unknown_is_an_error(monkeypatch):
    with pytest.raises(ValueError, match="expected one of ptb, .*, got pbt"):
        score_captions(CHINESE, REFERENCES, tokens="pbt")
    monkeypatch.setattr(score_tokens, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match="ja-mecab needs sacrebleu: `pip install"):
        score_captions(CHINESE, REFERENCES, language="zh", tokens="ja-mecab")

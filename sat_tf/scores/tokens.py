"""Tokenisers of scores: n-grams are of their tokens. Other tokenisers give other scores."""

from __future__ import annotations

import html
import importlib.metadata
import unicodedata
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Literal, get_args

from sat_tf.util.errors import invalid_value

ScoreTokens = Literal["ptb", "simple", "characters", "zh", "ja-mecab"]
"""Stanford's PTB tokeniser (English); words of letters, marks and digits; grapheme clusters;
sacrebleu's Chinese characters with whole Latin words, or its Japanese words."""

OVER_CHARACTERS = ("characters", "zh")
"""Tokenisers into other units than words."""
NOT_WORDS = "The scores are over characters: they are not comparable with scores over words."
"""Note on scores of `OVER_CHARACTERS`."""
DEFINITIONS = "1.2"
"""Version of pycocoevalcap that defines the scores."""
_RULES = 4  # version of "simple" and "characters"
_FROM_SACREBLEU = ("zh", "ja-mecab")
_UNSPACED = ("zh", "yue", "wuu", "nan", "hak", "gan", "hsn", "cdo", "cmn", "lzh", "ja", "th", "lo")
_UNSPACED += ("km", "my", "bo", "dz", "shn", "mnw", "ii")


def primary(language: str) -> str:
    """Returns the primary subtag of a language code: pt of pt-BR."""
    return language.lower().partition("-")[0]


def default_tokens(language: str = "en", unit: str = "words") -> ScoreTokens:
    """Returns the tokeniser of scores for captions of a language and of these units."""
    if unit == "characters" or (primary(language) in _UNSPACED and "latn" not in language.lower()):
        return "characters"  # texts of these languages have no spaces, even if references do
    return "ptb" if primary(language) == "en" else "simple"


def check_tokens(name: ScoreTokens | None) -> None:
    """Raises a `ValueError` if a tokeniser is unknown or not installed; None is the default one."""
    if name is not None and name not in get_args(ScoreTokens):
        raise invalid_value("tokens", f"one of {', '.join(get_args(ScoreTokens))}", name)
    if name in _FROM_SACREBLEU and find_spec("sacrebleu") is None:
        raise ValueError(f"The tokeniser {name} needs sacrebleu: `pip install 'sacrebleu[ja]'`.")


def tokens_version(name: ScoreTokens) -> str:
    """Returns the version of a tokeniser."""
    check_tokens(name)
    if name == "ptb":
        return "corenlp3.4.1"
    if name in _FROM_SACREBLEU:
        return f"sacrebleu{importlib.metadata.version('sacrebleu')}"
    return str(_RULES)


def signature(
    name: ScoreTokens, language: str, references: Sequence[Sequence[str]], meteor: object | None
) -> str:
    """Formats the properties that comparable scores share.

    Args:
        name: The tokeniser.
        language: Language code of the captions.
        references: Those of each image.
        meteor: METEOR's tables, None without METEOR.
    """
    fewest, most = (f({len(own) for own in references}) for f in (min, max))
    parts = {
        "lang": primary(language),
        "nrefs": most if fewest == most else f"{fewest}-{most}",
        "tok": f"{name}-{tokens_version(name)}",
        "case": "lc",
        "punct": "no",
    }
    if meteor:
        parts["meteor"] = f"1.5-{meteor}"
    parts["pycocoevalcap"] = DEFINITIONS
    return "|".join(f"{part}:{value}" for part, value in parts.items())


def split_lines(name: ScoreTokens, lines: Sequence[str]) -> list[str]:
    """Splits texts into tokens without punctuation and letter case, separated by spaces.

    Raises:
        ValueError: The tokeniser is unknown, or the package that splits is not installed.
    """
    check_tokens(name)
    if name == "ptb":
        from sat_tf.scores.ptb import plain_forms, split_words

        return [" ".join(split_words(plain_forms(line))) for line in lines]
    split = _splitter(name)
    plain = (html.unescape(line).replace("\u2019", "'").casefold() for line in lines)
    return [" ".join(split(unicodedata.normalize("NFC", line))) for line in plain]


def split_captions(
    name: ScoreTokens, captions: Sequence[str], references: Sequence[Sequence[str]]
) -> tuple[list[str], list[list[str]]]:
    """Splits captions and the references of each; see `split_lines`."""
    lines = [*captions, *(text for own in references for text in own)]
    split = iter(split_lines(name, lines))
    return [next(split) for _ in captions], [[next(split) for _ in own] for own in references]


def _splitter(name: ScoreTokens) -> Callable[[str], list[str]]:
    import regex

    letters = r"[\p{L}\p{M}\p{N}]+"
    words = regex.compile(rf"{letters}(?:(?:['\-]|(?<=\p{{N}})[.,:/](?=\p{{N}})){letters})*")
    if name == "simple":
        return words.findall
    if name == "characters":
        clusters = regex.compile(r"\X")
        return lambda text: [c for word in words.findall(text) for c in clusters.findall(word)]
    if name == "zh":
        from sacrebleu.tokenizers.tokenizer_zh import TokenizerZh as Tokenizer
    else:
        from sacrebleu.tokenizers.tokenizer_ja_mecab import TokenizerJaMecab as Tokenizer
    try:
        cut = Tokenizer()
    except RuntimeError as error:
        raise ValueError(" ".join(str(error).split())) from error
    letter = r"[\p{Han}\p{Hiragana}\p{Katakana}]"
    spaces = regex.compile(rf"(?<={letter}) +(?={letter})")  # that people put between words

    def split(text: str) -> list[str]:
        return [t for t in cut(spaces.sub("", text)).split() if any(map(str.isalnum, t))]

    return split

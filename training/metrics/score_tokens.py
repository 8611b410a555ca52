"""Tokenisers of scores: what n-grams are of. Scores of different tokenisers cannot be compared."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from sat_tf.vocabulary import Unit, tokenize
from training.metrics.java import JavaError, ask_java

ScoreTokens = Literal["ptb", "simple", "characters", "icu", "jieba", "zh", "ja-mecab"]
"""Stanford's PTB tokeniser (English); words, or characters, as training splits them; words that
ICU or jieba find; Chinese characters and whole Latin words, or Japanese words, as sacrebleu has
them."""

OVER_CHARACTERS = ("characters", "zh")
"""Tokenisers whose scores are not over words."""
SECONDS = 300.0
"""Time limit of the PTB tokeniser."""

_SIMPLE = "1"  # version of the rules of `sat_tf.vocabulary.tokenize`
PACKAGES = {"icu": "icu4py", "jieba": "jieba", "zh": "sacrebleu", "ja-mecab": "sacrebleu"}
_EXTRAS = {"icu": "icu", "jieba": "jieba", "zh": "scores", "ja-mecab": "scores"}
NOT_WORDS = "The scores are over characters: they are not comparable with scores over words."
"""Note on scores of `OVER_CHARACTERS`."""


def primary(language: str) -> str:
    """Returns the language of a code, such as "en" of "en-GB"."""
    return language.lower().split("-")[0]


def default_tokens(language: str, unit: Unit = "words") -> ScoreTokens:
    """Returns the tokeniser of scores for the captions of a language.

    Args:
        language: Language code.
        unit: Unit of the captioner's tokens.
    """
    if unit == "characters":
        return "characters"
    return "ptb" if primary(language) == "en" else "simple"


def check_tokens(name: ScoreTokens | None) -> str | None:
    """Returns the package that a tokeniser needs, if any.

    Raises:
        ValueError: It is not installed.
    """
    package = PACKAGES.get(name)
    if package and importlib.util.find_spec(package) is None:
        install = f'pip install "sat-tf[{_EXTRAS[name]}]"'
        raise ValueError(f"`--score-tokens {name}` needs {package}: `{install}`.")
    return package


class Tokens(NamedTuple):
    """Texts whose tokens are separated by spaces.

    Attributes:
        tokeniser: Name of what split them.
        version: Its version.
        lines: The texts.
    """

    tokeniser: ScoreTokens
    version: str
    lines: list[str]


def split_lines(
    name: ScoreTokens, lines: Sequence[str], language: str = "en", java: str | None = None
) -> Tokens:
    """Splits texts into small-letter tokens without punctuation.

    Args:
        name: The tokeniser.
        lines: Texts as people write them.
        language: Their language code.
        java: Path of Java, for "ptb".

    Raises:
        ValueError: The package that splits is not installed.
        JavaError: Java did not split.
    """
    if name == "ptb":
        return Tokens(name, "corenlp3.4.1", ptb_lines(java, lines))
    if name in ("simple", "characters"):
        unit = "words" if name == "simple" else name
        return Tokens(name, _SIMPLE, [" ".join(words(line, unit)) for line in lines])
    package = check_tokens(name)
    split = _splitter(name, language)
    found = [
        " ".join(part for part in split(" ".join(words(line))) if any(map(str.isalnum, part)))
        for line in lines
    ]
    return Tokens(name, f"{package}{importlib.metadata.version(package)}", found)


def _splitter(name: ScoreTokens, language: str) -> Callable[[str], Iterable[str]]:
    """Returns what splits a text of words into tokens; punctuation may be among them."""
    if name == "icu":
        from icu4py.breakers import WordBreaker

        return lambda text: WordBreaker(text, language)
    if name == "jieba":
        import jieba

        jieba.setLogLevel("WARNING")
        return jieba.lcut
    if name == "zh":
        from sacrebleu.tokenizers.tokenizer_zh import TokenizerZh as Tokenizer
    else:
        from sacrebleu.tokenizers.tokenizer_ja_mecab import TokenizerJaMecab as Tokenizer
    try:
        split = Tokenizer()
    except RuntimeError as error:
        raise ValueError(" ".join(str(error).split())) from error
    return lambda text: split(text).split()


def words(text: str, unit: Unit = "words") -> list[str]:
    """Splits a text as training does, without the blanks that are characters."""
    # A blank inside a caption of characters would vanish from BLEU's n-grams anyway.
    return [token for token in tokenize(text, unit) if token != " "]


def ptb_lines(java: str | None, lines: Sequence[str]) -> list[str]:
    """Splits each line by the PTB tokeniser: small letters, no punctuation.

    Raises:
        JavaError: There is no Java, or it failed.
    """
    from pycocoevalcap.tokenizer import ptbtokenizer

    if java is None:
        raise JavaError("Java was not found.")
    jar = Path(ptbtokenizer.__file__).with_name(ptbtokenizer.STANFORD_CORENLP_3_4_1_JAR)
    command = [java, "-cp", str(jar), "edu.stanford.nlp.process.PTBTokenizer"]
    command += ["-preserveLines", "-lowerCase", "-encoding", "UTF-8"]
    # A line break inside a caption would shift all lines after it.
    lines = [" ".join(line.split()) for line in lines]
    answers = ask_java(command, lines, SECONDS, "the PTB tokeniser")
    punctuation = set(ptbtokenizer.PUNCTUATIONS)
    return [" ".join(w for w in line.split() if w not in punctuation) for line in answers]

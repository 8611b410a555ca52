"""Tokenisers of scores: what n-grams are of. Scores of different tokenisers cannot be compared."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from collections.abc import Callable, Sequence
from typing import Literal, get_args

from sat_tf.joining import RULES, Segmenter, Unit, join, joining, primary
from sat_tf.tokens import comparable, default_segmenter, default_unit, tokenize
from sat_tf.util.errors import installation

ScoreTokens = Literal["ptb", "simple", "characters", "icu", "jieba", "mecab", "zh", "ja-mecab"]
"""Stanford's PTB tokeniser (English); words, or characters, as training splits them; words that
ICU, jieba or MeCab find; Chinese characters and whole Latin words, or Japanese words, as sacrebleu
has them."""

OVER_CHARACTERS = ("characters", "zh")
"""Tokenisers whose scores are not over words."""
NOT_WORDS = "The scores are over characters: they are not comparable with scores over words."
"""Note on scores of `OVER_CHARACTERS`."""
UNSPLIT = "Captions without spaces between words were split at spaces: see `--score-tokens`."
"""Note on scores by a tokeniser that finds no words in the language."""
DEFINITIONS = "1.2"
"""Version of pycocoevalcap whose definitions the scores follow."""
PACKAGES = {"icu": "icu4py", "jieba": "jieba", "mecab": "fugashi"}
PACKAGES |= {"zh": "sacrebleu", "ja-mecab": "sacrebleu"}
"""Packages that tokenisers need."""


def default_tokens(
    language: str = "en",
    unit: Unit = "words",
    segmenter: Segmenter = "spaces",
) -> ScoreTokens:
    """Returns the tokeniser of scores for captions that are split as told, see `tokenize`."""
    if segmenter != "spaces":
        return segmenter
    unspaced = default_segmenter(language) != "spaces" or default_unit(language) == "characters"
    if unit == "characters" or unspaced:
        return "characters"  # texts of these languages have no spaces, whoever put some in
    return "ptb" if primary(language) == "en" else "simple"


def check_tokens(name: ScoreTokens | None) -> str | None:
    """Returns the package that a tokeniser needs, if any.

    Raises:
        ValueError: It is not installed.
    """
    package = PACKAGES.get(name)
    if package and importlib.util.find_spec(package) is None:
        extra = name if name in get_args(Segmenter) else "scores"
        raise ValueError(f"`--score-tokens {name}` needs {package}: `{installation(extra)}`.")
    return package


def tokens_version(name: ScoreTokens) -> str:
    """Returns the version of a tokeniser: that of its package, and that of our rules."""
    if name == "ptb":
        return "corenlp3.4.1"
    if not (package := check_tokens(name)):
        return str(RULES)
    program = "" if package == name else package
    return f"{program}{importlib.metadata.version(package)}-{RULES}"


def signature(
    name: ScoreTokens, language: str, references: Sequence[Sequence[str]], meteor: object | None
) -> str:
    """Formats what scores have to share to be compared; of the versions, those that count.

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


def split_lines(name: ScoreTokens, lines: Sequence[str], language: str = "en") -> list[str]:
    """Splits texts into tokens without punctuation and letter case, separated by spaces.

    Args:
        name: The tokeniser.
        lines: Texts as people write them.
        language: Their language code.

    Raises:
        ValueError: The package that splits is not installed.
    """
    if name == "ptb":
        from sat_tf.scores.ptb import plain_forms, split_words

        return [" ".join(split_words(plain_forms(line))) for line in lines]
    check_tokens(name)
    split = _splitter(name, language)
    # A blank inside a caption of characters would vanish from BLEU's n-grams anyway.
    found = ((comparable(token, language) for token in split(line)) for line in lines)
    return [" ".join(filter(str.strip, tokens)) for tokens in found]


def split_captions(
    name: ScoreTokens,
    captions: Sequence[str],
    references: Sequence[Sequence[str]],
    language: str = "en",
) -> tuple[list[str], list[list[str]]]:
    """Splits captions and the references of each; see `split_lines`."""
    lines = [*captions, *(text for own in references for text in own)]
    split = iter(split_lines(name, lines, language))
    return [next(split) for _ in captions], [[next(split) for _ in own] for own in references]


def _splitter(name: ScoreTokens, language: str) -> Callable[[str], list[str]]:
    if name in ("simple", "characters"):
        unit = "words" if name == "simple" else name
        return lambda text: tokenize(text, unit, language)

    def whole(text: str) -> str:
        """Returns the text as a captioner writes it: without spaces that people put into some."""
        return join(tokenize(text, "words", language), *joining("words", language))

    if name in get_args(Segmenter):
        return lambda text: tokenize(whole(text), "words", language, segmenter=name)
    if name == "zh":
        from sacrebleu.tokenizers.tokenizer_zh import TokenizerZh as Tokenizer
    else:
        from sacrebleu.tokenizers.tokenizer_ja_mecab import TokenizerJaMecab as Tokenizer
    try:
        cut = Tokenizer()
    except RuntimeError as error:
        raise ValueError(" ".join(str(error).split())) from error

    def split(text: str) -> list[str]:
        return [token for token in cut(whole(text)).split() if any(map(str.isalnum, token))]

    return split

"""The caption of an image, and the explanation of a sentence about it, word by word."""

from __future__ import annotations

import base64
import dataclasses
import io
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
from PIL import Image

from sat_tf.text.vocabulary import END, UNK, Vocabulary
from sat_tf.util.errors import invalid_value


@dataclass(frozen=True, eq=False, repr=False)
class Caption:
    """The caption of one image.

    Attributes:
        text: The caption.
        words: Its `T` words (characters, if the vocabulary is of characters).
        score: `log_prob / T^p`, nats.
        log_prob: Log-probability of the caption, nats: the sum of `log_probs` and of the end's; a
            caption that the length limit cut has no end.
        log_probs: float32 `[T]`, log-probability of each word, nats.
        alpha: `[T, h, w]`, attention map of each word; None without attention.
        beta: `[T]`, gate of each word; None without attention.
        alternatives: The other hypotheses of the beam, best first: (text, score). The order is
            that of consensus if the search ranks by it.
        image: uint8 `[S, S, 3]`, the image as the encoder saw it, covered by the maps; None
            if annotations were captioned.
        language: Code of the caption's language; empty if it is not known.
        tokens: Ids of its tokens, with `END` if it ended by itself.
        familiarity: Share of the dev images that are farther from the training images than this
            one, 0 to 1; None of a captioner that does not know it. Below
            `confidence.UNFAMILIAR`, 2 %, the image is unlike the training data.
        confidence: Chance that every content word is in a reference caption, 0 to 1; None as
            `familiarity`, with a search that is not the captioner's own, and for alternatives.
    """

    text: str
    words: tuple[str, ...]
    score: float
    log_prob: float
    log_probs: np.ndarray
    alpha: np.ndarray | None
    beta: np.ndarray | None
    alternatives: tuple[tuple[str, float], ...] = ()
    image: np.ndarray | None = None
    language: str = ""
    tokens: tuple[int, ...] = ()
    familiarity: float | None = None
    confidence: float | None = None

    def __repr__(self) -> str:
        return f"Caption({self.text!r}, score={self.score:.2f})"

    def _repr_html_(self) -> str:
        """Returns the figure as HTML, for notebooks."""
        if self.image is None:
            return f'<p dir="auto" lang="{escape(self.language)}">{escape(self.text)}</p>'
        content = io.BytesIO()
        Image.fromarray(self.figure()).save(content, "PNG")
        data = base64.b64encode(content.getvalue()).decode()
        return f'<img src="data:image/png;base64,{data}" alt="{escape(self.text)}">'

    def labelled(self) -> Self:
        """Returns it with words as figures show them."""
        return self

    def figure(self) -> np.ndarray:
        """Draws where the captioner looked for each word; see `attention_figure`.

        Returns:
            uint8 `[H, W, 3]`.

        Raises:
            MissingFontError: No font of the machine has the caption's letters.
            ValueError: The caption is that of annotations.
        """
        from sat_tf.inference.figures import attention_figure

        return attention_figure(**self._drawn())

    def show(self) -> None:
        """Opens the figure in the system's image viewer; see `figure`."""
        Image.fromarray(self.figure()).show()

    def save(self, path: str | Path) -> None:
        """Writes the figure; see `figure`.

        Args:
            path: File, `*.png` or `*.jpg`, which is replaced if it exists.

        Raises:
            ValueError: The name ends otherwise.
        """
        from sat_tf.inference.figures import save_figure

        save_figure(Path(path), **self._drawn())

    def _drawn(self) -> dict:
        if self.image is None:
            raise ValueError("A caption of annotations has no image to draw: caption an image.")
        names, shown = ("image", "words", "alpha", "beta", "language"), self.labelled()
        return {"title": self.text} | {name: getattr(shown, name) for name in names}


_FEW = 5  # words that a message names


@dataclass(frozen=True, eq=False, repr=False)
class Explanation(Caption):
    """A sentence about one image, as a captioner reads it; a `Caption`.

    Attributes:
        looking: float32 `[T]`, what looking was worth for each word, nats: its log-probability
            minus the one under a uniform map. The words before it were read with the maps as they
            are. None without attention.
        unknown: The sentence's words that the captioner does not know. It reads them as `<unk>`;
            they have a map, and NaN for what their probability would be, as has the sentence.
    """

    looking: np.ndarray | None = None
    unknown: tuple[str, ...] = ()

    def rows(self) -> list[list[str]]:
        """Returns a table with a row per word: log-probability, worth of looking, gate, maximum.

        The maximum is the centre of the map's largest cell, in percent of what the encoder sees,
        from the left and from the top.
        """
        head = ["word", "log p"]
        table = [[word, _signed(p)] for word, p in zip(self.words, self.log_probs, strict=True)]
        if self.alpha is None:
            return [head, *table]
        height, width = self.alpha.shape[1:]
        for row, worth, gate, alpha in zip(table, self.looking, self.beta, self.alpha, strict=True):
            y, x = divmod(int(alpha.argmax()), width)
            place = f"{100 * (x + 0.5) / width:.0f}", f"{100 * (y + 0.5) / height:.0f}"
            row += [_signed(worth), f"{gate:.2f}", *place]
        return [[*head, "looking", "gate", "x, %", "y, %"], *table]

    def labelled(self) -> Self:
        """Returns it with what looking was worth behind each word."""
        if self.looking is None:
            return self
        pairs = zip(self.words, self.looking, strict=True)
        return dataclasses.replace(self, words=tuple(f"{w} {_signed(worth)}" for w, worth in pairs))


def _signed(nats: float) -> str:
    return "?" if np.isnan(nats) else f"{nats:+.2f}"


class WordByWord(NamedTuple):
    """A captioner's reading of T tokens, each from those before it."""

    log_probs: np.ndarray
    """float32 `[T]`, nats."""
    uniform: np.ndarray | None
    """float32 `[T]`, log-probability with a uniform map at this step alone; None without maps."""
    alpha: np.ndarray | None
    """float32 `[T, L]`."""
    beta: np.ndarray | None
    """float32 `[T]`."""


def sentence_tokens(
    vocabulary: Vocabulary, sentence: str, longest: int
) -> tuple[list[str], tuple[int, ...]]:
    """Splits a sentence as captions were split in training.

    Args:
        vocabulary: The captioner's.
        sentence: As a user wrote it.
        longest: The most tokens of a caption.

    Returns:
        Tokens as captions show them, unknown ones as they were written; and their ids with `END`.

    Raises:
        ValueError: It has no words, none that is known, or too many.
    """
    found = vocabulary.tokenize(sentence)
    ids = [vocabulary.id(token) for token in found]
    if not found:
        raise invalid_value("sentence", "a sentence with words", repr(sentence[:80]))
    if len(found) > longest:
        expected = f"at most {longest} {vocabulary.unit}, as many as a caption may have"
        raise invalid_value("sentence", expected, len(found))
    if set(ids) == {UNK}:
        named = ", ".join(dict.fromkeys(found[:_FEW]))
        raise invalid_value("sentence", "a word that the captioner knows", f"unknown: {named}")
    pairs = zip(found, ids, strict=True)
    return [t if n == UNK else vocabulary.words[n] for t, n in pairs], (*ids, END)

"""The caption of an image, as every way of captioning returns it."""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass
from html import escape
from pathlib import Path

import numpy as np
from PIL import Image


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
        image: uint8 `[S, S, 3]`, the image as the encoder saw it, all of which the maps cover; None
            if annotations were captioned.
        language: Code of the caption's language; empty if it is not known.
        tokens: Ids of its tokens, with `END` if it ended by itself.
        familiarity: Share of the dev images that lie farther from the training images than this
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
            path: File, `*.png`, `*.jpg` or `*.webp` (an animation, word by word), which is replaced
                if it exists.

        Raises:
            ValueError: The name ends otherwise.
        """
        from sat_tf.inference.figures import save_figure

        save_figure(Path(path), **self._drawn())

    def _drawn(self) -> dict:
        if self.image is None:
            raise ValueError("A caption of annotations has no image to draw: caption an image.")
        names = ("image", "words", "alpha", "beta", "language")
        return {"title": self.text} | {name: getattr(self, name) for name in names}

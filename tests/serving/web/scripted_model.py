"""A captioner that answers what a test wants."""

import threading
from dataclasses import dataclass, field

import numpy as np

from sat_tf.images.pillow import decode
from sat_tf.inference.captions import Caption
from sat_tf.util.errors import RunError
from serving.web.captions import viewer_data

GRID = (3, 3)
WORDS = (("a", "dog", "runs"), ("a", "cat"))
PLACES = ((0, 0), (1, 1), (2, 2))  # where each word looks, in either hypothesis


@dataclass
class ScriptedModel:
    """Captions every image as "a dog runs".

    Attributes:
        kind: `soft`, `hard` or `none`.
        resize: `crop` or `squash`.
        familiarity: Of every photograph.
        broken: Whether it cannot be loaded.
        sentences: Those that it was asked about, None for a caption.
    """

    kind: str = "soft"
    resize: str = "crop"
    familiarity: float | None = None
    broken: bool = False
    sentences: list[str | None] = field(default_factory=list)
    answered: threading.Event = field(default_factory=threading.Event)

    def __call__(self, content: bytes, sentence: str | None = None) -> dict:
        """Answers one request for every hypothesis."""
        if self.broken:
            raise RunError("its weights are gone")
        image = decode(content)
        self.sentences.append(sentence)
        if sentence == "unicorns":
            raise ValueError("It knows none of these words.")
        words = (tuple(sentence.lower().split()),) if sentence else WORDS
        found = [self._caption(w, PLACES[:: -1 if n else 1]) for n, w in enumerate(words)]
        data = viewer_data(image, found, self.kind, self.resize)
        unknown = [word for word in words[0] if word == "fly"]
        return data if sentence is None else data | {"unknown": unknown}

    def _caption(self, words: tuple[str, ...], places) -> Caption:
        alpha = beta = None
        if self.kind != "none":
            alpha = np.full([len(words), *GRID], 0.02, np.float32)
            for word, place in zip(range(len(words)), places, strict=False):
                alpha[(word, *place)] = 0.84
            beta = np.full([len(words)], 0.5, np.float32)
        log_probs = np.full([len(words)], np.log(0.5), np.float32)
        known = {"language": "de", "familiarity": self.familiarity}
        return Caption(" ".join(words), words, -1.0, -1.0, log_probs, alpha, beta, **known)

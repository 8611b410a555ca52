"""A captioner over its Keras model: what training, evaluation and exports use."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf

from sat_tf.captioner import Captioner
from sat_tf.config import CaptionerConfig, Inference, SearchConfig
from sat_tf.inference.captioning import TrainedCaptioner
from sat_tf.inference.captions import Caption, WordByWord
from sat_tf.inference.confidence import Limits
from sat_tf.search import Hypotheses
from sat_tf.text.vocabulary import END, START, Vocabulary
from sat_tf.util.errors import invalid_value
from sat_tf.util.fields import check_argument


class KerasCaptioner(TrainedCaptioner):
    """A captioner with its vocabulary, over TensorFlow.

    Args:
        model: The captioner.
        vocabulary: Its words.
        path: See `TrainedCaptioner`, as the others.
        weights_sha256: See there.
        limits: See there.
    """

    _AT_ONCE = 64

    def __init__(
        self,
        model: Captioner,
        vocabulary: Vocabulary,
        path: Path | None = None,
        weights_sha256: str | None = None,
        limits: Limits | None = None,
    ) -> None:
        if len(vocabulary) != model.vocabulary_size:
            expected = f"the model's {model.vocabulary_size} words"
            raise invalid_value("vocabulary", expected, f"{len(vocabulary)}")
        self.model, self.vocabulary = model, vocabulary
        self.path, self.weights_sha256 = path, weights_sha256
        self.limits = limits or Limits()
        # TensorFlow would take one lambda of several captioners for one that is traced anew.
        encode = functools.partial(model.encoder, training=False)
        self._encode = tf.function(encode, autograph=False, reduce_retracing=True)
        self._searches: dict[SearchConfig, tf.types.experimental.PolymorphicFunction] = {}

    @property
    def config(self) -> CaptionerConfig:
        """Configuration of the model."""
        return self.model.config

    @property
    def grid(self) -> tuple[int, int]:
        """`(h, w)` of the attention maps."""
        return self.model.encoder.grid

    def set_inference(self, inference: Inference) -> None:
        """Sets how hard attention selects a location: `expectation`, `sample` or `argmax`.

        Raises:
            ValueError: Any other word, or a captioner without hard attention.
        """
        kind = self.config.attention.kind
        if kind != "hard":
            expected = f"none for {kind} attention"
            raise invalid_value("inference", expected, inference, flag="--inference")
        attention = dataclasses.replace(self.config.attention, inference=inference)
        self.model.config = dataclasses.replace(self.config, attention=attention)
        self._searches.clear()
        self.limits = self.limits._replace(confidence=None)  # it is of captions by the other choice

    def beams(
        self, pixels: Sequence[np.ndarray], search: SearchConfig, most: int | None = None
    ) -> list[list[Caption]]:
        """Captions images from the encoder's input; see `TrainedCaptioner.beams`."""
        if not pixels:
            return []
        found = self._beams(self.annotate(np.stack(pixels)), search)
        seen = [one.round().astype(np.uint8) for one in pixels]
        return [
            [dataclasses.replace(caption, image=image) for caption in beam[:most]]
            for image, beam in zip(seen, found, strict=True)
        ]

    def annotate(self, pixels: tf.Tensor | np.ndarray) -> tf.Tensor:
        """Encodes images `[B, S, S, 3]`, 0..255, as annotations `[B, L, D]`.

        Raises:
            ValueError: The images are of another shape.
        """
        pixels = tf.cast(pixels, tf.float32)
        self.model.encoder.check_shape(pixels.shape)
        return self._encode(pixels)

    def describe(
        self, annotations: tf.Tensor | np.ndarray, search: SearchConfig | None = None
    ) -> list[Caption]:
        """Captions images from annotations `[B, L, D]`."""
        return [beam[0] for beam in self._beams(annotations, search)]

    def search(
        self, annotations: tf.Tensor | np.ndarray, search: SearchConfig | None = None
    ) -> Hypotheses:
        """Runs beam search over annotations `[B, L, D]`, compiled once per setting."""
        search = check_argument("search", search, SearchConfig | None) or self.config.search
        annotations = tf.cast(annotations, tf.float32)
        shape = (math.prod(self.grid), self.model.encoder.annotation_dim)
        if not annotations.shape.is_compatible_with((None, *shape)):
            expected = f"shape [B, {shape[0]}, {shape[1]}]"
            raise invalid_value("annotations", expected, annotations.shape.as_list())
        if search not in self._searches:
            run = functools.partial(self.model.search, search=search)
            self._searches[search] = tf.function(run, autograph=False, reduce_retracing=True)
        return self._searches[search](annotations)

    def _beams(
        self, annotations: tf.Tensor | np.ndarray, search: SearchConfig | None
    ) -> list[list[Caption]]:
        """Returns all hypotheses of each image; the best one lists the others, and has limits."""
        hypotheses = tf.nest.map_structure(np.asarray, self.search(annotations, search))
        rows, beam = hypotheses.scores.shape
        bests, others = [], []
        for row in range(rows):
            best, *rest = (self._read_one(hypotheses, row, k) for k in range(beam))
            others.append([other for other in rest if other.text])
            listed = tuple((other.text, other.score) for other in others[-1])
            bests.append(dataclasses.replace(best, alternatives=listed))
        bests = self.limits.told(bests, np.asarray(annotations), search or self.config.search)
        return [[best, *rest] for best, rest in zip(bests, others, strict=True)]

    def _read_one(self, hypotheses: Hypotheses, row: int, k: int) -> Caption:
        length = int(hypotheses.lengths[row, k])
        ids = hypotheses.token_ids[row, k, :length]
        cut = length == hypotheses.token_ids.shape[-1] - 1  # and never asked for its end
        alpha = beta = None
        if self.config.attention.kind != "none":
            alpha, beta = (part[row, k, :length] for part in hypotheses.auxiliary)
            alpha = alpha.reshape(length, *self.grid)
        return Caption(
            text=self.vocabulary.decode(ids),
            score=float(hypotheses.scores[row, k]),
            log_prob=float(hypotheses.log_probs[row, k]),
            words=tuple(self.vocabulary.words[i] for i in ids),
            log_probs=hypotheses.word_log_probs[row, k, :length],
            alpha=alpha,
            beta=beta,
            language=self.vocabulary.language,
            tokens=(*map(int, ids), *(() if cut else (END,))),
        )

    def read_tokens(self, pixels: np.ndarray, tokens: Sequence[int]) -> WordByWord:
        """Reads a sentence by steps of the search, with the gain from each map."""
        model, annotations = self.model, self.annotate(pixels[np.newaxis])
        attends = model.decoder.attends
        step, state, parts = model.search_step(annotations, model.selection)
        uniform, *_ = model.search_step(annotations, "uniform")
        found = []
        for word, token in zip([START, *tokens[:-1]], tokens, strict=True):
            words, before = tf.constant([word]), state
            log_probs, state, attention = step(words, before, parts)
            row = [log_probs[:, token]]
            if attends:
                even, *_ = uniform(words, (before[0], ()), parts)
                row += [even[:, token], *attention]
            found.append([part[0].numpy() for part in row])
        columns = [np.stack(column) for column in zip(*found, strict=True)]
        return WordByWord(*(columns if attends else [*columns, None, None, None]))

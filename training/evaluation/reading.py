"""A captioner on a split: the captions it writes, and the likelihood of those it reads."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import tensorflow as tf

from sat_tf.config import SearchConfig
from sat_tf.inference.captioning import TrainedCaptioner
from sat_tf.inference.captions import Caption
from sat_tf.objectives.likelihood import word_log_likelihood, word_mask
from sat_tf.text.vocabulary import UNK
from training.data.batches import pad_tokens, readable_rows, scoring_batches, scoring_plan
from training.data.captions import CaptionTable, caption_table
from training.data.examples import Split
from training.data.image_loader import InputSource, readable_images
from training.evaluation.confidence import WordConfidence

_BATCH = 64


class Captioning:
    """A captioner with the images of a split.

    Args:
        captioner: Trained captioner, or one in training.
        split: The captions as written.
        source: Images or annotations of the split.
    """

    def __init__(self, captioner: TrainedCaptioner, split: Split, source: InputSource) -> None:
        self.captioner, self.split, self.source = captioner, split, source

    def annotations(self, indices: np.ndarray) -> tf.Tensor | np.ndarray:
        """Reads or computes the annotations `[n, L, D]` of examples by index."""
        inputs = self.source.read(indices)
        return inputs if self.source.key == "annotations" else self.captioner.annotate(inputs)

    def captions(
        self, search: SearchConfig, batch_size: int = 50, count: int | None = None
    ) -> dict[str, Caption]:
        """Captions the readable images, or the first `count` of them, by image id."""
        readable = readable_images(self.split, self.source, count)
        captions = {}
        for start in range(0, len(readable), batch_size):
            indices = readable[start : start + batch_size]
            annotations = self.annotations(indices)
            ids = [self.split.examples[index].image_id for index in indices]
            captions |= dict(zip(ids, self.captioner.describe(annotations, search), strict=True))
        return captions


class Reading(Captioning):
    """A captioner with the images and the reference captions of a split.

    References are read with the true previous words. Sampled attention is then replaced by its
    expectation, so that two evaluations agree.
    """

    def __init__(self, captioner: TrainedCaptioner, split: Split, source: InputSource) -> None:
        super().__init__(captioner, split, source)
        compiled = {"autograph": False, "reduce_retracing": True}
        self._compiled_predictions = tf.function(self._predictions, **compiled)
        self._compiled_words = tf.function(self._words, **compiled)
        self._compiled_probabilities = tf.function(self._probabilities, **compiled)

    @cached_property
    def table(self) -> CaptionTable:
        """The whole reference captions as ids; a `DataError` if none has a word."""
        return caption_table(self.split, self.captioner.vocabulary)

    @cached_property
    def cut_table(self) -> CaptionTable:
        """The same, with captions cut to the search's `max_length`."""
        return self.table.cut(self.captioner.config.search.max_length)

    @cached_property
    def unknown_share(self) -> float:
        """Share of the references' tokens that the captioner does not know, 0 to 1."""
        rows = self.cut_table.tokens
        words = rows.flat.size - 2 * len(rows)  # without <start> and <end>
        return float(np.count_nonzero(rows.flat == UNK) / words)

    @cached_property
    def rows(self) -> np.ndarray:
        """Rows of the table with a readable image; a `DataError` if there is none."""
        return readable_rows(self.table, self.source)

    def likelihood(
        self, table: CaptionTable | None = None
    ) -> tuple[dict[str, float], WordConfidence]:
        """Predicts every word of the reference captions from the true words before it.

        Captions of unreadable images are left out.

        Args:
            table: The captions as ids; by default `cut_table`.

        Returns:
            `nll`, nats per token, and its `perplexity`; the likeliest word at each place, right if
            it is the caption's.
        """
        table = self.cut_table if table is None else table
        total, parts = 0.0, []
        plan = scoring_plan(self.source, table, _BATCH)
        batches, _ = scoring_batches(self.source, table, _BATCH)
        # One trace for all shapes: with few batches, TensorFlow would warn of one for each.
        predict = self._compiled_predictions.get_concrete_function(batches.element_spec)
        for rows, batch in zip(plan, batches, strict=True):
            log_lik, mask, confidence, right = (part.numpy() for part in predict(batch))
            total += float(log_lik)
            image = np.broadcast_to(table.image_index[rows][:, None], mask.shape)
            parts.append([part[mask] for part in (confidence, right, image)])
        words = WordConfidence(*map(np.concatenate, zip(*parts, strict=True)))
        nll = -total / len(words.right)
        return {"nll": nll, "perplexity": float(np.exp(nll))}, words

    @property
    def selection(self) -> str:
        """Choice of the location: `expectation` or `argmax`."""
        selection = self.captioner.model.selection
        return "expectation" if selection == "sample" else selection

    def probabilities(self, batch: dict[str, np.ndarray | tf.Tensor]) -> tf.Tensor:
        """Returns the probability of every word of the vocabulary at each place, `[B, T, K]`."""
        return self._compiled_probabilities({k: tf.convert_to_tensor(v) for k, v in batch.items()})

    def words(
        self, annotations: np.ndarray, tokens: Sequence[np.ndarray], uniform: bool = False
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns log-likelihood `[n, T]`, nats, and alpha `[n, T, L]` of each word.

        With `uniform`, the context weights all locations equally, whatever alpha is.
        """
        batch = {"annotations": tf.constant(annotations), "tokens": pad_tokens(tokens)}
        log_lik, alpha = self._compiled_words(batch, "uniform" if uniform else self.selection)
        return log_lik.numpy(), alpha.numpy()

    def _words(self, batch: dict[str, tf.Tensor], selection: str) -> tuple[tf.Tensor, tf.Tensor]:
        targets = batch["tokens"][:, 1:]
        output = self.captioner.model(batch, selection=selection)
        log_lik = word_log_likelihood(output.logits, targets, word_mask(targets))
        return log_lik, tf.nn.softmax(output.alignment_scores)

    def _predictions(self, batch: dict[str, tf.Tensor]) -> tuple[tf.Tensor, ...]:
        """Log-likelihood of all words; `[B, T]`: is a word, its top probability, top is right."""
        targets = batch["tokens"][:, 1:]
        mask = word_mask(targets)
        logits = self.captioner.model(batch, selection=self.selection).logits
        top = tf.reduce_max(logits, axis=-1) - tf.reduce_logsumexp(logits, axis=-1)
        right = tf.argmax(logits, axis=-1, output_type=targets.dtype) == targets
        log_lik = tf.reduce_sum(word_log_likelihood(logits, targets, mask))
        return log_lik, mask > 0.0, tf.exp(top), right

    def _probabilities(self, batch: dict[str, tf.Tensor]) -> tf.Tensor:
        return tf.nn.softmax(self.captioner.model(batch, selection=self.selection).logits)

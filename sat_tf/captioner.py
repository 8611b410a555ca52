"""Show, Attend and Tell: encoder, decoder and search as one model.

Shapes: B batch, T words, L locations, D annotation width, K hypotheses of the search.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import keras
import tensorflow as tf

from sat_tf import config as configs
from sat_tf.layers.attention import Selection
from sat_tf.layers.decoder import Attended, DecoderOutput, RNNDecoder
from sat_tf.layers.encoder import Encoder
from sat_tf.layers.lstm import State
from sat_tf.objectives import make_objective
from sat_tf.objectives.likelihood import word_log_likelihood, word_mask
from sat_tf.ops import replica_seed, step_seeds
from sat_tf.train_step import Batch, Means, TrainableModel
from sat_tf.util.errors import invalid_value
from sat_tf.util.fields import checked, from_dict, to_dict

if TYPE_CHECKING:
    from sat_tf.search import Hypotheses

CAPTION_WORDS = 12
"""Words of a typical caption: a search reads about this many contexts per hypothesis."""


@keras.saving.register_keras_serializable(package="sat_tf")
class Captioner(TrainableModel):
    """The captioner of the paper: from an image to words, with attention over its locations.

    Args:
        config: All settings.
        vocabulary_size: Number of words, including the four special tokens.
        load_encoder_weights: False if they are restored from a run, or random on purpose.
        **kwargs: For Keras; a `dtype` policy is that of the decoder and of a trainable encoder. A
            frozen encoder stays in float32, since its annotations are computed once.

    Call arguments:
        batch: `tokens` int32 `[B, T + 1]` from <start> to <end>, padded with 0, and either
            `annotations` `[B, L, D]` or `images` `[B, H, W, 3]`, 0..255. If there is `image_index`
            int `[B]`, rows with the same number hold the same image: what does not depend on the
            caption is computed once.

    Output:
        `DecoderOutput`: logits, alignment scores and beta of each step, teacher-forced.

    References:
        Xu et al. (2015), arXiv:1502.03044.
    """

    @checked
    def __init__(
        self,
        config: configs.CaptionerConfig,
        vocabulary_size: int,
        load_encoder_weights: bool = True,
        **kwargs,
    ) -> None:
        # Keras' cast of stored annotations from float16 to bfloat16 is TensorFlow's slowest.
        super().__init__(autocast=False, **kwargs)
        self.config, self.vocabulary_size = config, vocabulary_size
        policy = self.dtype_policy
        loaded = functools.partial(Encoder, weights=config.encoder.weights)
        make_encoder = loaded if load_encoder_weights else Encoder.unloaded
        self.encoder = make_encoder(
            config.encoder.name,
            config.encoder.image_size,
            tap=config.encoder.layer,
            trainable=config.encoder.trainable,
            trainable_from=config.encoder.trainable_from,
            dtype=policy if config.encoder.trainable else "float32",
            name="encoder",
        )
        self.decoder = RNNDecoder(
            vocabulary_size,
            config.decoder,
            attends=config.attention.kind != "none",
            dtype=policy,
            name="decoder",
        )
        self.decoder.build((None, None, self.encoder.annotation_dim))
        self.objective = make_objective(config.attention)
        if config.attention.kind == "hard":
            from sat_tf.objectives.estimators import make_baseline

            self.baseline = make_baseline(config.attention)
        self.built = True

    @property
    def selection(self) -> Selection:
        """Choice of a location at inference."""
        return self.config.attention.selection

    def annotate(self, batch: Batch, training: bool = False) -> tf.Tensor:
        """Returns the annotations in a batch, or encodes its images: `[B, L, D]`."""
        annotations, place = self._annotate_once(batch, training)
        return annotations if place is None else tf.gather(annotations, place)

    def _annotate_once(self, batch: Batch, training: bool) -> tuple[tf.Tensor, tf.Tensor | None]:
        """Annotates each image once; returns the image of each row, too, None if it is its own."""
        name = "annotations" if "annotations" in batch else "images"
        if name not in batch:
            raise invalid_value("batch", "`annotations` or `images` in it", sorted(batch))
        inputs, place = batch[name], None
        if "image_index" in batch:
            numbers, place = tf.unique(batch["image_index"])
            rows = tf.range(tf.size(place))
            inputs = tf.gather(inputs, tf.math.unsorted_segment_min(rows, place, tf.size(numbers)))
        if name == "images":
            inputs = self.encoder(tf.cast(inputs, tf.float32), training=training)
        return inputs, place

    def call(
        self,
        batch: Batch,
        selection: Selection | None = None,
        seed: tf.Tensor | None = None,
        use_expectation: tf.Tensor | None = None,
        training: bool = False,
        samples: int = 1,
    ) -> DecoderOutput:
        """Reads the captions of a batch (teacher forcing); arguments as those of `RNNDecoder`."""
        annotations, place = self._annotate_once(batch, training)
        return self.decoder(
            annotations,
            batch["tokens"][:, :-1],
            selection=selection or self.selection,
            seed=seed,
            use_expectation=use_expectation,
            training=training,
            samples=samples,
            images=place,
        )

    def test_means(self, batch: Batch, seed: tf.Tensor) -> Means:
        """Measures `nll`, the teacher-forced negative log-likelihood, nats per token."""
        outputs = self(batch, training=False, seed=replica_seed(seed))
        targets = batch["tokens"][:, 1:]
        mask = word_mask(targets)
        nll = -tf.reduce_sum(word_log_likelihood(outputs.logits, targets, mask))
        words = tf.reduce_sum(mask)
        return {"nll": (tf.math.divide_no_nan(nll, words), words)}

    def search(
        self,
        annotations: tf.Tensor,
        search: configs.SearchConfig | None = None,
        seed: tf.Tensor | None = None,
    ) -> Hypotheses:
        """Captions images by beam search; a beam of 1 is greedy.

        Args:
            annotations: `[B, L, D]`.
            search: Settings; None takes those of the configuration.
            seed: int32 `[2]`, for hard attention that samples; None is `[0, 0]`.

        Returns:
            `Hypotheses`, with `(alpha [B, K, T, L], beta [B, K, T])` as auxiliary.
        """
        from sat_tf.search import beam_search

        search = search or self.config.search
        step, state, attended = self.search_step(annotations, self.selection, seed)
        options = {key: of for key, of in vars(search).items() if key != "suppress_unknown"}
        return beam_search(
            step,
            state,
            batch_size=tf.shape(annotations)[0],
            forbidden=search.forbidden,
            # The draw of a location depends on its row, which must then not move.
            constants=() if self.selection == "sample" else attended,
            **options,
        )

    def begin_search(self, annotations: tf.Tensor, beam: int = 1) -> tuple[Attended, State]:
        """Computes what a LiteRT search reads of images, and its first state."""
        attended, state = self.decoder.begin(annotations)
        locations = attended.annotations.shape[1]
        if locations is not None and locations <= beam * CAPTION_WORDS:
            attended = self.decoder.project(attended)
        return attended, state

    def search_step(
        self, annotations: tf.Tensor, selection: Selection, seed: tf.Tensor | None = None
    ):
        """Prepares images for the searches of `sat_tf.search`.

        Args:
            annotations: `[B, L, D]`.
            selection: Choice of a location.
            seed: int32 `[2]`, for hard attention that samples; None is `[0, 0]`.

        Returns:
            The step function; its first state; and the tensors of the images, a dictionary of
            `[B, ...]`. The step takes this dictionary, or that of some of the images, as its third
            argument.
        """
        attended, state = self.decoder.begin(annotations)
        # Only samples depend on the number of the step; nothing else pays for counting.
        samples = selection == "sample"
        seed = tf.zeros([2], tf.int32) if seed is None else seed
        # One number per row, as a beam reorders rows; a replica may have no rows.
        time = tf.zeros([tf.shape(annotations)[0]], tf.int32) if samples else ()
        parts = {name: part for name, part in attended._asdict().items() if tf.is_tensor(part)}

        def step(tokens, state, parts=parts):
            state, time = state
            # The seeds of teacher forcing, which so attends to the locations of a drawn caption.
            now = tf.reduce_max(tf.pad(time, [[0, 1]])) if samples else None
            seed_t = step_seeds(seed, now + 1)[now] if samples else None
            read = attended._replace(**parts)
            logits, state, attention = self.decoder.step(read, tokens, state, selection, seed_t)
            alpha = tf.nn.softmax(attention.alignment_scores)
            time = time + 1 if samples else ()
            return tf.nn.log_softmax(logits), (state, time), (alpha, attention.beta)

        return step, (state, time), parts

    def saved_layers(self) -> dict[str, keras.layers.Layer]:
        """Returns the layers that caption: neither the optimiser nor a baseline."""
        return {"encoder": self.encoder, "decoder": self.decoder}

    def get_config(self) -> dict:
        """Returns the constructor arguments."""
        return {
            **keras.layers.Layer.get_config(self),
            "config": to_dict(self.config),
            "vocabulary_size": self.vocabulary_size,
            "load_encoder_weights": False,
        }

    @classmethod
    def from_config(cls, config: dict) -> Captioner:
        """Makes a captioner with random weights."""
        return cls(**{**config, "config": from_dict(configs.CaptionerConfig, config["config"])})

"""Show, Attend and Tell: encoder, decoder, the losses that train them and the search.

Shapes: B batch, T words, L locations, D annotation width, K hypotheses kept by the search.
"""

from __future__ import annotations

from collections.abc import Mapping

import keras
import tensorflow as tf

from sat_tf import config as configs
from sat_tf.baselines import MovingAverageBaseline
from sat_tf.decoding import Hypotheses, beam_search
from sat_tf.layers.attention import Selection
from sat_tf.layers.encoder import Encoder
from sat_tf.layers.rnn_decoder import RNNDecoder, Taught
from sat_tf.layers.unroll import step_seeds
from sat_tf.losses import word_log_likelihood
from sat_tf.models.objective import CaptionObjective, Terms, word_mask
from sat_tf.models.replicas import (
    Untracked,
    apply_gradients,
    build_optimizer,
    global_mean,
    global_size,
    step_seed,
)
from sat_tf.models.running_means import RunningMeans
from sat_tf.models.sequence import SequenceObjective
from sat_tf.models.worker_steps import spans_workers, worker_function

Batch = Mapping[str, tf.Tensor]


# Of a usual caption: a search reads about this many contexts a picture and hypothesis.
_CAPTION_WORDS = 12


@keras.saving.register_keras_serializable(package="sat_tf")
class Captioner(keras.Model):
    """A picture in, words and attention maps out.

    Args:
        config: `CaptionerConfig`, or its dictionary.
        vocabulary_size: Words, the four special tokens included.
        load_encoder_weights: False when the weights are restored from a run.
        **kwargs: For Keras; a `dtype` policy is the decoder's and that of an encoder which is
            trained. A frozen encoder stays in float32: its annotations are computed once.

    Call arguments:
        batch: `tokens` int32 `[B, T + 1]` from <start> to <end>, padded with 0, and either
            `annotations` `[B, L, D]` or `images` `[B, H, W, 3]`, 0..255. With `picture` int `[B]`
            rows of the same number hold the same image, and the encoder sees it once.

    Output:
        `Taught`: logits, alignment scores and beta of each step, teacher-forced.

    References:
        Xu et al. (2015), arXiv:1502.03044.
    """

    def __init__(
        self,
        config: configs.CaptionerConfig | dict,
        vocabulary_size: int,
        load_encoder_weights: bool = True,
        **kwargs,
    ) -> None:
        # Keras would cast stored annotations, float16, to bfloat16 by TensorFlow's slowest way.
        super().__init__(autocast=False, **kwargs)
        if isinstance(config, dict):
            config = configs.from_dict(configs.CaptionerConfig, config)
        self.config, self.vocabulary_size = config, vocabulary_size
        policy = self.dtype_policy
        self.encoder = Encoder(
            config.encoder.name,
            config.encoder.image_size,
            tap=config.encoder.layer,
            weights=config.encoder.weights if load_encoder_weights else None,
            trainable=config.encoder.trainable,
            trainable_from=config.encoder.trainable_from,
            dtype=policy if config.encoder.trainable else "float32",
            name="encoder",
        )
        self.decoder = RNNDecoder(
            vocabulary_size,
            self.encoder.annotation_dim,
            attends=config.attention.kind != "none",
            config=config.decoder,
            dtype=policy,
            name="decoder",
        )
        self.objective = CaptionObjective(config.attention)
        self.sequence: SequenceObjective | None = None
        self.baseline = self.objective.make_baseline(config.decoder.hidden_dim)
        self._means: Untracked | None = None
        self.built = True

    @property
    def selection(self) -> Selection:
        """How a location is chosen at inference."""
        return self.config.attention.selection

    def compile(
        self,
        *args,
        label_smoothing: float = 0.0,
        clip_norm: float = 0.0,
        seed: int = 0,
        sequence: SequenceObjective | None = None,
        **kwargs,
    ) -> None:
        """As `keras.Model.compile`, and what the custom train step needs.

        Args:
            *args: For Keras.
            label_smoothing: Share of the target spread over the vocabulary.
            clip_norm: Largest global norm of a gradient; 0 does not clip.
            seed: Of every random draw in training.
            sequence: What captions drawn from the model are trained for; None learns the
                captions of the batch.
            **kwargs: For Keras.
        """
        super().compile(*args, **kwargs)
        self.objective = CaptionObjective(self.config.attention, label_smoothing)
        self.sequence = sequence
        self.clip_norm, self.seed = clip_norm, seed
        names = ("gradient_norm", *(sequence or self.objective).log_names)
        self._means = Untracked(RunningMeans(names))

    def annotate(self, batch: Batch, training: bool = False) -> tf.Tensor:
        """Annotations of a batch: those it holds, or the encoder's for its images."""
        if "annotations" in batch:
            return batch["annotations"]
        images = batch["images"]
        if "picture" not in batch:
            return self._encode(images, training)
        pictures, place = tf.unique(batch["picture"])
        rows = tf.range(tf.size(place))
        first = tf.math.unsorted_segment_min(rows, place, tf.size(pictures))
        return tf.gather(self._encode(tf.gather(images, first), training), place)

    def _encode(self, images: tf.Tensor, training: bool) -> tf.Tensor:
        images = tf.cast(images, tf.float32)
        if tf.distribute.get_strategy().num_replicas_in_sync == 1:
            return self.encoder(images, training=training)
        # A replica may be without pictures, and oneDNN's convolutions give another shape for none.
        count = tf.shape(images)[0]
        blank = tf.cast(tf.equal(count, 0), tf.int32)
        images = tf.pad(images, [[0, blank], *[[0, 0]] * 3])
        return self.encoder(images, training=training)[:count]

    def call(
        self,
        batch: Batch,
        selection: Selection | None = None,
        seed: tf.Tensor | None = None,
        use_expectation: tf.Tensor | None = None,
        training: bool = False,
        samples: int = 1,
    ) -> Taught:
        """Teacher-forced answer; arguments as those of `RNNDecoder`."""
        return self.decoder(
            self.annotate(batch, training),
            batch["tokens"][:, :-1],
            selection=selection or self.selection,
            seed=seed,
            use_expectation=use_expectation,
            training=training,
            samples=samples,
        )

    def training_terms(
        self, batch: Batch, seed: tf.Tensor, captions: tf.Tensor | None = None
    ) -> Terms:
        """The loss of a training batch: its gradient is the estimate that a step descends.

        Args:
            batch: See the call's arguments.
            seed: int32 `[2]`; dropout, locations and the expectation switch are drawn from it.
            captions: Captions of the whole batch, other replicas' included; None for this one's.

        Returns:
            `Terms`.
        """
        draw, switch = tf.unstack(tf.random.experimental.stateless_split(seed, 2))
        expectation = self.objective.draw_expectation(switch, tf.shape(batch["tokens"])[0])
        taught = self(
            batch,
            training=True,
            selection=self.objective.selection,
            seed=draw,
            use_expectation=expectation,
            samples=self.objective.samples,
        )
        targets = batch["tokens"][:, 1:]
        return self.objective(taught, targets, expectation, self.baseline, captions)

    def train_step(self, batch: Batch) -> dict[str, tf.Tensor]:
        """One step of gradient descent; Keras compiles it and runs it on every replica."""
        size = tf.shape(batch["tokens"])[0]
        captions = global_size(size)
        seed = self._step_seed()
        with tf.GradientTape() as tape:
            word_by_word = self.sequence is None
            if word_by_word:
                terms = self.training_terms(batch, seed, captions)
            else:
                terms = self.sequence(self, batch, seed)
            # Replicas' gradients are added up: each counts by its share of the captions. A
            # replica without any has a mean over nothing, NaN, and counts for nothing.
            share = tf.cast(size, tf.float32) / captions
            loss = tf.math.multiply_no_nan(terms.loss, share)
            scaled_loss = self.optimizer.scale_loss(loss)
        gradients = tape.gradient(scaled_loss, self.trainable_variables)
        apart = [] if self.baseline is None else self.baseline.trainable_variables
        pairs = zip(gradients, self.trainable_variables, strict=True)
        norm = apply_gradients(self.optimizer, pairs, self.clip_norm, apart)
        if word_by_word and isinstance(self.baseline, MovingAverageBaseline):
            self.baseline.update(global_mean(terms.returns))
        means = self._means.value
        logs = terms.logs(tf.cast(size, tf.float32))
        means.update_state(logs | {"gradient_norm": (norm, 1.0)})
        return means.result()

    def test_step(self, batch: Batch) -> dict[str, tf.Tensor]:
        """Negative log-likelihood of the captions, teacher-forced, nats a token."""
        taught = self(batch, training=False, seed=self._step_seed())
        targets = batch["tokens"][:, 1:]
        mask = word_mask(targets)
        nll = -tf.reduce_sum(word_log_likelihood(taught.logits, targets, mask))
        words = tf.reduce_sum(mask)
        means = self._means.value
        means.update_state({"nll": (tf.math.divide_no_nan(nll, words), words)})
        return {"nll": means.result()["nll"]}

    def search(
        self,
        annotations: tf.Tensor,
        search: configs.SearchConfig | None = None,
        seed: tf.Tensor | None = None,
        selection: Selection | None = None,
    ) -> Hypotheses:
        """Free-running captions by beam search; beam 1 is greedy.

        Args:
            annotations: `[B, L, D]`.
            search: Settings; None takes the configuration's.
            seed: int32 `[2]`, for hard attention which samples.
            selection: How hard attention chooses; None takes the configuration's.

        Returns:
            `Hypotheses`, with `(alpha [B, K, T, L], beta [B, K, T])` as auxiliary.
        """
        search = search or self.config.search
        selection = selection or self.selection
        step, state, picture = self.search_step(annotations, selection, seed, beam=search.beam)
        # A location is drawn by the row that asks for it, which then has to stay where it is.
        stays = selection == "sample"
        return beam_search(
            step,
            state,
            batch_size=tf.shape(annotations)[0],
            beam=search.beam,
            max_length=search.max_length,
            length_power=search.length_power,
            forbidden=search.forbidden,
            pictures=() if stays else picture,
        )

    def search_step(
        self,
        annotations: tf.Tensor,
        selection: Selection,
        seed: tf.Tensor | None = None,
        beam: int = 1,
    ):
        """The step function and first state that `sat_tf.decoding` searches over.

        Args:
            annotations: `[B, L, D]`.
            selection: How hard attention chooses.
            seed: int32 `[2]`, for hard attention which samples.
            beam: Hypotheses a picture; where they will read more contexts than the picture has
                locations, it is the locations that are projected.

        Returns:
            Step, state, and what step reads of the pictures: a dictionary of `[B, ...]`, which it
            takes as its third argument, for some of the pictures too.
        """
        picture, state = self.decoder.look_once(annotations)
        locations = picture.annotations.shape[1]
        if locations is not None and locations <= beam * _CAPTION_WORDS:
            picture = self.decoder.project(picture)
        # Only a sample depends on which step it is; nothing else pays for counting.
        samples = selection == "sample"
        seed = tf.zeros([2], tf.int32) if seed is None else seed
        time = tf.zeros([tf.shape(annotations)[0]], tf.int32) if samples else ()
        parts = {name: part for name, part in picture._asdict().items() if tf.is_tensor(part)}

        def step(tokens, state, parts=parts):
            state, time = state
            # As in teacher forcing, which then looks where a caption was drawn.
            seed_t = step_seeds(seed, time[0] + 1)[time[0]] if samples else None
            seen = picture._replace(**parts)
            logits, state, look = self.decoder.step(seen, tokens, state, selection, seed_t)
            alpha = tf.nn.softmax(look.alignment_scores)
            time = time + 1 if samples else ()
            return tf.nn.log_softmax(logits), (state, time), (alpha, look.beta)

        return step, (state, time), parts

    def make_train_function(self, force: bool = False) -> None:
        """As Keras' own, which several processes cannot use."""
        if not spans_workers(self.distribute_strategy):
            super().make_train_function(force)
        elif self.train_function is None or force:
            self.train_function = worker_function(self.distribute_strategy, self.train_step)

    def make_test_function(self, force: bool = False) -> None:
        """As Keras' own, which several processes cannot use."""
        if not spans_workers(self.distribute_strategy):
            super().make_test_function(force)
        elif self.test_function is None or force:
            self.test_function = worker_function(self.distribute_strategy, self.test_step)

    def _maybe_symbolic_build(self, iterator=None, data_batch=None) -> None:
        """All but the optimiser is built when it is made."""
        build_optimizer(self)

    def _step_seed(self) -> tf.Tensor:
        return step_seed(getattr(self, "seed", 0), self.optimizer)

    @property
    def metrics(self) -> list[keras.metrics.Metric]:
        """Running means over the epoch, reset by Keras at its start."""
        return [] if self._means is None else [self._means.value]

    def saved_layers(self) -> dict[str, keras.layers.Layer]:
        """What captioning needs: neither the optimiser nor a baseline."""
        return {"encoder": self.encoder, "decoder": self.decoder}

    def get_config(self) -> dict:
        """Constructor arguments."""
        return {
            "config": configs.to_dict(self.config),
            "vocabulary_size": self.vocabulary_size,
            "load_encoder_weights": False,
        }

"""Parts of a run: the model with its first weights, and its optimizer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import keras
import tensorflow as tf

from sat_tf.compat import GradientsAsGiven, variable_key
from sat_tf.inference.run_folder import RunFolder, read_vocabulary
from training.run.config import BaseOptimizerConfig, FitConfig, OptimizerConfig, RunConfig

if TYPE_CHECKING:
    from sat_tf.captioner import Captioner
    from sat_tf.config import CaptionerConfig
    from sat_tf.train_step import Objective
    from training.data.inputs import Data


def new_model(
    config: CaptionerConfig,
    vocabulary_size: int,
    precision: str = "float32",
    load_encoder_weights: bool = True,
    strategy: tf.distribute.Strategy | None = None,
) -> Captioner:
    """Builds a model with an untrained decoder, not compiled.

    Args:
        config: The captioner's settings.
        vocabulary_size: Number of words, special tokens included.
        precision: float32 or bfloat16, that of matrix products.
        load_encoder_weights: False if they come from a checkpoint or another run.
        strategy: Distributes work over devices; None for the present one.
    """
    from sat_tf.captioner import Captioner

    policy = "mixed_bfloat16" if precision == "bfloat16" else "float32"
    with (strategy or tf.distribute.get_strategy()).scope():
        return Captioner(config, vocabulary_size, load_encoder_weights, dtype=policy)


def first_model(
    config: RunConfig,
    data: Data,
    folder: RunFolder,
    strategy: tf.distribute.Strategy | None = None,
    say: Callable[[str], Any] = print,
) -> Captioner:
    """Builds the model of a run with its first weights: new ones, or those of `init_from`.

    A run with a checkpoint needs neither: the files of others may be gone. A frozen encoder's
    weights are final before its annotations are stored.

    Args:
        config: The run's configuration.
        data: The run's data.
        folder: The run's folder.
        strategy: See `new_model`.
        say: Receives a message about the weights of `init_from`.

    Raises:
        ValueError: The weights of `init_from` have other shapes.
    """
    keras.utils.set_random_seed(config.seed)
    begun, size = folder.has_checkpoint(), len(data.vocabulary)
    own = not begun and config.init_from is None
    model = new_model(config.captioner, size, config.fit.precision, own, strategy)
    if config.init_from is not None and not begun:
        from training.run.first_weights import give_weights

        say(give_weights(config.init_from, model, data))
    if not model.encoder.trainable:
        from training.run.checkpoints import restore_layers

        restore_layers(folder.checkpoints, model, [model.encoder])
    return model


def kept_words_of(config: RunConfig, run_dir: Path | None = None) -> tuple[str, ...]:
    """Returns words of `init_from` that the captions may lack, see `keep_words`.

    Once the run in `run_dir` is begun, they are among its own.
    """
    if not config.keep_words:
        return ()
    from sat_tf.inference import published

    begun = run_dir is not None and RunFolder(run_dir).vocabulary.is_file()
    kept = read_vocabulary(run_dir if begun else published.locate(config.init_from))
    same = (kept.unit, kept.language) == (config.data.unit, config.data.language)
    return kept.words if same else ()


class SummedGradients(GradientsAsGiven):
    """Mixin for Keras optimizers: gradients already summed, and another rate for some variables.

    The train step sums the gradients of the replicas before it clips them
    (`train_step.distributed_step`). Keras would sum them again, which doubles the communication
    among devices.

    Adam and RMSprop divide gradients by their size, so scaling these has no effect: the rate is
    scaled where it is used, in the update and in the decoupled weight decay. All weight decay
    happens here: Keras evaluates the schedule again for each variable, with a condition in the
    graph each time, which takes over a quarter of the time to trace a step.
    """

    takes_summed_gradients = True
    _own: frozenset = frozenset()

    def set_own_rate(self, variables: Sequence[keras.Variable], factor: float) -> None:
        """Trains `variables` at `factor` times the learning rate; call it before `build`."""
        self._own, self._factor = frozenset(variable_key(self, v) for v in variables), factor

    def build(self, variables: Sequence[keras.Variable]) -> None:
        """Creates the optimizer's state."""
        self.exclude_from_weight_decay(var_list=variables)
        super().build(variables)

    def update_step(
        self, gradient: tf.Tensor, variable: tf.Variable, learning_rate: tf.Tensor
    ) -> None:
        """Updates one variable."""
        if variable_key(self, variable) in self._own:
            learning_rate = learning_rate * self._factor
        if self.weight_decay:
            self.assign_sub(variable, variable * (self.weight_decay * learning_rate))
        super().update_step(gradient, variable, learning_rate)


class Adam(SummedGradients, keras.optimizers.Adam):
    """Keras' Adam for the train step."""


class AdamW(SummedGradients, keras.optimizers.AdamW):
    """Keras' AdamW for the train step."""


class RMSprop(SummedGradients, keras.optimizers.RMSprop):
    """Keras' RMSprop for the train step."""


def make_optimizer(
    config: BaseOptimizerConfig, steps: int, epochs: int, slow: Sequence[keras.Variable] = ()
) -> keras.optimizers.Optimizer:
    """Builds an optimizer with its schedule over `steps * epochs` steps.

    Args:
        config: Optimizer and schedule.
        steps: Steps per epoch.
        epochs: Epochs of the run.
        slow: Variables that `encoder_learning_rate` is for, if the config has one.
    """
    rate = make_schedule(config, steps, epochs)
    if config.name == "adamw":
        optimizer = AdamW(rate, weight_decay=config.weight_decay)
    else:
        optimizer = {"adam": Adam, "rmsprop": RMSprop}[config.name](rate)
    if (own := getattr(config, "encoder_learning_rate", None)) is not None:
        optimizer.set_own_rate(slow, own / config.learning_rate)
    return optimizer


def make_schedule(
    config: BaseOptimizerConfig, steps: int, epochs: int
) -> float | keras.optimizers.schedules.LearningRateSchedule:
    """Builds the learning rate over a run: a linear warm-up, then constant or cosine to zero."""
    warmup, rate = round(config.warmup_epochs * steps), config.learning_rate
    if config.schedule == "cosine":
        return keras.optimizers.schedules.CosineDecay(
            0.0 if warmup else rate,
            max(steps * epochs - warmup, 1),
            warmup_target=rate if warmup else None,
            warmup_steps=warmup,
        )
    return keras.optimizers.schedules.PolynomialDecay(0.0, warmup, rate) if warmup else rate


def compile_model(
    model: Captioner,
    objective: Objective,
    optimizer: OptimizerConfig,
    steps: int,
    fit: FitConfig,
    seed: int,
) -> None:
    """Gives the model its optimizer, its objective and the seed of its draws.

    `steps` per epoch are for the schedule.
    """
    encoder = model.encoder.trainable_variables
    model.compile(
        optimizer=make_optimizer(optimizer, steps, fit.epochs, encoder),
        objective=objective,
        clip_norm=optimizer.clip_norm,
        seed=seed,
        jit_compile=fit.jit_compile,
    )


def describe_model(model: Captioner, batch_size: int) -> str:
    """Describes encoder and decoder, then the constants of the objective but those that are 0."""
    encoder, (height, width) = model.encoder, model.encoder.grid
    count = lambda layer: sum(int(tf.size(v)) for v in layer.trainable_variables) / 1e6  # noqa: E731
    part = "frozen"
    if model.config.encoder.trainable:
        first = model.config.encoder.trainable_from
        part = f"trained{f' from {first}' if first else ''} ({count(encoder):.2f} M weights)"
    parts = (
        f"Encoder: {model.config.encoder.name}, {encoder.tap}, {height} x {width} x "
        f"{encoder.annotation_dim}, {part}. Decoder: {model.config.attention.kind} attention, "
        f"{count(model.decoder):.2f} M weights."
    )
    constants = model.objective.describe(batch_size).items()
    return "\n".join([parts, *(f"  {name}: {value}" for name, value in constants if value)])

"""The model of a run, with its optimizer and its objective."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from sat_tf.captioner import Captioner
from sat_tf.config import CaptionerConfig
from sat_tf.train_step import Objective
from training.data.inputs import Data, Origin
from training.run.config import FitConfig, OptimizerConfig
from training.run.optimizers import make_optimizer


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
    policy = "mixed_bfloat16" if precision == "bfloat16" else "float32"
    with (strategy or tf.distribute.get_strategy()).scope():
        return Captioner(config, vocabulary_size, load_encoder_weights, dtype=policy)


def first_model(
    config: CaptionerConfig,
    precision: str,
    data: Data,
    origin: Origin | None = None,
    begun: bool = False,
    strategy: tf.distribute.Strategy | None = None,
    say: Callable[[str], Any] = print,
) -> Captioner:
    """Builds the model of a run with its first weights: new ones, or those of another captioner.

    Args:
        config: The captioner's settings.
        precision: See `new_model`.
        data: The run's data.
        origin: The captioner that the run starts from.
        begun: The run has a checkpoint, whose weights it takes: files of others may be gone.
        strategy: See `new_model`.
        say: Receives a message about the weights of `origin`.

    Raises:
        ValueError: The weights of `origin` have other shapes.
    """
    own = not begun and origin is None
    model = new_model(config, len(data.vocabulary), precision, own, strategy)
    if origin is not None and not begun:
        say(origin.give_weights(model, data))
    return model


def compile_model(
    model: Captioner,
    objective: Objective,
    optimizer: OptimizerConfig,
    steps: int,
    fit: FitConfig,
    seed: int,
) -> None:
    """Gives the model its optimizer and its objective.

    Args:
        model: The captioner.
        objective: What to minimise.
        optimizer: The optimizer and its schedule.
        steps: Steps per epoch, for the schedule.
        fit: The training loop.
        seed: Seed of the draws.
    """
    model.compile(
        optimizer=make_optimizer(
            optimizer,
            steps,
            fit.epochs,
            model.encoder.trainable_variables,
            optimizer.encoder_learning_rate,
        ),
        objective=objective,
        clip_norm=optimizer.clip_norm,
        seed=seed,
        jit_compile=fit.jit_compile,
    )


def describe_model(model: Captioner, batch_size: int) -> str:
    """Describes encoder and decoder in two sentences, then the objective, a constant per line."""
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
    return "\n".join([parts, *(f"  {name}: {value}" for name, value in constants)])

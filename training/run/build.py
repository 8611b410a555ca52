"""The model of a run: built, given its first weights, compiled."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import tensorflow as tf

from sat_tf.captioner import Captioner
from sat_tf.config import CaptionerConfig
from sat_tf.inference.run_folder import RunFolder, read_vocabulary
from sat_tf.train_step import Objective
from training.data.inputs import Data
from training.run.config import FitConfig, OptimizerConfig, RunConfig
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
    config: RunConfig,
    data: Data,
    begun: bool = False,
    strategy: tf.distribute.Strategy | None = None,
    say: Callable[[str], Any] = print,
) -> Captioner:
    """Builds the model of a run with its first weights: new ones, or those of `init_from`.

    Args:
        config: The run's configuration.
        data: The run's data.
        begun: The run has a checkpoint, and takes its weights: files of others may be gone.
        strategy: See `new_model`.
        say: Receives a message about the weights of `init_from`.

    Raises:
        ValueError: The weights of `init_from` have other shapes.
    """
    own = not begun and config.init_from is None
    size = len(data.vocabulary)
    model = new_model(config.captioner, size, config.fit.precision, own, strategy)
    if config.init_from is not None and not begun:
        from training.run.first_weights import give_weights

        say(give_weights(config.init_from, model, data))
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

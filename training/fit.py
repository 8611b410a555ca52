"""A run, from its configuration to its report: data, strategy, model, callbacks, evaluation."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable
from pathlib import Path

import keras
import tensorflow as tf

from sat_tf import runs
from sat_tf.config import CaptionerConfig, to_dict
from sat_tf.models.captioner import Captioner
from sat_tf.models.sequence import SequenceObjective
from sat_tf.runs import TrainedCaptioner
from sat_tf.vocabulary import Vocabulary
from training.bounds import Bounds
from training.callbacks import (
    AttentionPictures,
    CollapseAlarm,
    Keep,
    LearningRate,
    MeasureBounds,
    MeasureLikelihood,
    Validate,
)
from training.checkpoints import Checkpoints, Progress, restore_layer
from training.datasets.batches import CaptionTable, caption_table
from training.datasets.sources import Source, scoring_batches
from training.epochs import best_epoch, train_epochs
from training.event_files import Scalars, forget_from
from training.interrupts import Interrupts
from training.optimizers import make_optimizer
from training.recipes import RunConfig
from training.rewards import sequence_of
from training.run_data import (
    Data,
    Places,
    batches_from,
    contents,
    load_data,
    open_sources,
    report_pictures,
)
from training.run_folder import check_run_dir, claim
from training.warm_start import start_from
from training.workers import Workers

_BOUND_IMAGES, _BOUND_SAMPLES = 16, 5  # What is measured after each epoch, in seconds.


def fit(
    config: RunConfig,
    places: Places,
    strategy: tf.distribute.Strategy | None = None,
    say: Callable[[str], None] = print,
    interrupts: Interrupts | None = None,
) -> TrainedCaptioner | None:
    """Train, going on from the run's last checkpoint if it has one.

    Args:
        config: What to train.
        places: Where.
        strategy: None for one device.
        say: Where messages go.
        interrupts: Signals that end the run once its state is kept; None for none.

    Returns:
        The best captioner of the run; None on a worker that is not the chief.
    """
    strategy = strategy or tf.distribute.get_strategy()
    workers = Workers(strategy)
    if workers.chief:
        check_run_dir(config, places.run_dir)
    else:
        say = _nobody
    keras.utils.set_random_seed(config.seed)
    data = load_data(config, places)
    workers.compare("configuration or captions", lambda: _identity(config, data))
    with strategy.scope():
        model = make_model(config, data.vocabulary)
    states = places.run_dir / "checkpoints"
    settle_encoder(model, states, workers)
    train, dev = open_sources(config, model, data, places.cache_dir)
    unreadable = [sorted(source.set_aside) for source in (train, dev)]
    workers.compare("unreadable pictures", lambda: str(unreadable))
    if workers.chief:
        claim(config, data.vocabulary, contents(data, train, dev), places.run_dir)
        report_pictures(data.train, train, places.run_dir, say)
        report_pictures(data.dev, dev, places.run_dir, say)
    _, steps = batches_from(config, train, data.table, 0)
    with strategy.scope():
        compile_model(model, config, steps, sequence_of(config, data.table))
    checkpoints = Checkpoints(states, model)
    progress = start(checkpoints, workers)
    describe(config, model, data, steps, progress, say)
    if progress.epoch < config.fit.epochs and not progress.stopped:
        if workers.chief:
            forget_from(places.run_dir / "logs", progress.epoch)
        hooks = callbacks(config, places, model, data, dev, workers)
        held = interrupts or Interrupts()
        hooks.append(Keep(checkpoints, progress, config.fit, steps, places.run_dir, held, workers))
        train_model(model, config, train, data.table, steps, progress, hooks, workers)
    if not workers.chief:
        return None
    say(best_epoch(progress, config.fit.monitor))
    return runs.load(places.run_dir)


def _nobody(_: str) -> None:
    """Says nothing: the chief does."""


def _identity(config: RunConfig, data: Data) -> str:
    """What workers must have in common to compute parts of the same batches."""
    parts = (to_dict(config), data.vocabulary.words, data.train.fingerprint())
    return json.dumps([*parts, data.dev.fingerprint()])


def start(checkpoints: Checkpoints, workers: Workers) -> Progress:
    """Take up the run's last state, or the one it begins with; on all workers, the chief's."""
    progress = (checkpoints.restore() if workers.chief else None) or Progress()
    workers.spread(checkpoints.variables)
    if workers.count > 1:
        said = workers.text_of_chief(json.dumps(dataclasses.asdict(progress)))
        progress = Progress(**json.loads(said))
    return progress


def make_model(config: RunConfig, vocabulary: Vocabulary) -> Captioner:
    """The captioner with the weights it starts from."""
    model = new_model(config, len(vocabulary), load_encoder_weights=config.init_from is None)
    if config.init_from is not None:
        start_from(Path(config.init_from), model, vocabulary)
    return model


def settle_encoder(model: Captioner, states: Path, workers: Workers) -> None:
    """Give a frozen encoder the weights it will be trained on: its annotations are stored before.

    They are those of the run's last state, where there is one, and the chief's on all workers. What
    the files they once came from hold now is another matter.
    """
    if model.encoder.trainable:
        return
    if workers.chief:
        restore_layer(states, model, model.encoder)
    workers.spread(model.encoder.variables)


def train_model(
    model: Captioner,
    config: RunConfig,
    source: Source,
    table: CaptionTable,
    steps: int,
    progress: Progress,
    hooks: list[keras.callbacks.Callback],
    workers: Workers,
) -> None:
    """Fit what is left to do of the run.

    Args:
        model: Compiled, in the state that `progress` describes.
        config: Of the run.
        source: Training pictures or annotations.
        table: Training captions.
        steps: Batches of an epoch.
        progress: Kept up to date by `Keep`, the last of the hooks.
        hooks: Callbacks.
        workers: The processes of the run.
    """

    def from_step(epoch: int, step: int) -> tf.data.Dataset | tf.distribute.DistributedDataset:
        return workers.distribute(
            lambda share: batches_from(config, source, table, epoch, step, share)[0]
        )

    left = (config.fit.epochs, steps, progress, hooks)
    train_epochs(model, from_step, *left, quiet=not workers.chief)


def captioner_config(config: RunConfig) -> CaptionerConfig:
    """The part of the configuration that is the model."""
    names = [field.name for field in dataclasses.fields(CaptionerConfig)]
    return CaptionerConfig(**{name: getattr(config, name) for name in names})


def new_model(
    config: RunConfig, vocabulary_size: int, load_encoder_weights: bool = True
) -> Captioner:
    """The model of a configuration, its decoder untrained, not compiled yet."""
    policy = "mixed_bfloat16" if config.fit.precision == "bfloat16" else "float32"
    return Captioner(captioner_config(config), vocabulary_size, load_encoder_weights, dtype=policy)


def compile_model(
    model: Captioner, config: RunConfig, steps: int, sequence: SequenceObjective | None = None
) -> None:
    """Give the model its optimiser and the constants of its train step."""
    encoder = model.encoder.trainable_variables
    model.compile(
        optimizer=make_optimizer(config.optimizer, steps, config.fit.epochs, encoder),
        label_smoothing=config.fit.label_smoothing,
        clip_norm=config.optimizer.clip_norm,
        seed=config.seed,
        sequence=sequence,
        jit_compile=config.fit.jit_compile,
    )


def callbacks(
    config: RunConfig,
    places: Places,
    model: Captioner,
    data: Data,
    dev: Source,
    workers: Workers,
) -> list[keras.callbacks.Callback]:
    """All but `Keep`, in the order they run: scores first, so that the others find them."""
    captioner = TrainedCaptioner(model, data.vocabulary)
    fit_config, log_dir = config.fit, places.run_dir / "logs"
    table = caption_table(data.dev, data.vocabulary, config.data.max_length)
    _, count = scoring_batches(dev, table, fit_config.batch_size)
    scored = workers.distribute(lambda s: scoring_batches(dev, table, fit_config.batch_size, s)[0])

    def nll() -> float:
        model.evaluate(scored, steps=count, verbose=0)
        return float(model.get_metrics_result()["nll"])  # of all devices; the logs are of one

    if not workers.chief:
        return [MeasureLikelihood(nll)]
    search = dataclasses.replace(config.search, beam=fit_config.validation_beam)
    measured = []
    if config.attention.kind == "hard":
        bounds = Bounds(captioner, data.dev, dev, _BOUND_IMAGES, _BOUND_SAMPLES)
        measured = [MeasureBounds(bounds)]
    return [
        Validate(captioner, data.dev, dev, search, fit_config.validation_images),
        MeasureLikelihood(nll),
        *measured,
        LearningRate(),
        CollapseAlarm(),
        Scalars(str(log_dir), write_graph=False),
        AttentionPictures(captioner, data.dev, dev, fit_config.pictures, log_dir),
    ]


def describe(
    config: RunConfig,
    model: Captioner,
    data: Data,
    steps: int,
    progress: Progress,
    say: Callable[[str], None],
) -> None:
    """What is about to happen, the effective lambdas among it."""
    decoder = sum(int(tf.size(v)) for v in model.decoder.trainable_variables)
    encoder = config.encoder
    start = f", from the weights of {config.init_from}" if config.init_from else ""
    say(f"Recipe {config.recipe}, seed {config.seed}{start}.")
    say(
        f"Data: {config.data.name}, {len(data.train)} pictures with {len(data.table)} captions "
        f"to train on, {len(data.dev)} dev pictures, {len(data.vocabulary)} {config.data.tokens}."
    )
    if data.table.dropped or data.table.truncated:
        say(
            f"Warning: {data.table.dropped} captions without a word left out, "
            f"{data.table.truncated} cut to {config.data.max_length} {config.data.tokens}."
        )
    height, width = model.encoder.grid
    say(
        f"Encoder: {encoder.name}, {model.encoder.tap}, {height} x {width} x "
        f"{model.encoder.annotation_dim}, {describe_learning(model)}. "
        f"Decoder: {config.attention.kind} attention, {decoder / 1e6:.2f} M weights."
    )
    for name, value in (model.sequence or model.objective).describe(config.fit.batch_size).items():
        say(f"  {name}: {value}")
    if progress.epoch or progress.step:
        say(f"Going on {progress.where}.")
    else:
        say(f"{config.fit.epochs} epochs of {steps} steps; {time.strftime('%H:%M:%S')}.")


def describe_learning(model: Captioner) -> str:
    """What of the encoder learns."""
    encoder, first = model.config.encoder, model.config.encoder.trainable_from
    if not encoder.trainable:
        return "frozen"
    weights = sum(int(tf.size(v)) for v in model.encoder.trainable_variables)
    return f"trained{f' from {first}' if first else ''} ({weights / 1e6:.2f} M weights)"

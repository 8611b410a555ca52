"""Train a captioner: `python -m training.train --recipe scenes_soft`.

One run from top to bottom: `resolve` decides the configuration, `read_data` gets data to learn
from, `first_model` makes the model, and `train` opens its inputs, restores the last checkpoint if
there is one, trains epochs and returns the best captioner, which is then evaluated. Elsewhere are:

    training.run.config     every setting
    training.run.build      the model with its first weights, and its optimizer
    training.teachers       teachers other than the captions
    training.run.resume     checkpoints within an epoch, and training of the rest
    training.run.strategy   several processes; the functions used here do nothing special in one

SIGTERM and Ctrl-C wait for the end of the step under way (`training.run.signals`); the state
is saved, and the same command, started again, ends like a run that was never stopped.
"""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from sat_tf.inference.run_folder import RunFolder
from sat_tf.util.commands import command_line, exit_status, loading, run_process
from sat_tf.util.files import default_cache_dir
from training.data.dataset import Dataset
from training.run.config import RunConfig, read_run_config, to_text
from training.run.decide import Settings, check, parse_settings, resolve
from training.run.signals import Interrupts

if TYPE_CHECKING:
    import keras

    from sat_tf.captioner import Captioner
    from sat_tf.inference.captioning import TrainedCaptioner
    from sat_tf.train_step import Objective
    from training.data.examples import Split
    from training.data.image_loader import InputSource
    from training.data.inputs import Data, Inputs, Teacher
    from training.evaluation.validation import Validation
    from training.run.config import AttentionConfig, FitConfig


@dataclass(frozen=True)
class Arguments:
    """Train a captioner; any key of the configuration is a flag."""

    config: Settings
    """The recipe's settings."""
    data_dir: Path | None = None
    """Your copy of the data set; drawn data needs none."""
    run_dir: Path | None = None
    """Folder of the run, new or to be resumed; runs/RECIPE by default."""
    cache_dir: Path | None = None
    """Feature stores; $SAT_TF_CACHE, $XDG_CACHE_HOME/sat_tf or ~/.cache/sat_tf by default."""
    strategy: Literal["auto", "none", "mirrored", "multi_worker"] = "auto"
    """auto mirrors the model over the GPUs if there are several; multi_worker reads TF_CONFIG."""
    deterministic: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """The same bits every time, resumed or not, on one kind of device; slower on a GPU."""


def parse(argv: Sequence[str]) -> Arguments:
    """Reads the command line; the recipe gives what no flag does.

    Raises:
        ValueError: A value is out of its range, or does not go with another.
    """
    arguments = parse_settings(Arguments, argv, "training.train", "Train a captioner.")
    check(arguments.config, arguments.strategy)
    return arguments


def main(argv: list[str] | None = None) -> int:
    """Runs the command; returns the exit status."""

    def work() -> None:
        with Interrupts() as interrupts:
            run(parse(sys.argv[1:] if argv is None else argv), interrupts)

    return exit_status(work)


def run(arguments: Arguments, interrupts: Interrupts) -> None:
    """Trains, then evaluates the best weights on dev."""
    data_dir, run_dir = arguments.data_dir, arguments.run_dir
    run_dir = run_dir or Path("runs") / arguments.config.recipe
    config = resolve(arguments.config, run_dir, data_dir)
    cache_dir = arguments.cache_dir or default_cache_dir()
    with loading():  # TensorFlow takes seconds: a wrong flag was answered before
        import tensorflow as tf

        from training.run.build import first_model, kept_words_of
        from training.run.ownership import exclusive_lock
        from training.run.strategy import explained, make_strategy, on_chief, summed
    if arguments.deterministic:
        tf.config.experimental.enable_op_determinism()
    warnings.formatwarning = lambda message, *_: f"Warning: {message}\n"
    strategy = make_strategy(arguments.strategy)
    interrupts.listen()  # a strategy may have replaced the handlers
    with exclusive_lock(run_dir), explained():
        words = kept_words_of(config, run_dir)
        read = read_data(config, run_dir, cache_dir, data_dir, words)
        model = first_model(config, read.data, read.folder, strategy, on_chief(print))
        captioner = train(config, read, model, interrupts)
        on_chief(report)(captioner, run_dir, cache_dir, data_dir)
        summed([0.0])  # the others would take a worker that ends early for a lost one


@dataclass(frozen=True)
class Read:
    """The data of a run, as it was read."""

    folder: RunFolder  # everything the run leaves behind
    settings: str  # content of its config.json, the splits of its data fixed
    data: Data  # its splits, captions as ids
    dataset: Dataset  # the data set that the splits are of
    data_dir: Path | None  # the user's copy of it; None for drawn data
    cache_dir: Path  # feature stores, shared by runs


def read_data(
    config: RunConfig,
    run_dir: Path,
    cache_dir: Path | None = None,
    data_dir: Path | None = None,
    more_words: Sequence[str] = (),
    say: Callable[[str], Any] = print,
) -> Read:
    """Reads the data of a run, from its record if there is one.

    Args:
        config: The run's configuration, `resolve`d.
        run_dir: Everything the run leaves behind.
        cache_dir: Feature stores, shared by runs; None for the default.
        data_dir: The user's copy of the data set; None for drawn data.
        more_words: Words that the captions may lack, see `kept_words_of`.
        say: Receives the messages.

    Raises:
        ValueError: The data or the run's folder cannot be used.
    """
    from training.data.inputs import load_data
    from training.run.ownership import check_run_dir
    from training.run.strategy import check_equal, on_chief

    folder, cache_dir = RunFolder(run_dir), cache_dir or default_cache_dir()
    check_run_dir(run_dir, config, read_run_config)
    on_chief(say)(f"Recipe {config.recipe}, seed {config.seed}, in {run_dir}.")
    dataset = Dataset.open(config.data, data_dir, cache_dir, folder.dataset)
    data = load_data(config.data, dataset, more_words)
    settings = to_text(config, data.train.held_out)
    check_equal("configuration or data", lambda: f"{settings} {data.fingerprint()}")
    return Read(folder, settings, data, dataset, data_dir, cache_dir)


def train(
    config: RunConfig,
    read: Read,
    model: Captioner,
    interrupts: Interrupts | None = None,
    say: Callable[[str], Any] = print,
    callbacks: Sequence[keras.callbacks.Callback] = (),
) -> TrainedCaptioner | None:
    """Trains a run to its end, resuming from its last checkpoint if it has one.

    Args:
        config: The run's configuration, `resolve`d.
        read: The data to learn from, see `read_data`.
        model: That of `first_model`.
        interrupts: Signals that end the run once its state is saved; None ignores them.
        say: Receives the messages.
        callbacks: Called last.

    Returns:
        The captioner with the best weights; None on a worker that is not the chief.

    Raises:
        ValueError: A file that the configuration names cannot be used, or training has diverged.
    """
    from training.data.inputs import batches_of, describe_inputs, open_inputs
    from training.run import logs
    from training.run.build import compile_model, describe_model
    from training.run.checkpoints import Checkpoints
    from training.run.resume import CheckpointAndStop, best_epoch, outlook, train_epochs
    from training.run.strategy import check_equal, distribute, is_chief, on_chief

    folder, data = read.folder, read.data
    fit, say = config.fit, on_chief(say)
    interrupts = interrupts or Interrupts()
    objective, teachers = objective_of(config, data), teachers_of(config.attention, fit)
    inputs = open_inputs(model, data, read.cache_dir, teachers)
    check_equal("readable images", lambda: repr(inputs.contents))
    on_chief(begin)(read, inputs)
    for line in describe_inputs(data, inputs, folder):
        say(line)
    plan = fit.batch_size, config.seed, fit.batch_by == "image", config.reward.metric != "none"
    steps, batches = batches_of(data.table, inputs, *plan)

    def batches_from(epoch: int, step: int) -> Any:
        return distribute(lambda shard: batches(epoch, step, shard))

    with model.distribute_strategy.scope():
        compile_model(model, objective, config.optimizer, steps, fit, config.seed)
    say(describe_model(model, fit.batch_size))
    state = Checkpoints(folder.checkpoints, model)
    progress = state.restore()
    logs.remove_from(folder.logs, progress.epoch)

    dev = functools.cache(lambda: validation_of(model, data, inputs, fit))
    for_chief = [
        logs.AttentionCollapseWarning(),
        logs.LearningRate(),
        logs.TensorBoard(folder.logs, lambda: dev().figures()),
        logs.EpochProgress(fit.epochs, steps, fit.validation_images or len(data.dev)),
        logs.NoteUnreadable(inputs.of(data), folder.skipped, say),
    ]
    all_callbacks = [
        logs.Validate(lambda: dev().scores()),  # first, as the others read the scores
        *(for_chief if is_chief() else ()),
        CheckpointAndStop(state, progress, fit, steps, folder.best_weights, interrupts),
        *callbacks,
    ]
    say(outlook(progress, fit.epochs, steps))
    train_epochs(model, batches_from, fit.epochs, steps, progress, all_callbacks)
    say(best_epoch(progress, fit.monitor))
    return on_chief(finished)(folder, inputs.of(data), config.data.splitting, say)


def begin(read: Read, inputs: Inputs) -> None:
    """Makes the folder the run's own, and records its data.

    Raises:
        RunError: The run that is resumed there has learned from something else.
    """
    from training.run.ownership import claim, data_records

    folder, data = read.folder, read.data
    images = len(data.train) - len(inputs.train.known)
    records = data_records(folder, data.vocabulary, inputs.contents, images)
    records |= {folder.skipped(split): why for split, why in inputs.unusable.items() if why}
    if read.data_dir is not None:
        records[folder.data_dir] = f"{read.data_dir.absolute()}\n"
    for known in (folder.familiarity, folder.confidence):  # of its limits, with earlier weights
        known.unlink(missing_ok=True)
    claim(folder.path, read.settings, records)
    read.dataset.write(folder.dataset)
    if data.config.name != "scenes" and not folder.contact_sheet.exists():
        from training.data.contact_sheet import write_contact_sheet

        write_contact_sheet(folder.contact_sheet, data.train, data.config.language)


def teachers_of(attention: AttentionConfig, fit: FitConfig) -> list[Teacher]:
    """Returns the other teachers than the captions; each is imported only then."""
    teachers: list[Teacher] = []
    if attention.supervision_weight:
        from training.teachers.boxes import box_teacher

        teachers.append(box_teacher(Path(attention.teacher) if attention.teacher else None))
    if fit.distillation_weight:
        from training.teachers.distillation import prediction_teacher

        teachers.append(prediction_teacher(Path(fit.predictions), fit.distillation_weight))
    return teachers


def objective_of(config: RunConfig, data: Data) -> Objective:
    """Returns the objective of given captions, or of sampled captions that are rewarded.

    Raises:
        TablesError: METEOR is part of the reward and has no tables.
    """
    if config.reward.metric == "none":
        from sat_tf.objectives import make_objective

        fit = config.fit
        return make_objective(config.attention, fit.label_smoothing, fit.distillation_weight)
    from training.teachers.rewards import reward_objective

    parts = config.reward, config.attention, config.search
    return reward_objective(*parts, data.table, data.vocabulary, config.data.language)


def validation_of(model: Captioner, data: Data, inputs: Inputs, fit: FitConfig) -> Validation:
    """Makes the validation of a run; loaded lazily, after the first epoch."""
    from sat_tf.inference.keras_captioner import KerasCaptioner
    from training.evaluation.validation import Validation

    return Validation(KerasCaptioner(model, data.vocabulary), data, inputs.dev, fit)


def finished(
    folder: RunFolder,
    sources: Mapping[Split, InputSource],
    splitting: Mapping[str, Any],
    say: Callable[[str], Any],
) -> TrainedCaptioner:
    """Returns the captioner with the best weights of a run; writes its familiarity and graphs."""
    from sat_tf.inference.load import load_captioner
    from training.evaluation.confidence import learn_familiarity
    from training.evaluation.graphs import make_graphs

    captioner = learn_familiarity(load_captioner(folder.path), sources)
    say(make_graphs(captioner, *sources, **splitting))
    return captioner


def report(
    captioner: TrainedCaptioner, run_dir: Path, cache_dir: Path, data_dir: Path | None
) -> None:
    """Evaluates a trained run on dev, and prints the next commands."""
    from sat_tf.inference.litert_captioner import renew_limits
    from training import evaluate
    from training.evaluation.evaluation import evaluate_run
    from training.inspect import after_training

    config, folder = read_run_config(run_dir), RunFolder(run_dir)
    places = {"out": folder.evaluation("dev"), "data_dir": data_dir, "cache_dir": cache_dir}
    evaluate_run(captioner, config, evaluate.Arguments(run_dir, **places), learn=True)
    renew_limits(folder)
    print(
        f"Caption with it: {command_line('sat_tf.inference.caption', '--run-dir', run_dir)} PHOTO"
    )
    print(*after_training(folder, config, data_dir), sep="\n")


if __name__ == "__main__":
    run_process(main)

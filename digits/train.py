"""Train a digit system: `python -m digits.train --recipe ram_28`."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import sys
import textwrap
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Generic, Literal, TypeVar

import tyro

from digits.config import RECIPES, DigitRunConfig, PairsRun, read_digit_config, to_text
from sat_tf.inference.run_folder import RunFolder
from sat_tf.util.commands import check_removed, exit_status, loading, parse_flags
from sat_tf.util.errors import RunError, invalid_value
from training.run.signals import Interrupts

if TYPE_CHECKING:
    import numpy as np
    import tensorflow as tf

    from digits.models import DigitModel

C = TypeVar("C")


@dataclass(frozen=True)
class Arguments(Generic[C]):
    """Train a digit system; any key of the configuration is a flag."""

    config: Annotated[C, tyro.conf.arg(name=""), tyro.conf.FlagConversionOff]
    """The recipe's settings."""
    data_dir: Path | None = None
    """Folder of mnist.npz; Keras downloads it by default."""
    run_dir: Path | None = None
    """Folder of the run, new or to be resumed; runs/RECIPE by default."""
    strategy: Literal["auto", "none", "mirrored"] = "auto"
    """auto mirrors the model over the GPUs if there are several."""
    deterministic: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """The same bits every time, resumed or not, on one kind of device; slower on a GPU."""


def parse(argv: list[str]) -> Arguments[Any]:
    """Reads the command line; the recipe decides which flags there are.

    Raises:
        ValueError: The recipe does not exist.
        SystemExit: A flag or its type is wrong (status 2), or help was asked for.
    """
    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    first.add_argument("--recipe", default="ram_28")
    name = first.parse_known_args(argv)[0].recipe
    check_removed(argv, "digits.train")
    if name not in RECIPES:
        raise invalid_value("--recipe", f"one of {', '.join(RECIPES)}", repr(name))
    recipe = RECIPES[name]
    known = textwrap.wrap(", ".join(RECIPES), initial_indent="  ", subsequent_indent="  ")
    purpose = "\n".join(["Train a digit system. Recipes (--recipe):", *known])
    kind = Arguments[type(recipe)]
    return parse_flags(kind, argv, "digits.train", default=kind(recipe), description=purpose)


def main(argv: list[str] | None = None) -> int:
    """Runs the command; returns the exit status."""

    def work() -> None:
        with Interrupts() as interrupts:
            run(parse(sys.argv[1:] if argv is None else argv), interrupts)

    return exit_status(work)


def run(arguments: Arguments[Any], interrupts: Interrupts) -> None:
    """Trains, first on single digits if the recipe says so; then evaluates the best weights."""
    config, data_dir = arguments.config, arguments.data_dir
    run_dir = arguments.run_dir or Path("runs") / config.recipe
    if data_dir is not None and not data_dir.is_dir():
        raise invalid_value("data_dir", "a folder", f"{data_dir}, which is none")
    resumed = RunFolder(run_dir).has_checkpoint()
    if config.init_from is not None and not resumed and not Path(config.init_from).is_dir():
        raise invalid_value("--init-from", "the folder of a finished run", config.init_from, "key")
    with loading():  # TensorFlow takes seconds: a wrong flag was answered before
        import tensorflow as tf

        from digits import evaluate
        from training.run.ownership import check_run_dir, exclusive_lock
        from training.run.strategy import explained, make_strategy
    if arguments.deterministic:
        tf.config.experimental.enable_op_determinism()
    warnings.formatwarning = lambda message, *_: f"Warning: {message}\n"
    strategy = make_strategy(arguments.strategy)
    runs = stages(config, run_dir)
    with contextlib.ExitStack() as locks, explained():
        for config, folder in reversed(runs):
            check_run_dir(folder, config, read_digit_config)
            locks.enter_context(exclusive_lock(folder))
        for config, folder in runs:
            model = train(config, folder, data_dir, strategy, interrupts)
        evaluate.evaluate_run(model, config, evaluate.Arguments(run_dir, data_dir))


def stages(config: DigitRunConfig, run_dir: Path) -> list[tuple[DigitRunConfig, Path]]:
    """Returns the runs to train one after the other, with their folders: at last this one.

    Pairs reward a new network in one of fifty tries, so the same model first learns from single
    digits on the same canvas, in a run next to this one, unless it starts from another run.
    """
    if not isinstance(config, PairsRun) or not config.single_epochs or config.init_from:
        return [(config, run_dir)]
    base = RECIPES["dram_digit"]
    same = {key: getattr(config.data, key) for key in ("size", "dev_digits", "limit")}
    first = dataclasses.replace(
        base,
        seed=config.seed,
        data=dataclasses.replace(base.data, **same),
        model=dataclasses.replace(config.model, random_steps=base.model.random_steps),
        optimizer=config.optimizer,
        fit=dataclasses.replace(config.fit, epochs=config.single_epochs),
    )
    before = single_dir(run_dir)
    return [(first, before), (dataclasses.replace(config, init_from=str(before)), run_dir)]


def single_dir(run_dir: Path) -> Path:
    """Returns the folder of the run on single digits, next to that of the run on pairs."""
    return run_dir.with_name(f"{run_dir.name}_single")


def train(
    config: DigitRunConfig,
    run_dir: Path,
    data_dir: Path | None = None,
    strategy: tf.distribute.Strategy | None = None,
    interrupts: Interrupts | None = None,
    say: Callable[[str], Any] = print,
) -> DigitModel:
    """Trains a run to its end, resuming from its last checkpoint; returns its best model.

    Args:
        config: The run's configuration.
        run_dir: Its folder, locked by this process.
        data_dir: Folder of `mnist.npz`; None for Keras' own.
        strategy: Distributes work over devices; None for one device.
        interrupts: Signals that end the run at the next checkpoint; None ignores them.
        say: Receives the messages.
    """
    import keras
    import tensorflow as tf

    from digits.data import epoch_steps, load_digits, training_batches
    from digits.evaluate import Scorer, load, new_model
    from training.run import logs
    from training.run.build import make_optimizer
    from training.run.checkpoints import Checkpoints
    from training.run.ownership import claim
    from training.run.resume import CheckpointAndStop, best_epoch, outlook, train_epochs

    folder, data, fit = RunFolder(run_dir), config.data, config.fit
    strategy = strategy or tf.distribute.get_strategy()
    say(f"Recipe {config.recipe}, seed {config.seed}, in {run_dir}.")
    keras.utils.set_random_seed(config.seed)
    digits, dev = (load_digits(split, data, data_dir) for split in ("train", "dev"))
    steps = epoch_steps(digits, fit.batch_size)
    with strategy.scope():
        model = new_model(config)
    if config.init_from is not None and not folder.has_checkpoint():
        taken = start_from(Path(config.init_from), config, model)
        say(f"Initialized with weights of {config.init_from}: {', '.join(taken)}.")
    claim(run_dir, to_text(config))
    with strategy.scope():
        model.compile(
            optimizer=make_optimizer(config.optimizer, steps, fit.epochs),
            clip_norm=config.optimizer.clip_norm,
            seed=config.seed,
            jit_compile=fit.jit_compile,
        )
    checkpoints = Checkpoints(folder.checkpoints, model)
    progress = checkpoints.restore()
    weights = sum(int(tf.size(v)) for v in model.trainable_variables)
    say(f"Data: {len(digits)} digits to train on, {len(dev)} dev digits.")
    say(f"System: {config.system}, {weights / 1e6:.2f} M weights; batches of {fit.batch_size}.")
    say(outlook(progress, fit.epochs, steps))
    if not progress.finished(fit.epochs):
        logs.remove_from(folder.logs, progress.epoch)
        scorer = Scorer(model, data, dev, "dev")

        def draw_figures() -> dict[str, np.ndarray]:
            drawn = scorer.figures(fit.figures).values()
            return {f"attention/{number}": figure for number, figure in enumerate(drawn)}

        stop, best = interrupts or Interrupts(), folder.best_weights
        callbacks = [
            logs.Validate(scorer.scores),
            logs.LearningRate(),
            logs.TensorBoard(folder.logs, draw_figures),
            logs.EpochProgress(fit.epochs, steps),
            CheckpointAndStop(checkpoints, progress, fit, steps, best, stop),
        ]
        batches = functools.partial(training_batches, digits, data, fit.batch_size, config.seed)
        train_epochs(model, batches, fit.epochs, steps, progress, callbacks)
    say(best_epoch(progress, fit.monitor))
    return load(config, run_dir)


def start_from(run_dir: Path, config: DigitRunConfig, model: DigitModel) -> list[str]:
    """Gives a model the best weights of a finished run, layer by layer, where shapes agree.

    Returns:
        Names of these layers; others, such as the classifier of other classes, keep their weights.

    Raises:
        ValueError: The folder is not a finished digit run, none of its layers fits, or the run was
            trained on digits that are dev digits here.
    """
    from digits.evaluate import load

    taken = []
    try:
        theirs = read_digit_config(run_dir)
        found = load(theirs, run_dir).saved_layers()
        for name, layer in model.saved_layers().items():
            ours = [weight.shape for weight in layer.weights]
            there = found[name].weights if name in found else []
            if ours and ours == [weight.shape for weight in there]:
                layer.set_weights(found[name].get_weights())
                taken.append(name)
        if not taken:
            raise RunError("none of its layers fits")
    except ValueError as error:
        expected = "a finished digit run with layers of this one's names and shapes"
        got = f"{str(run_dir)!r}: {str(error).rstrip('.')}"
        raise invalid_value("--init-from", expected, got, "key") from error
    most = theirs.data.dev_digits
    if most < config.data.dev_digits:
        expected = f"at most {most}: {run_dir} was trained on the digits before them"
        raise invalid_value("--data.dev_digits", expected, config.data.dev_digits, "key")
    return taken


if __name__ == "__main__":
    sys.exit(main())

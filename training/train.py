"""Train a captioner: `python -m training.train --recipe scenes_soft`."""

from __future__ import annotations

import contextlib
import signal
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from training.arguments import Settings, default_cache_dir, parse_settings
from training.interrupts import Interrupts


@dataclass(frozen=True)
class Arguments:
    """Train a captioner; any key of the configuration is a flag."""

    config: Settings
    """The recipe's settings."""
    data_dir: Path | None = None
    """Your copy of the data set; drawn data needs none."""
    run_dir: Path | None = None
    """Where the run goes, and goes on from; runs/RECIPE by default."""
    cache_dir: Path | None = None
    """Feature stores; $SAT_TF_CACHE or ~/.cache/sat_tf by default."""
    strategy: Literal["auto", "none", "mirrored", "multi_worker"] = "auto"
    """auto mirrors the model over the GPUs if there are several; multi_worker reads TF_CONFIG."""
    deterministic: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """The same bits every time, stopped or not, on one device of one kind; slower on a GPU."""

    def __post_init__(self) -> None:
        if self.strategy == "multi_worker" and self.config.fit.jit_compile:
            raise ValueError(
                "Received an invalid value for key `--fit.jit_compile`: expected False with "
                "`--strategy multi_worker`, got True."
            )


def parse(argv: list[str]) -> Arguments:
    """Read the command line."""
    return parse_settings(Arguments, argv, "training.train", "Train a captioner.")


def main(argv: list[str] | None = None) -> int:
    """Run the command; returns the exit status."""
    try:
        arguments = parse(sys.argv[1:] if argv is None else argv)
        with Interrupts() as interrupts:
            return run(arguments, interrupts)
    except KeyboardInterrupt as stop:
        print(str(stop) or "Stopped.", file=sys.stderr)
        return getattr(stop, "status", 128 + signal.SIGINT)
    except (ValueError, OSError) as error:
        print(f"Error: {error}", file=sys.stderr)
        return 2


def run(arguments: Arguments, interrupts: Interrupts) -> int:
    """Train, then evaluate the best checkpoint on dev."""
    # TensorFlow takes seconds to load: a wrong flag is answered before.
    import tensorflow as tf

    from training.evaluate import evaluate_run
    from training.fit import Places, fit
    from training.run_folder import alone_in, check_run_dir
    from training.strategies import make_strategy
    from training.workers import Workers

    config = arguments.config
    places = Places(
        arguments.run_dir or Path("runs") / config.recipe,
        arguments.cache_dir or default_cache_dir(),
        arguments.data_dir,
    )
    if arguments.deterministic:
        tf.config.experimental.enable_op_determinism()
    warnings.formatwarning = lambda message, *_: f"Warning: {message}\n"
    # Before any operation, as several workers want it.
    strategy = make_strategy(arguments.strategy) or tf.distribute.get_strategy()
    interrupts.listen()
    workers = Workers(strategy)
    if workers.chief:
        check_run_dir(config, places.run_dir)
    with alone_in(places.run_dir) if workers.chief else contextlib.nullcontext():
        with workers.explained():
            captioner = fit(config, places, strategy, interrupts=interrupts)
        if workers.chief:
            evaluate_run(captioner, config, places)
        with workers.explained():
            workers.wait()  # one that ended before the others would look to them like a failure
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Average the weights of runs: `python -m training.average RUN RUN ... --run-dir OUT`."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

from sat_tf.commands import exit_status


@dataclass(frozen=True)
class Arguments:
    """A captioner whose weights are the mean of those of runs that grew out of one another."""

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Two or more finished runs of captioners; settings without weights are the last one's."""
    run_dir: Path
    """Where the average goes: a folder like a run's, to be evaluated, exported and so on."""
    shares: tuple[float, ...] = ()
    """The weight of each run in the mean, from 0 to 1, together 1; equal by default."""


def main(argv: list[str] | None = None) -> int:
    """Run the command; returns the exit status."""
    arguments = tyro.cli(Arguments, args=argv, prog="python -m training.average")
    return exit_status(lambda: run(arguments))


def run(arguments: Arguments) -> int:
    """Average the runs and say what to do next."""
    shares = check_shares(arguments.runs, arguments.shares)
    check_related(arguments.runs)
    average(arguments.runs, shares, arguments.run_dir)
    for path, share in zip(arguments.runs, shares, strict=True):
        print(f"{share:6.3f}  {path}")
    print(f"Average: {arguments.run_dir}")
    print(f"Score it: python -m training.evaluate --run-dir {arguments.run_dir} --data-dir DIR")
    return 0


def check_shares(runs: Sequence[Path], shares: Sequence[float]) -> tuple[float, ...]:
    """The share of each run; equal ones where none are given.

    Raises:
        ValueError: There are fewer than two runs, or one twice, or the shares do not fit them.
    """
    different = len(set(runs))
    if different < 2 or different < len(runs):
        raise ValueError(
            "Received an invalid value for argument `runs`: expected two or more, all different, "
            f"got {' '.join(map(str, runs)) or 'none'}."
        )
    if not shares:
        return (1.0 / len(runs),) * len(runs)
    whole = math.isclose(math.fsum(shares), 1.0, abs_tol=1e-6)
    if len(shares) != len(runs) or not whole or not all(0.0 <= share <= 1.0 for share in shares):
        raise ValueError(
            f"Received an invalid value for argument `--shares`: expected {len(runs)} numbers from "
            f"0 to 1 that sum to 1, got {' '.join(map(str, shares))}."
        )
    return tuple(shares)


def check_related(runs: Sequence[Path]) -> None:
    """See that the runs have a common origin, by their `--init-from`.

    Weights that were drawn apart stand for different things: their mean stands for nothing.

    Raises:
        ValueError: One has nothing in common with the first.
    """
    first, *others = (_ancestors(path) for path in runs)
    for path, other in zip(runs[1:], others, strict=True):
        if not first & other:
            raise ValueError(
                f"Received an invalid value for argument `runs`: expected runs that started from "
                f"one another, or from the same run (`--init-from`), got {runs[0]} and {path}."
            )


def _ancestors(run_dir: Path) -> set[Path]:
    """A run and those it started from, as far as they are still there."""
    from training.recipes import read_run_config

    found = {run_dir.resolve()}
    origin = read_run_config(run_dir).init_from
    while origin is not None and (path := Path(origin).resolve()) not in found:
        found.add(path)
        try:
            origin = read_run_config(path).init_from
        except ValueError:  # removed since
            break
    return found


def average(runs: Sequence[Path], shares: Sequence[float], out: Path) -> None:
    """Write `sum_i share_i theta_i` as a folder like a run's.

    Args:
        runs: Folders of finished runs with the same words and shapes of weights.
        shares: Of each; they sum to 1.
        out: A new folder, an empty one, or one in which the same average was broken off.

    Raises:
        RunError: A run is not finished or does not fit the others, or the folder is in use.

    References:
        Wortsman et al. (2022), arXiv:2109.01903, between a model and what was fine-tuned from it;
        Wortsman et al. (2022), arXiv:2203.05482, among several.
    """
    import numpy as np

    from sat_tf import runs as finished
    from training.run_folder import alone_in, claim_average
    from training.warm_start import start_from

    last = finished.load(runs[-1])
    weights = [w for layer in last.model.saved_layers().values() for w in layer.weights]
    total = [np.zeros(weight.shape) for weight in weights]
    for path, share in zip(runs, shares, strict=True):
        start_from(path, last.model, last.vocabulary, "argument `runs`")
        for mean, weight in zip(total, weights, strict=True):
            # In float64, so that weights that are all the same stay what they are.
            mean += share * weight.numpy().astype(np.float64)
    for mean, weight in zip(total, weights, strict=True):
        weight.assign(mean)
    with alone_in(out):
        claim_average(out, runs[-1], dict(zip(map(str, runs), shares, strict=True)))
        finished.save_weights(last.model, out / finished.WEIGHTS_FILE)


if __name__ == "__main__":
    sys.exit(main())

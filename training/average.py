"""Average the weights of runs: `python -m training.average RUN RUN ... --run-dir OUT`."""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from sat_tf.config import SearchFlags
from sat_tf.inference import published
from sat_tf.inference.run_folder import RunFolder
from sat_tf.util.commands import command_line, exit_status, loading, parse_flags
from sat_tf.util.errors import invalid_value
from sat_tf.util.fields import check_fields
from training.data.dataset import read_data_dir
from training.run.config import read_run_config, to_text

RELATED = 0.5
"""Least cosine of two decoders' matrices. Of independent runs it is near 0, of runs that started
from one another above 0.8."""


@dataclass(frozen=True)
class Arguments:
    """Average the weights of runs that started from one another."""

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Two or more finished runs, or published captioners by folder or name; settings without
    weights are those of the last one."""
    run_dir: Path
    """Folder of the average, to be evaluated, exported and so on like a run's."""
    shares: tuple[float, ...] = ()
    """Weight of each run in the mean, 0 to 1, with sum 1; equal by default."""
    search: Annotated[SearchFlags, tyro.conf.arg(name="")] = SearchFlags()


def main(argv: list[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    arguments = parse_flags(Arguments, argv, "training.average")
    return exit_status(lambda: run(arguments))


def run(arguments: Arguments) -> int:
    """Averages the runs and says what to do next."""
    check_fields(arguments.search)
    shares = resolve_shares(arguments.runs, arguments.shares)
    average(arguments.runs, shares, arguments.run_dir, arguments.search)
    from training.run.checkpoints import unfinished_note

    for path, share in zip(arguments.runs, shares, strict=True):
        print(f"{share:6.3f}  {path}")
        for note in unfinished_note(published.locate(path)):
            print(f"        Note: {note}")
    print(f"Average: {arguments.run_dir}")
    command = command_line("training.evaluate", "--run-dir", arguments.run_dir)
    known = read_data_dir(RunFolder(arguments.run_dir)) is not None
    print(f"Score it: {command}{'' if known else ' --data-dir DIR'}")
    return 0


def resolve_shares(runs: Sequence[Path], shares: Sequence[float]) -> tuple[float, ...]:
    """Returns the share of each run, equal ones by default.

    Raises:
        ValueError: There are fewer than two runs, or one twice, or the shares do not fit them.
    """
    different = len({path.resolve() for path in runs})
    if different < 2 or different < len(runs):
        got = " ".join(map(str, runs)) or "none"
        raise invalid_value("runs", "two or more, all different", got)
    if not shares:
        return (1.0 / len(runs),) * len(runs)
    whole = math.isclose(math.fsum(shares), 1.0, abs_tol=1e-6)
    if len(shares) != len(runs) or not whole or not all(0.0 <= share <= 1.0 for share in shares):
        expected = f"{len(runs)} numbers from 0 to 1 that sum to 1"
        raise invalid_value("--shares", expected, " ".join(map(str, shares)))
    return tuple(shares)


def average(runs: Sequence[Path], shares: Sequence[float], out: Path, search: SearchFlags) -> None:
    """Writes `sum_i share_i theta_i` as a folder like a run's.

    Weights that were initialised independently differ in what they stand for, so that their mean
    is meaningless: such runs are refused.

    Args:
        runs: The runs.
        shares: Share of each.
        out: The folder to write.
        search: Settings that replace those of the last run's search.

    Raises:
        ValueError: A run is not finished or does not fit the others, or the folder is in use.

    References:
        Wortsman et al. (2022), arXiv:2109.01903, between a model and one fine-tuned from it;
        Wortsman et al. (2022), arXiv:2203.05482, among several.
    """
    folders = list(map(published.locate, runs))
    config = read_run_config(folders[-1])
    config = dataclasses.replace(config, search=search.over(config.search))
    with loading():
        import numpy as np

        from sat_tf.inference.load import load_captioner
        from sat_tf.inference.weights import save_weights
        from training.run.first_weights import start_from
        from training.run.ownership import claim_average, exclusive_lock

    captioner, total, first = load_captioner(folders[-1]), None, None
    model = captioner.model
    for path, share in zip(folders, shares, strict=True):
        start_from(path, model, captioner.vocabulary, "runs", "argument")
        matrices = [w.numpy().ravel() for w in model.decoder.weights if len(w.shape) > 1]
        flat = np.concatenate(matrices).astype(np.float64)
        flat /= np.linalg.norm(flat)
        first = flat if first is None else first
        if first @ flat < RELATED:
            expected = "runs that started from one another, or from the same run (`--init-from`)"
            raise invalid_value("runs", expected, f"{runs[0]} and {path}")
        weights = [w for layer in model.saved_layers().values() for w in layer.weights]
        # In float64, so that equal weights stay exactly what they are.
        parts = [share * weight.numpy().astype(np.float64) for weight in weights]
        total = parts if total is None else list(map(np.add, total, parts))
    for mean, weight in zip(total, weights, strict=True):
        weight.assign(mean)
    with exclusive_lock(out):
        told = dict(zip(map(str, runs), shares, strict=True))
        claim_average(out, folders[-1], to_text(config), told)
        save_weights(model, RunFolder(out).best_weights)


if __name__ == "__main__":
    sys.exit(main())

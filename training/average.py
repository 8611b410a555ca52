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
"""Least cosine of two decoders' matrices: independent runs have 0.0, related ones above 0.8."""


@dataclass(frozen=True)
class Arguments:
    """Average the weights of runs that started from one another."""

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Two or more finished runs or published captioners; settings without weights are the last
    one's."""
    run_dir: Path
    """Folder of the average."""
    shares: tuple[float, ...] = ()
    """Weight of each run in the mean, 0 to 1, with sum 1; equal by default."""
    search: Annotated[SearchFlags, tyro.conf.arg(name="")] = SearchFlags()


def main(argv: list[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    return exit_status(lambda: run(parse_flags(Arguments, argv, "training.average")))


def run(arguments: Arguments) -> None:
    """Averages the runs and says what to do next."""
    check_fields(arguments.search)
    runs, out = arguments.runs, arguments.run_dir
    shares = resolve_shares(runs, arguments.shares)
    average(runs, shares, out, arguments.search)
    from training.run.checkpoints import unfinished_note

    for path, share in zip(runs, shares, strict=True):
        notes = (f"; note: {note}" for note in unfinished_note(published.locate(path)))
        print(f"{share:6.3f}  {path}{''.join(notes)}")
    data_dir = "" if read_data_dir(RunFolder(out)) else " --data-dir DIR"
    print(f"Score it: {command_line('training.evaluate', '--run-dir', out)}{data_dir}")


def resolve_shares(runs: Sequence[Path], shares: Sequence[float]) -> Sequence[float]:
    """Returns the share of each run, equal ones by default."""
    if not 2 <= len(runs) == len({path.resolve() for path in runs}):
        raise invalid_value("runs", "two or more, all different", " ".join(map(str, runs)))
    shares = shares or (1.0 / len(runs),) * len(runs)
    whole = math.isclose(math.fsum(shares), 1.0, abs_tol=1e-6)
    if len(shares) != len(runs) or not whole or min(shares) < 0.0:
        expected = f"{len(runs)} numbers from 0 to 1 that sum to 1"
        raise invalid_value("--shares", expected, " ".join(map(str, shares)))
    return shares


def average(runs: Sequence[Path], shares: Sequence[float], out: Path, search: SearchFlags) -> None:
    """Writes `sum_i share_i theta_i` as a folder like a run's.

    The mean of weights that were initialised independently is meaningless: such runs are refused.

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
        first = flat if first is None else first
        if first @ flat < RELATED * np.linalg.norm(first) * np.linalg.norm(flat):
            expected = "runs that started from one another, or from the same run (`--init-from`)"
            raise invalid_value("runs", expected, f"{runs[0]} and {path}")
        weights = [w for layer in model.saved_layers().values() for w in layer.weights]
        # In float64, so that equal weights stay exactly what they are.
        parts = [share * weight.numpy().astype(np.float64) for weight in weights]
        total = parts if total is None else list(map(np.add, total, parts))
    for mean, weight in zip(total, weights, strict=True):
        weight.assign(mean)
    with exclusive_lock(out):
        claim_average(
            out, folders[-1], to_text(config), dict(zip(map(str, runs), shares, strict=True))
        )
        save_weights(model, RunFolder(out).best_weights)


if __name__ == "__main__":
    sys.exit(main())

"""Average the weights of runs: `python -m training.average RUN RUN ... --run-dir OUT`.

`sum_i share_i theta_i` of runs that started from one another; of weights that were initialised
independently the mean is meaningless, and they are refused.

References:
    Wortsman et al. (2022), arXiv:2109.01903, between a model and one fine-tuned from it;
    Wortsman et al. (2022), arXiv:2203.05482, among several.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from pathlib import Path

import tyro

from sat_tf.inference import published
from sat_tf.inference.run_folder import RunFolder
from sat_tf.util.commands import command_line, exit_status, loading, parse_flags
from sat_tf.util.errors import invalid_value
from sat_tf.util.files import write_all

RELATED = 0.5
"""Least cosine of two decoders' matrices: independent runs have 0.0, related ones above 0.8."""


@dataclass(frozen=True)
class Arguments:
    """Average the weights of runs that started from one another."""

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Two or more finished runs or published captioners; settings are the last one's."""
    run_dir: Path
    """Folder of the average, new or empty."""
    shares: tuple[float, ...] = ()
    """Weight of each run in the mean, 0 to 1, with sum 1; equal by default."""

    def __post_init__(self) -> None:
        runs, shares = self.runs, self.shares or (1.0 / max(len(self.runs), 1),) * len(self.runs)
        if not 2 <= len(runs) == len({path.resolve() for path in runs}):
            raise invalid_value("runs", "two or more, all different", " ".join(map(str, runs)))
        whole = math.isclose(math.fsum(shares), 1.0, abs_tol=1e-6)
        if len(shares) != len(runs) or not whole or min(shares) < 0.0:
            expected = f"{len(runs)} numbers from 0 to 1 that sum to 1"
            raise invalid_value("--shares", expected, " ".join(map(str, shares)))
        object.__setattr__(self, "shares", shares)


def main(argv: list[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    return exit_status(lambda: run(parse_flags(Arguments, argv, "training.average")))


def run(arguments: Arguments) -> None:
    """Averages the runs into a folder like a run's, and says what to do next.

    Raises:
        ValueError: A run is not finished or does not fit the others, or the folder is in use.
    """
    runs, out = dict(zip(arguments.runs, arguments.shares, strict=True)), arguments.run_dir
    with loading():
        import numpy as np

        from sat_tf.inference.load import load_captioner
        from sat_tf.inference.weights import save_weights
        from training.run.checkpoints import unfinished_note
        from training.run.first_weights import start_from
        from training.run.ownership import check_free, exclusive_lock

    last = RunFolder(published.locate(arguments.runs[-1]))
    captioner, total, first = load_captioner(last.path), None, None
    model = captioner.model
    for path, share in runs.items():
        found = start_from(path, model, captioner.vocabulary, "runs", "argument")
        matrices = [w.numpy().ravel() for w in model.decoder.weights if len(w.shape) > 1]
        flat = np.concatenate(matrices).astype(np.float64)
        first = flat if first is None else first
        if first @ flat < RELATED * np.linalg.norm(first) * np.linalg.norm(flat):
            expected = "runs that started from one another, or from the same run (`--init-from`)"
            raise invalid_value("runs", expected, f"{arguments.runs[0]} and {path}")
        weights = [w for layer in model.saved_layers().values() for w in layer.weights]
        # In float64, so that equal weights stay exactly what they are.
        parts = [share * weight.numpy().astype(np.float64) for weight in weights]
        total = parts if total is None else list(map(np.add, total, parts))
        print(f"{share:6.3f}  {path}", *unfinished_note(found.path), sep="; note: ")
    for mean, weight in zip(total, weights, strict=True):
        weight.assign(mean)
    folder = RunFolder(out)
    copied = [one for one in (last.vocabulary, last.data, last.data_dir) if one.exists()]
    records = {out / one.name: one.read_bytes() for one in copied}
    shares = {str(path): share for path, share in runs.items()}
    with exclusive_lock(out):
        check_free(folder)
        save_weights(model, folder.best_weights)
        # The configuration comes last: a folder without it is not a run.
        write_all({folder.average: shares, **records, folder.config: last.config.read_bytes()})
    data_dir = "" if folder.data_dir.exists() else " --data-dir DIR"
    print(f"Score it: {command_line('training.evaluate', '--run-dir', out)}{data_dir}")


if __name__ == "__main__":
    sys.exit(main())

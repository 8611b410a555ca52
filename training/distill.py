"""Save predictions of captioners, to teach another one: `python -m training.distill RUN RUN ...`.

Writes the mean of their predictions for every word of the training captions. Then

    python -m training.train ... --fit.distillation-weight 0.7 --predictions FILE

trains a captioner that learns from captions and predictions alike.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import tyro

from sat_tf import published
from sat_tf.commands import exit_status, loading, program
from sat_tf.errors import invalid_value
from sat_tf.fields import PositiveInt, check_fields
from sat_tf.files import default_cache_dir
from sat_tf.run_folder import RunFolder
from training.cli import check_data_dir, check_file
from training.config import RunConfig, read_run_config


@dataclass(frozen=True)
class Arguments:
    """Save what captioners predict for every word of the training captions."""

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Finished runs, or published captioners by folder or name, trained on the same captions."""
    out: Path = Path("predictions.npz")
    """The file to write, for --predictions."""
    data_dir: Path | None = None
    """Your copy of the data set; the one that the first run was trained on by default."""
    cache_dir: Path | None = None
    """Feature stores; $SAT_TF_CACHE, $XDG_CACHE_HOME/sat_tf or ~/.cache/sat_tf by default."""
    words: PositiveInt = 20
    """Likeliest words to keep of each prediction."""

    def __post_init__(self) -> None:
        check_fields(self)


def main(argv: list[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    given = sys.argv[1:] if argv is None else argv
    return exit_status(
        lambda: run(tyro.cli(Arguments, args=given, prog=program("training.distill")))
    )


def run(arguments: Arguments) -> int:
    """Reads the training captions with every run and writes the mean of the predictions."""
    configs = check(arguments)
    with loading():
        from training.inputs import load_data
        from training.run_state.ownership import read_data_dir
        from training.teach.distillation import predict

    folder = RunFolder(next(iter(configs)))
    data_dir = arguments.data_dir or read_data_dir(folder)
    data = load_data(configs[folder.path], data_dir)
    cache_dir = arguments.cache_dir or default_cache_dir()
    found = predict(configs, data, cache_dir, arguments.words)
    found.save(arguments.out)
    covered = float(found.shares.sum(axis=1, dtype="float64").mean())
    print(
        f"Wrote {arguments.out}: predictions of {len(configs)} captioners for {len(found.words):,} "
        f"words of {len(data.table):,} captions; the {found.words.shape[1]} likeliest words have "
        f"{100 * covered:.1f} % of the probability."
    )
    return 0


def check(arguments: Arguments) -> dict[Path, RunConfig]:
    """Returns the configuration of each run, by its folder, before TensorFlow is loaded.

    Raises:
        ValueError: The message names the argument.
    """
    if arguments.out.suffix != ".npz":
        raise invalid_value("--out", "a name that ends in .npz", arguments.out)
    folders = [published.locate(path) for path in arguments.runs]
    if not folders or len({folder.resolve() for folder in folders}) < len(folders):
        got = " ".join(map(str, arguments.runs)) or "none"
        raise invalid_value("runs", "one or more, all different", got)
    configs = {folder: read_run_config(folder) for folder in folders}
    check_data_dir(configs[folders[0]], arguments.data_dir)
    check_file("--out", arguments.out)
    return configs


if __name__ == "__main__":
    sys.exit(main())

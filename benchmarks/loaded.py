"""Own lines and files that a run has loaded when its first training step ends.

`python -m benchmarks.loaded --recipe folder_soft --data-dir DIR` takes the flags of training and
prints the files, the longest last, and their sum.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import keras

from training import train as command

ROOT = Path(__file__).resolve().parents[1]


class _FirstStepError(Exception):
    """The first step has ended."""


class _Stop(keras.callbacks.Callback):
    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        raise _FirstStepError


def first_step(flags: list[str]) -> None:
    """Trains a run in a temporary folder until its first step has ended."""
    arguments = command.parse(flags)
    with tempfile.TemporaryDirectory() as folder:
        run_dir, cache_dir = Path(folder) / "run", arguments.cache_dir or Path(folder) / "cache"
        config = command.resolve(arguments.config, run_dir, arguments.data_dir)
        try:
            read = command.read_data(config, run_dir, cache_dir, arguments.data_dir)
            command.train(config, read, callbacks=[_Stop()])
        except _FirstStepError:
            return
    raise RuntimeError("There was no step.")


def loaded() -> dict[str, int]:
    """Returns the lines of each file of ours that is loaded, but for this one."""
    files = {getattr(module, "__file__", None) or "" for module in [*sys.modules.values()]}
    paths = [Path(file) for file in files if file.endswith(".py") and file != __file__]
    own = [path for path in paths if path.is_relative_to(ROOT) and ".venv" not in path.parts]
    lines = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in own}
    return {name: count for name, count in sorted(lines.items(), key=lambda item: item[1])}


def main(argv: list[str] | None = None) -> None:
    """Runs the command."""
    first_step(sys.argv[1:] if argv is None else argv)
    found = loaded()
    print(*(f"{count:6} {name}" for name, count in found.items()), sep="\n")
    print(f"{sum(found.values()):,} lines in {len(found)} files")


if __name__ == "__main__":
    main()

"""Own lines and files that a run has loaded when its first training step ends.

`python -m tests.training.loaded --recipe folder_soft --data-dir DIR` takes flags of training and
prints the files, the longest last, and their sum.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
from pathlib import Path

import keras

from training import train as command
from training.run.build import first_model

ROOT = Path(__file__).resolve().parents[2]


class _FirstStepError(Exception):
    """The first step has ended."""


def first_step(flags: list[str]) -> None:
    """Trains until the first step has ended, in a temporary folder."""

    def stop(*_: object, **__: object) -> None:
        raise _FirstStepError

    arguments = command.parse(flags)
    with tempfile.TemporaryDirectory() as folder, contextlib.suppress(_FirstStepError):
        run_dir = Path(folder) / "run"
        config = command.resolve(arguments.config, run_dir, arguments.data_dir)
        read = command.read_data(config, run_dir, Path(folder) / "cache", arguments.data_dir)
        callbacks = [keras.callbacks.LambdaCallback(on_train_batch_end=stop)]
        model = first_model(config, read.data, read.folder)
        command.train(config, read, model, callbacks=callbacks)


def loaded() -> dict[str, int]:
    """Returns the lines of each file of ours that is loaded, but for this one."""
    files = {getattr(module, "__file__", None) or "" for module in [*sys.modules.values()]}
    paths = [Path(file) for file in files if file.endswith(".py") and file != __file__]
    own = [path for path in paths if path.is_relative_to(ROOT) and ".venv" not in path.parts]
    lines = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in own}
    return {name: count for name, count in sorted(lines.items(), key=lambda item: item[1])}


if __name__ == "__main__":
    first_step(sys.argv[1:])
    found = loaded()
    print(*(f"{count:6} {name}" for name, count in found.items()), sep="\n")
    print(f"{sum(found.values()):,} lines in {len(found)} files")

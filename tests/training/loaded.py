"""Own lines and files, time and memory that a run has used when its first training step ends.

`python -m tests.training.loaded --recipe folder_soft --data-dir DIR` takes flags of training and
prints the files, the longest last, their sum, and what the process has used.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import tempfile
from pathlib import Path

import keras

from training import train as command

ROOT = Path(__file__).resolve().parents[2]


class _FirstStepError(Exception):
    """The first step has ended."""


class _Stop(keras.callbacks.Callback):
    """Ends training after its first step, and notes what the process has used until then."""

    used: dict[str, float]

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        times = resource.getrusage(resource.RUSAGE_SELF)
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        self.used = {
            "processor_s": times.ru_utime + times.ru_stime,
            "mb": pages * os.sysconf("SC_PAGE_SIZE") / 1e6,
        }
        raise _FirstStepError


def first_step(flags: list[str]) -> dict[str, float]:
    """Trains until the first step has ended, in a temporary folder unless flags name another.

    Returns:
        Seconds of processor time, and memory in use, 10^6 bytes.
    """
    arguments = command.parse(flags)
    with tempfile.TemporaryDirectory() as folder:
        run_dir = arguments.run_dir or Path(folder) / "run"
        cache_dir = arguments.cache_dir or Path(folder) / "cache"
        config = command.resolve(arguments.config, run_dir, arguments.data_dir)
        stop = _Stop()
        try:
            read = command.read_data(config, run_dir, cache_dir, arguments.data_dir)
            command.train(config, read, callbacks=[stop])
        except _FirstStepError:
            return stop.used
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
    used = first_step(sys.argv[1:] if argv is None else argv)
    found = loaded()
    print(*(f"{count:6} {name}" for name, count in found.items()), sep="\n")
    print(f"{sum(found.values()):,} lines in {len(found)} files")
    print(json.dumps(used))


if __name__ == "__main__":
    main()

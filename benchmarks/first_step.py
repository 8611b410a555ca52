"""The training command up to its first step, timed: `python -m benchmarks.first_step OUT ARGS...`.

Writes seconds a phase, and when the process began and the step ended, to the JSON file OUT.
"""

import time

_BEGAN = time.time()  # before anything heavy is imported

import functools  # noqa: E402
import json  # noqa: E402
import sys  # noqa: E402
from collections.abc import Callable, Iterator  # noqa: E402
from contextlib import contextmanager  # noqa: E402
from pathlib import Path  # noqa: E402

from sat_tf.commands import loading  # noqa: E402


class FirstStepDone(Exception):  # noqa: N818  (it is no error)
    """Ends the training command."""


class Phases:
    """Seconds by name of phase, in the order they were first entered."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def time(self, name: str) -> Iterator[None]:
        """Adds what is spent inside, however it is left."""
        start = time.perf_counter()
        try:
            yield
        finally:
            spent = time.perf_counter() - start
            self.seconds[name] = self.seconds.get(name, 0.0) + spent

    def wrap(self, function: Callable, name: str) -> Callable:
        """The function, its calls timed."""

        @functools.wraps(function)
        def timed(*args, **kwargs):
            with self.time(name):
                return function(*args, **kwargs)

        return timed


def main(out: Path, argv: list[str]) -> None:
    """Train until the first step is done, and write where the time went."""
    phases = Phases()
    with loading(), phases.time("import tensorflow, keras"):  # as the command does
        import keras
        import tensorflow  # noqa: F401
    with phases.time("other imports"):
        from training import fit, run_data, train

    class Stop(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            raise FirstStepDone

    make_callbacks = fit.callbacks
    fit.callbacks = lambda *args: [*make_callbacks(*args), Stop()]
    fit.load_data = phases.wrap(fit.load_data, "captions")
    fit.Captioner = phases.wrap(fit.Captioner, "model")
    run_data.open_source = phases.wrap(run_data.open_source, "feature store")
    fit.train_model = phases.wrap(fit.train_model, "trace and first step")
    try:
        train.main(argv)
    except FirstStepDone:
        ended = time.time()
        out.write_text(json.dumps({"began": _BEGAN, "ended": ended, "phases": phases.seconds}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])

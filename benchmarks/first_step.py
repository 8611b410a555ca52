"""Times the training command up to its first step: `python -m benchmarks.first_step OUT ARGS`.

Writes seconds per phase, and the times when the process began and the step ended, to OUT (JSON).
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
    """Raised to end the training command."""


class Phases:
    """Seconds per phase, in the order of first entry."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def time(self, name: str) -> Iterator[None]:
        """Adds the time spent inside, errors included."""
        start = time.perf_counter()
        try:
            yield
        finally:
            spent = time.perf_counter() - start
            self.seconds[name] = self.seconds.get(name, 0.0) + spent

    def wrap(self, function: Callable, name: str) -> Callable:
        """Returns the function with its calls timed."""

        @functools.wraps(function)
        def timed(*args, **kwargs):
            with self.time(name):
                return function(*args, **kwargs)

        return timed


def main(out: Path, argv: list[str]) -> None:
    """Trains until the first step is done and writes where the time went."""
    phases = Phases()
    with loading(), phases.time("import tensorflow, keras"):  # as the command does
        import keras
        import tensorflow  # noqa: F401
    with phases.time("other imports"):
        from training import inputs, model, train
        from training.run_state import resume

    class Stop(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            raise FirstStepDone

    train.train = functools.partial(train.train, callbacks=(Stop(),))
    inputs.load_data = phases.wrap(inputs.load_data, "captions")
    model.new_model = phases.wrap(model.new_model, "model")
    inputs.open_inputs = phases.wrap(inputs.open_inputs, "feature store")
    resume.train_epochs = phases.wrap(resume.train_epochs, "trace and first step")
    try:
        train.main(argv)
    except FirstStepDone:
        ended = time.time()
        out.write_text(json.dumps({"began": _BEGAN, "ended": ended, "phases": phases.seconds}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])

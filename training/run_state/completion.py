"""Detection of runs whose training was interrupted."""

from __future__ import annotations

from pathlib import Path

from sat_tf.errors import RunError
from sat_tf.run_folder import RunFolder, read_object
from training.run_state.checkpoints import last_progress


def unfinished_note(run_dir: Path) -> tuple[str, ...]:
    """Returns a sentence if a run has epochs left to train, which its weights do not tell.

    Averages and published captioners have no checkpoint, so nothing is said of them, nor of a run
    whose checkpoint cannot be read: its weights still can.

    Args:
        run_dir: Folder of the run.
    """
    folder = RunFolder(run_dir)
    try:
        progress = last_progress(folder.checkpoints)
    except RunError:
        return ()
    if progress is None:
        return ()
    epochs = read_object(folder.config)["fit"]["epochs"]
    if progress.finished(epochs):
        return ()
    return (
        f"Training of {run_dir.name} is not finished ({progress.epoch} of {epochs} epochs); "
        "repeat its command to resume it.",
    )

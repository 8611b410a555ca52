"""Show, Attend and Tell (Xu et al., 2015, arXiv:1502.03044) in TensorFlow 2 and Keras 3.

`sat_tf.load(RUN).caption(IMAGE)` captions a picture with a trained run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from sat_tf.runs import TrainedCaptioner

__all__ = ["load"]


def load(run_dir: str | Path) -> TrainedCaptioner:
    """The best captioner of the run in this folder; see `sat_tf.runs.load`."""
    # Imported here, so that `import sat_tf.vocabulary` does not load TensorFlow.
    from sat_tf.runs import load as load_run

    return load_run(run_dir)

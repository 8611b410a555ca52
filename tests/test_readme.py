"""The snippet of the README: a stranger's captioner made of the layers."""

import re
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
MARKER = "<!-- snippet -->"
MOST_LINES = 20


def read_snippet() -> str:
    """Returns the Python block that follows the marker."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (found,) = re.findall(rf"{re.escape(MARKER)}\s*```python\n(.*?)```", text, flags=re.DOTALL)
    return found


def test_the_snippet_trains_a_captioner_by_compile_and_fit():
    snippet = read_snippet()
    assert len(snippet.strip().splitlines()) <= MOST_LINES
    names: dict = {}
    exec(compile(snippet, "README.md", "exec"), names)
    captioner = names["captioner"]
    assert np.isfinite(captioner.history.history["loss"]).all()
    assert int(captioner.optimizer.iterations) > 0

"""The library's cache: feature stores of training, exports of the page. It may be deleted."""

from __future__ import annotations

import os
from pathlib import Path


def default_cache_dir() -> Path:
    """Returns `$SAT_TF_CACHE`, else `$XDG_CACHE_HOME/sat_tf`, else `~/.cache/sat_tf`."""
    if own := os.environ.get("SAT_TF_CACHE"):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sat_tf"

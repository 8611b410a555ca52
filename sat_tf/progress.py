"""The progress bar of long work: a bar in a terminal, a line every half minute in a log."""

from __future__ import annotations

import sys
from typing import Any

from tqdm import tqdm

_LINE = "{desc}: {n_fmt}/{total_fmt}{unit}, {rate_noinv_fmt}, {remaining} left{postfix}"
_BAR = "{l_bar}{bar}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}, {rate_noinv_fmt}{postfix}]"


class _Lines:
    """Writes each state of a bar as a line of its own, for files and pipes; no count twice."""

    _count = ""

    def write(self, text: str) -> None:
        count = text.strip().partition(",")[0]
        if count not in ("", self._count):
            sys.stderr.write(text.strip() + "\n")
        self._count = count or self._count

    def flush(self) -> None:
        sys.stderr.flush()


def progress_bar(total: int, title: str, unit: str, enabled: bool = True, done: int = 0) -> tqdm:
    """Makes a bar on standard error; call its `update(count)`, and `close()` or use `with`.

    Items that were `done` before do not count for its speed.
    """
    options: dict[str, Any] = {
        "total": total,
        "desc": title,
        "unit": f" {unit}",
        "disable": not enabled,
        "initial": done,
    }
    if sys.stderr.isatty():
        return tqdm(**options, file=sys.stderr, dynamic_ncols=True, bar_format=_BAR)
    # The tiny delay leaves out the line before the first item.
    options |= {"bar_format": _LINE, "mininterval": 30.0, "miniters": 1, "delay": 1e-9}
    return tqdm(**options, file=_Lines())

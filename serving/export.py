"""Answers the former command `python -m serving.export` with its successors."""

from __future__ import annotations

import sys


def main() -> int:
    """Prints the three commands; returns 2."""
    print(
        "Error: `serving.export` was removed: use `python -m serving.export_saved_model` for TF "
        "Serving, `python -m serving.export_litert` for LiteRT, or `python -m serving.export_web` "
        "for a page on a static host, each with `--run-dir RUN`.",
        file=sys.stderr,
    )
    return 2


if __name__ == "__main__":
    sys.exit(main())

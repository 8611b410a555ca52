"""Caption images: `python -m training.caption` is `sat-tf caption`, which needs no checkout."""

from __future__ import annotations

import sys

from sat_tf.inference.caption import Arguments, main

__all__ = ["Arguments", "main"]

if __name__ == "__main__":
    sys.exit(main())

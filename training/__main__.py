"""Lists the commands of this package: `python -m training`."""

from __future__ import annotations

import sys

from sat_tf.__main__ import list_package

if __name__ == "__main__":
    sys.exit(list_package("training"))

"""Checks that results can be written, before the work that makes them."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path

from sat_tf.errors import invalid_value


def check_folder(flag: str, folder: Path) -> None:
    """Makes a folder of results and tries to write in it.

    Raises:
        ValueError: It cannot be made or written in; the message names the flag.
    """
    _try("a folder that can be written in", flag, folder, folder)


def check_file(flag: str, path: Path) -> None:
    """Makes the folder of a file of results and tries to write in it; the file is not touched.

    Raises:
        ValueError: It cannot be written; the message names the flag.
    """
    _try("a file that can be written", flag, path, path.parent)


def _try(expected: str, flag: str, path: Path, folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
        if path != folder and path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    except OSError as error:
        raise invalid_value(flag, expected, f"{path} ({error.strerror})") from error

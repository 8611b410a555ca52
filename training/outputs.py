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


def check_apart(flag: str, out: Path, data_dir: str | Path | None) -> None:
    """Checks that results do not go among the data.

    Raises:
        ValueError: They would, and could replace a file of captions or pass for one.
    """
    if data_dir is not None and out.resolve() == Path(data_dir).resolve():
        expected = "a folder other than the data's, where results could replace its captions"
        raise invalid_value(flag, expected, str(out))


def check_own_images(flag: str, out: Path, images: str, written_with: str) -> None:
    """Checks that images which results will replace are those of earlier results.

    Args:
        flag: The flag of the results' folder.
        out: That folder.
        images: Its folder of images.
        written_with: File of the results, which is there if the images are theirs.

    Raises:
        ValueError: There are PNG files of the user's own.
    """
    if any((out / images).glob("*.png")) and not (out / written_with).is_file():
        expected = f"a folder whose `{images}` is not in use, as images of the results go there"
        raise invalid_value(flag, expected, str(out))


def _try(expected: str, flag: str, path: Path, folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
        if path != folder and path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    except OSError as error:
        raise invalid_value(flag, expected, f"{path} ({error.strerror})") from error

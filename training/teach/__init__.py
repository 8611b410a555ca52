"""Teachers beside the captions, and the files of those that are learned: arrays in an `.npz`."""

from __future__ import annotations

import contextlib
import io
import json
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sat_tf.util.files import write_atomically
from training.data.examples import DataError

_ABOUT = "about"
_DAMAGED = (OSError, ValueError, KeyError, TypeError, EOFError, AttributeError, zipfile.BadZipFile)


def save_archive(
    path: Path,
    about: Mapping[str, Any],
    arrays: Mapping[str, np.ndarray],
) -> None:
    """Writes arrays, and `about` as JSON with a key `format`, compressed."""
    text = np.frombuffer(json.dumps(about, ensure_ascii=False).encode(), np.uint8)
    archive = io.BytesIO()
    np.savez_compressed(archive, **arrays, **{_ABOUT: text})
    write_atomically(path, archive.getvalue())


@contextlib.contextmanager
def open_archive(
    path: Path, version: int, otherwise: str
) -> Iterator[tuple[dict[str, Any], Mapping[str, np.ndarray]]]:
    """Opens a file of `save_archive`; yields `about` and the arrays, each read on access.

    Args:
        path: The file.
        version: The expected `format` in `about`.
        otherwise: End of the error about a wrong file, after its path: "is not ...".

    Raises:
        DataError: The file is damaged or something else, or the code inside `with` found it so.
    """
    try:
        with np.load(path, allow_pickle=False) as arrays:
            about = json.loads(arrays[_ABOUT].tobytes())
            if about["format"] != version:
                raise ValueError(f"its format is {about['format']}, not {version}")
            yield about, arrays
    except _DAMAGED as error:
        raise DataError(f"{path} {otherwise}: {error}.") from error

"""Versions of an export: numbered folders, each written whole or not at all."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from sat_tf.files import sync

if TYPE_CHECKING:
    import tensorflow as tf

    from serving.signatures import Signature


def write_version(out: Path, write: Callable[[Path], None]) -> Path:
    """Writes the next version below a folder, whole or not at all.

    Args:
        out: The folder of the versions, made if missing.
        write: Writes the contents into an empty folder.

    Returns:
        The version's folder, `OUT/1` the first time.

    Raises:
        OSError: `out` cannot be written to.
    """
    out.mkdir(parents=True, exist_ok=True)
    # A name that is no number, which a server that polls the folder skips.
    draft = Path(tempfile.mkdtemp(prefix=".writing-", dir=out))
    try:
        with _plain_errors(out):
            write(draft)
        return publish_version(draft, out)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise


@contextlib.contextmanager
def _plain_errors(out: Path) -> Iterator[None]:
    """Turns TensorFlow's errors of files that cannot be written into an `OSError`."""
    import tensorflow as tf

    try:
        yield
    except tf.errors.OpError as error:
        raise OSError(f"The export cannot be written to {out}: {error.message}") from error


def save_signatures(
    signatures: list[Signature], folder: Path
) -> dict[str, tf.types.experimental.ConcreteFunction]:
    """Writes the SavedModel; returns each signature's traced function."""
    from keras.export import ExportArchive

    # No `track(model)`, which would store every weight twice: variables are found by their use.
    archive = ExportArchive()
    functions = {
        signature.name: archive.add_endpoint(signature.name, signature.function, [signature.input])
        for signature in signatures
    }
    archive.write_out(str(folder), verbose=False)
    return {name: function.get_concrete_function() for name, function in functions.items()}


def publish_version(draft: Path, out: Path) -> Path:
    """Gives a finished draft its number by one rename, readable by all and synced to disk."""
    for path in (*draft.rglob("*"), draft):
        # Whatever the umask: the server is often another user than the one who exports.
        path.chmod(0o755 if path.is_dir() else 0o644)
        sync(path)
    while True:
        numbers = [int(path.name) for path in out.iterdir() if path.name.isdecimal()]
        version = out / str(max(numbers, default=0) + 1)
        try:
            draft.rename(version)
        except OSError:
            if not version.exists():
                raise
            continue  # another export took the number in the meantime
        sync(out)
        return version

"""Folders of images and caption files: how tests write and read them."""

import io
import json
import tarfile
from pathlib import Path

from training.data.config import DataSet
from training.data.examples import DataError, Split
from training.data.readers import load_split

A, B = "a red ball lies here", "two dogs run home"
BOTH = {"a.jpg": (A,), "b.jpg": (B,)}
IMAGES = {"a.jpg": b"", "b.jpg": b""}


def write(folder: Path, files: dict) -> Path:
    """Writes bytes and text unchanged, lists in *.jsonl as lines, and else JSON."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith(".jsonl") and isinstance(content, list):
            content = "".join(json.dumps(line) + "\n" for line in content)
        if not isinstance(content, (bytes, str)):
            content = json.dumps(content)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def load(split: str, folder: Path, **options) -> Split:
    return load_split(DataSet("folder", **options), split, folder)


def everything(folder: Path, **options) -> tuple[dict, dict, list[str]]:
    """Image -> captions, image -> split, and the notes, over all splits."""
    captions, splits, notes = {}, {}, {}
    for name in ("train", "dev", "test"):
        try:
            split = load(name, folder, **options)
        except DataError as error:
            if "names no image of" not in str(error):
                raise
            continue
        captions |= {e.image_id: e.captions for e in split.examples}
        splits |= {e.image_id: name for e in split.examples}
        notes |= dict.fromkeys(split.notes)
    return captions, splits, list(notes)


def tar_of(files: dict[str, bytes | str]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        for name, content in files.items():
            content = content if isinstance(content, bytes) else content.encode()
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return stream.getvalue()

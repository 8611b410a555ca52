"""Folders of caption files as people have them: how tests write and read them."""

import io
import json
import tarfile
from pathlib import Path

from training.data.examples import DataError, Split
from training.data.readers.caption_files import read_caption_file
from training.data.readers.caption_files.records import Record
from training.data.readers.folder import Folder

A, B = "a red ball lies here", "two dogs run home"
BOTH = {"a.jpg": (A,), "b.jpg": (B,)}
IMAGES = {"a.jpg": b"", "b.jpg": b""}
INNER = {"images/a.jpg": b"", "images/b.jpg": b""}
COCO = {
    "images": [{"id": 7, "file_name": "a.jpg"}, {"id": 8, "file_name": "b.jpg"}],
    "annotations": [{"image_id": 7, "caption": A}, {"image_id": 8, "caption": B}],
}
ANNOTATED = COCO["annotations"]
RECORDS = [{"image": "a.jpg", "caption": A}, {"image": "b.jpg", "caption": B}]


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


def load(split: str, folder: Path, limit: int | None = None, **options) -> Split:
    return Folder(folder, **options).split(split, limit)


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
        assert not split.skipped and not split.uncaptioned
    return captions, splits, list(notes)


def records_of(path: Path) -> tuple[Record, ...]:
    return read_caption_file(path).records


def tar_of(files: dict[str, bytes | str]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        for name, content in files.items():
            content = content if isinstance(content, bytes) else content.encode()
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return stream.getvalue()


def table(header: str, *rows: str, end: str = "\n") -> str:
    return end.join(([header] if header else []) + list(rows)) + end


def chat(*images: str) -> dict:
    """A conversation in the form of OpenAI's API."""
    shown = [{"type": "image_url", "image_url": {"url": image}} for image in images]
    asked = {"role": "user", "content": [{"type": "text", "text": "Describe it."}, *shown]}
    answer = {"role": "assistant", "content": [{"type": "text", "text": A}]}
    return {"messages": [{"role": "system", "content": "Be brief."}, asked, answer]}


def box_of(attributes: dict) -> dict:
    return {"image_id": 7, "bbox": [0, 0, 1, 1], "attributes": attributes}

"""Captions that lie beside or with their images: pairs of files, webdataset's tars, Parquet."""

from __future__ import annotations

import functools
import json
import os
import re
import shlex
import tarfile
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path, PurePosixPath
from typing import Any

from sat_tf.util.errors import installation
from training.data.examples import DataError, StoredImage
from training.data.readers.account import PAIRED
from training.data.readers.caption_files.columns import choose
from training.data.readers.caption_files.objects import Entries, flat_records
from training.data.readers.caption_files.records import (
    IMAGE_SUFFIXES,
    Record,
    Source,
    image_name,
    name_of_several,
)
from training.data.readers.caption_files.roles import (
    Chosen,
    is_caption,
    is_image_heading,
    is_image_name,
)
from training.data.readers.text_files import decoded, read_text

_RDF = "{http://www.w3.org/1999/02/22-rdf-syntax-ns#}"
_XMP = ".//{http://purl.org/dc/elements/1.1/}description//" + f"{_RDF}li"
_SAMPLE = 100
_SAME = {"text": "txt", "jsn": "json"}  # webdataset takes them for the same
_SAID = re.compile(r"[ ._-](?:caption|description)s?$", re.IGNORECASE)  # a_caption.txt
_PHRASE = re.compile(r"\[/EN#\d+(?:/\w+)+ ([^\]]*)\]")


def pairs(root: Path) -> Iterator[tuple[str, str, list[str]]]:
    """Yields the images of a folder that have a file of texts, its path, and those of further ones.

    Such a file is named like the image, a.txt, a.jpg.txt or a_caption.txt, and lies beside it or
    elsewhere, as images/x/a.jpg and captions/x/a.txt, if no other does so; if no image has its
    name, in other capitals; or it is the only one in the folder of the image, which is the only one
    there too. A text beside an image is of no other, such as a figure of it elsewhere.
    """
    images, texts, alone = [], {}, {}
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        before = len(images)
        paired = []
        for file in sorted(files):
            stem, suffix = os.path.splitext(file)
            if suffix.lower() in IMAGE_SUFFIXES and not file.startswith("."):
                images.append((folder, stem, file))
            elif suffix.lower() in PAIRED:
                inner, of_image = os.path.splitext(stem)  # a.jpg.txt
                key = inner if of_image.lower() in IMAGE_SUFFIXES else stem
                found = (folder, PAIRED.index(suffix.lower()), stem, file)
                paired.append(found)
                for name in {key, _SAID.sub("", key)}:
                    texts.setdefault(name, []).append(found)
        if len(paired) == 1 == len(images) - before and folder != str(root):
            alone[folder] = paired
    start = len(os.path.join(root, ""))
    there = {(folder, stem) for folder, stem, _ in images}
    known = {stem for _, stem in there}
    folded: dict[str, list[Any]] = {}
    for name in texts.keys() - known:
        folded.setdefault(name.casefold(), []).extend(texts[name])
    for folder, stem, image in images:
        several = texts.get(stem) or (alone.get(folder, ()) if len(alone) > 1 else ())
        several = several or folded.get(stem.casefold(), ())
        beside = [text for text in several if text[0] == folder]
        several = beside or [text for text in several if (text[0], stem) not in there]
        ranks: dict[tuple, list[str]] = {}
        for within, kind, name, file in several:  # a.txt before a.jpg.txt, that before a.png.txt
            told = is_caption(os.path.basename(within))  # captions/a.txt, titles/a.txt
            alike = len(several) > 1 and _common_end(within[start:], folder[start:])
            rank = (-alike, kind, not told, name != stem, name != image)
            ranks.setdefault(rank, []).append(os.path.join(within, file))
        best = ranks[min(ranks)] if ranks else ()
        if len(best) == 1:
            name = os.path.join(folder, image)[start:].replace(os.sep, "/")
            yield name, best[0], [os.path.join(t[0], t[3]) for t in several]


def _common_end(folder: str, other: str) -> int:
    """Number of equal folders at the ends of two paths."""
    parts = zip(reversed(folder.split(os.sep)), reversed(other.split(os.sep)), strict=False)
    return sum(1 for _ in takewhile(lambda two: two[0] == two[1] != "", parts))


def read_pairs(source: Source) -> Iterator[Record]:
    """Reads the captions of each image from the file of its name: one per line, JSON or XMP."""
    longer, paired = 0, list(pairs(source.path))
    texts = dict.fromkeys(text for _, text, _ in paired if text.lower().endswith(".json"))
    written = {text: read_text(Path(text)) for text in texts}
    found = _json_records(source, written)
    for image, text, _ in paired:
        place = os.path.basename(text)
        if text in written:
            record = found.get(text) or Record(image, (), None, place)
            yield replace(record, image=image, place=place)
            continue
        # Flickr30k Entities: [/EN#5/people A man] sits.
        lines = _lines(source, text)
        captions = [_PHRASE.sub(r"\1", line) for line in lines if line.strip()] or [""]
        longer += len(captions) > 1
        if any(captions) and not any(map(str.isalpha, "".join(captions))):
            source.fail(
                text,
                "no letters, so no captions; name the caption file with "
                "`--data.captions`, or write the caption of the image there",
            )
        yield source.record(place, image, captions)
    used = Counter(text for _, text, _ in paired)
    _check_shared(source, paired, used)
    source.used.update(map(Path, used))
    others = sum(not used.keys() >= {*rest} for *_, rest in paired)
    capitals = sum(not _has_name_of(text, image) for image, text, _ in paired)
    shared = [text for text, count in used.items() if count > 1]
    parts = (
        (longer, "have several lines, each a caption"),
        (capitals, "are found in other capitals"),
        (
            len(shared),
            f"serve several images each, such as {''.join(map(os.path.basename, shared[:1]))}",
        ),
    )
    more = "".join(f"; {count} of them {what}" for count, what in parts if count)
    more += f"; of {others} images other files of that name are not read" if others else ""
    source.note(f"captions are those of {len(used)} files named like their images{more}")


def _check_shared(
    source: Source, paired: Sequence[tuple[str, str, Any]], used: Mapping[str, int]
) -> None:
    """Checks that no text that lies elsewhere has the name of images of several folders.

    Raises:
        DataError: One has, and could be that of either.
    """
    folders: dict[str, str] = {}
    for image, text, _ in paired:
        inner = os.path.relpath(os.path.dirname(text), source.path)
        if used[text] < 2 or os.path.normpath(os.path.dirname(image) or ".") == inner:
            continue
        other = folders.setdefault(text, image)
        if os.path.dirname(other) != os.path.dirname(image):
            why = "lay each text beside its image, or take the others out of the folder"
            source.fail(text, f"its name is that of several images, {other} and {image}; {why}")


def _has_name_of(text: str, image: str) -> bool:
    """Tests if a text file has the name of its image in the same capitals, or another name."""
    stem, file = os.path.splitext(os.path.basename(image))[0], os.path.basename(text)
    return stem in file or stem.casefold() not in file.casefold()


def _lines(source: Source, text: str) -> list[str]:
    """The lines of a file beside an image, or the description in its XMP."""
    content = read_text(Path(text))
    if not text.lower().endswith(".xmp"):
        return content.splitlines()
    try:
        found = ElementTree.fromstring(content).findall(_XMP)
    except ElementTree.ParseError as error:
        source.fail(text, f"not XML ({error})")
    return [" ".join((found[0].text or "").split())] if found else []


@dataclass(frozen=True)
class TarImages(Sequence):
    """The images of a tar, by number, read from their places.

    Attributes:
        path: The tar.
        places: Offset and size of each.
    """

    path: Path
    places: tuple[tuple[int, int], ...]

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, index: int) -> Mapping[str, Any]:
        offset, size = self.places[index]
        with self.path.open("rb") as file:
            file.seek(offset)
            return {"image": file.read(size)}


def read_tar(source: Source) -> Iterator[Record]:
    """Reads a webdataset shard: KEY.jpg with KEY.txt, or KEY.json that holds the caption."""
    places, texts = _members(source)
    kinds = {kind for of_key in texts.values() for kind in of_key}
    if {"txt", "json"} <= kinds:
        source.note("captions are those of the .txt files; the .json files are not read")
    keys = Counter(key for key, _ in places.values())
    if several := [key for key, count in keys.items() if count > 1 and key in texts]:
        source.note(f"{len(several)} texts serve several images each, such as that of {several[0]}")
    if alone := texts.keys() - keys.keys():
        source.note(f"{len(alone)} texts have no image, such as that of {min(alone)}")
    images = TarImages(source.path, tuple(place for _, place in places.values()))
    stamp = _stamp(source.path)
    written = {
        f"{key}.json": _member_text(source, f"{key}.json", of_key["json"])
        for key, of_key in texts.items()
        if "json" in of_key and not {"txt", "caption"} & set(of_key)
    }
    found = _json_records(source, written)
    for index, (name, (key, _)) in enumerate(places.items()):
        place, stored = f"member {name}", StoredImage(images, index, f"{stamp}/{name}")
        if record := found.get(f"{key}.json"):
            yield replace(record, image=name, place=place, stored=stored)
            continue
        of_key = texts.get(key, {})
        text = of_key.get("caption", of_key.get("txt"))
        captions = [] if text is None else _member_text(source, name, text).splitlines() or [""]
        yield source.record(place, name, captions, stored=stored)


Places = dict[str, tuple[str, tuple[int, int]]]
"""Name of each image in a tar -> its key, offset and size."""
Texts = dict[str, dict[str, bytes]]
"""Key -> the contents of its texts by kind."""


def _members(source: Source) -> tuple[Places, Texts]:
    """Finds the images in a tar, and reads the texts."""
    places: Places = {}
    texts: Texts = {}
    try:
        with tarfile.open(source.path, "r:") as tar:
            for member in tar:
                folder, slash, file = member.name.rpartition("/")
                linked = places.get(member.linkname)  # a hard link: the file is in the tar once
                if file.startswith(".") or not (member.isfile() or member.islnk()):
                    continue
                key, _, kind = file.rpartition(".")
                key, kind = f"{folder}{slash}{key}", _SAME.get(kind.lower(), kind.lower())
                if member.name in places or kind in texts.get(key, ()):
                    why = "a second member of that name; pack each image under a key of its own"
                    source.fail(f"member {member.name}", why)
                if f".{kind}" in IMAGE_SUFFIXES:
                    place = linked[1] if linked else (member.offset_data, member.size)
                    places[member.name] = (key, place)
                elif kind in ("txt", "caption", "json"):
                    content = tar.extractfile(member)
                    texts.setdefault(key, {})[kind] = content.read() if content else b""
    except tarfile.TarError as error:
        source.fail(
            "the whole file", f"not a plain tar ({error}); unpack it, or pack it without gz"
        )
    if texts.keys().isdisjoint(key for key, _ in places.values()):
        places, texts = _by_first_dot(places, texts)
    if not places:
        source.fail("the whole file", "no image in it; webdataset's KEY.jpg lies beside KEY.txt")
    if not texts:
        source.fail(
            "the whole file",
            f"{len(places)} images and no text; pack KEY.txt with the caption of KEY.jpg beside "
            "it, or unpack the images and name their caption file with `--data.captions`",
        )
    return places, texts


def _by_first_dot(places: Places, texts: Texts) -> tuple[Places, Texts]:
    """Takes as keys the names up to their first dots, as webdataset does: KEY.in.jpg, KEY.0.txt."""

    def short(key: str) -> str:
        folder, slash, file = key.rpartition("/")
        return f"{folder}{slash}{file.partition('.')[0]}"

    joined: Texts = {}
    for key, of_key in sorted(texts.items()):
        for kind, content in of_key.items():
            before = joined.setdefault(short(key), {}).get(kind)
            several = b"" if before is None else before.rstrip(b"\n") + b"\n"
            joined[short(key)][kind] = several + content
    return {name: (short(key), place) for name, (key, place) in places.items()}, joined


def _member_text(source: Source, name: str, content: bytes) -> str:
    try:
        return decoded(content)
    except UnicodeDecodeError as error:
        source.fail(f"the text of {name}", f"not UTF-8 ({error.reason})")


def _stamp(path: Path) -> str:
    """A file's content for fingerprints of its images: reading all of it would take minutes."""
    status = path.stat()
    return f"{path.name}/{status.st_size}/{status.st_mtime_ns}"


def _json_records(source: Source, files: Mapping[str, str]) -> dict[str, Record]:
    """Reads the objects of JSON files, one of each image, by their names."""
    entries: Entries = []
    for number, (file, content) in enumerate(files.items()):
        try:
            entry = _as_object(json.loads(content))
        except ValueError as error:
            source.fail(file, f"not JSON ({error})")
        if isinstance(entry, dict):
            _check_named(source, file, entry)
            own = {"image": f"{number}.jpg"}  # the file's name names the image
            entries.append((file, own | entry | own, None))
    if entries:
        source.columns = {**source.columns, "image": ("image",)}
    return {record.place: record for record in flat_records(source, entries)}


def _check_named(source: Source, file: str, entry: Mapping[str, Any]) -> None:
    """Checks that a record named like an image names no other image of the folder."""
    stem = os.path.splitext(os.path.basename(file))[0]
    for key, value in entry.items():
        if not (isinstance(value, str) and is_image_heading(key) and is_image_name(value)):
            continue
        named = os.path.splitext(PurePosixPath(image_name(value).replace("\\", "/")).name)[0]
        if named in source.images.stems and named.lower() not in stem.lower():
            inner = shlex.quote(os.path.relpath(os.path.dirname(file), source.path))
            source.fail(
                file,
                f"{key!r} is {value!r}, another image than the file's name is that of; to read the "
                f"records by the names in them: `jq -s . {inner}/*.json > captions.json`, then "
                "`--data.captions captions.json`",
            )


def _as_object(entry: Any) -> Any:
    """The object in a list of one, or that of several captions; else the value."""
    several = entry if isinstance(entry, list) else []
    texts = [e for e in several if isinstance(e, str) or (isinstance(e, dict) and "caption" in e)]
    return {"captions": texts} if texts and len(texts) == len(several) else one(entry)


@dataclass(frozen=True)
class ParquetImages(Sequence):
    """The images in a column of a Parquet file, by row.

    Attributes:
        path: The file.
        column: The column's name.
        starts: First row of each row group, then the number of rows.
    """

    path: Path
    column: str
    starts: tuple[int, ...]

    def __len__(self) -> int:
        return self.starts[-1]

    def __getitem__(self, index: int) -> Mapping[str, Any]:
        group = next(i for i, end in enumerate(self.starts[1:]) if index < end)
        image = one(_row_group(self.path, self.column, group)[index - self.starts[group]].as_py())
        return {"image": image["bytes"] if isinstance(image, dict) else image}


@functools.lru_cache(maxsize=4)
def _row_group(path: Path, column: str, group: int) -> Any:
    import pyarrow.parquet as parquet

    return parquet.ParquetFile(path).read_row_group(group, columns=[column]).column(column)


def read_parquet(source: Source) -> Iterator[Record]:
    """Reads a Parquet file, of Hugging Face or others: images in it, or their names."""
    try:
        import pyarrow
        import pyarrow.parquet as parquet
    except ImportError as error:
        raise DataError(
            f"{source.path}: Parquet needs pyarrow, which is not installed ({error}): "
            f"{installation('bulk')}; or save the table as CSV or JSON lines."
        ) from error
    try:
        file = parquet.ParquetFile(source.path)
    except pyarrow.ArrowException as error:
        source.fail("the whole file", f"not Parquet ({error})")
    names = file.schema_arrow.names
    first = next(file.iter_batches(_SAMPLE), None)
    rows = [list(row.values()) for row in first.to_pylist()] if first is not None else []
    if not rows:
        return
    chosen = choose(source, "its columns", names, rows)
    ends = [0]
    for group in range(file.metadata.num_row_groups):
        ends.append(ends[-1] + file.metadata.row_group(group).num_rows)
    others = (*chosen.captions, *chosen.marks, chosen.split, chosen.group)
    wanted = {names[i] for i in others if i is not None}
    images, structs = _image_columns(source, chosen, names, rows, tuple(ends))
    wanted |= {names[at] for at, _ in chosen.pairs if at not in images}
    wanted |= {f"{name}.path" for name in structs}
    stamp, several = _stamp(source.path), len(images) > 1
    records: list[Record] = []

    def shown_in(row: Mapping[str, Any], index: int, at: int) -> Any:
        """The name in a cell, with the image if it is there."""
        cell = row.get(names[at])
        if at not in images or (cell is None and names[at] in structs):
            return cell
        stored = StoredImage(images[at], index, f"{stamp}/{index}" + f"/{at}" * several)
        return (cell or {}).get("path"), stored

    def name_by_row(image: StoredImage) -> str:
        column = f"-{names.index(image.source.column)}" * several
        return f"{source.path.stem}/{image.index:06}{column}.jpg"

    batches = file.iter_batches(1000, columns=sorted(wanted))
    for index, row in enumerate(row for batch in batches for row in batch.to_pylist()):
        place = f"row {index}"
        for image, *rest in chosen.cells(functools.partial(shown_in, row, index)):
            if not isinstance(image, tuple):
                records += source.records(place, image, *rest)
                continue
            name, stored = image
            named = name if name and is_image_name(name) else name_by_row(stored)
            records.append(source.record(place, named, *rest, stored=stored))
    if (name := name_of_several(records)) is not None:
        source.note(f"several images are called {name}, so rows name the images")
        records = [
            record if record.stored is None else replace(record, image=name_by_row(record.stored))
            for record in records
        ]
    yield from records


def _image_columns(
    source: Source,
    chosen: Chosen,
    names: Sequence[str],
    rows: Sequence[Sequence[Any]],
    starts: tuple[int, ...],
) -> tuple[dict[int, ParquetImages], set[str]]:
    """The columns that hold images themselves, and the names of those with a path beside."""
    images: dict[int, ParquetImages] = {}
    structs: set[str] = set()
    for at, _ in chosen.pairs:
        shown = [row[at] for row in rows if row[at] is not None]
        if not any(isinstance(one(image), (bytes, dict)) for image in shown):
            continue
        if any(isinstance(image, list) and len(image) > 1 for image in shown):
            why = f"several images under {names[at]!r}; keep one, with its caption"
            source.fail("its rows", why)
        images[at] = ParquetImages(source.path, names[at], starts)
        if isinstance(shown[0], dict):
            structs.add(names[at])
    return images, structs


def one(value: Any) -> Any:
    """The first item of a list that has any, else the value."""
    return value[0] if isinstance(value, list) and value else value

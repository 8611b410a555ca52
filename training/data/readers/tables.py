"""Tables of captions: CSV and its relatives, JSON lines, a JSON list of records, Parquet.

Columns are found under names of `ROLES`, or given by `--data.columns`. Otherwise the error
ends with the flag to add, filled in with the columns that look right.
"""

from __future__ import annotations

import csv
import functools
import io
import itertools
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sat_tf.util.errors import installation
from training.data.examples import DataError, StoredImage
from training.data.readers.records import (
    RECIPES,
    CaptionFile,
    OtherFormError,
    Record,
    are_splits,
    captions_in,
    fail,
    finished,
    is_image_name,
    lines,
    name_in,
    other_form,
    parse_json,
    read_text,
    refuse_kinds,
    shown_names,
)

ROLES = {
    "image": ("image", "file_name", "filename", "image_id"),
    "caption": ("caption", "captions", "text", "sentence"),
    "split": ("split",),
    "group": ("group",),
}
"""Role -> names of the columns that have it."""
_NAMES = {name for names in ROLES.values() for name in names}

Columns = Mapping[str, tuple[str, ...]]
"""Role -> the columns that the user gives for it, by name or number."""
Rows = Sequence[tuple[str, Sequence[Any]]]
"""Place and cells of each row."""

_DELIMITERS = ",;\t|"  # spreadsheets of many countries write a semicolon for the comma
_LINE_END = re.compile(r"\r\n?|\n")
_SEPARATOR = re.compile(r'"?sep=(.)"?\s*$', re.IGNORECASE)  # Excel's first line
_SAMPLE = 200  # rows
_SHORT = 6  # letters that are too few for a caption


def columns_of(text: str | None) -> dict[str, tuple[str, ...]]:
    """Reads `--data.columns image=NAME,caption=NAME`; a role given twice has several columns."""
    found: dict[str, tuple[str, ...]] = {}
    for role, _, name in (part.partition("=") for part in (text or "").split(",") if part):
        found[role.strip()] = (*found.get(role.strip(), ()), name.strip())
    return found


# Files to rows.


def read_csv(path: Path, columns: Columns, known: Set[str]) -> CaptionFile:
    """Reads a table with a row per caption or image, and any of four separators.

    `known` are names of images without folder and suffix, for the suggestion in an error.
    """
    text, first = read_text(path), 1
    start, _, rest = text.lstrip("\r\n").partition("\n")
    if not start.strip():
        raise OtherFormError(f"{path} is empty.")
    given = {name for of in columns.values() for name in of}

    def fit(delimiter: str) -> tuple[int, int]:
        cells = [cell.strip().strip('"') for cell in start.split(delimiter)]
        return sum({cell, cell.lower()} & (given | _NAMES) != set() for cell in cells), len(cells)

    delimiter = max(_DELIMITERS, key=fit)
    if separator := _SEPARATOR.match(start.rstrip("\r")):
        text, delimiter, first = rest, separator[1], 2
    elif not start.count(delimiter):
        raise other_form(path, f"the first line {start.strip()[:60]!r} without a separator")
    rows = _csv_rows(path, text, delimiter, first)
    names = [name.strip() for name in rows[0][1]]
    while names and not names[-1]:  # of separators at the ends of lines
        names.pop()
    own = {name.lower() for name in names} & _NAMES
    if any(map(is_image_name, names)) or (not own and not known.isdisjoint(names)):
        if not given or not all(map(str.isdecimal, given)):
            line, cells = rows[0]
            image = max(range(len(cells)), key=lambda at: _named_like(known, [cells[at]]))
            caption = max(range(len(cells)), key=lambda at: _length([cells[at]]))
            raise OtherFormError(
                f"{path}, line {line}: expected a header such as image,caption, got "
                f"{str(cells)[:80]}. Without one, add `--data.columns image={image + 1},"
                f"caption={caption + 1}`."
            )
        names = [str(number) for number in range(1, len(names) + 1)]
    else:
        rows = rows[1:]
    _refuse_swallowed(path, rows, delimiter, known)
    for line, row in rows:
        if len(row) < len(names) or any(map(str.strip, row[len(names) :])):
            way = "a caption that contains the separator needs quotation marks around it"
            got = f"expected {len(names)} fields, got {len(row)}"
            fail(path, f"line {line}", f"{got} ({way}): {str(row)[:80]}")
    return _read(path, names, [(f"line {line}", row) for line, row in rows], columns, known)


def read_json_lines(path: Path, columns: Columns, known: Set[str]) -> CaptionFile:
    """Reads a JSON object with an image and its captions on each line."""
    entries = [(f"line {n}", parse_json(line, path, f"line {n}")) for n, line in lines(path)]
    return read_entries(path, entries, columns, known)


def read_entries(
    path: Path, entries: Sequence[tuple[str, Any]], columns: Columns, known: Set[str]
) -> CaptionFile:
    """Reads JSON objects, each with its place, as rows: keys are the names of columns."""
    for place, entry in entries:
        if not isinstance(entry, dict):
            raise other_form(path, f"{str(entry)[:60]!r} ({place})")
    names = list(dict.fromkeys(name for _, entry in entries for name in entry))
    rows = [(place, [entry.get(name) for name in names]) for place, entry in entries]
    return _read(path, names, rows, columns, known)


def _csv_rows(path: Path, text: str, delimiter: str, first: int) -> list[tuple[int, list[str]]]:
    """Returns the rows that are not blank, with the line at which each begins.

    In a table with tabs, quotation marks that do not enclose whole cells are text.
    """
    if delimiter == "\t":
        found = enumerate(_LINE_END.split(text), start=first)
        bare = [(n, line.split("\t")) for n, line in found if line.strip()]
        quoted = [cell for _, row in bare for cell in row if cell.startswith('"')]
        whole = all(len(cell) > 1 and cell.endswith('"') for cell in quoted)
        if not whole and len({len(row) for _, row in bare}) == 1:
            return bare
    # newline="": line ends inside quotes belong to the caption.
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    rows, line = [], first
    try:
        for row in reader:
            if any(cell.strip() for cell in row):
                rows.append((line, row))
            line = first + reader.line_num
    except csv.Error as error:
        way = 'close the quotation mark, or write "" for one within a quoted text'
        fail(path, f"line {line}", f"not CSV ({error}); {way}")
    return rows


def _refuse_swallowed(
    path: Path, rows: Sequence[tuple[int, list[str]]], delimiter: str, known: Set[str]
) -> None:
    """Checks that no text between quotation marks holds rows of the table.

    A mark that is not closed takes in everything up to the next one. The lines within a cell look
    like rows if the name of an image is between separators.
    """
    for line, row in rows:
        for cell in row:
            within = _LINE_END.split(cell) if "\n" in cell or "\r" in cell else ()
            for number, other in enumerate(within):
                parts = [part.strip().strip('"') for part in other.split(delimiter)]
                named = any(is_image_name(p) or p.rpartition("/")[2] in known for p in parts)
                if named and len(parts) > 1:
                    why = (
                        f"the quotation mark before {cell[:40]!r} is not closed in its row, and "
                        f"{other[:60]!r} (line {line + number}) would be part of the text; close "
                        'it, or write "" for a mark that belongs to a quoted text'
                    )
                    fail(path, f"line {line}", why)
            line += max(len(within) - 1, 0)


@dataclass(frozen=True)
class ParquetImages(Sequence):
    """The images in a column of a Parquet file; `starts` has the first row of each row group."""

    path: Path
    column: str
    starts: tuple[int, ...]

    def __len__(self) -> int:
        return self.starts[-1]

    def __getitem__(self, index: int) -> Mapping[str, Any]:
        group = next(i for i, end in enumerate(self.starts[1:]) if index < end)
        image = _row_group(self.path, self.column, group)[index - self.starts[group]].as_py()
        return {"image": (image["bytes"] if isinstance(image, dict) else image) or b""}


@functools.lru_cache(maxsize=4)
def _row_group(path: Path, column: str, group: int) -> Any:
    import pyarrow.parquet as parquet

    return parquet.ParquetFile(path).read_row_group(group, columns=[column]).column(column)


def read_parquet(path: Path, columns: Columns, known: Set[str]) -> CaptionFile:
    """Reads a Parquet file, of Hugging Face or others: images in it, or their names."""
    try:
        import pyarrow
        import pyarrow.parquet as parquet
    except ImportError as error:
        raise DataError(
            f"{path}: Parquet needs pyarrow, which is not installed ({error}): "
            f"{installation('bulk')}; or save the table as CSV or JSON lines."
        ) from error
    try:
        file = parquet.ParquetFile(path)
        cells = [_parquet_column(path, file, field) for field in file.schema_arrow]
    except pyarrow.ArrowException as error:
        fail(path, "the whole file", f"not Parquet ({error})")
    rows = [(f"row {index}", row) for index, row in enumerate(zip(*cells, strict=True))]
    return _read(path, file.schema_arrow.names, rows, columns, known)


def _parquet_column(path: Path, file: Any, field: Any) -> Sequence[Any]:
    """Reads the cells of a column; those of images are their names and `StoredImage`s.

    An image without a name, or with that of another one, is named after its row.
    """
    from pyarrow import types

    kind, name = field.type, field.name
    parts = [kind.field(at).name for at in range(kind.num_fields)] if types.is_struct(kind) else ()
    if not types.is_binary(kind) and not types.is_large_binary(kind) and "bytes" not in parts:
        if types.is_list(kind) and not types.is_string(kind.value_type):
            return [kind] * file.metadata.num_rows  # such as embeddings: large, and no captions
        return file.read(columns=[name]).column(name).to_pylist()
    groups = range(file.metadata.num_row_groups)
    sizes = [file.metadata.row_group(group).num_rows for group in groups]
    images = ParquetImages(path, name, (0, *itertools.accumulate(sizes)))
    paths: list[Any] = []
    if "path" in parts:
        read = file.read(columns=[f"{name}.path"]).column(name)
        paths = [(cell or {}).get("path") for cell in read.to_pylist()]
    named = len({*paths}) == len(paths) > 0
    return [
        (
            paths[row] if named and is_image_name(paths[row]) else f"{path.stem}/{row:06}.jpg",
            StoredImage(images, row, str(row)),
        )
        for row in range(len(images))
    ]


# Rows to records.


@dataclass(frozen=True)
class Chosen:
    """Indices of the columns; None without."""

    image: int
    captions: tuple[int, ...]
    split: int | None
    group: int | None


def _read(
    path: Path, names: Sequence[str], rows: Rows, columns: Columns, known: Set[str]
) -> CaptionFile:
    chosen = choose(path, names, rows, columns, known)
    used = {chosen.image, *chosen.captions, chosen.split, chosen.group}
    others = [at for at, name in enumerate(names) if at not in used and name]
    for at in others:
        refuse_kinds(path, names[at], (cells[at] for _, cells in rows))
    unclear = ""
    if splits := [at for at in others if are_splits(cells[at] for _, cells in rows)]:
        roles = {"image": (chosen.image,), "caption": chosen.captions, "split": splits[:1]}
        unclear = f"does the column {names[splits[0]]} hold the splits? If so, add "
        unclear += f"`--data.columns {_flag(names, roles)}`"
    notes = _joined(path, names, rows, chosen)
    if others:
        notes.append(f"columns that are not read: {shown_names([names[at] for at in others])}.")
    return finished(path, _records(path, rows, chosen), notes, unclear)


def _joined(path: Path, names: Sequence[str], rows: Rows, chosen: Chosen) -> list[str]:
    """Checks that cells of a column such as "captions" do not hold several; returns a note."""
    notes = []
    marks = ((index, mark) for index in chosen.captions for mark in (";", "\n", "\t"))
    for index, mark in marks:
        cells = [(place, row[index]) for place, row in rows if isinstance(row[index], str)]
        joined = [(place, cell) for place, cell in cells if mark in cell.strip()]
        many = joined and 2 * len(joined) >= len(rows)
        if many and names[index].lower().endswith("s"):
            place, cell = joined[0]
            found = f"several captions in one cell, with {mark!r} between: {cell[:60]!r}"
            way = f"write a row for each caption ({RECIPES}), or call the column caption"
            fail(path, place, f"{found}; {way}")
        if many or (joined and mark != ";"):
            notes.append(f"{len(joined)} captions have {mark!r} inside, read as one caption each.")
    return notes


def _records(path: Path, rows: Rows, chosen: Chosen) -> Iterator[Record]:
    """Yields the record of each row; the cell of an image is its name, or that and the image."""
    for place, row in rows:
        found = [captions_in(row[index], path, place) for index in chosen.captions]
        texts = tuple(text for of in found for text in of)
        image, stored = row[chosen.image], None
        if isinstance(image, tuple):
            image, stored = image
        elif isinstance(image, str) and not image.strip() and not any(texts):
            continue  # a row of empty cells
        name = name_in(image, path, place)
        split, group = (None if at is None else row[at] for at in (chosen.split, chosen.group))
        group = None if group is None or group != group else str(group).strip() or None
        yield Record(name, texts, place, split, group, stored=stored)


def choose(
    path: Path, names: Sequence[str], rows: Rows, columns: Columns, known: Set[str]
) -> Chosen:
    """Finds the columns by name.

    Raises:
        DataError: A given column is not there.
        OtherFormError: No column, or more than one, has the name of a role; the message suggests.
    """
    found: dict[str, tuple[int, ...]] = {}
    plain = [name.strip().lower() for name in names]
    numbers = {str(index + 1): index for index in range(len(names))}
    numbers |= {name: index for index, name in reversed([*enumerate(names)])}
    for role, words in ROLES.items():
        if lost := [name for name in columns.get(role, ()) if name not in numbers]:
            has = f"names no column; it has {shown_names(names)}"
            raise DataError(f"{path}: `--data.columns {role}={lost[0]}` {has}.")
        if role in columns:
            found[role] = tuple(numbers[name] for name in columns[role])
            continue
        found[role] = tuple(index for index, name in enumerate(plain) if name in words)
        if role == "caption" and {plain[at] for at in found[role]} in ({"text"}, {"sentence"}):
            others = (at for at in range(len(names)) if plain[at] not in _NAMES)
            found[role] += tuple(at for at in others if _length(_cells(rows, at)) >= _SHORT)
        if role == "image" and len(found[role]) > 1:  # an id next to a name
            found[role] = tuple(index for index in found[role] if plain[index] != "image_id")
    several = {role for role, of in found.items() if len(of) > 1}
    several -= {"caption"} & columns.keys()
    unclear = several | {role for role in ("image", "caption") if not found[role]}
    if unclear:
        cells = [_cells(rows, at) for at in range(len(names))]
        raise _which(path, names, cells, found, [role for role in ROLES if role in unclear], known)
    first = {role: next(iter(of), None) for role, of in found.items()}
    return Chosen(first["image"], found["caption"], first["split"], first["group"])


def _cells(rows: Rows, column: int) -> Sequence[Any]:
    return [row[column] for _, row in rows[:_SAMPLE]]


# Suggestions.


def _which(
    path: Path,
    names: Sequence[str],
    cells: Sequence[Sequence[Any]],
    found: Mapping[str, tuple[int, ...]],
    unclear: Sequence[str],
    known: Set[str],
) -> DataError:
    """Makes the error that asks for columns, with a suggestion if there is one."""
    likely = {role: of for role, of in found.items() if of and role not in unclear}
    for role, score in (("caption", _length), ("image", functools.partial(_named_like, known))):
        taken = {at for of in likely.values() for at in of}
        options = [at for at in found[role] or range(len(names)) if at not in taken]
        if role not in likely and options:
            best = max(options, key=lambda at: score(cells[at]))
            likely[role] = _numbered_like(names, best) if role == "caption" else (best,)
    image, captions = (likely.get(role, ()) for role in ("image", "caption"))
    several = image and len(_numbered_like(names, *image)) > 1  # image_1 has caption_1
    if not image or not captions or several or _length(cells[captions[0]]) < _SHORT:
        return other_form(path, f"the columns {shown_names(names)}")
    read = "; ".join(f"{role}: {', '.join(ROLES[role])}" for role in unclear)
    return OtherFormError(
        f"{path}: which column holds the {' and the '.join(unclear)}? It has {shown_names(names)}; "
        f"read by their names are {read}. For other forms, see {RECIPES}; otherwise add the "
        f"columns that are right, such as `--data.columns {_flag(names, likely)}`."
    )


def _flag(names: Sequence[str], columns: Mapping[str, Sequence[int]]) -> str:
    """Writes columns as `--data.columns` takes them: by name, or by number if that is unclear."""
    plain = [name and not {*",="} & {*name} and names.count(name) == 1 for name in names]
    given = [(role, at) for role in ROLES for at in columns.get(role, ())]
    parts = (f"{role}={names[at] if plain[at] else at + 1}" for role, at in given)
    return shlex.quote(",".join(parts))


def _numbered_like(names: Sequence[str], index: int) -> tuple[int, ...]:
    """The columns of a name and a number, such as caption_1; else the column alone."""
    stem = names[index].rstrip("0123456789")
    numbered = [at for at, name in enumerate(names) if name.rstrip("0123456789") == stem != name]
    return tuple(numbered) if stem and index in numbered else (index,)


def _named_like(known: Set[str], cells: Sequence[Any]) -> int:
    """Number of cells that name an image."""
    texts = [str(cell).partition("?")[0].strip() for cell in cells]
    return sum(is_image_name(text) or text in known for text in texts)


def _length(cells: Sequence[Any]) -> float:
    """Mean length of texts that may be captions: of several words, or in other letters."""
    texts = [cell[0] if isinstance(cell, list) and cell else cell for cell in cells]
    lengths = [
        len(text) * (" " in text.strip() or not text.isascii())
        for text in texts
        if isinstance(text, str) and "://" not in text and text[:1] not in ("{", "[")
        if not is_image_name(text)
    ]
    return sum(lengths) / max(len(lengths), 1)

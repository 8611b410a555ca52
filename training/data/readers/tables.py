"""Tables of captions: CSV and its relatives, JSON lines, a JSON list of records, Parquet.

Columns are found by the names of `ROLES`, or given by `--data.columns`. If neither tells, the error
ends with the flag to add, filled in with the columns that look right.
"""

from __future__ import annotations

import csv
import functools
import io
import re
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
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
    captions_in,
    fail,
    finished,
    is_image_name,
    lines,
    name_in,
    other_form,
    parse_json,
    read_text,
    split_in,
)

ROLES = {
    "image": ("image", "file_name", "filename", "image_id"),
    "caption": ("caption", "captions", "text", "sentence"),
    "split": ("split",),
    "group": ("group",),
}
"""Role -> names of the columns that have it."""

Columns = Mapping[str, tuple[str, ...]]
"""Role -> the columns that the user gives for it, by name or number."""

_DELIMITERS = ",;\t|"  # spreadsheets of many countries write a semicolon for the comma
_LINE_END = re.compile(r"\r\n?|\n")
_SEPARATOR = re.compile(r'"?sep=(.)"?\s*$', re.IGNORECASE)  # Excel's first line
_SAMPLE = 200  # rows
_SHOWN, _SHORT = 12, 6  # columns in an error; letters that are too few for a caption


def columns_of(text: str | None) -> dict[str, tuple[str, ...]]:
    """Reads `--data.columns image=NAME,caption=NAME`; a role given twice has several columns."""
    found: dict[str, tuple[str, ...]] = {}
    for role, _, name in (part.partition("=") for part in (text or "").split(",") if part):
        found[role.strip()] = (*found.get(role.strip(), ()), name.strip())
    return found


@dataclass(frozen=True)
class Chosen:
    """Indices of the columns; None without."""

    image: int
    captions: tuple[int, ...]
    split: int | None
    group: int | None

    @property
    def all(self) -> tuple[int, ...]:
        """The indices, each once."""
        found = (self.image, *self.captions, self.split, self.group)
        return tuple(dict.fromkeys(index for index in found if index is not None))


def read_csv(path: Path, columns: Columns, known: Set[str]) -> CaptionFile:
    """Reads a table with a row per caption or image, and any of four separators.

    `known` are names of images without folder and suffix, for the suggestion in an error.
    """
    text, first = read_text(path), 1
    start, _, rest = text.lstrip("\r\n").partition("\n")
    if not start.strip():
        raise OtherFormError(f"{path} is empty.")
    given = {name for of in columns.values() for name in of}
    known_names = given.union(*ROLES.values())

    def fit(delimiter: str) -> tuple[int, int]:
        cells = [cell.strip().strip('"') for cell in start.split(delimiter)]
        return sum({cell, cell.lower()} & known_names != set() for cell in cells), len(cells)

    delimiter = max(_DELIMITERS, key=fit)
    if separator := _SEPARATOR.match(start.rstrip("\r")):
        text, delimiter, first = rest, separator[1], 2
    elif not start.count(delimiter):
        raise other_form(path, f"the first line {start.strip()[:60]!r} without a separator")
    rows = _csv_rows(path, text, delimiter, first)
    names = [name.strip() for name in rows[0][1]]
    while names and not names[-1]:  # of separators at the ends of lines
        names.pop()
    own = {name.lower() for name in names} & {word for of in ROLES.values() for word in of}
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
    sample = [[*row, *names][: len(names)] for _, row in rows[:_SAMPLE]]
    chosen = choose(path, names, sample, columns, known)
    _refuse_swallowed(path, rows, chosen.image, delimiter)
    for line, row in rows:
        if len(row) < len(names) or any(map(str.strip, row[len(names) :])):
            way = "a caption that contains the separator needs quotation marks around it"
            got = f"expected {len(names)} fields, got {len(row)}"
            fail(path, f"line {line}", f"{got} ({way}): {str(row)[:80]}")
    cells = [(f"line {line}", row) for line, row in rows]
    return finished(path, _records(path, names, cells, chosen), _unread(path, names, chosen))


def read_json_lines(path: Path, columns: Columns, known: Collection[str]) -> CaptionFile:
    """Reads a JSON object with an image and its captions on each line."""
    entries = [(f"line {n}", parse_json(line, path, f"line {n}")) for n, line in lines(path)]
    return read_entries(path, entries, columns, known)


def read_entries(
    path: Path, entries: Sequence[tuple[str, Any]], columns: Columns, known: Collection[str]
) -> CaptionFile:
    """Reads JSON objects, each with its place, as rows: keys are the names of columns."""
    for place, entry in entries:
        if not isinstance(entry, dict):
            raise other_form(path, f"{str(entry)[:60]!r} ({place})")
    names = list(dict.fromkeys(name for _, entry in entries for name in entry))
    sample = [[entry.get(name) for name in names] for _, entry in entries[:_SAMPLE]]
    chosen = choose(path, names, sample, columns, known)
    rows = [(place, {at: entry.get(names[at]) for at in chosen.all}) for place, entry in entries]
    return finished(path, _records(path, names, rows, chosen), _unread(path, names, chosen))


def _records(
    path: Path, names: Sequence[str], rows: Sequence[tuple[str, Any]], chosen: Chosen
) -> Iterator[Record]:
    """Yields the record of each row; the cell of an image is its name, or that and the image."""
    for mark in (";", "\n"):  # half of the cells of a column "captions" may hold several
        for index in chosen.captions:
            cells = [(place, row[index]) for place, row in rows if isinstance(row[index], str)]
            joined = [(place, cell) for place, cell in cells if mark in cell.strip()]
            if names[index].lower() == "captions" and joined and 2 * len(joined) >= len(rows):
                place, cell = joined[0]
                found = f"several captions in one cell, with {mark!r} between: {cell[:60]!r}"
                way = f"write a row for each caption ({RECIPES}), or call the column caption"
                fail(path, place, f"{found}; {way}")
    for place, row in rows:
        found = [captions_in(row[index], path, place) for index in chosen.captions]
        texts = tuple(text for of, _ in found for text in of)
        image, stored = row[chosen.image], None
        if isinstance(image, tuple):
            image, stored = image
        elif isinstance(image, str) and not image.strip() and not texts:
            continue  # a row of empty cells
        name = name_in(image, path, place)
        split = None if chosen.split is None else split_in(row[chosen.split], path, place)
        group = None if chosen.group is None else row[chosen.group]
        group = None if group is None or group != group else str(group).strip() or None
        blank = sum(missing for _, missing in found)
        yield Record(name, texts, place, split, group, blank, stored=stored)


def choose(
    path: Path,
    names: Sequence[str],
    sample: Sequence[Sequence[Any]],
    columns: Columns,
    known: Collection[str],
) -> Chosen:
    """Finds the columns by their names.

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
            has = f"names no column; it has {_named(names)}"
            raise DataError(f"{path}: `--data.columns {role}={lost[0]}` {has}.")
        if role in columns:
            found[role] = tuple(numbers[name] for name in columns[role])
            continue
        found[role] = tuple(index for index, name in enumerate(plain) if name in words)
        if role == "image" and len(found[role]) > 1:  # an id next to a name
            found[role] = tuple(index for index in found[role] if plain[index] != "image_id")
    several = {role for role, of in found.items() if len(of) > 1}
    several -= {"caption"} & columns.keys()
    lacking = {role for role in ("image", "caption") if not found[role]}
    if several or lacking:
        raise _which(path, names, sample, found, sorted(several | lacking), known)
    first = {role: next(iter(of), None) for role, of in found.items()}
    return Chosen(first["image"], found["caption"], first["split"], first["group"])


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def _which(
    path: Path,
    names: Sequence[str],
    sample: Sequence[Sequence[Any]],
    found: Mapping[str, tuple[int, ...]],
    unclear: Sequence[str],
    known: Collection[str],
) -> DataError:
    """Makes the error that asks for columns, with a suggestion if there is one."""
    likely = {role: of for role, of in found.items() if of and role not in unclear}
    cells = list(zip(*sample, strict=False)) or [()] * len(names)
    for role, score in (("caption", _length), ("image", functools.partial(_named_like, known))):
        taken = {at for of in likely.values() for at in of}
        options = [at for at in found[role] or range(len(names)) if at not in taken]
        if role not in likely and options:
            best = max(options, key=lambda at: score(cells[at]))
            likely[role] = _numbered_like(names, best) if role == "caption" else (best,)
    image, captions = (likely.get(role, ()) for role in ("image", "caption"))
    several = image and len(_numbered_like(names, *image)) > 1  # image_1 has caption_1
    if not image or not captions or several or _length(cells[captions[0]]) < _SHORT:
        return other_form(path, f"the columns {_named(names)}")
    given = [(role, names[at], at + 1) for role in ROLES for at in likely.get(role, ())]
    flag = ",".join(
        f"{role}={name if name and not {*',='} & {*name} and names.count(name) == 1 else number}"
        for role, name, number in given
    )
    unclear = [role for role in ROLES if role in unclear]
    read = "; ".join(f"{role}: {', '.join(ROLES[role])}" for role in unclear)
    return OtherFormError(
        f"{path}: which column holds the {' and the '.join(unclear)}? It has {_named(names)}; read "
        f"by their names are {read}. For other forms, see {RECIPES}; otherwise add the columns "
        f"that are right, such as `--data.columns {shlex.quote(flag)}`."
    )


def _numbered_like(names: Sequence[str], index: int) -> tuple[int, ...]:
    """The columns of a name and a number, such as caption_1; else the column alone."""
    stem = names[index].rstrip("0123456789")
    numbered = [at for at, name in enumerate(names) if name.rstrip("0123456789") == stem != name]
    return tuple(numbered) if stem and index in numbered else (index,)


def _named_like(known: Collection[str], cells: Sequence[Any]) -> int:
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


def _unread(path: Path, names: Sequence[str], chosen: Chosen) -> list[str]:
    others = [name for index, name in enumerate(names) if index not in chosen.all and name]
    return [f"{path.name}: columns that are not read: {_named(others)}."] if others else []


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
    path: Path, rows: Sequence[tuple[int, list[str]]], image: int, delimiter: str
) -> None:
    """Checks that no text between quotation marks holds rows of the table.

    A mark that is not closed takes in everything up to the next one. The lines within a cell look
    like rows if the name of an image stands between separators.
    """
    known = {row[image].strip() for _, row in rows if len(row) > image} - {""}
    for line, row in rows:
        for cell in row:
            within = _LINE_END.split(cell) if "\n" in cell or "\r" in cell else ()
            for number, other in enumerate(within):
                parts = [part.strip().strip('"') for part in other.split(delimiter)]
                if len(parts) > 1 and any(p in known or is_image_name(p) for p in parts):
                    why = (
                        f"the quotation mark before {cell[:40]!r} is not closed in its row, and "
                        f"{other[:60]!r} (line {line + number}) would be part of the text; close "
                        'it, or write "" for a mark that belongs to a quoted text'
                    )
                    fail(path, f"line {line}", why)
            line += max(len(within) - 1, 0)


# Parquet.


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
        rows = _row_group(self.path, self.column, group)
        image = rows[index - self.starts[group]].as_py()
        return {"image": image["bytes"] if isinstance(image, dict) else image}


@functools.lru_cache(maxsize=4)
def _row_group(path: Path, column: str, group: int) -> Any:
    import pyarrow.parquet as parquet

    return parquet.ParquetFile(path).read_row_group(group, columns=[column]).column(column)


def read_parquet(path: Path, columns: Columns, known: Collection[str]) -> CaptionFile:
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
        names = file.schema_arrow.names
        first = next(file.iter_batches(_SAMPLE), None)
    except pyarrow.ArrowException as error:
        fail(path, "the whole file", f"not Parquet ({error})")
    sample = [list(row.values()) for row in first.to_pylist()] if first is not None else []
    chosen = choose(path, names, sample, columns, known)
    shown = next((row[chosen.image] for row in sample if row[chosen.image] is not None), None)
    rows = list(_parquet_rows(path, file, names, chosen, shown))
    return finished(path, _records(path, names, rows, chosen), _unread(path, names, chosen))


def _parquet_rows(
    path: Path, file: Any, names: Sequence[str], chosen: Chosen, shown: Any
) -> Iterator[tuple[str, dict[int, Any]]]:
    """Yields the rows; `shown` is one of the cells of images: a name, bytes, or both in a struct.

    An image without a name of its own, or with that of another one, is named by its row.
    """
    column, inside = names[chosen.image], isinstance(shown, (bytes, dict))
    ends = [0]
    for group in range(file.metadata.num_row_groups):
        ends.append(ends[-1] + file.metadata.row_group(group).num_rows)
    images = ParquetImages(path, column, tuple(ends))
    named = isinstance(shown, dict) and "path" in shown
    paths: list[Any] = []
    if named:
        read = file.read(columns=[f"{column}.path"]).column(column)
        paths = [(cell or {}).get("path") for cell in read.to_pylist()]
        named = len({*paths}) == len(paths)
    wanted = [names[index] for index in chosen.all if index != chosen.image or not inside]
    rows = (row for batch in file.iter_batches(1000, columns=wanted) for row in batch.to_pylist())
    for index, entry in enumerate(rows):
        row = {at: entry.get(names[at]) for at in chosen.all}
        if inside:
            name = paths[index] if named and is_image_name(paths[index]) else None
            name = name or f"{path.stem}/{index:06}.jpg"
            row[chosen.image] = name, StoredImage(images, index, str(index))
        yield f"row {index}", row

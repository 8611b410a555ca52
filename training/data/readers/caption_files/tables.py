"""Tables of text: a row per caption or image, with any separator, and Flickr's token lines."""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import io
import re
import shlex
from collections.abc import Iterator
from itertools import islice
from typing import Any

from training.data.examples import DataError
from training.data.readers.caption_files.records import IMAGE_SUFFIXES, Record, Source
from training.data.readers.caption_files.roles import (
    Chosen,
    is_image_name,
    is_known,
    plain,
    plain_choice,
)
from training.data.readers.text_files import in_order, lines, read_text, read_token_lines, token_of

Rows = list[tuple[int, list[str]]]
"""Rows with the line at which each begins."""

# Spreadsheets of many countries write a semicolon for the comma.
_DELIMITERS = ",;\t|"
_DASH = re.compile(r"^\s*(?:[-=:\u2013\u2014]|[-=]>)\s+")  # a.jpg - A door.
_LINE_END = re.compile(r"\r\n?|\n")
_SEPARATOR = re.compile(r'"?sep=(.)"?\s*$', re.IGNORECASE)  # Excel's first line
_SAMPLE, _TITLES = 1000, 5  # rows
# Flickr30k's results.csv lacks one separator: 2199200615.jpg| 4   A dog runs ...
_LOST_SEPARATOR = re.compile(r"\s*(?P<number>\d+)\s+(?P<caption>\S.*)")


def read_table(source: Source) -> Iterator[Record]:
    """Reads CSV and its relatives, or token lines in a file of such a name."""
    text = read_text(source.path)
    start = [line for line in _LINE_END.split(text[:100_000]) if line.strip()][:20]
    while len(start) > 1 and start[0].count('"') % 2:  # a heading over several lines
        start[:2] = ["\n".join(start[:2])]
    if start and all(map(token_of, start[:-1] or start)):
        yield from read_tokens(source)
        return
    if start and start[0].startswith("{"):
        source.fail("line 1", "a JSON object; rename the file to *.jsonl")
    if start and not any(mark in start[0] for mark in _DELIMITERS):
        yield from _read_lines(source, start[0])
        return
    offset, delimiter = 0, _delimiter(start[0] if start else "")
    if start and (separator := _SEPARATOR.match(start[0])):
        # The line keeps its end, so that lines are counted as in the file.
        delimiter, offset = separator[1], text.index(start[0]) + len(start[0])
    first = text.count("\n", 0, offset) + 1
    rows = _unquoted(source, text[offset:], first) if delimiter == "\t" else None
    rows = rows or _csv_rows(source, text[offset:], delimiter, first)
    spaced = delimiter == "|"
    if spaced:
        rows = [(line, [cell.strip() for cell in row]) for line, row in rows]
    header, rows, names = _header(source, rows)
    if not rows:
        return
    sample = [_padded(row, len(names)) for _, row in islice(rows, _SAMPLE)]
    joined = _images_of_another_table(source, names, sample)
    if joined is not None:
        source.columns = {**source.columns, "image": (joined[0],)}
    chosen = plain_choice(source, names, sample)
    if chosen is None:
        from training.data.readers.caption_files.columns import choose

        chosen = choose(source, header, names, sample)
    _refuse_swallowed_rows(source, rows, chosen.image, len(names), delimiter)
    _fill_merged_cells(source, rows, chosen)
    unknown = 0
    for record in _records(source, rows, names, chosen, spaced):
        if joined is None:
            yield record
            continue
        unknown += record.image not in joined[1]
        for image in joined[1].get(record.image, ()):
            yield dataclasses.replace(record, image=image)
    if unknown:
        source.note(f"{unknown} rows have a key that names no image there, and are left out")


def _images_of_another_table(
    source: Source, names: list[str], sample: list[list[str]]
) -> tuple[str, dict[str, list[str]]] | None:
    """The key that this table shares with one beside it that names its images, and those.

    None if this one names images itself: IU X-ray's reports and projections share `uid`.
    """
    if "image" in source.columns or any(is_image_name(cell) for row in sample for cell in row):
        return None
    if source.images.stems & {cell.strip() for row in sample for cell in row}:
        return None
    for other in sorted(source.path.parent.glob(f"*{source.path.suffix}")):
        if other == source.path:
            continue
        try:
            text = read_text(other)
            mark = _delimiter(_LINE_END.split(text, maxsplit=1)[0])
            header, *rows = csv.reader(io.StringIO(text, newline=""), delimiter=mark)
        except (ValueError, csv.Error):  # empty, not UTF-8, or no table
            continue
        rows = [row for row in rows if len(row) == len(header)]
        shared = [name for name in header if name in names and plain(name)]
        columns = [i for i in range(len(header)) if rows and is_image_name(rows[0][i])]
        if len(shared) == len(columns) == 1:
            found: dict[str, list[str]] = {}
            for row in rows:
                found.setdefault(row[header.index(shared[0])].strip(), []).append(row[columns[0]])
            source.note(f"images are those of {other.name} with the same {shared[0]!r}")
            source.used.add(other)
            return shared[0], found
    return None


def _fill_merged_cells(source: Source, rows: Rows, chosen: Chosen) -> None:
    """Writes into empty cells of images, splits and groups what is above, as of merged cells.

    They were merged if each value stands in one row, and half as many cells as values, or more,
    are empty; rows without a caption do not count.
    """
    texts = chosen.captions
    told = [row for _, row in rows if any(cell.strip() for i in texts for cell in row[i : i + 1])]
    roles = {image: "image" for image, _ in chosen.pairs}
    roles |= {
        at: role
        for at, role in ((chosen.split, "split"), (chosen.group, "group"))
        if at is not None
    }
    for at, role in roles.items():
        cells = ["".join(row[at : at + 1]).strip() for row in told]
        values = [cell for cell in cells if cell]
        empty = len(cells) - len(values)
        if len({*values}) < len(values) or 2 * empty < max(len(values), 1) or not cells[0]:
            continue
        if role != "image" and len(values) < 2:
            continue
        for row, above in zip(told[1:], told, strict=False):
            if at < min(len(row), len(above)) and not row[at].strip():
                row[at] = above[at]
        taken = f"they are taken for merged cells, of the {role} above"
        source.note(f"{empty} rows name no {role}: {taken}")


def _records(
    source: Source, rows: Rows, names: list[str], chosen: Chosen, spaced: bool
) -> Iterator[Record]:
    for line, row in rows:
        place = f"line {line}"
        if len(row) != len(names):
            row = _mended(source, place, row, names, chosen, spaced)
        for cells in chosen.cells(row.__getitem__):
            yield from source.records(place, *cells)


def _header(source: Source, rows: Rows) -> tuple[str, Rows, list[str]]:
    """Returns the place of the header, the rows below it, and the columns' names."""
    line, header = rows[0] if rows else (1, [])
    without = any(map(is_image_name, header)) or (
        not any(map(is_known, header)) and any(len(cell.split()) > 3 for cell in header)
    )
    if without:
        names = [str(number) for number in range(1, len(header) + 1)]
        return "without a header", rows, names
    below = [row for _, row in rows[1:]]
    longer = bool(below) and all(len(row) == len(header) + 1 for row in below)
    if longer and (len(header) == 1 or all(row[0].isdecimal() and row[-1] for row in below)):
        header = ["", *header]  # of R's row names
    while header and not header[-1].strip():  # of separators at the ends of lines
        header = header[:-1]
    titled = (
        len(header) == 1
        and len(rows) > 2
        and any(sum(map(bool, row)) > 1 for _, row in rows[1:_TITLES])
    )
    if titled:
        source.note(f"line {line}, {header[0][:40]!r}, is taken for a title, and not read")
        return _header(source, rows[1:])
    if len({plain(name) for name in header if plain(name)}) != sum(map(bool, map(plain, header))):
        source.fail(f"line {line}", f"two columns of the header have the same name: {header}"[:240])
    if not header or (len(header) == 1 and not source.columns):
        expected = "expected the header image,caption or image,caption,split"
        source.fail(f"line {line}", f"{expected}, got {header}"[:240])
    return f"line {line}", rows[1:], header


def _padded(row: list[str], width: int) -> list[str]:
    return row[:width] + [""] * (width - len(row))


def _mended(
    source: Source, place: str, row: list[str], names: list[str], chosen: Chosen, spaced: bool
) -> list[str]:
    """Returns a row of another width as it is meant, if that is beyond doubt."""
    width = len(names)
    if not any(cell.strip() for cell in row[width:]) and len(row) > width:
        return row[:width]
    if len(chosen.captions) > 1 and chosen.captions[0] < len(row) < width and chosen.split is None:
        return _padded(row, width)  # rows end with their last caption
    lost = _LOST_SEPARATOR.fullmatch(row[-1]) if spaced and len(row) == width - 1 else None
    if lost and chosen.captions == (width - 1,):
        source.note(f"{place}, {row[0]!r}: a separator before the caption is missing, and added")
        return [*row[:-1], lost["number"], lost["caption"]]
    if chosen.captions == (1,) and width == 2 and all(cell[:1] == " " for cell in row[2:]):
        source.counts["joined"] += len(row) > 2
        if len(row) > 2:  # commas of a text
            return [row[0], ",".join(row[1:])]
    why = f"expected {width} fields, got {len(row)}"
    advice = "a caption that contains the separator needs quotes around it"
    source.fail(place, f"{why} ({advice}): {str(row)[:80]}")


def _refuse_swallowed_rows(source: Source, rows: Rows, at: int, width: int, delimiter: str) -> None:
    """Checks that no text between quotation marks holds rows of the table.

    A mark that is not closed takes in all up to the next one, where the table may go on as if
    nothing had happened. A line within a field looks like a row if the cell of its image is an
    image's name; tabs, which captions do not contain, make any line one.

    Raises:
        DataError: The message names the line where the field begins.
    """
    known = {row[at].strip() for _, row in rows if len(row) > at} - {""}

    def names_image(cells: list[str], at: int) -> bool:
        name = cells[at].strip().strip('"') if 0 <= at < len(cells) else ""
        return name in known or name.lower().endswith(IMAGE_SUFFIXES)

    for line, row in rows:
        for number, field in enumerate(row):
            first, *others = _LINE_END.split(field) if "\n" in field or "\r" in field else [field]
            for further, other in enumerate(others, start=1):
                cells = other.split(delimiter)
                whole = len(cells) > 1 and names_image(cells, at)
                tabs = delimiter == "\t" and len(cells) >= width
                # The field's own row may have ended in its first line: its image came after it.
                rest = number < at and names_image(first.split(delimiter), at - number)
                if whole or tabs or rest:
                    why = (
                        f"the quotation mark before {first[:40]!r} is not closed in its row, and "
                        f"line {line + further}, {other[:60]!r}, would be part of the text; close "
                        'it, or write "" for a mark that belongs to a quoted text'
                    )
                    source.fail(f"line {line}", why)
            line += len(others)


def _csv_rows(source: Source, text: str, delimiter: str, start: int, **form: Any) -> Rows:
    """Rows that are not blank, with the line at which each begins."""
    # newline="": line ends inside quotes belong to the caption. Between pipes, a mark is a mark.
    bare = delimiter == "|" and '|"' not in text
    quoting = csv.QUOTE_NONE if bare else csv.QUOTE_MINIMAL
    stream = io.StringIO(text, newline="")
    reader = csv.reader(stream, delimiter=delimiter, strict=True, quoting=quoting, **form)
    rows, line, first = [], start, start - 1
    try:
        for row in reader:
            if any(field.strip() for field in row):
                rows.append((line, row))
            line = first + reader.line_num + 1
    except csv.Error as error:
        if '\\"' in text and not form:  # as databases write a mark within a text
            return _csv_rows(source, text, delimiter, start, escapechar="\\")
        advice = 'close the quotation mark, or write "" for one within a quoted text'
        source.fail(f"line {line}", f"not CSV ({error}); {advice}")
    if not form and any(cell.startswith(' "') for _, row in rows for cell in row):
        with contextlib.suppress(DataError):  # a.jpg, "one, two"
            spaced = _csv_rows(source, text, delimiter, start, skipinitialspace=True)
            if {len(row) for _, row in spaced} == {len(rows[0][1])}:
                return spaced
    return rows


def _unquoted(source: Source, text: str, start: int) -> Rows | None:
    """Rows of a table with tabs in which quotation marks are only text; None if they may quote."""
    rows = [
        (n, row.split("\t")) for n, row in enumerate(_LINE_END.split(text), start) if row.strip()
    ]
    cells = [cell for _, row in rows for cell in row if cell.startswith('"')]
    if not cells or all(cell.count('"') % 2 == 0 and cell.endswith('"') for cell in cells):
        return None
    if len({len(row) for _, row in rows}) > 1 or any(cell.count('"') % 2 for cell in cells):
        return None
    source.note("quotation marks are read as text, as not all of them enclose a whole cell")
    return rows


def _delimiter(header: str) -> str:
    """The separator that occurs most often in the first line that is not blank."""
    return max(_DELIMITERS, key=header.count)


def read_tokens(source: Source) -> Iterator[Record]:
    """Reads NAME#K<TAB>caption and NAME#xx#K caption, xx a mark such as the language."""
    found = read_token_lines(source.path)
    marks = {mark for _, captions in found.values() for mark, _ in captions}
    if len(marks) > 1:
        several = ", ".join(f"#{mark}#" for mark in sorted(marks))
        source.note(f"the captions of an image have different marks ({several}); all are read")
    for name, (line, captions) in found.items():
        texts = in_order(captions)
        yield Record(name, texts, None, f"line {line}", len(captions) - len(texts))


def _read_lines(source: Source, start: str) -> Iterator[Record]:
    """Reads NAME caption, with a space between, where the names are those of images."""
    file = shlex.quote(source.path.name)
    for number, line in lines(source.path):
        name, _, caption = line.strip().partition(" ")
        if is_image_name(line):
            why = (
                "an image's name without a caption; if another file has the captions in the same "
                f"order, join them with `paste {file} FILE > captions.tsv`"
            )
            if not all(is_image_name(text) for _, text in islice(lines(source.path), 2)):
                why = (
                    "an image's name without a caption; if that is the next line, join them with "
                    f"`grep . {file} | paste - - > captions.tsv`"
                )
            source.fail(f"line {number}", why)
        if not is_image_name(name) and name not in source.images.stems:
            if number == 1 and (is_known(start) or len(start.split()) == 1):
                expected = "expected the header image,caption or image,caption,split"
                source.fail("line 1", f"{expected}, got {[start]}")
            why = (
                "expected the name of an image and its caption, with a comma, a tab or a space "
                f"between, but there is no image {name[:40]!r}, in {line[:60]!r}"
            )
            from training.data.readers.caption_files import advice

            source.fail(f"line {number}", f"{why}{advice.naming_lines(source)}")
        yield source.record(f"line {number}", name, [_DASH.sub("", caption)])

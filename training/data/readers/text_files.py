"""Text files as people save them, and the lines in which Flickr's captions are published."""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from training.data.examples import DataError

_TOKEN_LINE = re.compile(
    r"(?P<name>[^\t]*?[^\t\s])\s*#(?:(?P<mark>[A-Za-z]\w*)#)?(?P<number>[0-9]+)(?: *\t|(?<=\d) +)"
    r"(?P<caption>.*)"
)
_BLANK_LINE = re.compile(r"(?P<name>[^\t]*[^\t\s])\s*#(?:(?P<mark>\w+)#)?(?P<number>[0-9]+)\s*")


def read_text(path: Path) -> str:
    """Reads a UTF-8 file (or marked UTF-16) without its mark; line ends stay as they are.

    Raises:
        DataError: It cannot be read, or is not UTF-8; the message names the line.
    """
    try:
        content = path.read_bytes()
        return decoded(content)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        old, new = shlex.quote(path.name), shlex.quote(f"new.{path.name}")
        raise DataError(
            f"{path}, line {line}: not UTF-8 ({error.reason}); save the file as UTF-8, or try "
            f"`iconv -f {_likely_encoding(content)} -t utf-8 {old} > {new}`, or "
            "another of windows-1252 (western Europe), windows-1251 (Cyrillic), gb18030 (Chinese), "
            "shift_jis (Japanese), cp949 (Korean); then look at the captions that are printed."
        ) from error


def _likely_encoding(content: bytes) -> str:
    """The encoding in which bytes that are not UTF-8 may be text."""
    content = content[:10_000].rpartition(b"\n")[0] or content[:10_000]  # in whole lines
    high = sum(map((127).__lt__, content))
    if high < 0.2 * len(content):
        return "windows-1252"
    for encoding, own in (("shift_jis", "[\u3040-\u30ff]"), ("cp949", "[\uac00-\ud7a3]")):
        with contextlib.suppress(UnicodeDecodeError):
            if 4 * len(re.findall(own, content.decode(encoding))) > high / 2:
                return encoding
    letters = content.translate(None, bytes(range(128)) + bytes(range(0x80, 0xC0)))
    return "windows-1251" if len(letters) > 0.95 * high else "gb18030"


def decoded(content: bytes) -> str:
    """Decodes UTF-8, or marked UTF-16, without its mark; raises UnicodeDecodeError."""
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):  # Excel's "Unicode text"
        return content.decode("utf-16", errors="replace")
    return content.removeprefix(b"\xef\xbb\xbf").decode("utf-8")


def lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yields the lines of a UTF-8 file that are not blank, with their numbers from 1.

    Raises:
        DataError: As `read_text`.
    """
    text = read_text(path)
    # Not `str.splitlines`, which also cuts at characters that captions may contain.
    for number, line in enumerate(text.split("\n" if "\n" in text else "\r"), start=1):
        if line.strip():
            yield number, line.rstrip("\r")


def token_of(line: str) -> re.Match | None:
    """Matches NAME#K<TAB>caption and NAME#xx#K caption, xx a mark such as the language."""
    return _TOKEN_LINE.fullmatch(line) or _BLANK_LINE.fullmatch(line)


def read_token_lines(path: Path) -> dict[str, tuple[int, dict[tuple[str, int], str]]]:
    """Reads a file of such lines: image -> its first line, and its captions by mark and number.

    Raises:
        DataError: A line has another form, or a number has two captions; the message names it.
    """
    found: dict[str, tuple[int, dict[tuple[str, int], str]]] = {}
    before = 0
    for number, line in lines(path):
        match = token_of(line)
        if match is None:
            end = f"; is it the end of line {before}? Then join the two" if before else ""
            expected = "expected NAME.jpg#K<TAB>caption or NAME.jpg#xx#K caption"
            raise DataError(f"{path}, line {number}: {expected}, got {line[:80]!r}{end}.")
        before = number
        name, key = match["name"].strip(), (match["mark"] or "", int(match["number"]))
        caption = match.groupdict().get("caption", "").replace("\t", " ").strip()
        _, captions = found.setdefault(name, (number, {}))
        if captions.setdefault(key, caption) != caption:
            why = f"a second, different caption {name}#{match['number']}"
            raise DataError(f"{path}, line {number}: {why}.")
    return found


def in_order(captions: dict[tuple[str, int], str]) -> tuple[str, ...]:
    """Returns the captions of an image by mark and number, but for blank ones."""
    return tuple(text for _, text in sorted(captions.items()) if text)

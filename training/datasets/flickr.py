"""Flickr8k in its own folder layout: the user's copy, read as it was published.

    Flicker8k_Dataset/*.jpg                           (or Flickr8k_Dataset)
    Flickr8k.token.txt                                NAME.jpg#K<TAB>caption
    Flickr_8k.{trainImages,devImages,testImages}.txt  one NAME.jpg a line, any of the three

References:
    Hodosh, Young and Hockenmaier (2013), "Framing Image Description as a Ranking Task".
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from training.datasets.base import SPLITS, DataError, Example, Split, canonical_split

IMAGE_FOLDERS = ("Flicker8k_Dataset", "Flickr8k_Dataset")
CAPTION_FILE = "Flickr8k.token.txt"
LIST_FILES = {split: f"Flickr_8k.{split}Images.txt" for split in SPLITS}

_CAPTION_LINE = re.compile(r"(?P<name>[^\t]*[^\t\s])\s*#(?P<number>[0-9]+) *\t(?P<caption>.*)")


def load(split: str, data_dir: Path) -> Split:
    """Reads one split of Flickr8k.

    Images of the list which have no file or no caption are set aside; images are not opened.

    Args:
        split: "train", "dev" (or "val") or "test".
        data_dir: The folder which holds the layout above.

    Returns:
        The split in the order of its list, each image once.

    Raises:
        DataError: The folder has another shape, the split's list is missing or empty, a line
            of the captions does not parse, or no image of the split can be used.
    """
    split = canonical_split(split)
    data_dir = Path(data_dir)
    image_dir = _image_folder(data_dir)
    list_file = _list_file(split, data_dir)
    names = _read_list(list_file)
    captions = _read_captions(data_dir / CAPTION_FILE)
    # One listing instead of thousands of look-ups; a name with a path in it is never found.
    present = {entry.name for entry in image_dir.iterdir()}

    examples, set_aside = [], []
    for name in names:
        if name not in present:
            set_aside.append((name, f"no image file in {image_dir.name}"))
        elif name not in captions:
            set_aside.append((name, f"no captions in {CAPTION_FILE}"))
        else:
            examples.append(Example(name, image_dir / name, captions[name]))
    if not examples:
        reasons = Counter(reason for _, reason in set_aside)
        counted = "; ".join(f"{count} with {reason}" for reason, count in reasons.items())
        raise DataError(
            f"No image of {list_file} can be used: of the {len(names)} listed, {counted}."
        )
    return Split(split, tuple(examples), tuple(set_aside))


def _image_folder(data_dir: Path) -> Path:
    """The folder of the images, once the whole layout has been seen to be there."""
    wanted = {
        f"{IMAGE_FOLDERS[0]}/": any((data_dir / name).is_dir() for name in IMAGE_FOLDERS),
        CAPTION_FILE: (data_dir / CAPTION_FILE).is_file(),
        "one of " + ", ".join(LIST_FILES.values()): bool(_lists_present(data_dir)),
    }
    missing = [name for name, found in wanted.items() if not found]
    if missing:
        raise DataError(
            f"{data_dir} is no Flickr8k folder. Looked for: {'; '.join(wanted)}. "
            f"Missing: {'; '.join(missing)}. Found: {_contents(data_dir)}."
        )
    return next(data_dir / name for name in IMAGE_FOLDERS if (data_dir / name).is_dir())


def _contents(folder: Path, most: int = 10) -> str:
    if not folder.is_dir():
        return "a file, not a folder" if folder.exists() else "nothing, there is no such folder"
    names = sorted(f"{entry.name}/" if entry.is_dir() else entry.name for entry in folder.iterdir())
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more if names else "an empty folder"


def _lists_present(data_dir: Path) -> list[str]:
    return [name for name in LIST_FILES.values() if (data_dir / name).is_file()]


def _list_file(split: str, data_dir: Path) -> Path:
    path = data_dir / LIST_FILES[split]
    if not path.is_file():
        raise DataError(
            f"{data_dir} has no {split} split: {path.name} is missing. "
            f"Lists there: {', '.join(_lists_present(data_dir))}."
        )
    return path


def _read_list(path: Path) -> list[str]:
    # A dictionary keeps the order and drops what is listed twice.
    names = list(dict.fromkeys(line.strip() for _, line in _lines(path)))
    if not names:
        raise DataError(f"{path} is empty: expected the name of an image on each line.")
    return names


def _read_captions(path: Path) -> dict[str, tuple[str, ...]]:
    """The captions of every image, in the order of their numbers."""
    captions: dict[str, dict[int, str]] = {}
    for number, line in _lines(path):
        match = _CAPTION_LINE.fullmatch(line)
        if match is None:
            raise DataError(
                f"{path}, line {number}: expected NAME.jpg#K<TAB>caption, got {line[:80]!r}."
            )
        caption = match["caption"].replace("\t", " ").strip()
        of_image = captions.setdefault(match["name"].strip(), {})
        if of_image.setdefault(int(match["number"]), caption) != caption:
            raise DataError(
                f"{path}, line {number}: a second, different caption "
                f"{match['name'].strip()}#{match['number']}."
            )
    numbered = ((name, sorted(of_image.items())) for name, of_image in captions.items())
    kept = ((name, tuple(text for _, text in pairs if text)) for name, pairs in numbered)
    return {name: texts for name, texts in kept if texts}


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a UTF-8 file that hold anything, with their numbers from 1."""
    content = path.read_bytes().removeprefix(b"\xef\xbb\xbf")
    # Split at line feeds alone: `str.splitlines` also cuts at characters captions may hold.
    for number, raw in enumerate(content.split(b"\n"), start=1):
        try:
            line = raw.decode("utf-8").rstrip("\r")
        except UnicodeDecodeError as error:
            raise DataError(f"{path}, line {number}: not UTF-8 ({error.reason}).") from error
        if line.strip():
            yield number, line

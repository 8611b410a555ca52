"""Captioners on the page, local or static: names, samples, captions as the viewer's data."""

from __future__ import annotations

import base64
import io
import json
import re
import threading
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PIL import Image

import sat_tf
from sat_tf.images.pillow import decode
from sat_tf.inference import published
from sat_tf.inference.confidence import remark
from sat_tf.inference.run_folder import RunFolder, read_object
from sat_tf.inference.viewer import crop_of, data_url, hypothesis_of
from sat_tf.util.errors import RunError
from sat_tf.util.files import finite

if TYPE_CHECKING:
    from sat_tf.inference.captions import Caption

OWN = resources.files(__package__)
"""The page's files."""

_SHOWN = (1600, 1600)  # pixels
_MOST_SAMPLES = 6
_REPORT_DATA = re.compile(rb'<script type="application/json" id="data">(.*?)</script>', re.S)
_DATA_URL = "data:image/jpeg;base64,"


class Captioner:
    """A captioner on the page, over its LiteRT graphs; threads take turns.

    Args:
        run: Folder of a run or of a published captioner.

    Raises:
        RunError: The captioner has no graphs, or is damaged.
    """

    def __init__(self, run: Path) -> None:
        self._captioner, self._turn = sat_tf.load(run, "litert"), threading.Lock()

    def __call__(self, content: bytes, sentence: str | None = None) -> dict[str, Any]:
        """Captions an image file; or explains a `sentence`, its own caption if that is empty.

        Returns:
            `viewer_data`, with `unknown` words if it is an explanation.

        Raises:
            ValueError: The file is not an image, is too large, or the sentence cannot be read.
        """
        image = decode(content)
        with self._turn:
            if sentence is None:
                found = self._captioner.beam(image)
            else:
                found = [self._captioner.explain(image, sentence or None)]
        config = self._captioner.config
        data = viewer_data(image, found, config.attention.kind, config.encoder.resize)
        # Browsers may not show HEIC, AVIF and TIFF.
        if content[4:8] == b"ftyp" or content[:4] in (b"II*\0", b"MM\0*"):
            data["image"] = _shown(image)
        if sentence is None:
            return data
        # Remarks are about the captioner's own caption.
        return data | {"level": None, "remarks": [], "unknown": list(found[0].unknown)}


def viewer_data(
    image: Image.Image, captions: Sequence[Caption], kind: str, resize: str
) -> dict[str, Any]:
    """Returns captions of an upright image, best first, as the viewer reads them.

    `kind` of attention is `soft`, `hard` or `none`; `resize` is `crop` or `squash`.
    """
    best = captions[0]
    level, sentence = remark(best.familiarity, best.confidence)
    return {
        # An unknown word of an explanation has no probability.
        "hypotheses": finite(list(map(hypothesis_of, captions))),
        "grid": None if best.alpha is None else list(best.alpha.shape[1:]),
        "kind": kind,
        "lang": best.language or None,
        "level": level,
        "remarks": [sentence] if sentence else [],
        "crop": crop_of(image.height, image.width, resize),
    }


def _shown(image: Image.Image) -> str:
    stream = io.BytesIO()
    shown = image.copy()
    shown.thumbnail(_SHOWN)
    shown.save(stream, "JPEG", quality=90)
    return data_url(stream.getvalue())


def named(folders: Sequence[Path]) -> dict[str, Path]:
    """Names models after their folders; a repeated name gets -2, -3, ..., but none of another."""
    names = [path.name for path in map(Path.resolve, folders)]
    found: dict[str, Path] = {}
    for first, folder in zip(names, folders, strict=True):
        name, number = first, 1
        while name in found or (number > 1 and name in names):
            number += 1
            name = f"{first}-{number}"
        found[name] = folder
    return found


def facts_of(runs: dict[str, Path]) -> dict[str, Any]:
    """Returns what the page asks for first.

    These are `models`, their `kinds` of attention, whether each is the user's `own`, and sentences
    on their training data, `notes` and `about`.
    """
    configs = {name: _config(run) for name, run in runs.items()}
    drawn = [name for name, c in configs.items() if c.get("data", {}).get("name") == "scenes"]
    note = (
        f"{', '.join(drawn)}: trained on drawn scenes of coloured shapes, and knows nothing else. "
        "Captions of photographs will be about shapes."
    )
    return {
        "models": list(runs),
        "kinds": [config.get("attention", {}).get("kind", "") for config in configs.values()],
        "own": [not _is_pretrained(run) for run in runs.values()],
        "notes": [note] if drawn else [],
        "about": [*filter(None, map(published.knows, runs.values()))][:1],  # of the first one
    }


def samples_of(runs: dict[str, Path]) -> tuple[list[dict[str, str]], dict[str, bytes]]:
    """Returns the samples of a page, and their files by name.

    They are images of an own run's report, if it has one. Each sample has `file`, `group`, `title`
    and `source`.
    """
    samples, files = [], {}
    for name, run in runs.items():
        for number, content in enumerate([] if _is_pretrained(run) else _report_images(run), 1):
            file = f"{len(files) + 1}.jpg"
            files[file] = content
            group, title = f"Dev images of {name}", f"Dev image {number} of {name}"
            samples.append({"file": file, "group": group, "title": title, "source": name})
    if files:
        return samples, files
    samples = json.loads((OWN / "samples" / "samples.json").read_text("utf-8"))
    if not any(map(_is_pretrained, runs.values())):
        samples = [one | {"group": "Photographs"} for one in samples]
    return samples, {one["file"]: (OWN / "samples" / one["file"]).read_bytes() for one in samples}


def _report_images(run: Path) -> list[bytes]:
    try:
        page = (run / "evaluation" / "dev" / "index.html").read_bytes()
        images = json.loads(_REPORT_DATA.search(page)[1])["images"]
        urls = [image["image"] for image in images[:_MOST_SAMPLES]]
    except (OSError, ValueError, TypeError, KeyError):
        return []
    found = (url.removeprefix(_DATA_URL) for url in urls if url.startswith(_DATA_URL))
    return [base64.b64decode(url) for url in found]


def _is_pretrained(run: Path) -> bool:
    return published.SHIPPED in run.absolute().parents


def _config(run: Path) -> dict[str, Any]:
    try:  # a damaged one is reported where it is loaded
        return read_object(RunFolder(run).config)
    except RunError:
        return {}

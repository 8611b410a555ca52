"""The viewer of captions in a browser: its files, its data form, and pages that embed both.

One HTML file with everything in it: no request leaves the machine that opens it.
"""

from __future__ import annotations

import base64
import html
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from sat_tf.images.pillow import centred_square
from sat_tf.inference.confidence import remark
from sat_tf.util.files import as_utf8, finite

if TYPE_CHECKING:
    from sat_tf.inference.captioning import TrainedCaptioner
    from sat_tf.inference.captions import Caption

FILES = resources.files(__package__)
"""Folder of `viewer.css` and `viewer.js`."""

_LONGER_SIDE = 480  # pixels of a photograph on a page
_START = """
const data = JSON.parse(document.querySelector("#data").textContent);
new SatViewer.Report(document.querySelector("main"), data);"""


def asset(name: str) -> str:
    """Returns the text of `viewer.css` or `viewer.js`."""
    return FILES.joinpath(name).read_text(encoding="utf-8")


def hypothesis_data(
    words: Sequence[str],
    text: str,
    score: float,
    alpha: np.ndarray | None = None,
    beta: np.ndarray | None = None,
    log_probs: np.ndarray | None = None,
    looking: np.ndarray | None = None,
) -> dict[str, Any]:
    """Describes one caption of an image as the viewer reads it.

    Args:
        words: T words.
        text: The whole caption.
        score: Of the search.
        alpha: `[T, h, w]`, the attention of each word, or None.
        beta: `[T]`, the gate of each word, or None.
        log_probs: `[T]`, log-probability of each word in nats, or None.
        looking: `[T]`, what looking was worth for each word, nats, or None.

    Returns:
        `text`, `score`, `peak` (the largest weight of any map) and `words`, each with `text`,
        `log_prob`, `beta` and `map`: base64 of `h w` bytes, 255 standing for `peak`; and with
        `looking` if it is given.
    """
    peak = 0.0 if alpha is None or not len(alpha) else float(np.max(alpha))
    return {
        "text": text,
        "score": round(float(score), 4),
        "peak": round(peak, 6),
        "words": [
            {
                "text": word,
                "log_prob": None if log_probs is None else round(float(log_probs[t]), 4),
                "beta": None if beta is None else round(float(beta[t]), 4),
                "map": None if alpha is None else _encode_map(alpha[t], peak),
            }
            | ({} if looking is None else {"looking": round(float(looking[t]), 4)})
            for t, word in enumerate(words)
        ],
    }


def hypothesis_of(caption: Caption) -> dict[str, Any]:
    """Describes a caption with all that is known of its words; see `hypothesis_data`."""
    known = (caption.alpha, caption.beta, caption.log_probs, getattr(caption, "looking", None))
    return hypothesis_data(caption.words, caption.text, caption.score, *known)


def crop_of(height: int, width: int, resize: str) -> list[float]:
    """Returns the part of an image that the model sees, by policy: `crop` or `squash`.

    It is `[x0, y0, x1, y1]`, as fractions of the image's sides.
    """
    if resize == "squash":
        return [0.0, 0.0, 1.0, 1.0]
    top, left, side = centred_square(height, width)
    edges = (left / width, top / height, (left + side) / width, (top + side) / height)
    return [round(edge, 5) for edge in edges]


def image_entry(
    captioner: TrainedCaptioner, pixels: np.ndarray, caption: Caption, name: str
) -> dict[str, Any]:
    """Describes an image and its hypotheses for `report_page`.

    Args:
        captioner: The captioner.
        pixels: `[H, W, 3]`, 0..255, the whole image upright.
        caption: Its caption.
        name: Name on the page.
    """
    image = Image.fromarray(np.asarray(pixels, np.uint8))
    scale = _LONGER_SIDE / max(image.size)  # small drawn images are enlarged
    size = [max(1, round(side * scale)) for side in image.size]
    file = io.BytesIO()
    image.resize(size, Image.Resampling.LANCZOS).save(file, "JPEG", quality=82)
    shown = {"image": data_url(file.getvalue()), "name": name}
    return shown | caption_data(captioner, pixels.shape[:2], caption)


def caption_data(
    captioner: TrainedCaptioner, size: tuple[int, int], caption: Caption
) -> dict[str, Any]:
    """Returns the viewer's `crop`, `hypotheses`, `level` and `remarks` of a caption.

    Args:
        captioner: The captioner.
        size: Height and width of the whole image upright.
        caption: Its caption.
    """
    hypotheses = [
        hypothesis_of(caption),
        *(hypothesis_data(text.split(), text, score) for text, score in caption.alternatives),
    ]
    crop = crop_of(*size, captioner.config.encoder.resize)
    found = {"crop": crop, "hypotheses": hypotheses}
    level, sentence = remark(caption.familiarity, caption.confidence)
    return found | ({"level": level, "remarks": [sentence]} if sentence else {})


def common_facts(captioner: TrainedCaptioner, model: str) -> dict[str, Any]:
    """Returns the facts that all images of one captioner share.

    Args:
        captioner: The captioner.
        model: Its name on the page.
    """
    kind = captioner.config.attention.kind
    facts = {"grid": list(captioner.grid), "kind": kind, "model": model}
    return facts | ({"lang": language} if (language := captioner.vocabulary.language) else {})


def report_page(
    title: str,
    images: Iterable[Mapping[str, Any]],
    scores: Iterable[Mapping[str, str]] = (),
    notes: Iterable[str] = (),
    common: Mapping[str, Any] | None = None,
    rank_name: str = "Score",
    charts: Iterable[Mapping[str, Any]] = (),
) -> str:
    """Returns a self-contained page with scores and a viewer of captioned images.

    Args:
        title: Heading of the page.
        images: Of each image `image` (a data URL), `name`, `hypotheses` (see `hypothesis_data`),
            and by choice `crop`, `references`, `level` and `remarks` of the best caption, `scores`
            and `rank`, the number to sort by.
        scores: Rows of the table: `name`, `value` and by choice `interval` and `text`.
        notes: Paragraphs under the table.
        common: What all images share: `grid` `[h, w]`, `kind` of attention, `model`, `lang`.
        rank_name: Name of the number to sort by.
        charts: On top, with the main scores: `name`, `text`, `x` and `y` (names of the axes),
            `bars` (`[left, right, height, text]`) or `lines` (`name` and `points`, `[x, y]`), and
            by choice `diagonal`, which stands for equality.
    """
    report = {
        "images": list(images),
        "scores": list(scores),
        "notes": list(notes),
        "charts": list(charts),
        "common": dict(common or {}),
        "rank_name": rank_name,
    }
    heading = html.escape(title)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<title>{heading}</title>\n<link rel="icon" href="data:,">\n'
        f"<style>\n{asset('viewer.css')}</style>\n</head>\n<body>\n<header><h1>{heading}</h1></header>\n"
        "<main><noscript>This page needs JavaScript.</noscript></main>\n"
        f'<script type="application/json" id="data">{_script_json(report)}</script>\n'
        f"<script>\n{asset('viewer.js')}{_START}\n</script>\n</body>\n</html>\n"
    )


def data_url(content: bytes, kind: str = "image/jpeg") -> str:
    """Returns bytes as a URL that holds them."""
    return f"data:{kind};base64,{base64.b64encode(content).decode('ascii')}"


def _encode_map(alpha: np.ndarray, peak: float) -> str:
    shares = np.asarray(alpha, np.float64) / peak if peak else np.zeros_like(alpha)
    return base64.b64encode(np.rint(255 * shares).astype(np.uint8).tobytes()).decode("ascii")


def _script_json(value: Any) -> str:
    """JSON that cannot end the script element that holds it, and that UTF-8 can say."""
    plain = finite(value)
    text = json.dumps(plain, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return as_utf8(text.replace("<", "\\u003c"))  # it may have names of files

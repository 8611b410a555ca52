"""A captioned image as the viewer of pages reads it."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from PIL import Image

from sat_tf.runs import Caption, TrainedCaptioner
from sat_tf.viewer import crop_of, data_url, hypothesis_data

_SIDE = 480  # pixels of the longer side of a photograph on a page


def image_entry(
    captioner: TrainedCaptioner, pixels: np.ndarray, caption: Caption, name: str
) -> dict[str, Any]:
    """Describes an image and its hypotheses for `sat_tf.viewer.report_page`.

    Args:
        captioner: The captioner.
        pixels: `[H, W, 3]`, 0..255, the whole image upright.
        caption: Its caption.
        name: Name on the page.
    """
    image = {"image": _thumbnail(np.asarray(pixels, np.uint8)), "name": name}
    return image | caption_data(captioner, pixels.shape[:2], caption)


def caption_data(
    captioner: TrainedCaptioner, size: tuple[int, int], caption: Caption
) -> dict[str, Any]:
    """Returns the viewer's `crop` and `hypotheses` of a caption.

    Args:
        captioner: The captioner.
        size: Height and width of the whole image upright.
        caption: Its caption.
    """
    crop = crop_of(*size, captioner.config.encoder.resize)
    return {"crop": crop, "hypotheses": _hypotheses(caption)}


def common_facts(captioner: TrainedCaptioner, model: str) -> dict[str, Any]:
    """Returns the facts that all images of one captioner share.

    Args:
        captioner: The captioner.
        model: Its name on the page.
    """
    kind = captioner.config.attention.kind
    return {"grid": list(captioner.grid), "kind": kind, "model": model}


def _hypotheses(caption: Caption) -> list[dict[str, Any]]:
    best = hypothesis_data(
        caption.words, caption.text, caption.score, caption.alpha, caption.beta, caption.log_probs
    )
    others = [hypothesis_data(text.split(), text, score) for text, score in caption.alternatives]
    return [best, *others]


def _thumbnail(pixels: np.ndarray) -> str:
    """A JPEG as a data URL; small drawn images are enlarged."""
    image = Image.fromarray(pixels)
    scale = _SIDE / max(image.size)
    size = [max(1, round(side * scale)) for side in image.size]
    file = io.BytesIO()
    image.resize(size, Image.Resampling.LANCZOS).save(file, "JPEG", quality=82)
    return data_url(file.getvalue())

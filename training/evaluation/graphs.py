"""LiteRT graphs of a run, made at the end of training: in int8 where that keeps its captions."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from sat_tf.inference import published
from sat_tf.inference.run_folder import RunFolder
from sat_tf.util.commands import command_line
from sat_tf.util.files import write_atomically
from training.data.image_loader import ImageLoader

if TYPE_CHECKING:
    from sat_tf.inference.keras_captioner import KerasCaptioner
    from training.data.examples import Split

MEASURED = 200
"""Dev images on which int8 is compared with the model."""
CORRECTED = 128
"""Training images on which the biases of int8 are corrected."""
EQUAL = 0.8
"""Share of equal captions below which int8 is not taken."""

_BATCH = 32


def make_graphs(captioner: KerasCaptioner, train: Split, dev: Split, **splitting: Any) -> str:
    """Writes `RUN/graphs`; a run is finished even if its graphs cannot be made.

    Args:
        captioner: The captioner, loaded from its run.
        train: Its training images correct int8.
        dev: Its images decide between int8 and float32.
        **splitting: How CIDEr splits captions; see `score_captions`.

    Returns:
        A sentence on the graphs, or on why there are none.
    """
    from sat_tf.inference.graphs import write_graphs

    folder = RunFolder(captioner.path).graphs
    try:
        if captioner.model.selection == "sample":
            return "No graphs: locations are drawn, and graphs answer the same each time."
        write_graphs(folder, captioner, "int8", [*pixels_of(captioner, train, CORRECTED)])
        kept, said = _compare(captioner, dev, splitting)
        if not kept:
            write_graphs(folder, captioner, "float32")
            said = f"float32, as int8 changes captions: {said}"
    except (OSError, ValueError) as error:
        shutil.rmtree(folder, ignore_errors=True)
        again = command_line("serving.export_litert", "--run-dir", captioner.path)
        return f"The graphs could not be made ({str(error).rstrip('.')}). Make them: {again}"
    said = f"LiteRT graphs: {said}"
    write_atomically(
        folder / published.CARD, f"# LiteRT graphs of {captioner.path.name}\n\n{said}\n"
    )
    return said


def pixels_of(captioner: KerasCaptioner, split: Split, most: int) -> Iterator[np.ndarray]:
    """Yields at most so many images of a split as the encoder sees them."""
    yield from (pixels for _, pixels in _images(captioner, split, most))


def _images(captioner: KerasCaptioner, split: Split, most: int) -> Iterator[tuple[int, np.ndarray]]:
    """Yields index and pixels of images spread over a split, as the encoder sees them."""
    encoder = captioner.config.encoder
    loader = ImageLoader(split.examples, encoder.image_size, encoder.resize)
    indices = range(0, len(split), -(-len(split) // most) or 1)
    places = iter(indices)
    for batch, valid in loader.batches(indices, 16):
        for pixels, there in zip(batch, valid, strict=False):
            index = next(places)
            if there:
                yield index, pixels


def _compare(captioner: KerasCaptioner, dev: Split, splitting: dict[str, Any]) -> tuple[bool, str]:
    """Returns whether the graphs of a run keep its captions, and a clause that says how far."""
    from sat_tf.inference.litert_captioner import LiteRTCaptioner
    from training.evaluation.scores import score_captions

    light, search = LiteRTCaptioner(RunFolder(captioner.path).graphs), captioner.config.search
    texts: tuple[dict[str, str], dict[str, str]] = ({}, {})
    images = _images(captioner, dev, MEASURED)
    while batch := list(itertools.islice(images, _BATCH)):
        names = [dev.examples[index].image_id for index, _ in batch]
        for found, one in zip(texts, (captioner, light), strict=True):
            beams = one.beams([pixels for _, pixels in batch], search, most=1)
            found |= {name: best.text for name, (best,) in zip(names, beams, strict=True)}
    before, after = texts
    if len(before) < 2:
        return False, "there are no dev images to compare on"
    equal = np.mean([after[name] == text for name, text in before.items()])
    references = dev.references(of=before)
    scores = [
        np.asarray(score_captions(found, references, **splitting).per_image["cider"])
        for found in texts
    ]
    changes = scores[1] - scores[0]
    margin = 1.96 * changes.std(ddof=1) / len(changes) ** 0.5
    kept = equal >= EQUAL and changes.mean() + margin >= 0
    return bool(kept), (
        f"int8, {100 * equal:.1f} % of {len(before)} dev captions as the model's, "
        f"CIDEr {changes.mean():+.2f}"
    )

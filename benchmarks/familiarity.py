"""Familiarity of pictures of other kinds: `python -m benchmarks.familiarity FOLDER ... --data-dir`.

Tells how well familiarity separates the photographs of the dev split from the pictures in each
folder, of one kind each, which the captioner did not learn from. With `--squeeze`, those are first
scaled to 224 x 224 JPEG, as copies of Flickr8k may be: without it, sharpness alone tells some of
them apart.
"""

from __future__ import annotations

import io
import itertools
import sys
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import tyro
from PIL import Image

import sat_tf
from benchmarks.measure import command, format_table
from sat_tf.images.pillow import ImageInput
from sat_tf.trained.captioning import TrainedCaptioner
from sat_tf.trained.limits import UNFAMILIAR
from sat_tf.trained.many import image_files
from training.config import read_run_config
from training.data.sources import load_split
from training.metrics.bootstrap import interval_over_images


def run(
    folders: tyro.conf.Positional[tuple[Path, ...]],
    data_dir: Path,
    run_dir: Path = Path("flickr8k_soft"),
    squeeze: bool = False,
) -> None:
    """Prints the area under the ROC curve of each kind, and how many are called unlike.

    Args:
        folders: Folders of pictures.
        data_dir: The data set that the captioner was trained on.
        run_dir: The captioner: a run, or one that ships.
        squeeze: Scale pictures to 224 x 224 JPEG first.
    """
    captioner = sat_tf.load(run_dir)
    known = captioner.limits.familiarity
    if known is None:
        raise ValueError(f"{run_dir} knows no familiarity: train it again.")
    split = load_split(read_run_config(captioner.path).data, "dev", data_dir)
    dev = known.distances(mean_annotations(captioner, (one.image for one in split.examples)))
    limit, rows = np.quantile(dev, 1 - UNFAMILIAR), []
    for folder in folders:
        files = image_files([folder])
        pictures = map(squeezed, files) if squeeze else files
        other = known.distances(mean_annotations(captioner, pictures))
        area, low, high = auroc(dev, other)
        row = {"kind": folder.name, "pictures": len(other), "auroc": area, "low": low, "high": high}
        rows.append(row | {"unlike_percent": 100 * float((other > limit).mean())})
    print(format_table(rows))


def auroc(dev: np.ndarray, other: np.ndarray) -> tuple[float, float, float]:
    """Returns the share of pairs whose other picture lies farther, with its interval."""
    further = (other[:, np.newaxis] > dev).mean(axis=1)
    return interval_over_images(lambda w: (w @ further) / w.sum(axis=1), len(other))


def mean_annotations(captioner: TrainedCaptioner, pictures: Iterable[ImageInput]) -> np.ndarray:
    """Encodes pictures in batches; returns their mean annotations `[N, D]`."""
    means, pixels = [], map(captioner.pixels, pictures)
    while batch := list(itertools.islice(pixels, 16)):
        means.append(captioner.annotate(np.stack(batch)).numpy().mean(axis=1))
    return np.concatenate(means)


def squeezed(path: Path) -> bytes:
    """Returns a picture as a JPEG of 224 x 224."""
    file = io.BytesIO()
    small = Image.open(path).convert("RGB").resize((224, 224), Image.Resampling.BICUBIC)
    small.save(file, "JPEG", quality=92)
    return file.getvalue()


if __name__ == "__main__":
    sys.exit(command(run))

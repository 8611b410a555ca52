"""Export a published digit model, for `python -m serving.export --run-dir MODEL`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tensorflow as tf

import digits
from sat_tf.errors import invalid_value
from sat_tf.trained import published
from serving.saved_model import Signature, save_signatures
from serving.signatures import SERVING_DEFAULT
from serving.versions import CARD_FILE, write_version

_CALLING = """
## Signature

`serving_default`: `images` float32 `[B, {image_size}, {image_size}, 1]`, white on black in [0, 1],
digits {ink_from:g} to {ink_to:g} pixels long. Outputs, T looks, K classes: `probabilities` float32
`[B, T, K]` after each look; `corners` float32 `[B, T, 4, 2]` of the finest patch, (x, y) as shares
of the image's sides, y down; `patches` float32 `[B, T, h, w, scales]`, the finest first, each twice
as wide as the one before; `answers` string `[B, K]`, the classes' names.
"""


def run(run_dir: Path, out: Path | None = None, **others: Any) -> None:
    """Exports a model and says where to.

    Args:
        run_dir: The model, by folder or name.
        out: Folder of the versions; `export` in the model's folder by default.
        others: Options of an exported captioner that were given.

    Raises:
        ValueError: There are such options.
    """
    for name, value in others.items():
        raise invalid_value(name, "no value for a digit model", value)
    out = out or published.output_dir(run_dir) / "export"
    print(f"Exported {run_dir} to {export(published.locate(run_dir), out)}")


def export(folder: Path, out: Path) -> Path:
    """Writes a published model as the next version below a folder; see `write_version`."""
    reader = digits.load(folder)
    config, answers = reader.config, tf.constant([reader.config.answers])

    def serving_default(images: tf.Tensor) -> dict[str, tf.Tensor]:
        corners, patches, logits = reader.model.read(images)
        return {
            "probabilities": tf.nn.softmax(logits),
            "corners": corners,
            "patches": patches,
            "answers": tf.repeat(answers, tf.shape(images)[0], axis=0),
        }

    def write(draft: Path) -> None:
        shape = [None, config.image_size, config.image_size, 1]
        images = tf.TensorSpec(shape, tf.float32, name="images")
        save_signatures([Signature(SERVING_DEFAULT, serving_default, images)], draft)
        (draft / CARD_FILE).parent.mkdir(exist_ok=True)
        card = published.read_card(folder) or "# Digit model\n"
        (draft / CARD_FILE).write_text(card + _CALLING.format(**vars(config)), "utf-8")

    return write_version(out, write)

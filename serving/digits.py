"""The export of digit models for TF Serving; exporting loads TensorFlow."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sat_tf import digits, published
from serving.versions import CARD_FILE, write_version

if TYPE_CHECKING:
    from sat_tf.digits.reader import DigitReader
    from serving.saved_model import Signature

_TITLE = "# Digit model\n"
_CALLING = """
## Signature

`serving_default`: `images` float32 `[B, {size}, {size}, 1]`, white on black in [0, 1], digits
{ink_from:g} to {ink_to:g} pixels long. Outputs, T looks, K classes: `probabilities` float32
`[B, T, K]` after each look; `corners` float32 `[B, T, 4, 2]` of the finest patch, (x, y) as shares
of the image's sides, y down; `patches` float32 `[B, T, h, w, scales]`, the finest first, each twice
as wide as the one before; `answers` string `[B, K]`, the classes' names.
"""


def export(run_dir: Path, out: Path) -> Path:
    """Writes a published digit model as the next version below a folder; see `write_version`."""
    from serving.saved_model import save_signatures

    reader = digits.load(run_dir)

    def write(draft: Path) -> None:
        save_signatures([_signature(reader)], draft)
        config = reader.config
        calling = _CALLING.format(
            size=config.image_size, ink_from=config.ink_from, ink_to=config.ink_to
        )
        path = draft / CARD_FILE
        path.parent.mkdir(exist_ok=True)
        path.write_text((published.read_card(run_dir) or _TITLE) + calling, "utf-8")

    return write_version(out, write)


def _signature(reader: DigitReader) -> Signature:
    """Returns the signature that a digit model is served by; see its card."""
    import tensorflow as tf

    from serving.saved_model import Signature
    from serving.signatures import SERVING_DEFAULT

    size, answers = reader.config.image_size, tf.constant([reader.config.answers])

    def serving_default(images: tf.Tensor) -> dict[str, tf.Tensor]:
        corners, patches, logits = reader.model.read(images)
        return {
            "probabilities": tf.nn.softmax(logits),
            "corners": corners,
            "patches": patches,
            "answers": tf.repeat(answers, tf.shape(images)[0], axis=0),
        }

    images = tf.TensorSpec([None, size, size, 1], tf.float32, name="images")
    return Signature(SERVING_DEFAULT, serving_default, images)

"""From the training command to its first step, with annotations already in the store.

`python -m benchmarks.startup OUT ARGS` trains until the first step is done and writes the time
then to OUT.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PIL import Image

if TYPE_CHECKING:
    from benchmarks.models import Shape

_IMPORTS = [sys.executable, "-c", "import tensorflow, keras"]
_CAPTIONS = 5  # per image


def measure(shape: Shape, images: int, repeats: int) -> dict[str, list[dict[str, Any]]]:
    """Measures `startup`, medians over the imports alone and the first step."""
    with tempfile.TemporaryDirectory() as name:
        write_data(shape, images, Path(name) / "data")
        first_step(shape, Path(name))  # fills the store
        imports, steps = [], []
        for _ in range(repeats):
            start = time.time()
            subprocess.run(_IMPORTS, check=True, stderr=subprocess.DEVNULL)
            imports.append(time.time() - start)
            steps.append(first_step(shape, Path(name)))
    alone, step = statistics.median(imports), statistics.median(steps)
    row = {"images": images, "first_step_s": step, "imports_s": alone}
    return {"startup": [row | {"times_imports": step / alone}]}


def write_data(shape: Shape, images: int, folder: Path) -> None:
    """Writes images and captions for `--data.name folder`; a tenth more for dev."""
    from benchmarks.models import caption_lengths, caption_tokens

    folder.mkdir()
    image = Image.new("RGB", (64, 64))  # a warm start does not open the images
    splits = ["train"] * images + ["dev"] * max(images // 10, 1)
    tokens = iter(caption_tokens(caption_lengths(len(splits) * _CAPTIONS), shape.vocabulary_size))
    with (folder / "captions.jsonl").open("w", encoding="utf-8") as lines:
        for number, split in enumerate(splits):
            image.save(folder / f"{number}.jpg")
            # Training adds the ends.
            own = [" ".join(f"word{n}" for n in next(tokens)[1:-1]) for _ in range(_CAPTIONS)]
            row = {"image": f"{number}.jpg", "captions": own, "split": split}
            lines.write(json.dumps(row) + "\n")


def first_step(shape: Shape, folder: Path) -> float:
    """Returns seconds up to the first step, in a new process and a new run.

    Raises:
        OSError: Training did not get there.
    """
    with tempfile.TemporaryDirectory(dir=folder) as run:
        out, width = Path(run) / "time", str(shape.width)
        command = [sys.executable, "-m", "benchmarks.startup", str(out)]
        command += ["--recipe", "folder_soft", "--data.min-count", "1"]
        command += ["--encoder.name", shape.backbone, "--encoder.weights", "None"]
        command += ["--encoder.image-size", str(shape.image_size)]
        command += ["--decoder.embedding-dim", width, "--decoder.attention-dim", width]
        command += ["--decoder.hidden-dim", width, "--decoder.bottleneck-dim", "None"]
        command += ["--data-dir", str(folder / "data"), "--cache-dir", str(folder / "cache")]
        command += ["--run-dir", str(Path(run) / "run"), "--strategy", "none"]
        began = time.time()
        done = subprocess.run(command, capture_output=True, text=True)
        if not out.exists():
            raise OSError(f"training did not reach its first step:\n{done.stderr[-2000:]}")
        return float(out.read_text()) - began


def main(out: str, *argv: str) -> None:
    """Trains until the first step is done."""
    from sat_tf.commands import loading

    with loading():  # as the command does
        import keras

    def stop(*_: object, **__: object) -> None:
        Path(out).write_text(str(time.time()))
        os._exit(0)

    keras.callbacks.CallbackList.on_train_batch_end = stop
    from training import train

    train.main(list(argv))


if __name__ == "__main__":
    main(*sys.argv[1:])

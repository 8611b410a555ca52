"""Cost of a call of an export: `python -m benchmarks.serving_latency --run-dir RUN`.

Median milliseconds of warm calls through the C++ session, as TF Serving makes them, split into
decoding, encoder and search.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np
import tensorflow as tf
from keras.export import ExportArchive

import sat_tf
from benchmarks.measure import command, format_table, medians, photograph
from sat_tf.config import SearchConfig
from sat_tf.inference.captioning import TrainedCaptioner
from serving.export_saved_model import export
from serving.saved_model import load_call
from serving.signatures import SERVING_DEFAULT, read_images


def run(run_dir: Path, beam: int = 5, batches: tuple[int, ...] = (1, 8), repeats: int = 30) -> None:
    """Measures one call of an export.

    Args:
        run_dir: Run folder.
        beam: Beam width.
        batches: Images per call.
        repeats: Timed calls, after three untimed ones.
    """
    captioner, content = sat_tf.load(run_dir), photograph(224, 224)
    encoder = captioner.config.encoder
    print(f"{encoder.name}, {encoder.image_size} pixels, beam {beam}, median of {repeats} calls")
    with tempfile.TemporaryDirectory() as folder:
        whole = load_call(export(captioner, Path(folder), SearchConfig(beam=beam)))
        stages = load_call(export_stages(captioner, Path(folder) / "stages"))
    rows = []
    for size in batches:
        batch = np.array([content] * size, object)
        pixels = stages("decode", batch)["pixels"]
        calls = {
            "decode_ms": lambda batch=batch: stages("decode", batch),
            "encoder_ms": lambda pixels=pixels: stages("encode", pixels),
            "whole_ms": lambda batch=batch: whole(SERVING_DEFAULT, batch),
        }
        took = medians(calls, repeats, warm_up=3)
        row = {"batch": size} | {name: 1e3 * seconds for name, seconds in took.items()}
        row["search_ms"] = row["whole_ms"] - row["decode_ms"] - row["encoder_ms"]
        rows.append(row)
    print(format_table(rows))


def export_stages(captioner: TrainedCaptioner, folder: Path) -> Path:
    """Exports decoding and encoder as separate signatures."""
    encoder = captioner.config.encoder
    size, resize = encoder.image_size, encoder.resize
    archive = ExportArchive()
    archive.add_endpoint(
        "decode",
        lambda image_bytes: {"pixels": read_images(image_bytes, size, resize)[0]},
        [tf.TensorSpec([None], tf.string, name="image_bytes")],
    )
    archive.add_endpoint(
        "encode",
        lambda pixels: {"annotations": captioner.model.encoder(pixels, training=False)},
        [tf.TensorSpec([None, size, size, 3], name="pixels")],
    )
    archive.write_out(str(folder), verbose=False)
    return folder


if __name__ == "__main__":
    sys.exit(command(run))

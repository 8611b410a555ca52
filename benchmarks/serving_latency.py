"""Cost of a call of an export: `python -m benchmarks.serving_latency [--run-dir RUN]`.

Median milliseconds of warm calls through the C++ session, as TF Serving makes them, split into
decoding, encoder and search, and the whole as a multiple of the encoder's forward pass. Without a
run: an untrained captioner over MobileNetV2, whose captions all have `--max-length` words.

On a busy machine, `--processor-time` counts processor time on one thread instead of elapsed time.
"""

from __future__ import annotations

import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tensorflow as tf
import tyro
from keras.export import ExportArchive

import sat_tf
from benchmarks import models
from benchmarks.measure import format_table, medians, photograph
from sat_tf.commands import exit_status
from sat_tf.config import SearchConfig
from sat_tf.trained.captioning import TrainedCaptioner
from serving.export import export
from serving.saved_model import load_call
from serving.signatures import SERVING_DEFAULT, read_images


@dataclass(frozen=True)
class Arguments:
    """Measure one call of an export."""

    run_dir: Path | None = None
    """Run folder; an untrained captioner over MobileNetV2 by default."""
    image: Path | None = None
    """Image file; a drawn photograph of 224 x 224 pixels by default."""
    beam: int = 5
    """Beam width."""
    max_length: int = 12
    """Maximum words per caption; those of Flickr8k have 11 on average."""
    batches: tuple[int, ...] = (1, 8)
    """Images per call."""
    repeats: int = 30
    """Timed calls, after three untimed ones."""
    processor_time: bool = False
    """Measure processor time on one thread instead of elapsed time."""


def main(argv: list[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    arguments = tyro.cli(Arguments, args=argv, prog="python -m benchmarks.serving_latency")
    return exit_status(lambda: run(arguments))


def run(arguments: Arguments) -> None:
    """Exports, measures and prints."""
    if arguments.run_dir:
        captioner = sat_tf.load(arguments.run_dir)
    else:
        shape = models.SHAPES["flickr8k"]
        captioner = models.talkative(models.captioner(shape, models.run_config(shape)))
    search = SearchConfig(beam=arguments.beam, max_length=arguments.max_length)
    content = arguments.image.read_bytes() if arguments.image else photograph(224, 224)
    encoder = captioner.config.encoder
    print(
        f"{encoder.name}, {encoder.image_size} pixels, beam {search.beam}, "
        f"median of {arguments.repeats} calls"
        f"{', processor time on one thread' if arguments.processor_time else ''}"
    )
    threads = 1 if arguments.processor_time else 0
    clock = time.process_time if arguments.processor_time else time.perf_counter
    with tempfile.TemporaryDirectory() as folder:
        whole = load_call(export(captioner, Path(folder), search), threads)
        stages = load_call(export_stages(captioner, Path(folder) / "stages"), threads)
    rows = []
    for size in arguments.batches:
        batch = np.array([content] * size, object)
        pixels = stages("decode", batch)["pixels"]
        calls = {
            "decode_ms": lambda batch=batch: stages("decode", batch),
            "encoder_ms": lambda pixels=pixels: stages("encode", pixels),
            "whole_ms": lambda batch=batch: whole(SERVING_DEFAULT, batch),
        }
        took = medians(calls, arguments.repeats, warm_up=3, clock=clock)
        row = {"batch": size} | {name: 1e3 * seconds for name, seconds in took.items()}
        row["search_ms"] = row["whole_ms"] - row["decode_ms"] - row["encoder_ms"]
        row["whole_over_encoder"] = row["whole_ms"] / row["encoder_ms"]
        row["words"] = float(whole(SERVING_DEFAULT, batch)["lengths"][:, 0].mean())
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
    sys.exit(main())

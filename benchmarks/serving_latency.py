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
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tensorflow as tf
import tyro
from keras.export import ExportArchive

import sat_tf
from benchmarks.measure import medians
from benchmarks.models import talkative
from benchmarks.sections import LATENCY
from sat_tf.commands import exit_status
from sat_tf.config import CaptionerConfig, DecoderConfig, EncoderConfig, SearchConfig
from sat_tf.models.captioner import Captioner
from sat_tf.runs import TrainedCaptioner
from serving.export import export
from serving.saved_model import load_session
from serving.signatures import SERVING_DEFAULT, read_images
from training.tables import format_table

# (signature, input) -> outputs by name
Session = Callable[[str, np.ndarray], dict[str, np.ndarray]]


@dataclass(frozen=True)
class Arguments:
    """Measure one call of an export."""

    run_dir: Path | None = None
    """Run folder; an untrained captioner over MobileNetV2 by default."""
    image: Path | None = None
    """Image file; noise of 224 x 224 pixels as JPEG by default."""
    beam: int = 5
    """Beam width."""
    max_length: int = 12
    """Maximum words per caption; those of Flickr8k have 11 on average."""
    words: int = 2540
    """Vocabulary size of the untrained captioner; that of Flickr8k by default."""
    width: int = 512
    """Width of embeddings, attention and LSTM of the untrained captioner."""
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
    """Measures and prints."""
    if arguments.run_dir:
        captioner = sat_tf.load(arguments.run_dir)
    else:
        captioner = untrained(arguments.words, arguments.width)
    search = SearchConfig(beam=arguments.beam, max_length=arguments.max_length)
    content = arguments.image.read_bytes() if arguments.image else noise_jpeg(224)
    encoder = captioner.config.encoder
    print(
        f"{encoder.name}, {encoder.image_size} pixels, beam {search.beam}, "
        f"median of {arguments.repeats} calls"
        f"{', processor time on one thread' if arguments.processor_time else ''}"
    )
    settings = arguments.batches, arguments.repeats, arguments.processor_time
    print(format_table(LATENCY, measure_calls(captioner, search, content, *settings)))


def measure_calls(
    captioner: TrainedCaptioner,
    search: SearchConfig,
    content: bytes,
    batches: Sequence[int],
    repeats: int,
    processor_time: bool = False,
) -> list[dict[str, float]]:
    """Exports, loads and times; a row of the table per number of images in a call."""
    threads = 1 if processor_time else 0
    with tempfile.TemporaryDirectory() as folder:
        whole = load(export(captioner, Path(folder), search), threads)
        stages = load(export_stages(captioner, Path(folder) / "stages"), threads)
    clock = time.process_time if processor_time else time.perf_counter
    rows = []
    for size in batches:
        batch = np.array([content] * size, object)
        took = figures(whole, stages, batch, repeats, clock)
        rows.append({"beam": search.beam, "batch": size} | took)
    return rows


def figures(
    whole: Session, stages: Session, batch: np.ndarray, repeats: int, clock: Callable[[], float]
) -> dict[str, float]:
    """Returns median milliseconds of a call and its parts, their ratio, words per caption."""
    pixels = stages("decode", batch)["pixels"]
    seconds = medians(
        {
            "decode": lambda: stages("decode", batch),
            "encoder": lambda: stages("encode", pixels),
            "whole": lambda: whole(SERVING_DEFAULT, batch),
        },
        repeats,
        warm_up=3,
        clock=clock,
    )
    took = {name: 1e3 * value for name, value in seconds.items()}
    return {
        "decode_ms": took["decode"],
        "encoder_ms": took["encoder"],
        "search_ms": took["whole"] - took["decode"] - took["encoder"],
        "whole_ms": took["whole"],
        "whole_over_encoder": took["whole"] / took["encoder"],
        "words": float(whole(SERVING_DEFAULT, batch)["lengths"][:, 0].mean()),
    }


def untrained(words: int, width: int) -> TrainedCaptioner:
    """Makes a captioner over MobileNetV2 with random weights, whose captions never end early."""
    config = CaptionerConfig(EncoderConfig("mobilenet_v2"), DecoderConfig(width, width, width))
    return talkative(Captioner(config, words, load_encoder_weights=False))


def noise_jpeg(size: int) -> bytes:
    """Encodes coarse noise as a JPEG."""
    rng = np.random.default_rng(0)
    pixels = tf.image.resize(rng.uniform(0, 255, [8, 8, 3]), [size, size], "bicubic")
    return tf.io.encode_jpeg(tf.cast(tf.clip_by_value(pixels, 0, 255), tf.uint8)).numpy()


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


def load(folder: Path, threads: int = 0) -> Session:
    """Loads a SavedModel into its own session: `(signature, input) -> outputs`."""
    session, meta_graph = load_session(folder, threads)
    made = {}
    for name, signature in meta_graph.signature_def.items():
        if not signature.inputs:
            continue
        (feed,) = (info.name for info in signature.inputs.values())
        fetches = {key: info.name for key, info in signature.outputs.items()}
        made[name] = session.make_callable(list(fetches.values()), [feed]), list(fetches)

    def call(name: str, value: np.ndarray) -> dict[str, np.ndarray]:
        function, names = made[name]
        return dict(zip(names, function(value), strict=True))

    return call


if __name__ == "__main__":
    sys.exit(main())

"""Folders of tiny runs with random weights, and an image for them."""

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import keras
import numpy as np
from PIL import Image

from sat_tf.captioner import Captioner
from sat_tf.config import CaptionerConfig
from sat_tf.inference import published, weights
from sat_tf.inference.packing import pack
from sat_tf.inference.run_folder import RunFolder
from sat_tf.text.vocabulary import Vocabulary
from sat_tf.util.fields import from_dict, to_dict
from tests.image_files import encode

CAPTIONS = ["a red dot", "two blue dots near a box"]
PIXELS = np.random.default_rng(0).integers(0, 256, [40, 60, 3], np.uint8)


def write_run(path: Path, kind: str = "soft", hidden_dim: int = 8) -> Path:
    """Writes the folder of a run that has finished an epoch."""
    values = {
        "encoder": {"name": "scenes_cnn", "image_size": 32, "weights": "gone.weights.h5"},
        "decoder": {"embedding_dim": 4, "attention_dim": 4, "hidden_dim": hidden_dim},
        "attention": {"kind": kind},
        "search": {"beam": 3, "max_length": 5},
    }
    vocabulary = Vocabulary.from_captions(CAPTIONS, min_count=1)
    return write_random(path, values, vocabulary, {"recipe": "mine", "seed": 3})


def write_random(
    path: Path,
    values: Mapping[str, Any],
    vocabulary: Vocabulary,
    facts: Mapping[str, Any] = MappingProxyType({}),
    scale: float = 1.0,
) -> Path:
    """Writes a run of random weights; the decoder's matrices are scaled."""
    config = from_dict(CaptionerConfig, values)
    path.mkdir(parents=True)
    folder = RunFolder(path)
    folder.config.write_text(json.dumps(to_dict(config) | {**facts}))
    vocabulary.save(folder.vocabulary)
    keras.utils.set_random_seed(1)  # the same weights whatever ran before in this process
    model = Captioner(config, len(vocabulary), load_encoder_weights=False)
    for variable in model.decoder.trainable_variables:
        if len(variable.shape) == 2:
            variable.assign(variable * scale)
    weights.save_weights(model, folder.best_weights)
    return path


def png(pixels: np.ndarray = PIXELS, **options) -> bytes:
    """Returns an image's bytes as PNG."""
    return encode(Image.fromarray(pixels), "PNG", **options)


def contents(run_dir: Path, captioner) -> dict[str, bytes]:
    """Returns the files of a published captioner."""
    arrays, folder = weights.weight_arrays(captioner.model), RunFolder(run_dir)
    parts = {
        file: pack({k: v for k, v in arrays.items() if k.startswith(part)})
        for part, file in published.WEIGHTS.items()
    }
    files = {"config.json": folder.config, "vocabulary.json": folder.vocabulary}
    return {name: path.read_bytes() for name, path in files.items()} | parts

"""Standardise an encoder's annotations: `python -m training.standardize --out FILE`.

Channels of DINOv2 have means of up to 5 and deviations between 1 and 4. A decoder learns faster
from channels of mean 0 and deviation 1. VGG's, which are rectified, get the deviation alone.
"""

from __future__ import annotations

import os
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sat_tf.config import HUB, JOIN, EncoderConfig, weights_files
from sat_tf.layers.encoder_names import check_encoder
from sat_tf.util.commands import check_file, exit_status, loading
from sat_tf.util.errors import invalid_value
from sat_tf.util.fields import PositiveInt, check_fields
from training.run.decide import Settings, check_data_dir, parse_settings

if TYPE_CHECKING:
    import keras

_BATCH = 8


@dataclass(frozen=True)
class Arguments:
    """Standardise an encoder's annotations; takes all configuration keys of training.train."""

    config: Settings
    """The recipe's settings; encoder.name and encoder.weights say what to standardise."""
    out: Path = Path("standardized.weights.h5")
    """The weights file to write, for --encoder.weights."""
    data_dir: Path | None = None
    """Your copy of the data set."""
    images: PositiveInt = 1000
    """Training images, drawn at random, for the statistics."""
    compact: bool = False
    """First round the weights to the 8 bits of training.publish: a captioner trained with them then
    keeps its annotations when it is published."""

    def __post_init__(self) -> None:
        check_fields(self)


def main(argv: list[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    given = sys.argv[1:] if argv is None else argv
    asked = Arguments, given, "training.standardize", "Standardise an encoder's annotations."
    return exit_status(lambda: run(parse_settings(*asked)))


def run(arguments: Arguments) -> None:
    """Measures the channels on training images and writes the weights, whole or not at all."""
    config, encoder, out = arguments.config, arguments.config.encoder, arguments.out
    check_encoder(encoder)
    if JOIN not in encoder.name and not encoder.name.startswith((HUB, "vgg")):
        expected = "a transformer keras_hub:..., VGG, or backbones side by side, A+B"
        raise invalid_value("--encoder.name", expected, encoder.name, "key")
    files = weights_files(encoder.weights)
    if not files or not all(file == "imagenet" or Path(file).is_file() for file in files):
        expected = "weights files, or `imagenet` for networks of keras.applications"
        raise invalid_value("--encoder.weights", expected, encoder.weights, "key")
    if not out.name.endswith(".weights.h5"):
        raise invalid_value("--out", "a name that ends in .weights.h5", out)
    check_data_dir(config, arguments.data_dir)
    check_file("--out", out)
    with loading():
        from training.data.readers import load_split
        from training.run.build import new_model

        split = load_split(config.data, "train", arguments.data_dir)
    order = np.random.default_rng(config.seed).permutation(len(split))[: arguments.images]
    examples = [split.examples[index] for index in order]
    with tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=out.parent) as folder:
        whole = Path(folder) / out.name
        if arguments.compact:
            round_weights(encoder, whole)
            encoder = replace(encoder, weights=str(whole))
        model = new_model(replace(config, encoder=encoder).captioner, 4, config.fit.precision)
        mean, deviation = channel_statistics(model.encoder, examples, encoder.resize)
        standardize(encoder, whole, mean, deviation)
        os.replace(whole, out)
    print(
        f"Wrote {out}. Before, {len(mean)} channels had means of up to {np.abs(mean).max():.2f} "
        f"and deviations of {deviation.min():.2f} to {deviation.max():.2f}, over "
        f"{len(examples):,} images."
    )


def channel_statistics(encoder, examples, resize: str) -> tuple[np.ndarray, np.ndarray]:
    """Measures mean and deviation of every channel, `[D]` each, over all locations of images."""
    from sat_tf.util.commands import progress_bar
    from training.data.examples import DataError
    from training.data.feature_store import compile_encoder
    from training.data.image_loader import ImageLoader

    annotate = compile_encoder(encoder, _BATCH)
    loader = ImageLoader(examples, encoder.image_size, resize)
    count, total, squares = 0, 0.0, 0.0
    with progress_bar(len(examples), "Annotations", "images", True) as bar:
        for pixels, valid in loader.batches(range(len(examples)), _BATCH):
            rows = annotate(pixels)[: len(valid)][valid].astype(np.float64)
            rows = rows.reshape(-1, encoder.annotation_dim)
            count += len(rows)
            total += rows.sum(axis=0)
            squares += np.square(rows).sum(axis=0)
            bar.update(len(valid))
    if not count:
        raise DataError("No training image can be read.")
    mean = total / count
    return mean, np.sqrt(np.maximum(squares / count - mean**2, 1e-12))


def standardize(
    config: EncoderConfig, target: str | Path, mean: np.ndarray, deviation: np.ndarray
) -> None:
    """Writes weights that give annotations mean 0 and deviation 1 in every channel.

    VGG's, which are rectified, get deviation 1 alone.

    Args:
        config: A transformer, VGG or backbones side by side, with their weights and layers.
        target: A path that ends in `.weights.h5`.
        mean: `[D]`, of the annotations.
        deviation: `[D]`, above 0.
    """
    from sat_tf.layers.encoder import DEFAULT_TAPS, STANDARDIZE
    from sat_tf.layers.encoder_names import final_norm

    network = _loaded(config)
    if JOIN in config.name:  # the normalisation after both
        norm = network.get_layer(STANDARDIZE)
        before = np.sqrt(norm.moving_variance)
        norm.moving_mean.assign(norm.moving_mean + mean * before)
        norm.moving_variance.assign((deviation * before) ** 2)
    elif config.name.startswith(HUB):
        norm = final_norm(network, config.name)
        norm.gamma.assign(norm.gamma / deviation)
        norm.beta.assign((norm.beta - mean) / deviation)
    else:
        layer = network.get_layer(config.layer or DEFAULT_TAPS[config.name])
        for weight in layer.weights:
            weight.assign(weight / deviation)
    network.save_weights(target)


def round_weights(config: EncoderConfig, target: str | Path) -> None:
    """Rounds weights to the 8 bits of a published captioner; arguments as for `standardize`."""
    from sat_tf.inference.packing import pack
    from sat_tf.inference.unpacking import unpack

    network = _loaded(config)
    arrays = {weight.path: np.asarray(weight) for weight in network.weights}
    rounded = unpack(pack(arrays))
    for weight in network.weights:
        weight.assign(rounded[weight.path])
    network.save_weights(target)


def _loaded(config: EncoderConfig) -> keras.Model:
    """Returns the network with its weights, a transformer at its original size."""
    import keras

    from sat_tf.layers.encoder import build_network, load_weights, whole
    from sat_tf.layers.encoder_names import original_size, patch_transformer

    name, weights, pixels = config.name, config.weights, config.image_size
    if JOIN in name:
        return build_network(name, pixels, config.layer, weights, keras.DTypePolicy("float32"))[0]
    if not name.startswith(HUB):  # whole: the file of its weights is
        network = whole(name, pixels, weights == "imagenet")
        if weights != "imagenet":
            load_weights(network, str(weights), name)
        return network
    network = patch_transformer(name, original_size(name), config.layer)
    network.load_weights(str(weights))
    return network


if __name__ == "__main__":
    sys.exit(main())

"""Networks of the encoder: a backbone, or several side by side: `A+B`.

A transformer's patches tell where things are, a convolutional network's channels what they are
called. Side by side, each location has the annotations of both. Layers and weights are joined the
same way: `keras_hub:dinov2_small+mobilenet_v2`, tapped at `stage10+out_relu`.
"""

from __future__ import annotations

from collections.abc import Callable

import keras

from sat_tf.config import JOIN
from sat_tf.errors import invalid_value
from sat_tf.layers import backbones

_STANDARDIZE = "standardize"


def is_joined(name: str) -> bool:
    """Tells whether a name is that of several backbones."""
    return JOIN in name


def canonical_name(name: str) -> str:
    """Returns the canonical names of the backbones in a name, joined.

    Raises:
        ValueError: There is no such backbone.
    """
    return JOIN.join(backbones.canonical_name(part) for part in str(name).split(JOIN))


def preprocessor(name: str) -> Callable:
    """Returns the function that normalises pixels, 0 to 255, before the network.

    Backbones side by side normalise pixels inside it, each in its own way.
    """
    return (lambda images: images) if is_joined(name) else backbones.preprocessor(name)


def build(
    name: str, image_size: int, tap: str | None, weights: str | None, policy: keras.DTypePolicy
) -> tuple[keras.Model, str]:
    """Builds the network up to the layers tapped.

    Maps of backbones side by side are repeated to the size of the largest, then standardised by a
    batch normalisation that does nothing unless `set_statistics` was called.

    Args:
        name: A canonical name.
        image_size: Side of the square input, pixels.
        tap: Name of the layer to tap, or None for the default; `A+B` for several backbones.
        weights: As for `backbones.build`; for several backbones a file of each, `A+B`, or one
            of the network.
        policy: Dtype policy of the network.

    Returns:
        The model, from pixels to annotations `[B, h, w, D]`, and the layers' names.

    Raises:
        ValueError: An argument is invalid, or the weights cannot be loaded or do not fit.
    """
    if not is_joined(name):
        return backbones.build(name, image_size, tap, weights, policy)
    names = name.split(JOIN)
    taps = _parts("tap", "layer", tap, names) if tap else [None] * len(names)
    whole = weights if weights and JOIN not in weights and weights != "imagenet" else None
    files = _files(None if whole else weights, names)
    pixels = keras.Input((image_size, image_size, 3))
    maps, layers = [], []
    for number, part in enumerate(names):
        network, layer = backbones.build(part, image_size, taps[number], files[number], policy)
        network.name = f"network_{number}"
        maps.append(network(backbones.preprocessor(part)(pixels)))
        layers.append(layer)
    joined = keras.layers.Concatenate(dtype=policy)(_of_one_size(maps, names, policy))
    norm = keras.layers.BatchNormalization(
        center=False, scale=False, epsilon=0.0, dtype=policy, name=_STANDARDIZE
    )
    network = keras.Model(pixels, norm(joined), name="side_by_side")
    if whole:
        backbones.load_weights(network, whole, name)
    return network, JOIN.join(layers)


def random_parts(name: str, weights: str | None) -> list[str]:
    """Names the backbones that have no weights to load; `scenes_cnn`, made to be trained, aside."""
    names = name.split(JOIN)
    if weights and JOIN not in weights:  # a file of the whole, or ImageNet's of each
        return []
    files = _files(weights, names)
    return [
        part
        for part, file in zip(names, files, strict=True)
        if file is None and part != backbones.SCENES_CNN
    ]


def set_statistics(network: keras.Model, mean, deviation) -> None:
    """Lets backbones side by side give channels of mean 0 and deviation 1.

    Args:
        network: From `build`, of several backbones.
        mean: `[D]`, of its annotations.
        deviation: `[D]`, above 0.
    """
    norm = network.get_layer(_STANDARDIZE)
    before = keras.ops.convert_to_numpy(norm.moving_variance) ** 0.5
    norm.moving_mean.assign(norm.moving_mean + mean * before)
    norm.moving_variance.assign((deviation * before) ** 2)


def _files(weights: str | None, names: list[str]) -> list[str | None]:
    if weights in (None, "imagenet"):
        return [weights] * len(names)
    files = _parts("weights", "weights", weights, names)
    if None in files:
        expected = f"a file for each of {', '.join(names)}, or none for random weights"
        raise invalid_value("weights", expected, repr(weights), flag="--encoder.weights")
    return [None if file.lower() == "none" else file for file in files]


def _parts(argument: str, key: str, value: str, names: list[str]) -> list[str | None]:
    """Splits a value into one for each backbone."""
    parts = [part or None for part in value.split(JOIN)]
    if len(parts) != len(names):
        expected = f"{len(names)} parts joined by {JOIN}, one for each of {', '.join(names)}"
        raise invalid_value(argument, expected, repr(value), flag=f"--encoder.{key}")
    return parts


def _of_one_size(maps: list, names: list[str], policy: keras.DTypePolicy) -> list:
    """Repeats the cells of smaller maps, up to the size of the largest."""
    height, width = (max(map_.shape[axis] for map_ in maps) for axis in (1, 2))
    if any(height % map_.shape[1] or width % map_.shape[2] for map_ in maps):
        sizes = ", ".join(
            f"{map_.shape[1]} x {map_.shape[2]} of {name}"
            for map_, name in zip(maps, names, strict=True)
        )
        expected = "maps whose sides divide those of the largest"
        raise invalid_value("tap", expected, sizes, flag="--encoder.layer")
    repeats = [(height // map_.shape[1], width // map_.shape[2]) for map_ in maps]
    return [
        keras.layers.UpSampling2D(repeat, dtype=policy)(map_)
        for repeat, map_ in zip(repeats, maps, strict=True)
    ]

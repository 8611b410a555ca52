"""Backbones side by side, `A+B`: each location has the annotations of both.

A transformer's patches tell where things are, a convolutional network's channels what they are
called. Layers and weights are joined as the names are: `keras_hub:dinov2_small+mobilenet_v2`,
tapped at `stage10+out_relu`.
"""

from __future__ import annotations

import keras

from sat_tf.config import JOIN
from sat_tf.encoder_names import parts
from sat_tf.errors import invalid_value
from sat_tf.layers import backbones

STANDARDIZE = "standardize"
"""Name of the normalisation after the backbones."""


def build(
    name: str, image_size: int, tap: str | None, weights: str | None, policy: keras.DTypePolicy
) -> tuple[keras.Model, str]:
    """Builds the networks up to the layers tapped, as one.

    Maps are repeated to the size of the largest, then standardised by a batch normalisation that
    does nothing unless its statistics were set, by `standardize`. Pixels are normalised inside,
    for each backbone in its own way.

    Args:
        name: Canonical names, `A+B`.
        image_size: Side of the square input, pixels.
        tap: Names of the layers, `X+Y`; None for the default ones.
        weights: `imagenet`, a file of each, `F+G`, one of the whole, or None for random weights.
        policy: Dtype policy of the network.

    Returns:
        The model, from pixels to annotations `[B, h, w, D]`, and the layers' names.

    Raises:
        ValueError: As `backbones.build`, or the maps cannot be brought to one size.
    """
    names = name.split(JOIN)
    taps = parts("tap", "layer", tap, names) if tap else [None] * len(names)
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
        center=False, scale=False, epsilon=0.0, dtype=policy, name=STANDARDIZE
    )
    network = keras.Model(pixels, norm(joined), name="side_by_side")
    if whole:
        backbones.load_weights(network, whole, name)
    return network, JOIN.join(layers)


def _files(weights: str | None, names: list[str]) -> list[str | None]:
    if weights in (None, "imagenet"):
        return [weights] * len(names)
    files = parts("weights", "weights", weights, names)
    if None in files:
        expected = f"a file for each of {', '.join(names)}, or none for random weights"
        raise invalid_value("weights", expected, repr(weights), flag="--encoder.weights")
    return [None if file.lower() == "none" else file for file in files]


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

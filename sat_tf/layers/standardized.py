"""Weights files of backbones: standardised, and rounded as publishing rounds them."""

from __future__ import annotations

from pathlib import Path

import keras
import numpy as np

from sat_tf.config import JOIN, EncoderConfig
from sat_tf.layers import patch_encoders, side_by_side
from sat_tf.layers.backbones import DEFAULT_TAPS, load_weights, whole
from sat_tf.packing import pack, unpack

RECTIFIED = ("vgg16", "vgg19")
"""Backbones whose annotations are a convolution's, rectified."""


def standardize(
    config: EncoderConfig, target: str | Path, mean: np.ndarray, deviation: np.ndarray
) -> None:
    """Writes weights whose annotations have mean 0 and deviation 1 in every channel.

    Of a transformer, only the scale and the offset of the final layer normalisation change; of
    backbones side by side, the statistics of the normalisation after them; of VGG, the kernel and
    the bias of the layer tapped, whose rectified annotations get deviation 1 alone.

    Args:
        config: A transformer, VGG or backbones side by side, with their weights and layers; what
            comes after the layers of all but VGG is left out.
        target: A path that ends in `.weights.h5`.
        mean: `[D]`, of the annotations.
        deviation: `[D]`, above 0.
    """
    network = _loaded(config)
    if JOIN in config.name:
        norm = network.get_layer(side_by_side.STANDARDIZE)
        before = keras.ops.convert_to_numpy(norm.moving_variance) ** 0.5
        norm.moving_mean.assign(norm.moving_mean + mean * before)
        norm.moving_variance.assign((deviation * before) ** 2)
    elif config.name in RECTIFIED:
        layer = network.get_layer(config.layer or DEFAULT_TAPS[config.name])
        for weight in layer.weights:
            weight.assign(weight / deviation)
    else:
        norm = patch_encoders.final_norm(network, config.name)
        norm.gamma.assign(norm.gamma / deviation)
        norm.beta.assign((norm.beta - mean) / deviation)
    network.save_weights(target)


def round_weights(config: EncoderConfig, target: str | Path) -> None:
    """Rounds weights to the 8 bits of a published captioner, so that publishing keeps them.

    A decoder that is trained on the annotations of rounded weights sees the same ones when it is
    published. Arguments are those of `standardize`.
    """
    network = _loaded(config)
    arrays = {weight.path: np.asarray(weight) for weight in network.weights}
    rounded = unpack(pack(arrays))
    for weight in network.weights:
        weight.assign(rounded[weight.path])
    network.save_weights(target)


def _loaded(config: EncoderConfig) -> keras.Model:
    """Returns the network with its weights, a transformer at its original size."""
    name = config.name
    if name in RECTIFIED:  # whole: the file of its weights is
        pretrained = config.weights == "imagenet"
        network = whole(name, config.image_size, pretrained)
        if not pretrained:
            load_weights(network, str(config.weights), name)
        return network
    if JOIN in name:
        policy = keras.DTypePolicy("float32")
        parts = config.layer, config.weights, policy
        return side_by_side.build(name, config.image_size, *parts)[0]
    backbone = patch_encoders.build(name, patch_encoders.original_size(name), config.layer)
    backbone.load_weights(str(config.weights))
    return backbone

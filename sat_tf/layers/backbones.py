"""Backbones of the encoder: networks by name, cut at a layer, with weights; or several of them.

`A+B` puts two side by side: each location has the annotations of both. A transformer's patches tell
where things are, a convolutional network's channels what they are called. Layers and weights are
joined as the names are: `keras_hub:dinov2_small+mobilenet_v2`, tapped at `stage10+out_relu`.
"""

from __future__ import annotations

import difflib
import functools
import socket
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType

import keras

from sat_tf.compat import default_policy
from sat_tf.config import HUB, JOIN, SCENES_CNN
from sat_tf.util.errors import invalid_value

# Any other network is tapped at its last 4-D layer.
DEFAULT_TAPS = {
    "vgg19": "block5_conv4",  # the paper's: 14 x 14 x 512 from 224 x 224 pixels
    "vgg16": "block5_conv3",
    "resnet50": "conv5_block3_out",
    "mobilenet_v2": "out_relu",
    **{f"efficientnet_v2{size}": "top_activation" for size in ("b0", "b1", "b2", "b3")},
    **{f"efficientnet_v2{size}": "top_activation" for size in ("s", "m", "l")},
}

STANDARDIZE = "standardize"
"""Name of the normalisation after backbones side by side."""
_DOWNLOAD_TIMEOUT = 30.0  # seconds


def scenes_cnn(image_size: int) -> keras.Model:
    """Makes a small network for drawn scenes: 64 x 64 pixels give 8 x 8 x 32.

    An annotation sees 22 x 22 pixels, centred on its own 8 x 8 cell, so that it describes that cell
    and little else; `AppendPlace` adds where the cell is. Even kernels at the strided layers keep
    it centred. Costs 13 M multiply-adds per image.
    """
    if image_size < 8 or image_size % 8:
        raise _invalid("image_size", "image-size", f"a multiple of 8 for {SCENES_CNN}", image_size)
    conv = keras.layers.Conv2D
    options = {"padding": "same", "activation": "relu", "kernel_initializer": "he_normal"}
    return keras.Sequential(
        [
            keras.Input((image_size, image_size, 3)),
            conv(24, 4, strides=2, name="conv1", **options),
            conv(48, 4, strides=2, name="conv2", **options),
            conv(48, 3, name="conv3", **options),
            conv(64, 2, strides=2, name="conv4", **options),
            AppendPlace(name="place"),
            conv(32, 1, name="conv5", **options),
            # Annotations of one norm: attention would avoid those that vary most.
            keras.layers.LayerNormalization(name="norm"),
        ],
        name=SCENES_CNN,
    )


@keras.saving.register_keras_serializable(package="sat_tf")
class AppendPlace(keras.layers.Layer):
    """Appends row and column of each cell's centre, in [-1, 1]: `[B, h, w, C] -> [B, h, w, C + 2]`.

    A caption says "above" and "left of", which annotations with small receptive fields cannot tell.

    References:
        Liu et al. (2018), "An Intriguing Failing of Convolutional Neural Networks and the
        CoordConv Solution", arXiv:1807.03247.
    """

    def call(self, maps):
        batch = keras.ops.shape(maps)[0]
        height, width = maps.shape[1:3]
        places = keras.ops.meshgrid(_centres(height), _centres(width), indexing="ij")
        places = keras.ops.cast(keras.ops.stack(places, axis=-1), maps.dtype)
        places = keras.ops.broadcast_to(places[None], (batch, height, width, 2))
        return keras.ops.concatenate([maps, places], axis=-1)

    def compute_output_shape(self, shape):
        return (*shape[:-1], shape[-1] + 2)


def _centres(cells: int):
    """Centres of equal parts of [-1, 1]."""
    return (keras.ops.arange(cells, dtype="float32") + 0.5) * (2.0 / cells) - 1.0


def build(
    name: str, image_size: int, tap: str | None, weights: str | None, policy: keras.DTypePolicy
) -> tuple[keras.Model, str]:
    """Builds the network up to the layer tapped.

    Of several side by side, maps are repeated to the size of the largest, then standardised by a
    batch normalisation that does nothing unless its statistics were set, by `training.standardize`.
    Their pixels are normalised inside, for each backbone in its own way.

    Args:
        name: A canonical name, or `A+B`.
        image_size: Side of the square input, pixels.
        tap: Name of the layer to tap, or None for the default; `X+Y` for two.
        weights: `imagenet`, the path of a weights file, or None for random weights; `F+G`, a file
            of each, or one of the whole, for two.
        policy: Dtype policy of the network.

    Returns:
        The model, from pixels to annotations `[B, h, w, D]`, and the layer's name.

    Raises:
        ValueError: An argument is invalid, the weights cannot be loaded or do not fit, or maps
            cannot be brought to one size.
    """
    if JOIN in name:
        return _side_by_side(name, image_size, tap, weights, policy)
    hub = name.startswith(HUB)
    pretrained = weights == "imagenet" and not hub and name != SCENES_CNN
    if hub:
        from sat_tf.layers import patch_encoders
    with default_policy(policy):  # the factories of keras.applications take no dtype
        if hub:
            network = patch_encoders.build(name, image_size, tap)
        else:
            network = whole(name, image_size, pretrained)
        if weights is not None and not pretrained:
            load_weights(network, weights, name)
        if hub:
            return patch_encoders.tap(network, name, tap)
        layer = _tapped_layer(network, name, tap)
        return keras.Model(network.inputs, layer.output, name=name), layer.name


def _side_by_side(
    name: str, image_size: int, tap: str | None, weights: str | None, policy: keras.DTypePolicy
) -> tuple[keras.Model, str]:
    from sat_tf.layers.encoder_names import parts

    names = name.split(JOIN)
    taps = parts("tap", "layer", tap, names) if tap else [None] * len(names)
    of_all = weights if weights and JOIN not in weights and weights != "imagenet" else None
    files = _files(None if of_all else weights, names)
    pixels = keras.Input((image_size, image_size, 3))
    maps, layers = [], []
    for number, part in enumerate(names):
        network, layer = build(part, image_size, taps[number], files[number], policy)
        network.name = f"network_{number}"
        maps.append(network(preprocessor(part)(pixels)))
        layers.append(layer)
    joined = keras.layers.Concatenate(dtype=policy)(_of_one_size(maps, names, policy))
    norm = keras.layers.BatchNormalization(
        center=False, scale=False, epsilon=0.0, dtype=policy, name=STANDARDIZE
    )
    network = keras.Model(pixels, norm(joined), name="side_by_side")
    if of_all:
        load_weights(network, of_all, name)
    return network, JOIN.join(layers)


def _files(weights: str | None, names: list[str]) -> list[str | None]:
    if weights in (None, "imagenet"):
        return [weights] * len(names)
    from sat_tf.layers.encoder_names import parts

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


def whole(name: str, image_size: int, pretrained: bool = False) -> keras.Model:
    """Makes a convolutional network with all its layers, and ImageNet weights or random ones."""
    if name == SCENES_CNN:
        return scenes_cnn(image_size)
    weights = "imagenet" if pretrained else None
    # Keras sets no timeout: a network that drops packets would hang for ever.
    previous = socket.getdefaulttimeout()
    socket.setdefaulttimeout(_DOWNLOAD_TIMEOUT)
    try:
        shape = (image_size, image_size, 3)
        return _application(name)[0](include_top=False, weights=weights, input_shape=shape)
    except Exception as error:  # get_file raises a bare Exception
        if not pretrained and isinstance(error, ValueError):
            expected = f"a size that {name} takes (Keras: {error})"
            raise _invalid("image_size", "image-size", expected, image_size) from error
        if not pretrained:
            raise
        from sat_tf.layers.encoder_names import WITHOUT_NETWORK

        reason = str(error).strip().rstrip(".") or repr(error)
        raise ValueError(
            f"The ImageNet weights of {name} could not be downloaded ({reason}). {WITHOUT_NETWORK}"
        ) from error
    finally:
        socket.setdefaulttimeout(previous)


def freeze_before(network: keras.Model, name: str) -> None:
    """Freezes the layers before the layer `name`, in the order of `network.summary()`.

    Args:
        network: From `build`.
        name: The first layer that learns.

    Raises:
        ValueError: There is no such layer, or it and those after it have no weights.
    """
    names = [layer.name for layer in network.layers]
    first = names.index(name) if name in names else len(names)
    if not any(layer.weights for layer in network.layers[first:]):
        learning = [layer.name for layer in network.layers if layer.weights]
        why = "from which on no layer has weights" if name in names else "which is none of them"
        expected = f"a layer of {network.name} up to its last, {names[-1]}, for example "
        expected += _suggested(name, learning)
        raise _invalid("trainable_from", "trainable_from", expected, f"{name!r}, {why}")
    for layer in network.layers[:first]:
        layer.trainable = False


def preprocessor(name: str) -> Callable:
    """Returns the function that normalises pixels, 0 to 255, before the network."""
    if JOIN in name:
        return lambda images: images
    if name == SCENES_CNN:
        return lambda images: images / 127.5 - 1.0
    if name.startswith(HUB):
        from sat_tf.layers import patch_encoders

        return functools.partial(patch_encoders.normalise, name)
    return _application(name)[1].preprocess_input


def load_weights(network: keras.Model, path: str | Path, name: str) -> None:
    """Loads a weights file of Keras, new or legacy.

    Raises:
        ValueError: There is no such file, or it does not fit the network.
    """
    if path == "imagenet":
        raise _weights_error(path, f"{name} has no ImageNet weights")
    path = Path(path)
    if not path.is_file():
        raise _weights_error(path, "it is a folder" if path.is_dir() else "there is no such file")
    if path.suffix not in (".h5", ".hdf5", ".keras"):
        raise _weights_error(path, "the file's name does not end in .weights.h5 or .h5")
    try:
        with warnings.catch_warnings():
            # Keras warns about each container before it raises the error that matters.
            warnings.filterwarnings("ignore", message="Skipping nested container")
            network.load_weights(path)
    except Exception as error:  # h5py and Keras raise OSError, KeyError, ValueError and others
        reason = " ".join(str(error).split())[:300] or repr(error)
        why = f"the file does not fit {name} without its classifier (`no_top`). Keras: {reason}"
        raise _weights_error(path, why) from error


def _weights_error(weights: object, why: str) -> ValueError:
    expected = "imagenet, none or the path of a weights file"
    return _invalid("weights", "weights", expected, f"{str(weights)!r}: {why}")


def _invalid(argument: str, key: str, expected: str, got: object) -> ValueError:
    """Names the constructor's argument and its key on the command line."""
    return invalid_value(argument, expected, got, flag=f"--encoder.{key}")


def _tapped_layer(network: keras.Model, name: str, tap: str | None) -> keras.Layer:
    candidates = {}
    for layer in network.layers:
        shape = getattr(layer.output, "shape", ())
        is_input = isinstance(layer, keras.layers.InputLayer)
        if len(shape) == 4 and None not in shape[1:] and not is_input:
            candidates[layer.name] = layer
    if tap is None:
        tap = DEFAULT_TAPS.get(name) or next(reversed(candidates))
    if tap not in candidates:
        known = any(layer.name == tap for layer in network.layers)
        why = "whose output is not 4-D" if known else "which it does not have"
        expected = f"a layer of {name} with a grid of annotations, for example "
        expected += _suggested(tap, candidates)
        raise _invalid("tap", "layer", expected, f"{tap!r}, {why}")
    return candidates[tap]


def _suggested(name: str, known: Iterable[str]) -> str:
    """Lists the known names most like a wrong one, then the last ones."""
    names = list(known)
    return ", ".join(dict.fromkeys(difflib.get_close_matches(name, names, 4) + names[-12:]))


def _application(name: str) -> tuple[Callable, ModuleType]:
    """Returns a network of `keras.applications`, and its module."""
    from sat_tf.layers.encoder_names import applications

    module, function = applications()[name]
    return getattr(keras.applications, function), getattr(keras.applications, module)

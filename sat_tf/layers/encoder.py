"""The encoder: a lower convolutional layer of a CNN, read as a set of annotation vectors.

Its backbones are networks by name, cut at a layer, with weights; or several of them. `A+B` puts two
side by side: each location has the annotations of both. A transformer's patches show where things
are, a convolutional network's channels which they are. Layers and weights are joined as the
names are: `keras_hub:dinov2_small+mobilenet_v2`, tapped at `stage10+out_relu`.
"""

from __future__ import annotations

import functools
import socket
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import keras
import tensorflow as tf
from keras import ops

from sat_tf.compat import default_policy
from sat_tf.config import HUB, JOIN, SCENES_CNN
from sat_tf.ops import at_least_one_row
from sat_tf.util.errors import invalid_value
from sat_tf.util.fields import PositiveInt, checked

DEFAULT_TAPS = {"vgg19": "block5_conv4", "vgg16": "block5_conv3"}
"""The paper's (14 x 14 x 512 from 224 x 224 pixels); others are tapped at their last 4-D layer."""
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

    A caption says "above" and "left of", which annotations with small receptive fields cannot show.

    References:
        Liu et al. (2018), "An Intriguing Failing of Convolutional Neural Networks and the
        CoordConv Solution", arXiv:1807.03247.
    """

    def call(self, maps):
        batch = ops.shape(maps)[0]
        height, width = maps.shape[1:3]
        sides = ((ops.arange(n, dtype="float32") + 0.5) * (2.0 / n) - 1.0 for n in (height, width))
        places = ops.meshgrid(*sides, indexing="ij")
        places = ops.cast(ops.stack(places, axis=-1), maps.dtype)
        places = ops.broadcast_to(places[None], (batch, height, width, 2))
        return ops.concatenate([maps, places], axis=-1)

    def compute_output_shape(self, shape):
        return (*shape[:-1], shape[-1] + 2)


def build_network(
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
    with default_policy(policy):  # the factories of keras.applications take no dtype
        if name.startswith(HUB):
            from sat_tf.layers.encoder_names import patch_transformer, tap_patches

            network = patch_transformer(name, image_size, tap)
            if weights is not None:
                load_weights(network, weights, name)
            return tap_patches(network, name, tap)
        pretrained = weights == "imagenet" and name != SCENES_CNN
        network = whole(name, image_size, pretrained)
        if weights is not None and not pretrained:
            load_weights(network, weights, name)
        layer = _tapped_layer(network, name, tap)
        return keras.Model(network.inputs, layer.output, name=name), layer.name


def _side_by_side(
    name: str, image_size: int, tap: str | None, weights: str | None, policy: keras.DTypePolicy
) -> tuple[keras.Model, str]:
    from sat_tf.layers.encoder_names import parts

    names = name.split(JOIN)
    taps = parts("tap", "layer", tap, names) if tap else [None] * len(names)
    of_all = weights if weights and JOIN not in weights and weights != "imagenet" else None
    files = [None if of_all else weights] * len(names)
    if weights and JOIN in weights:
        files = parts("weights", "weights", weights, names)
        if None in files:
            expected = f"a file for each of {', '.join(names)}, or none for random weights"
            raise _invalid("weights", "weights", expected, repr(weights))
    pixels = keras.Input((image_size, image_size, 3))
    maps, layers = [], []
    for number, (part, one, file) in enumerate(zip(names, taps, files, strict=True)):
        file = None if file and file.lower() == "none" else file
        network, layer = build_network(part, image_size, one, file, policy)
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


def _of_one_size(maps: list, names: list[str], policy: keras.DTypePolicy) -> list:
    """Repeats the cells of smaller maps, up to the size of the largest."""
    grids = [map_.shape[1:3] for map_ in maps]
    height, width = map(max, zip(*grids, strict=True))
    if any(height % h or width % w for h, w in grids):
        pairs = zip(grids, names, strict=True)
        sizes = ", ".join(f"{h} x {w} of {name}" for (h, w), name in pairs)
        raise _invalid("tap", "layer", "maps whose sides divide those of the largest", sizes)
    return [
        keras.layers.UpSampling2D((height // h, width // w), dtype=policy)(map_)
        for map_, (h, w) in zip(maps, grids, strict=True)
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
        network: From `build_network`.
        name: The first layer that learns.

    Raises:
        ValueError: The layer does not exist, or it and those after it have no weights.
    """
    names = [layer.name for layer in network.layers]
    first = names.index(name) if name in names else len(names)
    if not any(layer.weights for layer in network.layers[first:]):
        learning = [layer.name for layer in network.layers if layer.weights]
        why = "from which on no layer has weights" if name in names else "which is none of them"
        expected = f"a layer of {network.name} up to its last, {names[-1]}, for example "
        expected += ", ".join(learning[-12:])
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
        from sat_tf.layers.encoder_names import normalise_pixels

        return functools.partial(normalise_pixels, name)
    return _application(name)[1].preprocess_input


def load_weights(network: keras.Model, path: str | Path, name: str) -> None:
    """Loads a weights file of Keras, new or legacy.

    Raises:
        ValueError: The file does not exist or does not fit the network.
    """
    if path == "imagenet":
        raise _weights_error(path, f"{name} has no ImageNet weights")
    path = Path(path)
    if not path.is_file():
        raise _weights_error(path, "there is no such file")
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
    candidates, inputs = {}, keras.layers.InputLayer
    for layer in network.layers:
        shape = getattr(layer.output, "shape", ())
        if len(shape) == 4 and None not in shape[1:] and not isinstance(layer, inputs):
            candidates[layer.name] = layer
    tap = tap or DEFAULT_TAPS.get(name) or next(reversed(candidates))
    if tap not in candidates:
        known = any(layer.name == tap for layer in network.layers)
        why = "whose output is not 4-D" if known else "which it does not have"
        last = ", ".join([*candidates][-12:])
        expected = f"a layer of {name} with a grid of annotations, for example {last}"
        raise _invalid("tap", "layer", expected, f"{tap!r}, {why}")
    return candidates[tap]


def _application(name: str) -> tuple[Callable, ModuleType]:
    """Returns a network of `keras.applications`, and its module."""
    from sat_tf.layers.encoder_names import applications

    module, function = applications()[name]
    return getattr(keras.applications, function), getattr(keras.applications, module)


# --- the layer ---

_LATER = object()
"""In place of weights: they are loaded after the encoder is made."""


def _warn_if_random(name: str, weights: str | None) -> None:
    """Warns of a frozen encoder with random weights; `scenes_cnn`, made to be trained, aside."""
    names = name.split(JOIN)
    files = str(weights).split(JOIN, len(names) - 1)
    files *= len(names) // len(files)
    pairs = zip(names, files, strict=True)
    parts = [part for part, file in pairs if file.lower() == "none" and part != SCENES_CNN]
    if not parts:
        return
    wanted = "a file" if any(part.startswith(HUB) for part in parts) else '"imagenet" or a file'
    warnings.warn(
        f"The encoder {' and '.join(parts)} is frozen with random weights: give {wanted} as "
        "`weights` (`--encoder.weights`), or train it with `trainable=True`.",
        stacklevel=4,
    )


@keras.saving.register_keras_serializable(package="sat_tf")
class Encoder(keras.layers.Layer):
    """Annotation vectors `a = {a_1 ... a_L}` of an image.

    The output of one convolutional layer, its grid flattened row by row. The layer normalises
    pixels as its backbone expects. A frozen encoder always runs in inference mode (batch
    normalisation included) and passes no gradient on.

    So does batch normalisation in an encoder that is fine-tuned from a layer on: it keeps its
    statistics, since those of small batches are noise to the frozen layers below, and learns its
    scale and offset.

    The constructor loads the weights once. `unloaded` and `from_config` start from random weights
    and expect `load_weights`: a saved model carries its weights, and their first file may be gone.
    Random weights that stay frozen are worth a warning, except those of the small `scenes_cnn`.

    Args:
        backbone: `scenes_cnn`, a network of `keras.applications` in snake case, such as vgg19,
            resnet50, efficientnet_v2b0, mobilenet_v2, or `keras_hub:PRESET`; `A+B` puts two side by
            side.
        image_size: Side of the square images, pixels.
        tap: Name of the layer to read; None for the backbone's default (VGG19: block5_conv4, the
            paper's); `X+Y` for two backbones.
        weights: `imagenet` (downloaded), the path of a `.weights.h5` or `.h5` file of the backbone
            without its classifier, or None for random weights; `F+G`, or one file written by
            `training.standardize`, for two backbones.
        trainable: Train the encoder too.
        trainable_from: First layer of a trained encoder that learns, in the order of the network's
            summary; the layers before it stay frozen. None trains all of them from scratch: batch
            normalisation then follows the batches.
        **kwargs: For `keras.layers.Layer`.

    Call arguments:
        images: `[B, image_size, image_size, 3]`, RGB, 0 to 255.
        training: Whether this is a training step; ignored while frozen.

    Output:
        Annotations `[B, L, D]`: `L = h * w` of `grid`, `D = annotation_dim`.

    Raises:
        ValueError: An argument is invalid, or the weights cannot be had or do not fit.

    Example:
        >>> encoder = Encoder("scenes_cnn", image_size=64)
        >>> encoder(np.zeros([2, 64, 64, 3])).shape
        TensorShape([2, 64, 32])

    References:
        Xu et al. (2015), Sec. 3.1.1, arXiv:1502.03044.
    """

    @checked
    def __init__(
        self,
        backbone: str = "vgg19",
        image_size: PositiveInt = 224,
        tap: str | None = None,
        weights: str | None = None,
        trainable: bool = False,
        trainable_from: str | None = None,
        **kwargs: Any,
    ) -> None:
        # No autocast: pixels are normalised in float32, whatever the network computes in.
        super().__init__(trainable=trainable, autocast=False, **kwargs)
        later = weights is _LATER
        if later or (weights is not None and str(weights).lower() in ("none", "")):
            weights = None
        self.backbone = backbone
        if backbone != SCENES_CNN:  # others are looked for among all that there are
            from sat_tf.layers.encoder_names import canonical_name

            self.backbone = canonical_name(backbone)
        self.image_size = int(image_size)
        self.weights_source = None if weights is None else str(weights)
        self.network, self.tap = build_network(
            self.backbone, self.image_size, tap, self.weights_source, self.dtype_policy
        )
        self.network.trainable = trainable
        if not (later or trainable):
            _warn_if_random(self.backbone, self.weights_source)
        self.trainable_from = trainable_from
        if trainable_from is not None:
            freeze_before(self.network, trainable_from)
        self.built = True

    @property
    def trainable(self) -> bool:
        """True if weights learn; with `trainable_from`, those from that layer on."""
        return keras.layers.Layer.trainable.fget(self)

    @trainable.setter
    def trainable(self, value: bool) -> None:
        keras.layers.Layer.trainable.fset(self, value)
        if value and self.trainable_from is not None:
            # Keras has just made every layer of the network learn.
            freeze_before(self.network, self.trainable_from)

    @property
    def grid(self) -> tuple[int, int]:
        """`(h, w)` of the annotated locations."""
        _, height, width, _ = self.network.output_shape
        return height, width

    @property
    def annotation_dim(self) -> int:
        """Width D of an annotation."""
        return self.network.output_shape[-1]

    def call(self, images: Any, training: bool = False) -> Any:
        images = ops.convert_to_tensor(images)
        self.check_shape(images.shape)
        if images.shape.rank is None or None in images.shape[1:]:
            images = tf.ensure_shape(images, self._images_shape)
        images = ops.cast(images, "float32")
        images = preprocessor(self.backbone)(images)
        from_scratch = self.trainable and self.trainable_from is None
        network = functools.partial(self.network, training=bool(training) and from_scratch)
        maps = at_least_one_row(network, images)
        if not self.trainable:
            maps = ops.stop_gradient(maps)
        height, width = self.grid
        return ops.reshape(maps, (-1, height * width, self.annotation_dim))

    def check_shape(self, shape: tuple) -> None:
        """Checks the shape of images to be encoded; dimensions that are not known yet may be any.

        Raises:
            ValueError: It is not `[B, image_size, image_size, 3]`.
        """
        if not tf.TensorShape(shape).is_compatible_with(self._images_shape):
            expected = f"shape [B, {self.image_size}, {self.image_size}, 3]"
            raise invalid_value("images", expected, str(tuple(shape)))

    @property
    def _images_shape(self) -> tuple[int | None, ...]:
        return (None, self.image_size, self.image_size, 3)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "backbone": self.backbone,
            "image_size": self.image_size,
            "tap": self.tap,
            "weights": self.weights_source,
            "trainable_from": self.trainable_from,
        }

    @classmethod
    def unloaded(cls, *args: Any, **kwargs: Any) -> Encoder:
        """Makes an encoder without its weights, for later; takes all arguments but `weights`."""
        return cls(*args, **kwargs, weights=_LATER)

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Encoder:
        """Makes an encoder with random weights; `weights_source` still names their origin."""
        encoder = cls(**{**config, "weights": _LATER})
        encoder.weights_source = config.get("weights")
        return encoder

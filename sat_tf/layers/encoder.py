"""The encoder: a lower convolutional layer of a CNN, read as a set of annotation vectors."""

from __future__ import annotations

import functools
import warnings
from typing import Any

import keras
import tensorflow as tf
from keras import ops

from sat_tf.config import HUB, JOIN, SCENES_CNN
from sat_tf.layers import backbones
from sat_tf.ops import at_least_one_row
from sat_tf.util.errors import invalid_value
from sat_tf.util.fields import PositiveInt, checked

_LATER = object()
"""In place of weights: they are loaded after the encoder is made."""


def _canonical_name(name: str) -> str:
    if name == SCENES_CNN:  # others are looked for among all that there are
        return name
    from sat_tf.layers.encoder_names import canonical_name

    return canonical_name(name)


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
        self.backbone = _canonical_name(backbone)
        self.image_size = int(image_size)
        self.weights_source = None if weights is None else str(weights)
        self.network, self.tap = backbones.build(
            self.backbone, self.image_size, tap, self.weights_source, self.dtype_policy
        )
        self.network.trainable = trainable
        if not (later or trainable):
            _warn_if_random(self.backbone, self.weights_source)
        self.trainable_from = trainable_from
        if trainable_from is not None:
            backbones.freeze_before(self.network, trainable_from)
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
            backbones.freeze_before(self.network, self.trainable_from)

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
        images = backbones.preprocessor(self.backbone)(images)
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
        """Makes an encoder whose weights are loaded later; takes all arguments but `weights`."""
        return cls(*args, **kwargs, weights=_LATER)

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Encoder:
        """Makes an encoder with random weights; `weights_source` still names their origin."""
        encoder = cls(**{**config, "weights": _LATER})
        encoder.weights_source = config.get("weights")
        return encoder

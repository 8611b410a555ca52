"""Patch transformers of KerasHub as backbones: `keras_hub:PRESET`, read as a grid of patches.

KerasHub is an extra (`pip install -e ".[encoders]"`), imported only when such an encoder is built.

    dinov2    Oquab et al. (2023), arXiv:2304.07193; any size that is a multiple of the patch
    vit       Dosovitskiy et al. (2020), arXiv:2010.11929
    clip      Radford et al. (2021), arXiv:2103.00020
    siglip    Zhai et al. (2023), arXiv:2303.15343; Tschannen et al. (2025), arXiv:2502.14786

All but dinov2 have position embeddings for one size of image, the one in the preset's name.
"""

from __future__ import annotations

from types import ModuleType

import keras
import numpy as np
from keras import ops

from sat_tf.config import HUB
from sat_tf.layers.encoder_names import FINAL, PRESETS, PatchTransformer, check_layer, check_size
from sat_tf.util.errors import installation

# Mean and deviation of the pixels over 255 that a family was trained with.
_IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_HALVES = (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)
_CLIP = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
_PIXELS = {"dinov2": _IMAGENET, "vit": _HALVES, "clip": _CLIP, "siglip": _HALVES}

USED_POSITIONS = "used_position_embeddings"
"""Name, in a file of weights, of the position embeddings for the size of its images."""
DINOV2_PIXELS = 518  # position embeddings are those of 37 x 37 patches


def normalise(name: str, images):
    """Pixels, 0 to 255, as the transformer expects them.

    Args:
        name: `keras_hub:PRESET`.
        images: `[B, S, S, 3]`.
    """
    mean, deviation = _PIXELS[_preset(name).family]
    return (images / 255.0 - ops.array(mean)) / ops.array(deviation)


def build(name: str, image_size: int, layer: str | None = None) -> keras.Model:
    """A transformer with random weights, whose `load_weights` reads a file of Keras.

    Args:
        name: `keras_hub:PRESET`.
        image_size: Side of the square input, pixels.
        layer: Layer to tap, see `tap`; blocks after it are left out.

    Raises:
        ValueError: KerasHub is missing, or the size is not one of the transformer's.
    """
    preset = _preset(name)
    check_size(name, image_size)
    models, shape = _keras_hub(name).models, (image_size, image_size, 3)
    if preset.family == "dinov2":
        grid = (DINOV2_PIXELS, DINOV2_PIXELS)
        blocks = preset.arguments["num_layers"]
        # Those up to the layer; all of them for one that is no block's.
        blocks = {f"stage{number}": number for number in range(1, blocks)}.get(layer, blocks)
        arguments = {**preset.arguments, "num_layers": blocks}
        backbone = models.DINOV2Backbone(
            image_shape=shape, position_embedding_shape=grid, **arguments
        )
        _save_used_positions(backbone.embeddings)
        return backbone
    kinds = {
        "vit": models.ViTBackbone,
        "clip": models.CLIPVisionEncoder,
        "siglip": models.SigLIPVisionEncoder,
    }
    return kinds[preset.family](image_shape=shape, **preset.arguments)


def _save_used_positions(embeddings: keras.Layer) -> None:
    """Makes DINOv2's position embeddings come back from a file to the bit.

    KerasHub 0.32 computes the embeddings in use, which are trained, anew from those of the original
    grid whenever weights are loaded, and writes trained ones back to that grid only if their sum
    has fallen. Here a file holds both as they are; the ones in use are read if they are of the same
    grid, and computed if not, as for the weights of another image size.
    """

    def save(store) -> None:
        keras.layers.Layer.save_own_variables(embeddings, store)
        # Flat, as `packing.pack` keeps vectors as they are and rounds the rest.
        store[USED_POSITIONS] = np.ravel(embeddings.interpolated_position_embeddings)

    def load(store) -> None:
        load_and_interpolate(store)
        used = embeddings.interpolated_position_embeddings
        if USED_POSITIONS in store.keys():  # noqa: SIM118
            stored = np.asarray(store[USED_POSITIONS])
            if stored.size == np.prod(used.shape):
                used.assign(stored.reshape(used.shape))

    load_and_interpolate = embeddings.load_own_variables
    embeddings.save_own_variables, embeddings.load_own_variables = save, load


def original_size(name: str) -> int:
    """Returns the side of the images that the position embeddings of a weights file are for."""
    return _preset(name).pixels or DINOV2_PIXELS


def final_norm(backbone: keras.Model, name: str) -> keras.layers.LayerNormalization:
    """Returns the normalisation whose output the default tap reads."""
    family = _preset(name).family
    if family == "vit":
        return backbone.get_layer("vit_encoder").layer_norm
    attribute = {"dinov2": "layernorm", "clip": "layer_norm", "siglip": "post_layer_norm"}
    return getattr(backbone, attribute[family])


def tap(backbone: keras.Model, name: str, layer: str | None) -> tuple[keras.Model, str]:
    """The transformer up to a block, its patches laid out as the grid they were cut from.

    Args:
        backbone: From `build`.
        name: `keras_hub:PRESET`.
        layer: None or `layernorm` for the last block's output after the final layer normalisation;
            with dinov2 also `stage1` ... for a block's.

    Returns:
        The model, normalised pixels `[B, S, S, 3]` to `[B, h, w, D]`, and the layer's name.

    Raises:
        ValueError: There is no such block.
    """
    check_layer(name, layer)
    layer, preset = layer or FINAL, _preset(name)
    outputs = {FINAL: backbone.output}
    if preset.family == "siglip":  # whose own output is pooled
        outputs = {FINAL: backbone.post_layer_norm.output}
    elif preset.family == "dinov2":
        outputs |= {key: of for key, of in backbone.pyramid_outputs.items() if key != "stem"}
    given = backbone.input
    pixels = given["images"] if isinstance(given, dict) else given
    side = pixels.shape[1] // preset.patch
    # An end, too: KerasHub 0.32 declares one token more than SigLIP has.
    patches = outputs[layer][:, preset.extra_tokens : preset.extra_tokens + side * side]
    grid = keras.layers.Reshape((side, side, patches.shape[-1]), name="grid")(patches)
    return keras.Model(pixels, grid, name="patches"), layer


def _preset(name: str) -> PatchTransformer:
    return PRESETS[name.removeprefix(HUB)]


def _keras_hub(name: str) -> ModuleType:
    try:
        import keras_hub
    except ImportError as error:
        raise ValueError(
            f"Received an invalid value for argument `backbone` (`--encoder.name`): {name} needs "
            f"KerasHub, which is not installed ({error}): {installation('encoders')}"
        ) from error
    return keras_hub

"""Encoders by name: facts for use before Keras, which takes seconds, is loaded; patches.

scenes_cnn          our own, for drawn scenes
vgg19, ...          the networks of `keras.applications`, in snake case
keras_hub:PRESET    patch transformers of KerasHub
A+B                 two side by side

KerasHub is an extra (`pip install -e ".[encoders]"`), imported only when such an encoder is built.

    dinov2    Oquab et al. (2023), arXiv:2304.07193; any size that is a multiple of the patch
    vit       Dosovitskiy et al. (2020), arXiv:2010.11929
    clip      Radford et al. (2021), arXiv:2103.00020

All but dinov2 have position embeddings for one size of image, the one in the preset's name.
"""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Literal

import numpy as np

from sat_tf.config import HUB, JOIN, SCENES_CNN, EncoderConfig
from sat_tf.util.errors import installation, invalid_value

if TYPE_CHECKING:
    import keras

WITHOUT_NETWORK = (
    "Name a file of weights (`--encoder.weights FILE`), or fine-tune a pretrained captioner, with "
    "its own encoder: `--recipe folder_from_flickr8k` for your own images."
)
"""Advice where pretrained weights cannot be downloaded."""

FINAL = "layernorm"
"""Layer of a patch transformer: the last block's output after the final layer normalisation."""

_SCENES_LAYERS = ("conv1", "conv2", "conv3", "conv4", "place", "conv5", "norm")


def check_encoder(config: EncoderConfig) -> None:
    """Checks an encoder's settings as far as they are known without Keras.

    Layers and least sizes of the networks of `keras.applications` are not.

    Raises:
        ValueError: The backbone or layer does not exist, or does not take such an image.
    """
    names = canonical_name(config.name).split(JOIN)
    layers = parts("tap", "layer", config.layer, names) if config.layer else [None] * len(names)
    for name, layer in zip(names, layers, strict=True):
        check_size(name, config.image_size)
        check_layer(name, layer)
    if names == [SCENES_CNN]:
        check_layer(SCENES_CNN, config.trainable_from, "trainable_from", "trainable_from")


def canonical_name(name: str) -> str:
    """Returns the snake-case name of a backbone, from it or from Keras' own spelling.

    Raises:
        ValueError: The backbone does not exist.
    """
    if JOIN in str(name):
        return JOIN.join(map(canonical_name, str(name).split(JOIN)))
    known = sorted([SCENES_CNN, *applications(), *(HUB + preset for preset in PRESETS)])
    by_letters = {one.replace("_", ""): one for one in known}
    if found := by_letters.get(str(name).replace("_", "").lower()):
        return found
    close = difflib.get_close_matches(str(name), known, 1)
    got = repr(name) + (f" (did you mean {close[0]}?)" if close else "")
    expected = f"one of {', '.join(known)}"
    raise invalid_value("backbone", expected, got, flag="--encoder.name")


def check_size(name: str, image_size: int) -> None:
    """Checks the side of the square image of a patch transformer, pixels; of others does nothing.

    Raises:
        ValueError: The transformer takes no such image.
    """
    if not name.startswith(HUB):
        return
    preset = PRESETS[name.removeprefix(HUB)]
    if preset.pixels is None:
        expected, fits = f"a multiple of {preset.patch}", image_size % preset.patch == 0
    else:
        expected, fits = preset.pixels, image_size == preset.pixels
    if image_size < preset.patch or not fits:
        expected = f"{expected} for {name}"
        raise invalid_value("image_size", expected, image_size, flag="--encoder.image-size")


def check_layer(name: str, layer: str | None, argument: str = "tap", key: str = "layer") -> None:
    """Checks the layer of a backbone, None for the default; of `keras.applications` does nothing.

    Raises:
        ValueError: The layer does not exist.
    """
    known = _SCENES_LAYERS
    if name.startswith(HUB):
        preset = PRESETS[name.removeprefix(HUB)]
        blocks = preset.arguments["num_layers"] if preset.family == "dinov2" else 0
        known = (FINAL, *(f"stage{number}" for number in range(1, blocks + 1)))
    elif name != SCENES_CNN:
        return
    if layer not in (None, *known):
        expected = f"one of {', '.join(known)} of {name}"
        raise invalid_value(argument, expected, repr(layer), flag=f"--encoder.{key}")


def parts(argument: str, key: str, value: str, names: list[str]) -> list[str | None]:
    """Splits a value, `X+Y`, into one for each backbone; None for an empty one.

    Raises:
        ValueError: There are more, or fewer.
    """
    found = [part or None for part in value.split(JOIN)]
    if len(found) != len(names):
        expected = f"{len(names)} parts joined by {JOIN}, one for each of {', '.join(names)}"
        raise invalid_value(argument, expected, repr(value), flag=f"--encoder.{key}")
    return found


# --- keras.applications ---


@functools.cache
def applications() -> dict[str, tuple[str, str]]:
    """Returns module and function of each network of `keras.applications`, by snake-case name.

    They are read off the sources of Keras, where every version of Keras 3 names its exports.
    """
    words = r"(?<=.)(V\d|(?<=[a-z])B\d|(?:XLarge|Large|Base|Small|Tiny|Mobile)$)|(?<=n)(?=ResNet)"
    sources = Path(find_spec("keras").submodule_search_locations[0], "src", "applications")
    found = {}
    for file in sources.glob("*.py"):
        for function in re.findall(r'"keras\.applications\.(\w+)"', file.read_text("utf-8")):
            name = re.sub(words, lambda match: "_" + match[0], function).lower()
            found[name] = file.stem, function
    return found


# --- KerasHub ---

Family = Literal["dinov2", "vit", "clip"]

# KerasHub's own presets hold the same, but have to be downloaded to be asked.
_SIZES = {
    "small": {"num_layers": 12, "hidden_dim": 384, "num_heads": 6, "intermediate_dim": 1536},
    "base": {"num_layers": 12, "hidden_dim": 768, "num_heads": 12, "intermediate_dim": 3072},
    "large": {"num_layers": 24, "hidden_dim": 1024, "num_heads": 16, "intermediate_dim": 4096},
}


@dataclass(frozen=True)
class PatchTransformer:
    """Architecture of a preset of KerasHub.

    Attributes:
        family: Decides the class of KerasHub's and the normalisation of pixels.
        arguments: Of that class.
        patch: Side of a patch, pixels.
        extra_tokens: Class and register tokens, before those of the patches; not locations.
        pixels: The only side of an image, if there is only one.
    """

    family: Family
    arguments: Mapping[str, int | bool]
    patch: int
    extra_tokens: int
    pixels: int | None = None


def _preset(
    family: Family, size: str, patch: int, pixels: int | None = None, registers: int = 0
) -> PatchTransformer:
    arguments = _SIZES[size] | {"patch_size": patch}
    if family == "vit":
        arguments["mlp_dim"] = arguments.pop("intermediate_dim")
    if family == "dinov2":
        arguments |= {
            "num_register_tokens": registers,
            "antialias_in_interpolation": registers > 0,
            "use_mask_token": True,
            # Blocks tapped before the last get the final layer normalisation too, as DINOv2's own
            # `get_intermediate_layers(norm=True)`.
            "apply_layernorm": True,
        }
    return PatchTransformer(family, arguments, patch, 1 + registers, pixels)


PRESETS = {
    **{f"dinov2_{size}": _preset("dinov2", size, 14) for size in _SIZES},
    **{f"dinov2_with_registers_{size}": _preset("dinov2", size, 14, None, 4) for size in _SIZES},
    **{
        f"vit_{size}_patch16_{pixels}_imagenet": _preset("vit", size, 16, pixels)
        for size in ("base", "large")
        for pixels in (224, 384)
    },
    "clip_vit_base_patch16": _preset("clip", "base", 16, 224),
    "clip_vit_base_patch32": _preset("clip", "base", 32, 224),
    "clip_vit_large_patch14": _preset("clip", "large", 14, 224),
    "clip_vit_large_patch14_336": _preset("clip", "large", 14, 336),
}
"""Patch transformers: KerasHub's preset -> facts."""


# --- the networks of KerasHub ---

# Mean and deviation of the pixels over 255 that a family was trained with.
_IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_HALVES = (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)
_CLIP = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
_PIXELS = {"dinov2": _IMAGENET, "vit": _HALVES, "clip": _CLIP}

USED_POSITIONS = "used_position_embeddings"
"""Name, in a file of weights, of the position embeddings for the size of its images."""
DINOV2_PIXELS = 518  # position embeddings are those of 37 x 37 patches


def normalise_pixels(name: str, images):
    """Pixels, 0 to 255, as the transformer expects them.

    Args:
        name: `keras_hub:PRESET`.
        images: `[B, S, S, 3]`.
    """
    mean, deviation = _PIXELS[_preset_of(name).family]
    return (images / 255.0 - np.float32(mean)) / np.float32(deviation)


def patch_transformer(name: str, image_size: int, layer: str | None = None) -> keras.Model:
    """A transformer with random weights; `load_weights` reads a file of Keras.

    Args:
        name: `keras_hub:PRESET`.
        image_size: Side of the square input, pixels.
        layer: Layer to tap, see `tap_patches`; blocks after it are left out.

    Raises:
        ValueError: KerasHub is missing, or the size is not one of the transformer's.
    """
    preset = _preset_of(name)
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
    kind = {"vit": models.ViTBackbone, "clip": models.CLIPVisionEncoder}[preset.family]
    return kind(image_shape=shape, **preset.arguments)


def _save_used_positions(embeddings: keras.Layer) -> None:
    """Makes DINOv2's position embeddings come back from a file to the bit.

    KerasHub 0.32 computes the embeddings in use, which are trained, anew from those of the original
    grid whenever weights are loaded, and writes trained ones back to that grid only if their sum
    has fallen. Here a file holds both as they are; the ones in use are read if they are of the same
    grid, and computed if not, as for the weights of another image size.
    """
    import keras

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
    return _preset_of(name).pixels or DINOV2_PIXELS


def final_norm(backbone: keras.Model, name: str) -> keras.layers.LayerNormalization:
    """Returns the normalisation that the default tap reads."""
    family = _preset_of(name).family
    if family == "vit":
        return backbone.get_layer("vit_encoder").layer_norm
    return backbone.layernorm if family == "dinov2" else backbone.layer_norm


def tap_patches(backbone: keras.Model, name: str, layer: str | None) -> tuple[keras.Model, str]:
    """The transformer up to a block, its patches laid out as the grid they were cut from.

    Args:
        backbone: From `patch_transformer`.
        name: `keras_hub:PRESET`.
        layer: None or `layernorm` for the last block's output after the final layer normalisation;
            with dinov2 also `stage1` ... for a block's.

    Returns:
        The model, normalised pixels `[B, S, S, 3]` to `[B, h, w, D]`, and the layer's name.

    Raises:
        ValueError: The block does not exist.
    """
    import keras

    check_layer(name, layer)
    layer, preset = layer or FINAL, _preset_of(name)
    outputs = {FINAL: backbone.output}
    if preset.family == "dinov2":
        outputs |= {key: of for key, of in backbone.pyramid_outputs.items() if key != "stem"}
    given = backbone.input
    pixels = given["images"] if isinstance(given, dict) else given
    side = pixels.shape[1] // preset.patch
    patches = outputs[layer][:, preset.extra_tokens :]
    grid = keras.layers.Reshape((side, side, patches.shape[-1]), name="grid")(patches)
    return keras.Model(pixels, grid, name="patches"), layer


def _preset_of(name: str) -> PatchTransformer:
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

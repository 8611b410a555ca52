"""Encoders by name, and what is known of them without loading Keras, which takes seconds.

scenes_cnn          our own, for drawn scenes
vgg19, ...          the networks of `keras.applications`, in snake case
keras_hub:PRESET    patch transformers of KerasHub
A+B                 two side by side
"""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from sat_tf.config import HUB, JOIN, SCENES_CNN, EncoderConfig
from sat_tf.util.errors import invalid_value

WITHOUT_NETWORK = (
    "Name a file of weights (`--encoder.weights FILE`), or fine-tune a captioner that ships, with "
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
        ValueError: There is no such backbone or layer, or it takes no such image.
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
        ValueError: There is no such backbone.
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
        ValueError: There is no such layer.
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

    They are read off the sources of Keras, where every version of Keras 3 names what it exports.
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

Family = Literal["dinov2", "vit", "clip", "siglip"]

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
    class_token = int(family != "siglip")
    return PatchTransformer(family, arguments, patch, class_token + registers, pixels)


def _named(family: Family, name: str, *sizes: tuple[str, int, int]) -> dict[str, PatchTransformer]:
    return {
        name.format(size=size, patch=patch, pixels=pixels): _preset(family, size, patch, pixels)
        for size, patch, pixels in sizes
    }


_VIT = [(size, 16, pixels) for size in ("base", "large") for pixels in (224, 384)]
_SIGLIP = [("base", 16, 224), ("base", 16, 256), ("base", 16, 384)]
_SIGLIP += [("large", 16, 256), ("large", 16, 384)]

PRESETS = {
    **{f"dinov2_{size}": _preset("dinov2", size, 14) for size in _SIZES},
    **{
        f"dinov2_with_registers_{size}": _preset("dinov2", size, 14, registers=4) for size in _SIZES
    },
    **_named("vit", "vit_{size}_patch{patch}_{pixels}_imagenet", *_VIT),
    **_named("clip", "clip_vit_{size}_patch{patch}", ("base", 16, 224), ("base", 32, 224)),
    **_named("clip", "clip_vit_{size}_patch{patch}", ("large", 14, 224)),
    **_named("clip", "clip_vit_{size}_patch{patch}_{pixels}", ("large", 14, 336)),
    **_named("siglip", "siglip_{size}_patch{patch}_{pixels}", *_SIGLIP),
    **_named("siglip", "siglip2_{size}_patch{patch}_{pixels}", *_SIGLIP),
}
"""Patch transformers by the names of KerasHub's presets."""

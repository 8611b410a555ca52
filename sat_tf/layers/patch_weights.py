"""Weights files of patch transformers, converted from other libraries."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import keras
import numpy as np

from sat_tf.errors import invalid_value
from sat_tf.layers import patch_encoders


def convert(source: str | Path, target: str | Path, name: str) -> None:
    """Writes the `--encoder.weights` file of an `.npz` of DINOv2.

    The file serves every image size: it keeps the position embeddings of the original grid, and
    the backbone interpolates them (bicubic) as it loads.

    Args:
        source: The `.npz`, its arrays named as in Hugging Face's `Dinov2Model`; matrices of
            attention and MLP are `[in, out]` where the name ends in `kernel`, `[out, in]` where it
            ends in `weight`.
        target: A path that ends in `.weights.h5`.
        name: `keras_hub:PRESET`.

    Raises:
        ValueError: An array is missing or of another size.
    """
    backbone = patch_encoders.build(name, patch_encoders.DINOV2_PIXELS)
    with np.load(source) as arrays:
        _load_hugging_face(backbone, _HuggingFaceWeights(arrays))
    backbone.save_weights(target)


class _HuggingFaceWeights:
    """Arrays named as in Hugging Face's `Dinov2Model`, assigned to variables of KerasHub."""

    def __init__(self, arrays: Mapping[str, np.ndarray]) -> None:
        self._arrays = arrays

    def array(self, name: str) -> np.ndarray:
        if name not in self._arrays:
            raise invalid_value("arrays", f"an array {name}", f"none: {name} is missing")
        return np.asarray(self._arrays[name])

    def put(self, variable: keras.Variable, name: str, array: np.ndarray | None = None) -> None:
        array = self.array(name) if array is None else array
        size = int(np.prod(variable.shape))
        if array.size != size:
            raise invalid_value("arrays", f"{name} to have {size} numbers", array.shape)
        variable.assign(np.reshape(array, variable.shape).astype(np.float32))

    def put_dense(self, layer: keras.Layer, name: str) -> None:
        """Takes a matrix in either layout: `[in, out]`, or `[out, in]` as in PyTorch."""
        kernel = f"{name}.kernel"
        matrix = self.array(kernel) if kernel in self._arrays else self.array(f"{name}.weight").T
        self.put(layer.kernel, kernel, matrix)
        self.put(layer.bias, f"{name}.bias")

    def put_norm(self, layer: keras.Layer, name: str) -> None:
        self.put(layer.gamma, f"{name}.weight")
        self.put(layer.beta, f"{name}.bias")


def _load_hugging_face(backbone: keras.Model, weights: _HuggingFaceWeights) -> None:
    """Gives a backbone of the original grid its weights."""
    _load_embeddings(backbone.embeddings, weights)
    for number, block in enumerate(backbone.encoder.layers):
        _load_block(block, f"encoder.layer.{number}", weights)
    weights.put_norm(backbone.layernorm, "layernorm")


def _load_embeddings(embeddings: keras.Layer, weights: _HuggingFaceWeights) -> None:
    weights.put(embeddings.cls_token, "embeddings.cls_token")
    weights.put(embeddings.position_embeddings, "embeddings.position_embeddings")
    embeddings.interpolated_position_embeddings.assign(embeddings.position_embeddings)
    if embeddings.num_register_tokens:
        weights.put(embeddings.register_tokens, "embeddings.register_tokens")
    name, layer = "embeddings.patch_embeddings.projection", embeddings.patch_embeddings.projection
    kernel = np.transpose(weights.array(f"{name}.weight"), (2, 3, 1, 0))
    weights.put(layer.kernel, f"{name}.weight", kernel)
    weights.put(layer.bias, f"{name}.bias")


def _load_block(block: keras.Layer, prefix: str, weights: _HuggingFaceWeights) -> None:
    attention = block.attention.attention
    for part in ("query", "key", "value"):
        layer = getattr(attention, f"{part}_dense")
        weights.put_dense(layer, f"{prefix}.attention.attention.{part}")
    weights.put_dense(attention.output_dense, f"{prefix}.attention.output.dense")
    weights.put_dense(block.mlp.fc1, f"{prefix}.mlp.fc1")
    weights.put_dense(block.mlp.fc2, f"{prefix}.mlp.fc2")
    for number in (1, 2):
        weights.put_norm(getattr(block, f"norm{number}"), f"{prefix}.norm{number}")
        scale = f"layer_scale{number}"
        weights.put(getattr(block, scale).lambda1, f"{prefix}.{scale}.lambda1")

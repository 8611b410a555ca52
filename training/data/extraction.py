"""Annotating many images: decoding on threads, a fixed batch, and the shards written of them."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import tensorflow as tf

from sat_tf import images
from sat_tf.layers.encoder import Encoder
from sat_tf.progress import progress_bar
from training.data.examples import Example
from training.data.feature_shards import Shards, write_json
from training.data.image_reader import READERS, UNREADABLE, read_image, unreadable_reason

_LOOK_AHEAD = 3  # batches
_HALF_MAX = float(np.finfo(np.float16).max)


def compile_encoder(encoder: Encoder, batch_size: int) -> Callable[[np.ndarray], np.ndarray]:
    """Compiles the encoder for one batch size.

    Returns:
        Function from pixels `[batch_size, S, S, 3]` to float16 `[batch_size, L, D]`, in which NaN
        is 0 and infinity is the largest number.
    """
    size = encoder.image_size

    # XLA made convolutions ten times slower on a CPU.
    @tf.function(
        input_signature=[tf.TensorSpec([batch_size, size, size, 3], tf.float32)],
        autograph=False,
        jit_compile=False,
    )
    def annotate(pixels):
        annotations = tf.cast(encoder(pixels, training=False), tf.float32)
        annotations = tf.where(tf.math.is_nan(annotations), 0.0, annotations)
        return tf.cast(tf.clip_by_value(annotations, -_HALF_MAX, _HALF_MAX), tf.float16)

    return lambda pixels: annotate(pixels).numpy()


def default_batch_size() -> int:
    """Images per call of an encoder: what suits a CPU's cache, or a GPU."""
    return 64 if tf.config.list_physical_devices("GPU") else 8


@functools.lru_cache(maxsize=8)
def _compile_resize(size: int, policy: str) -> Callable[[tf.Tensor], tf.Tensor]:
    return tf.function(
        lambda image: images.resize(image, size, policy),
        input_signature=[tf.TensorSpec([None, None, 3], tf.uint8)],
        autograph=False,
    )


class ImageLoader:
    """Reads, decodes and resizes images on a few threads, and notes the unreadable ones."""

    def __init__(self, examples: Sequence[Example], size: int, policy: str) -> None:
        self._examples = examples
        self._size = size
        self._skipped: dict[int, str] = {}
        self._rotated: set[int] = set()
        self._lost: set[int] = set()
        self._resize = _compile_resize(size, policy)

    def batches(self, indices: range, batch_size: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """`(pixels [batch_size, size, size, 3], valid [n])`; the last batch is padded."""
        pending: deque = deque()
        with ThreadPoolExecutor(READERS) as pool:
            for start in range(0, len(indices), batch_size):
                chunk = indices[start : start + batch_size]
                pending.append([pool.submit(self._load, index) for index in chunk])
                if len(pending) > _LOOK_AHEAD:
                    yield self._gather(pending.popleft(), batch_size)
            while pending:
                yield self._gather(pending.popleft(), batch_size)

    def notes(self, indices: range) -> dict[str, Any]:
        """The notes on some images, as in the JSON file of a shard."""
        return {
            "skipped": {str(i): self._skipped[i] for i in indices if i in self._skipped},
            "rotated": [i for i in indices if i in self._rotated],
            "lost": [i for i in indices if i in self._lost],
        }

    def _gather(self, futures: list, batch_size: int) -> tuple[np.ndarray, np.ndarray]:
        loaded = [future.result() for future in futures]
        pixels = np.zeros((batch_size, self._size, self._size, 3), np.float32)
        for row, image in enumerate(loaded):
            if image is not None:
                pixels[row] = image
        return pixels, np.array([image is not None for image in loaded])

    def _load(self, index: int) -> np.ndarray | None:
        try:
            pixels, rotated = read_image(self._examples[index].image, self._resize)
        except UNREADABLE as error:
            self._skipped[index] = unreadable_reason(error)
            if isinstance(error, OSError):  # of the drive: the content is unknown
                self._lost.add(index)
            return None
        if rotated:
            self._rotated.add(index)
        return pixels


class ShardWriter:
    """Computes shards with one encoder.

    Args:
        encoder: A frozen encoder.
        resize: `crop` or `squash`.
        batch_size: Images per call of the encoder; None for what suits the device.
    """

    def __init__(self, encoder: Encoder, resize: str, batch_size: int | None = None) -> None:
        self._size, self._resize = encoder.image_size, resize
        self._batch_size = batch_size or default_batch_size()
        self._annotate = compile_encoder(encoder, self._batch_size)

    def write(
        self,
        shards: Shards,
        shard: int,
        examples: Mapping[int, Example] | Sequence[Example],
        advance: Callable[[int], object] = lambda count: None,
    ) -> None:
        """Computes and writes a shard and its notes.

        Args:
            shards: The store's shards.
            shard: Number of the shard.
            examples: The examples by index; those of the shard suffice.
            advance: Is told the number of images after each batch.
        """
        loader, indices = ImageLoader(examples, self._size, self._resize), shards.indices(shard)

        def blocks() -> Iterator[np.ndarray]:
            for pixels, valid in loader.batches(indices, self._batch_size):
                views = [pixels, pixels[:, :, ::-1]][: shards.views]
                annotated = np.stack([self._annotate(view) for view in views], axis=1)[: len(valid)]
                annotated[~valid] = 0
                yield annotated
                advance(len(valid))

        shards.write(shard, blocks())
        write_json(shards.file(shard).with_suffix(".json"), loader.notes(indices))


def write_missing(
    shards: Shards,
    encoder: Encoder,
    examples: Sequence[Example],
    resize: str,
    batch_size: int | None = None,
    verbose: bool = True,
) -> None:
    """Computes the shards that a store does not have yet, sharing them with other processes.

    Returns when all are there, those of the others included; see `FeatureStore.open`.
    """
    missing = shards.missing()
    if not missing:
        return
    writer = ShardWriter(encoder, resize, batch_size)
    total = sum(len(shards.indices(shard)) for shard in missing)
    with progress_bar(total, "Annotations", "images", verbose) as bar:
        # First what nobody else computes, then what others began: they may die.
        for wait in (False, True):
            elsewhere = []
            for shard in missing:
                with shards.claim(shard, wait) as mine:
                    if not mine:
                        elsewhere.append(shard)
                    elif shards.is_done(shard):
                        bar.update(len(shards.indices(shard)))
                    else:
                        writer.write(shards, shard, examples, bar.update)
            missing = elsewhere

"""Examples of random pixels, their stores, and a hook into what a store computes."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image

from sat_tf.layers.encoder import Encoder
from training.data import feature_store
from training.data.examples import Example
from training.data.feature_store import FeatureStore

SIZE = 16  # pixels: a 2 x 2 grid
OPTIONS = {"resize": "crop", "shard_size": 4}


def open_store(cache: Path, encoder: Encoder, examples: list[Example], **options) -> FeatureStore:
    return FeatureStore.open(cache, encoder, examples, **OPTIONS | options)


def arrays(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, [count, SIZE, SIZE, 3], np.uint8)


def drawn(count: int, seed: int = 0) -> list[Example]:
    return [Example(str(i), pixels, ()) for i, pixels in enumerate(arrays(count, seed))]


def files(folder: Path, count: int) -> list[Example]:
    folder.mkdir(exist_ok=True)
    examples = []
    for index, pixels in enumerate(arrays(count)):
        path = folder / f"{index}.png"
        Image.fromarray(pixels).save(path)
        examples.append(Example(path.name, path, ()))
    return examples


def expected(encoder: Encoder, pixels: np.ndarray) -> np.ndarray:
    return np.asarray(encoder(np.asarray(pixels, np.float32))).astype(np.float16)


def close(actual: np.ndarray, desired: np.ndarray) -> None:
    np.testing.assert_allclose(actual.astype("f4"), desired.astype("f4"), atol=2e-3, rtol=2e-3)


def before_each_batch(monkeypatch, act: Callable[[int], None]) -> None:
    """Calls `act` with the number of images before the encoder annotates a batch."""
    original = feature_store.compile_encoder

    def compile_encoder(encoder, batch_size):
        annotate = original(encoder, batch_size)

        def annotated(pixels):
            act(len(pixels))
            return annotate(pixels)

        return annotated

    monkeypatch.setattr(feature_store, "compile_encoder", compile_encoder)
    monkeypatch.setattr(feature_store, "default_batch_size", lambda: 3)


def raise_at_fourth(error: BaseException) -> Callable[[int], None]:
    """For `before_each_batch`: lets three batches pass."""
    calls = iter(range(3))

    def act(_: int) -> None:
        if next(calls, None) is None:
            raise error

    return act

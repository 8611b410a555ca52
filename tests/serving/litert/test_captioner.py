"""LiteRT captions images as the SavedModel of the same run does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from serving.litert import load

IMAGES = 4


def served(version: Path, files: list[bytes]) -> dict[str, np.ndarray]:
    """Outputs of a SavedModel."""
    signatures = tf.saved_model.load(str(version)).signatures
    outputs = signatures["serving_default"](image_bytes=tf.constant(files))
    return {name: value.numpy() for name, value in outputs.items()}


@pytest.mark.parametrize(
    "kind", ["soft", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("hard", "none"))]
)
def test_captions_equal_those_of_the_saved_model(litert_exports, exports, images, kind):
    captioner = load(litert_exports(kind))
    expected = served(exports[kind].version, images.files[:IMAGES])
    for row, content in enumerate(images.files[:IMAGES]):
        caption = captioner.caption(content)
        pairs = [(caption.text, caption.score), *caption.alternatives]
        texts, scores = zip(*pairs, strict=True)
        assert list(texts) == [text.decode() for text in expected["captions"][row]]
        np.testing.assert_allclose(scores, expected["scores"][row], atol=1e-4)
        length = expected["lengths"][row, 0]
        written = [word.decode() for word in expected["words"][row, 0]]
        assert written == [*caption.words, *[""] * (len(written) - length)]
        log_probs = expected["word_log_probs"][row]
        np.testing.assert_allclose(caption.log_probs, log_probs[:length], atol=1e-4)
        np.testing.assert_allclose(caption.log_prob, log_probs.sum(), atol=1e-4)
        if kind == "none":
            assert caption.alpha is None and caption.beta is None
            continue
        np.testing.assert_allclose(caption.alpha, expected["attention"][row, :length], atol=1e-4)
        np.testing.assert_allclose(caption.beta, expected["beta"][row, :length], atol=1e-4)


@pytest.mark.parametrize("precision", ["float16", "int8"])
def test_smaller_weights_caption_too(litert_exports, images, precision):
    captioner, exact = load(litert_exports(precision)), load(litert_exports("soft"))
    assert captioner.settings.precision == precision
    caption, expected = (c.caption(images.files[0]) for c in (captioner, exact))
    assert caption.words and np.isfinite(caption.score)
    np.testing.assert_allclose(caption.alpha.sum(axis=(1, 2)), 1.0, atol=1e-4)
    assert abs(caption.score - expected.score) < 1.0


def test_a_damaged_graph_is_a_clear_error(litert_exports, tmp_path):
    for path in litert_exports("soft").iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    damaged = tmp_path / "step.tflite"
    damaged.write_bytes(b"x" * damaged.stat().st_size)
    with pytest.raises(ValueError, match=r"step.tflite cannot be read by LiteRT: "):
        load(tmp_path)


def test_no_threads_is_a_clear_error(litert_exports):
    with pytest.raises(ValueError, match="`threads`: expected at least 1, got 0"):
        load(litert_exports("soft"), threads=0)

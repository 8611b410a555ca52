"""A GIF is cut after its first frame, however its data is divided, within a bound."""

from __future__ import annotations

import io

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from benchmarks.image_corpus import animation, encode, gif_of_blocks, noise
from sat_tf import images
from sat_tf.images import gif


def test_an_animation_is_cut_after_its_first_frame():
    content = animation(frames=3, comment=b"two " * 200)
    frame, size = gif.first_frame(tf.constant(content))
    kept = Image.open(io.BytesIO(frame.numpy()))
    assert kept.n_frames == 1 and kept.size == (40, 30)
    np.testing.assert_array_equal(size, [30, 40])
    first = Image.open(io.BytesIO(content)).convert("RGB")
    np.testing.assert_array_equal(np.asarray(kept.convert("RGB")), np.asarray(first))


@pytest.mark.parametrize("lengths", [(255,), (1,), (254, 3), (7,) * 500 + (90,)])
def test_blocks_of_any_length_are_followed_to_the_end(lengths):
    content = gif_of_blocks(noise(90, 90), lengths)
    expected = np.asarray(Image.open(io.BytesIO(content)).convert("RGB"))
    np.testing.assert_array_equal(images.decode(content), expected)


def test_a_gif_of_too_many_tiny_blocks_is_refused():
    content = gif_of_blocks(noise(150, 150), (1, 2))
    assert len(content) < 60_000
    with pytest.raises(tf.errors.InvalidArgumentError, match="too many blocks"):
        images.decode(content)


@pytest.mark.parametrize("kept", [6, 12, 13, 800])
def test_a_gif_cut_before_its_frame_ends_harms_nothing(kept):
    with pytest.raises(tf.errors.InvalidArgumentError):
        images.decode(encode(noise(), "GIF")[:kept])


@pytest.mark.parametrize("comment", [b"", b"before the frame"])
def test_a_transparent_colour_is_shown_as_in_other_formats(comment):
    picture = Image.new("RGBA", (12, 9), (255, 255, 255, 0))
    picture.paste((200, 10, 10, 255), (3, 3, 8, 7))
    content = encode(picture, "GIF", comment=comment)
    with Image.open(io.BytesIO(content)) as opened:
        assert "transparency" in opened.info
        expected = np.asarray(opened.convert("RGB"))
    decoded = images.decode(content).numpy()
    np.testing.assert_array_equal(decoded, expected)
    assert (decoded[0, 0] == 255).all()

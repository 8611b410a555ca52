"""Locations of an oracle that knows the digits."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from sat_tf.digits.glimpses import scan_locations


def test_the_oracle_goes_from_digit_to_digit():
    centres = tf.constant([[[-0.5, 0.0], [0.5, 0.2]]])
    places = scan_locations(centres, 4, image_size=60)[:, 0].numpy()
    np.testing.assert_allclose(places[[0, 2]], centres[0])
    np.testing.assert_allclose(np.linalg.norm(places[1] - centres[0, 0]) * 59 / 2, 6.0, rtol=1e-5)

"""Weights in files: equal ones are equal bytes."""

import keras

from sat_tf.inference import weights


class OneLayer:
    """A model of one layer, of so many units, built when it is first needed."""

    def __init__(self, units: int) -> None:
        self.layer = keras.layers.Dense(units, kernel_initializer="ones", name="dense")
        self.layer.build((None, 4))

    def saved_layers(self) -> dict[str, keras.layers.Layer]:
        return {"decoder": self.layer}


def test_equal_weights_are_equal_files(tmp_path):
    for name in ("first", "second"):
        weights.save_weights(OneLayer(3), tmp_path / name)
    assert (tmp_path / "first").read_bytes() == (tmp_path / "second").read_bytes()

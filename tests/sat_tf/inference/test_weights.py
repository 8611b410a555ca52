"""Weights in files: equal ones are equal bytes, and a model asks for no more than a file has."""

from pathlib import Path

import keras
import pytest

from sat_tf.inference import weights
from sat_tf.util.errors import RunError


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


def test_a_model_that_asks_for_more_than_a_file_has_is_refused_before_it_is_made():
    made = []
    make = lambda units: lambda: made.append(model := OneLayer(units)) or model  # noqa: E731
    assert weights.make_fitting(make(3), 15, Path("run")) is made[-1]
    with pytest.raises(RunError, match="in run do not fit.*: it asks for 20 numbers, and"):
        weights.make_fitting(make(4), 15, Path("run"))
    assert len(made) == 3  # of the one refused only the one without memory

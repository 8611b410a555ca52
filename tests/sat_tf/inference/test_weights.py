"""Weights in files: equal ones are equal bytes, and nothing outside a file is read."""

import h5py
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


def names_of(file: h5py.File) -> list[str]:
    """Returns the names of all that a file holds."""
    names: list[str] = []
    file.visit(names.append)
    return names


def test_equal_weights_are_equal_files(tmp_path):
    for name in ("first", "second"):
        weights.save_weights(OneLayer(3), tmp_path / name)
    assert (tmp_path / "first").read_bytes() == (tmp_path / "second").read_bytes()


def test_a_name_that_leads_elsewhere_is_refused(tmp_path):
    path = tmp_path / "weights.h5"
    weights.save_weights(OneLayer(3), path)
    with h5py.File(path, "r+") as file:
        (name,) = [name for name in names_of(file) if name.endswith("vars/0")]
        file.move(name, "elsewhere")
        file[name] = h5py.SoftLink("/elsewhere")
    with pytest.raises(RunError, match="is a link"):
        weights.load_weights(OneLayer(3), path)

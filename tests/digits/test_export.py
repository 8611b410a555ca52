"""A digit model, exported, reads as it does here."""

import numpy as np
import pytest
import tensorflow as tf

import digits
from digits.export import export, run
from sat_tf.inference import published
from serving.versions import CARD_FILE
from tests.digits.small_readers import drawing, write_reader


@pytest.mark.parametrize("system", ["ram", "dram", "stn"])
def test_an_exported_model_reads_as_it_does_here(system, tmp_path):
    folder = write_reader(tmp_path / system, system)
    run(folder)
    assert "`serving_default`" in next(folder.rglob("MODEL_CARD.md")).read_text("utf-8")
    expected = digits.load(folder).read(drawing())
    exported = tf.saved_model.load(next(folder.rglob("saved_model.pb")).parent)
    images = tf.constant(expected.image[np.newaxis, ..., np.newaxis])
    found = exported.signatures["serving_default"](images=images)
    answers = found["answers"][0].numpy()
    assert answers[found["probabilities"][0, -1].numpy().argmax()].decode() == expected.answer
    for name in ("probabilities", "corners", "patches"):
        np.testing.assert_allclose(found[name][0], getattr(expected, name), atol=1e-5)


def test_a_published_model_without_a_card_is_exported_with_how_to_call_it(tmp_path):
    folder = write_reader(tmp_path / "ram", "ram")
    (folder / published.CARD).unlink()
    version = export(folder, tmp_path / "out")
    assert (version / CARD_FILE).read_text("utf-8").startswith("# Digit model\n\n## Signature")

"""A digit model, exported and served, reads as it does here."""

from __future__ import annotations

import numpy as np
import pytest

import sat_tf
from sat_tf import published
from serving.client import Connection
from serving.digits import DigitClient, export
from serving.export import main
from serving.local_server.server import LocalServer
from serving.versions import CARD_FILE
from tests.sat_tf.digits.small_readers import drawing, write_reader


@pytest.mark.parametrize("system", ["ram", "dram", "stn"])
def test_a_served_model_reads_as_it_does_here(system, tmp_path):
    folder = write_reader(tmp_path / system, system)
    assert main(["--run-dir", str(folder)]) == 0
    assert "`serving_default`" in next(folder.rglob("MODEL_CARD.md")).read_text("utf-8")
    expected = sat_tf.load(folder).read(drawing())
    server = LocalServer(folder / "export", model=system, port=0)
    try:
        port = int(server.address.rpartition(":")[2])
        with DigitClient(Connection(port=port), system) as client:
            found = client.read(expected.image)
    finally:
        server.stop(1.0)
    assert found.answers[found.probabilities[-1].argmax()] == expected.answer
    for name in ("probabilities", "corners", "patches"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), atol=1e-5)


def test_a_published_model_without_a_card_is_exported_with_how_to_call_it(tmp_path):
    folder = write_reader(tmp_path / "ram", "ram")
    (folder / published.CARD).unlink()
    version = export(folder, tmp_path / "out")
    assert (version / CARD_FILE).read_text("utf-8").startswith("# Digit model\n\n## Signature")

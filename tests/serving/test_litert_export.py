"""LiteRT exports hold static shapes and built-in operations, once per weight."""

import json

import pytest
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter

from sat_tf.inference import graphs
from sat_tf.inference.litert_captioner import CONFIG, GRAPHS, SETTINGS, VOCABULARY
from serving.export_litert import export, main
from serving.model_card import described_precision
from serving.versions import CARD_FILE
from tests.image_files import smooth
from tests.serving.export_fixtures import write_run


@pytest.mark.parametrize(
    "kind",
    ["soft", "int8", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("hard", "none"))],
)
def test_graphs_are_static_and_of_built_in_operations(litert_exports, kind):
    for name in GRAPHS:
        # Fails to make tensors if an operation is of TensorFlow's.
        interpreter = Interpreter(str(litert_exports(kind) / name))
        interpreter.allocate_tensors()
        for tensor in (*interpreter.get_input_details(), *interpreter.get_output_details()):
            assert list(tensor["shape_signature"]) == list(tensor["shape"])


def test_weights_are_stored_once_and_smaller_with_fewer_bits(exports, litert_exports):
    model = exports["soft"].captioner.model
    weights = model.encoder.count_params() + model.decoder.count_params()
    sizes = {
        kind: sum(json.loads((litert_exports(kind) / SETTINGS).read_text())["sizes"].values())
        for kind in ("soft", "float16", "int8")
    }
    # Beside the numbers, operations and names.
    assert 3.9 * weights <= sizes["soft"] < 4 * weights + 40_000
    assert sizes["soft"] > sizes["float16"] and sizes["soft"] > sizes["int8"]
    version = litert_exports("soft")
    assert version.name == "1"
    assert {path.name for path in version.iterdir()} == {
        *GRAPHS,
        SETTINGS,
        VOCABULARY,
        CONFIG,
        CARD_FILE.name,
    }


def test_the_command_exports_and_prints_what_is_inside(tmp_path, capsys):
    run_dir = write_run(tmp_path / "run", {"kind": "soft"})
    photographs = tmp_path / "photographs"
    photographs.mkdir()
    smooth().save(photographs / "a.png")
    (photographs / "b.png").write_bytes(b"x")
    argv = ["--precision", "int8", "--beam", "2"]
    argv += ["--photographs", str(photographs)]
    assert main(["--run-dir", str(run_dir), *argv]) == 0
    card = run_dir / "litert" / "1" / CARD_FILE.name
    corrected = "int8, biases corrected by what rounding moved on the photographs given"
    assert f"| precision | {corrected}" in card.read_text() and "## In int8" in card.read_text()
    assert "| `log_probs` | float32 | [2, " in card.read_text()
    said = capsys.readouterr()
    assert str(card) in said.out and "on disk" in said.out and corrected in said.out
    assert f"Skipped {photographs / 'b.png'}: " in said.err
    assert described_precision("int8", run_dir, False).startswith("int8, biases not corrected: ")


def test_photographs_without_int8_are_refused(tmp_path, capsys):
    assert main(["--run-dir", "flickr8k_soft", "--photographs", str(tmp_path)]) == 2
    assert "`photographs`: expected none, or `--precision int8`" in capsys.readouterr().err


def test_an_operation_that_litert_lacks_is_named(exports, tmp_path, monkeypatch):
    inverted = lambda x: {"annotations": tf.linalg.inv(x)}  # noqa: E731
    made = {GRAPHS[0]: (inverted, [tf.TensorSpec([3, 3], name="x")])}
    monkeypatch.setattr(graphs, "make_graphs", lambda *_: made)
    with pytest.raises(ValueError, match=r"`format`: expected saved_model.* \(MatrixInverse\)"):
        export(exports["soft"].captioner, tmp_path / "out")
    assert not list((tmp_path / "out").iterdir())

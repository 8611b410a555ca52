"""LiteRT graphs hold static shapes and built-in operations, once per weight; the command."""

import numpy as np
import pytest
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter

import sat_tf
from sat_tf import captioner as captioner_module
from sat_tf.inference import graphs, published
from sat_tf.inference.graphs import write_graphs
from serving.export_litert import main
from tests.image_files import smooth
from tests.serving.export_fixtures import write_run


@pytest.mark.parametrize(
    "kind",
    ["soft", "int8", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("hard", "none"))],
)
def test_graphs_are_static_and_of_built_in_operations(litert_exports, kind):
    for name in published.GRAPHS:
        # Fails to make tensors if an operation is of TensorFlow's.
        interpreter = Interpreter(str(litert_exports(kind) / name))
        interpreter.allocate_tensors()
        for tensor in (*interpreter.get_input_details(), *interpreter.get_output_details()):
            assert list(tensor["shape_signature"]) == list(tensor["shape"])


def test_weights_are_stored_once_and_smaller_with_fewer_bits(exports, litert_exports):
    model = exports["soft"].captioner.model
    weights = model.encoder.count_params() + model.decoder.count_params()
    sizes = {
        kind: sum((litert_exports(kind) / name).stat().st_size for name in published.GRAPHS)
        for kind in ("soft", "float16", "int8")
    }
    # Beside the numbers, operations and names.
    assert 3.9 * weights <= sizes["soft"] < 4 * weights + 40_000
    assert sizes["soft"] > sizes["float16"] and sizes["soft"] > sizes["int8"]


def test_a_narrow_layer_is_in_the_graphs_of_a_beam_that_is_not_projected(
    exports, images, tmp_path, monkeypatch
):
    """As in `folder_from_flickr8k`: more locations than the beam is expected to read."""
    captioner = exports["hard"].captioner
    assert captioner.config.decoder.bottleneck_dim is not None
    expected = captioner.caption(images.files[0])
    monkeypatch.setattr(captioner_module, "CAPTION_WORDS", 0)
    write_graphs(tmp_path / "graphs", captioner)
    found = sat_tf.load(tmp_path / "graphs").caption(images.files[0])
    assert found.text == expected.text
    np.testing.assert_allclose(found.alpha, expected.alpha, atol=1e-4)


@pytest.mark.parametrize("precision", ["float16", "int8"])
def test_smaller_weights_caption_too(litert_exports, images, precision):
    captioner, exact = (sat_tf.load(litert_exports(name)) for name in (precision, "soft"))
    assert captioner.precision == precision
    caption, expected = (c.caption(images.files[0]) for c in (captioner, exact))
    np.testing.assert_allclose(caption.alpha.sum(axis=(1, 2)), 1.0, atol=1e-4)
    assert caption.words and abs(caption.score - expected.score) < 1.0


def test_the_command_makes_the_graphs_of_a_run(tmp_path, capsys):
    run_dir = write_run(tmp_path / "run", {"kind": "soft"})
    photographs = tmp_path / "photographs"
    photographs.mkdir()
    smooth().save(photographs / "a.png")
    (photographs / "b.png").write_bytes(b"x")
    assert main(["--run-dir", str(run_dir), "--photographs", str(photographs), "--beam", "2"]) == 0
    said = capsys.readouterr()
    assert f"{run_dir / 'graphs'}: int8, " in said.out
    assert f"Skipped {photographs / 'b.png'}: " in said.err
    light = sat_tf.load(run_dir)
    assert light.precision == "int8" and light.config.search.beam == 2
    for argv in (["--precision", "float32"], ["--out", str(photographs)]):
        argv = ["--run-dir", str(run_dir), "--photographs", str(photographs), *argv]
        assert main(argv) == 2
        assert "expected none, or int8" in (err := capsys.readouterr().err) or "of graphs" in err
    assert sat_tf.load(run_dir).precision == "int8"


def test_an_operation_that_litert_lacks_is_named(exports, tmp_path, monkeypatch):
    inverted = lambda x: {"annotations": tf.linalg.inv(x)}  # noqa: E731
    made = {published.GRAPHS[0]: (inverted, [tf.TensorSpec([3, 3], name="x")])}
    monkeypatch.setattr(graphs, "make_graphs", lambda *_: made)
    with pytest.raises(ValueError, match=r"`format`: expected saved_model.* \(MatrixInverse\)"):
        write_graphs(tmp_path / "out", exports["soft"].captioner)
    assert not (tmp_path / "out").exists()

"""Publishing of a digit run: a small graph, a card, and a model that reads as the run's does."""

import json
import shutil

import pytest

import digits
from digits.config import read_digit_config
from digits.evaluate import main as evaluate
from digits.publish import main, make_card
from digits.reader import CARD, GRAPH, MANIFEST
from digits.train import main as train
from sat_tf.inference.run_folder import RunFolder

NARROW = (
    *("--recipe", "ram_28", "--model.glimpses", "2", "--model.hidden-dim", "4"),
    *("--model.glimpse-dim", "4", "--model.glimpse-hidden-dim", "4"),
    *("--data.dev_digits", "20", "--fit.batch_size", "16", "--fit.epochs", "1"),
    *("--fit.figures", "0"),
)


@pytest.fixture(scope="module")
def ram_run(tmp_path_factory, mnist):
    run_dir = tmp_path_factory.mktemp("digits") / "ram"
    assert train([*NARROW, "--data-dir", str(mnist), "--run-dir", str(run_dir)]) == 0
    return run_dir


@pytest.mark.slow
def test_a_run_is_published_with_its_error_and_its_command(ram_run, tmp_path):
    out = tmp_path / "ram_mine"
    assert main([str(ram_run), str(out)]) == 0
    assert {path.name for path in out.iterdir()} == {MANIFEST, GRAPH, CARD}
    assert sum(path.stat().st_size for path in out.iterdir()) < 50_000
    card = (out / CARD).read_text("utf-8")
    report = json.loads((ram_run / "evaluation/dev/report.json").read_text("utf-8"))
    assert f"- dev: {report['error']:.2f} % of 20 examples, by epoch 1 of the 1 trained" in card
    assert "MNIST" in card and "CC BY-SA 3.0" in card and "## Not for" in card
    assert "python -m digits.train --recipe ram_28" in card
    reader = digits.load(out)
    assert reader.facts.recipe == "ram_28" and reader.facts.looks == 2


@pytest.mark.slow
def test_the_card_leaves_out_scores_of_earlier_weights(ram_run, mnist, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(ram_run, run)
    assert evaluate(["--run-dir", str(run), "--data-dir", str(mnist), "--split", "test"]) == 0
    new, path = (run / "evaluation" / split / "report.json" for split in ("test", "dev"))
    old = json.loads(new.read_text())
    path.write_text(json.dumps(old | {"split": "dev", "weights_sha256": "0" * 64}))
    card = make_card(run, read_digit_config(run), "mine", RunFolder(run).weights_sha256())
    assert "- The evaluation on dev is of earlier weights: left out." in card
    assert f"- test: {old['error']:.2f} % of {old['examples']} examples" in card


def test_what_reads_no_drawing_is_refused(hard_digits_run, tmp_path, capsys):
    assert main([str(hard_digits_run), str(tmp_path / "out")]) == 2
    assert "expected a run of RAM, DRAM or a Spatial Transformer" in capsys.readouterr().err
    assert main([str(hard_digits_run), str(hard_digits_run)]) == 2
    assert "expected a folder that is new, empty or a published" in capsys.readouterr().err

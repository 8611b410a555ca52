"""Publishing of a run: what the files say, and that every command takes them."""

import dataclasses
import hashlib
import json
import re
import shutil
from pathlib import Path

import pytest
import yaml

import sat_tf
from sat_tf.inference import published
from sat_tf.util.errors import RunError
from tests.image_files import smooth
from tests.training.small_runs import train
from training import average
from training.compare import evaluation_folder
from training.evaluate import main as evaluate
from training.publish import check_out, main, make_card, teachers_of
from training.run.config import read_run_config


@pytest.fixture(scope="module")
def mine(soft_run, tmp_path_factory):
    """The published captioner of a run, and what the command printed."""
    out = tmp_path_factory.mktemp("captioners") / "mine"
    assert main([str(soft_run), str(out), "--licence", "CC0"]) == 0
    return out


def test_it_is_much_smaller_than_the_run_and_names_no_path(soft_run, mine):
    sizes = {path.name: path.stat().st_size for path in mine.iterdir()}
    files = {"captioner.json", "README.md"}
    assert sizes.keys() == files | published.checked_files(mine).keys()
    assert 2 * sum(sizes.values()) < (soft_run / "best.weights.h5").stat().st_size
    assert str(soft_run.parent) not in "".join(p.read_text() for p in mine.glob("*.json"))
    card = (mine / published.CARD).read_text()
    assert "drawn scenes" in card and "Use of these weights: CC0." in card
    assert "12 images of the dev split:" in card


def test_the_card_leaves_out_an_evaluation_of_earlier_weights(soft_run, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(soft_run, run)
    report = run / "evaluation" / "dev" / "report.json"
    shutil.copytree(report.parent, run / "evaluation" / "test")
    values = json.loads(report.read_text())
    digest = hashlib.sha256((run / "best.weights.h5").read_bytes()).hexdigest()
    assert values["weights_sha256"] == digest
    old = run / "evaluation" / "test" / "report.json"
    old.write_text(json.dumps(values | {"split": "test", "weights_sha256": digest[::-1]}))
    card = make_card(run, read_run_config(run), "mine")
    assert "12 images of the dev split:" in card and "images of the test split" not in card
    assert "The evaluation on test is of earlier weights: left out." in card


def test_a_published_captioner_says_what_taught_it(soft_run, tmp_path):
    taught, out = tmp_path / "taught", tmp_path / "out"
    shutil.copytree(soft_run, taught)
    config = json.loads((taught / "config.json").read_text())
    config["attention"]["supervision_weight"] = config["fit"]["distillation_weight"] = 0.5
    config["init_from"] = "removed/flickr8k_soft"  # the captioner of that name is another one
    (taught / "config.json").write_text(json.dumps(config))
    assert main([str(taught), str(out)]) == 0
    assert teachers_of(taught) == teachers_of(out) == ["boxes", "captioners"]
    card = (out / published.CARD).read_text()
    assert "people's boxes" in card and "predictions of other captioners" in card


def test_a_card_has_the_terms_of_the_captioner_that_a_run_learned_on_from(soft_run, tmp_path):
    run, out, asked = tmp_path / "run", tmp_path / "out", "non-commercial research"
    shutil.copytree(soft_run, run)
    config = json.loads((run / "config.json").read_text()) | {"init_from": "flickr8k_soft"}
    (run / "config.json").write_text(json.dumps(config))
    assert main([str(run), str(out)]) == 0
    assert f"Use of these weights: {asked}" in (out / published.CARD).read_text()
    for folder in (run, out):  # the published one has the name of its origin alone
        card = make_card(folder, read_run_config(folder), "mine", "CC0")
        assert "Use of these weights: CC0" in card
        assert (
            f"trained on Flickr8k (Hodosh et al., 2013), whose terms apply to it, too: {asked}"
            in card
        )


@pytest.mark.parametrize("name", published.names())
def test_cards_of_captioners_that_ship_are_those_that_would_be_written_today(name):
    folder = published.locate(name)
    shipped = (folder / published.CARD).read_text("utf-8").partition("## Scores")[0]
    patterns = (
        r"- Use of these weights: (.*)[.]\n",
        r"- Trained on (.*?)(?:; it started|[.] )",
        r"## What it knows\n\n(.*)\n",
    )
    told = [re.search(pattern, shipped).group(1) for pattern in patterns]
    card = make_card(folder, read_run_config(folder), name, *told, weights_sha256="no evaluation")
    inherited = r" Of those captioners, some had been [^.]*\."  # their marker alone tells
    assert card.partition("## Scores")[0] == re.sub(inherited, "", shipped)


def test_a_run_starts_from_one_by_name(mine, tmp_path, tiny, monkeypatch, unvalidated):
    monkeypatch.setattr(published, "SHIPPED", mine.parent)
    monkeypatch.chdir(tmp_path)  # where no folder has the name
    flags, said = [*tiny, "--init-from", "mine"], []
    train(tmp_path / "run", *flags, say=said.append)
    assert "Initialized with the weights of mine." in said
    assert read_run_config(tmp_path / "run").init_from == "mine"
    folders = [str(tmp_path / "run"), "--run-dir", str(tmp_path / "mean")]
    assert average.main(["mine", *folders]) == 0
    with pytest.raises(RunError, match="`init_from` is 'mine' there"):
        train(tmp_path / "run", *flags[:-1], str(mine), say=said.append)


def test_results_of_one_that_ships_stay_out_of_the_package(mine, tmp_path, monkeypatch):
    monkeypatch.setattr(published, "SHIPPED", mine.parent)
    monkeypatch.chdir(tmp_path)
    assert sat_tf.load("mine").path == mine
    assert evaluate(["--run-dir", "mine", "--figures", "1"]) == 0
    assert (tmp_path / "captioners/mine/evaluation/dev/report.json").exists()
    assert evaluation_folder(Path("mine"), "dev").parts[0] == "captioners"


def test_a_folder_with_other_files_is_left_as_it_is(tmp_path, capsys):
    out = tmp_path / "project"
    out.mkdir()
    check_out(out)
    (out / ".gitattributes").touch()
    check_out(out)
    (out / published.CARD).write_text("my project")
    for path in (out, out / published.CARD):
        assert main(["run", str(path)]) == 2
        assert f"new, empty or a published model, got {path}, which" in capsys.readouterr().err
    assert (out / published.CARD).read_text() == "my project"
    (out / published.MANIFEST).touch()
    check_out(out)


def test_the_card_says_of_what_search_language_and_tokens_scores_are(soft_run, tmp_path):
    run = shutil.copytree(soft_run, tmp_path / "run")
    path = run / "evaluation" / "dev" / "report.json"
    report = json.loads(path.read_text("utf-8"))
    assert "Measured with another search" not in make_card(run, read_run_config(run), "mine")
    path.write_text(json.dumps(report | {"search": report["search"] | {"beam": 9}}))
    assert "than the one inside: beam 9, not " in make_card(run, read_run_config(run), "mine")
    report, config = json.loads(path.read_text("utf-8")), read_run_config(run)
    card = make_card(run, config, "mine")
    assert f"`{report['signature']}`" in card and "over characters" not in card
    path.write_text(json.dumps(report | {"tokeniser": "characters", "signature": "lang:no|tok:c"}))
    config = dataclasses.replace(config, data=dataclasses.replace(config.data, language="no"))
    card = make_card(run, config, "mine")
    assert "not comparable with scores over words" in card and "`lang:no|tok:c`" in card
    assert yaml.safe_load(card.split("---")[1])["language"] == "no"


def test_a_published_captioner_captions_by_graphs_as_its_weights_do(mine):
    light, model = sat_tf.load(mine), sat_tf.load(mine, engine="keras")
    assert light.precision == "int8"
    found, expected = light.caption(smooth()), model.caption(smooth())
    assert abs(found.score - expected.score) < 0.5 and found.familiarity is not None


def test_captioners_with_one_encoder_share_it_and_its_graph(soft_run, tmp_path):
    for name in ("one", "two"):
        assert main([str(soft_run), str(tmp_path / name), "--share-encoder"]) == 0
    assert len(list(tmp_path.glob("encoder-*.npz"))) == 2  # weights and template
    assert sat_tf.load(tmp_path / "two").vocabulary == sat_tf.load(tmp_path / "one").vocabulary

"""The card names the exported captioner, its scores and how to call it."""

import json

import pytest

from sat_tf.config import SearchConfig
from sat_tf.inference import published
from sat_tf.util.fields import to_dict
from serving.model_card import write_card
from serving.versions import CARD_FILE


def test_the_card_lists_signatures_with_their_shapes(exports):
    card = (exports["soft"].version / CARD_FILE).read_text()
    for line in (
        "### `every_beam`",
        "| in: `image_bytes` | string | [B] |",
        "| in: `pixels` | uint8 | [B, any, any, 3] |",
        "| `captions` | string | [B, 3] |",
        "| `attention` | float32 | [B, 7, 4, 4] |",
        "| `word_log_probs` | float32 | [B, 7] |",
        "| `attention` | float32 | [B, 3, 7, 4, 4] |",
    ):
        assert line in card
    assert "| `reasons` | string | [B] |" in card
    assert "-p 127.0.0.1:8500:8500" in card and "HandleReloadConfigRequest" in card
    assert '"b64"' in card


@pytest.fixture
def evaluated(exports, tmp_path, monkeypatch):
    """A captioner of a run with an evaluation, measured with its own search."""
    captioner = exports["soft"].captioner
    folder = tmp_path / "run" / "evaluation" / "dev"
    folder.mkdir(parents=True)
    search = {**to_dict(captioner.config.search), "attention": "expectation"}
    report = {"data": "scenes", "split": "dev", "images": 12, "search": search, "secret": 1}
    report |= {"scores": {"bleu_4": 12.5, "cider": None}, "notes": ["A note"]}
    report["intervals"] = {"bleu_4": {"difference": 12.5, "low": 11.25, "high": 13.0}}
    (folder / "report.json").write_text(json.dumps(report))
    monkeypatch.setattr(captioner, "path", tmp_path / "run")
    return captioner


@pytest.fixture
def card_of(exports, tmp_path):
    """The card of a captioner, with the graph of another export."""

    def write(captioner, search: SearchConfig | None = None) -> str:
        graph = (exports["soft"].version / "saved_model.pb").read_bytes()
        (tmp_path / "saved_model.pb").write_bytes(graph)
        write_card(tmp_path, captioner, search or captioner.config.search, {})
        return (tmp_path / CARD_FILE).read_text()

    return write


def test_scores_of_earlier_weights_are_not_on_the_card(evaluated, card_of):
    (evaluated.path / "best.weights.h5").write_bytes(b"those of the next epoch")
    path = evaluated.path / "evaluation" / "dev" / "report.json"
    report = json.loads(path.read_text()) | {"weights_sha256": "0" * 64}
    path.write_text(json.dumps(report))
    card = card_of(evaluated)
    assert "The evaluation on dev is of earlier weights" in card and "12.50" not in card
    report["weights_sha256"] = evaluated.weights_sha256
    path.write_text(json.dumps(report))
    assert "12.50" in card_of(evaluated)


def test_the_card_has_the_report_s_scores_and_nothing_else_of_it(evaluated, card_of):
    card = card_of(evaluated)
    assert "### scenes dev, 12 images" in card and "| bleu_4 | 12.50 | [11.25, 13.00] |" in card
    assert "| cider | undefined |  |" in card
    assert "- A note" in card and "secret" not in card and "another search" not in card
    card = card_of(evaluated, SearchConfig(beam=1, max_length=6, length_power=0.7))
    assert "Measured with another search than the one inside: beam 3, not 1." in card


def test_a_published_captioner_has_its_card_s_scores(exports, card_of, tmp_path, monkeypatch):
    captioner, folder = exports["none"].captioner, tmp_path / "published"
    folder.mkdir()
    monkeypatch.setattr(published, "is_published", lambda path: path == folder)
    (folder / published.CARD).write_text("# Mine\n\n## Scores\n\nCIDEr 60\n\n## Use\n\nfreely\n")
    monkeypatch.setattr(captioner, "path", folder)
    card = card_of(captioner)
    assert "## Scores\n\nCIDEr 60\n\n## Signatures" in card and "freely" not in card
    (folder / published.CARD).unlink()
    assert "no evaluation" in card_of(captioner)

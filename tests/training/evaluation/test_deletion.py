"""The deletion test on a reader of words that depend on known places, and on a tiny run."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from sat_tf.text.vocabulary import Vocabulary
from training import evaluate as command
from training.evaluate import check_deletion, main
from training.evaluation import deletion
from training.evaluation.bootstrap import FEW
from training.evaluation.deletion import SHARES, delete

GRID = (4, 5)
LOCATIONS = 20


class Reader:
    """Words 1 and 2 look at columns 0 and 4, from the top; word 1 needs column 0, word 2 nothing.

    Each cell of column 0 is worth a nat; so is what replaces it, but for its value.
    """

    def __init__(self, images):
        text = "a dog cat"
        self.captioner = SimpleNamespace(grid=GRID, vocabulary=Vocabulary.from_captions([text], 1))
        names = [SimpleNamespace(image_id=f"{n}.jpg") for n in range(images)]
        self.split = SimpleNamespace(examples=names)
        self.captions = {one.image_id: SimpleNamespace(text=text) for one in names}

    def annotations(self, indices):
        return np.ones([len(indices), LOCATIONS, 1])

    def words(self, annotations, tokens):
        alpha = np.zeros([len(annotations), 4, *GRID])
        alpha[:, 1, :, 0] = alpha[:, 2, :, 4] = np.arange(4, 0, -1)
        log_lik = np.zeros([len(annotations), 4])
        log_lik[:, 1] = annotations.reshape(-1, *GRID)[:, :, 0].sum(axis=1)
        return log_lik, alpha.reshape(len(annotations), 4, -1)


@pytest.fixture(autouse=True)
def _function_words(monkeypatch):
    for module in (command, deletion):
        monkeypatch.setattr(module, "function_words", lambda: frozenset(["a", "is", "the"]))


def test_a_word_falls_by_what_its_own_places_were_worth():
    reader = Reader(2 * FEW + 1)
    reader.captions[f"{2 * FEW}.jpg"].text = "a dog"  # of one content word: it has no control
    found = delete(reader, reader.captions, np.array([0.25]))
    assert found.words == ["dog", "cat"] * 2 * FEW and found.images[:3] == ["0.jpg"] * 2 + ["1.jpg"]
    for share, cells in zip(SHARES, (2, 4, 6), strict=True):
        dogs, cats = found.falls["attended", share].reshape(-1, 2).T
        np.testing.assert_allclose(dogs, 0.75 * min(cells, 4))
        np.testing.assert_array_equal(cats, 0.0)
        # Of the cells without weight, chance takes those beyond column 4.
        others = found.falls["other", share].reshape(-1, 2)[:, 0]
        assert others.max() <= 0.75 * (cells - min(cells, 4))
        np.testing.assert_array_equal(found.falls["centre", share] > 0, False)
        random = found.falls["random", share].reshape(-1, 2)[:, 0]
        assert np.unique(random).size > 1 and abs(random.mean() - 0.75 * cells / 5) < 0.25
    tenth = found.details()["10"]
    assert tenth["attended"].difference == 0.75 and tenth["centre"].difference == 0.0
    mean = tenth["random"].difference
    assert tenth["over_random"].difference == pytest.approx(0.75 - mean)
    value, low, high = tenth["ratio"]
    assert value == pytest.approx(0.75 / mean) and 1 < low < value < high


def test_the_command_reports_falls(photographs, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(deletion, "function_words", frozenset)  # it writes one of them alone
    flags = ["--run-dir", photographs.run_dir, "--data-dir", photographs.data_dir, "--deletion"]
    flags += ["--cache-dir", photographs.cache_dir, "--out", tmp_path]
    assert main([*map(str, flags)]) == 0
    report = json.loads((tmp_path / "report.json").read_text())
    rows = json.loads((tmp_path / "captions.json").read_text())
    words = sum(len(row["caption"].split()) for row in rows)
    assert report["deletion"]["images"] == 3 and report["deletion"]["words"] == words >= 3
    first = report["deletion"]["10"]
    assert report["scores"]["deletion_fall"] == first["attended"]["difference"]
    assert "deletion_ratio" in capsys.readouterr().out


def test_the_flag_goes_with_maps_english_and_a_known_mean(tmp_path, capsys):
    assert main(["--captions", "a.json", "--data.name", "folder", "--deletion"]) == 2
    assert "`--deletion`" in capsys.readouterr().err
    wrong = ("none", "en", "attention"), ("soft", "de", "not English"), ("soft", "en", "no famil")
    for kind, language, named in wrong:
        with pytest.raises(ValueError, match=named):
            check_deletion(kind, language, tmp_path)

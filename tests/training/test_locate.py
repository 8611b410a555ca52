"""The command that learns where words are, and training that uses its file."""

import json

import pytest

from tests.training.small_runs import exit_of
from training.locate import main
from training.train import main as train

SMALL = ("--decoder.hidden-dim", "16", "--decoder.embedding-dim", "8")
SMALL += ("--decoder.attention-dim", "8")


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (["--encoder.trainable", "True"], "--encoder.trainable"),
        (["--out", "words.txt"], "--out"),
        (["--epochs", "0"], "--epochs"),
        (["--data-dir", "nowhere"], "nowhere"),
    ],
)
def test_a_wrong_flag_is_an_error_that_names_it(capsys, flags, named):
    status, said = exit_of(capsys, main, "--recipe", "flickr8k_soft", *flags)
    assert status == 2 and named in said


@pytest.fixture(scope="module")
def frozen(tmp_path_factory) -> list[str]:
    """Flags of drawn scenes under a frozen encoder, with places of their own."""
    folder = tmp_path_factory.mktemp("frozen")
    flags = ["--recipe", "scenes_soft", "--data.limit", "64", "--encoder.trainable", "False"]
    return [*flags, "--cache-dir", str(folder / "cache")]


@pytest.fixture(scope="module")
def locator(frozen, tmp_path_factory) -> str:
    path = tmp_path_factory.mktemp("locator") / "new" / "words.npz"
    flags = ["--epochs", "2", "--min-images", "5", "--min-auroc", "50", "--out", str(path)]
    assert main([*frozen, *flags]) == 0
    return str(path)


def run(frozen, folder, *flags: str) -> int:
    once = ["--fit.figures", "1", "--fit.validation-images", "4", "--search.beam", "1"]
    return train([*frozen, *SMALL, *once, "--run-dir", str(folder), "--fit.epochs", "1", *flags])


@pytest.mark.slow
def test_captions_take_the_place_of_boxes(frozen, locator, tmp_path, capsys):
    given = ["--attention.supervision-weight", "1", "--attention.teacher", locator]
    assert run(frozen, tmp_path / "run", *given) == 0
    assert "Attention is supervised at" in (out := capsys.readouterr().out)
    assert "words by a locator" in out
    contents = json.loads((tmp_path / "run" / "data.json").read_text())
    assert "locator" in contents and "boxes" not in contents

    # Resumed with the scenes' own boxes, it would be another run.
    assert run(frozen, tmp_path / "run", *given[:2]) == 2
    assert "give the same `--attention.teacher`" in capsys.readouterr().err
    assert run(frozen, tmp_path / "run", *given) == 0


@pytest.mark.slow
def test_with_a_run_to_start_from_the_locator_knows_that_run_s_encoder(frozen, tmp_path):
    assert run(frozen, tmp_path / "first", "--seed", "1") == 0
    given = ["--init-from", str(tmp_path / "first")]
    out = ["--out", str(tmp_path / "words.npz"), "--min-images", "5", "--min-auroc", "50"]
    assert main([*frozen, *SMALL, *given, *out, "--epochs", "1"]) == 0
    given += [
        "--attention.supervision-weight",
        "1",
        "--attention.teacher",
        str(tmp_path / "words.npz"),
    ]
    assert run(frozen, tmp_path / "second", *given) == 0

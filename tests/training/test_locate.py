"""The command that learns where words are, and training that uses its file."""

import json
import re

import pytest

from sat_tf.errors import RunError
from tests.training.small_runs import exit_of, train
from training.locate import main


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
def frozen(tiny, tmp_path_factory) -> list[str]:
    """Flags of drawn scenes under the frozen encoder of a run."""
    flags = ["--recipe", "scenes_soft", *tiny, "--data.limit", "64"]
    return [*flags, "--encoder.trainable", "False"]


@pytest.fixture(scope="module")
def locator(frozen, soft_run, tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("locator")
    flags = ["--init-from", str(soft_run), "--cache-dir", str(folder / "cache"), "--epochs", "2"]
    out = folder / "new" / "words.npz"
    assert main([*frozen, *flags, "--min-images", "5", "--min-auroc", "50", "--out", str(out)]) == 0
    return str(out)


def test_captions_take_the_place_of_boxes(frozen, locator, soft_run, tmp_path, unvalidated):
    run_dir, said = tmp_path / "run", []
    given = ["--init-from", str(soft_run), "--attention.supervision-weight", "1"]
    flags = [*frozen, *given, "--attention.teacher", locator]
    train(run_dir, *flags, say=said.append)
    assert any(re.match("Attention is supervised at.*words by a locator", line) for line in said)
    contents = json.loads((run_dir / "data.json").read_text())
    assert "locator" in contents and "boxes" not in contents

    # Resumed with the scenes' own boxes, it would be another run.
    with pytest.raises(RunError, match="give the same `--attention.teacher`"):
        train(run_dir, *frozen, *given)
    train(run_dir, *flags)

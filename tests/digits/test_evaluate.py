"""Evaluation of digit runs: reports, figures, other settings, wrong ones."""

from digits.config import changed_flags, read_digit_config
from digits.evaluate import main, training_command
from digits.train import parse
from tests.training.small_runs import report_of


def test_the_command_of_a_report_gives_the_run_again(hard_digits_run):
    config = read_digit_config(hard_digits_run)
    command = training_command(config).split()
    assert command[:3] == ["python", "-m", "digits.train"]
    assert parse(command[3:]).config == config
    assert changed_flags(config, config) == []


def test_evaluation_finds_what_training_ended_with(hard_digits_run, mnist, tmp_path, capsys):
    flags = ["--run-dir", str(hard_digits_run), "--data-dir", str(mnist), "--out", str(tmp_path)]
    assert main(flags) == 0
    (tmp_path / "figures" / "mine.png").touch()
    ended = report_of(hard_digits_run / "evaluation" / "dev")
    assert report_of(tmp_path)["scores"] == ended["scores"]
    assert "presence_accuracy" in capsys.readouterr().out
    assert main([*flags, "--split", "test", "--figures", "1"]) == 0
    assert report_of(tmp_path)["examples"] == 30 and report_of(tmp_path)["split"] == "test"
    names = sorted(path.name for path in (tmp_path / "figures").iterdir())
    assert names == ["00.png", "mine.png"]


def test_a_folder_with_figures_of_something_else_is_refused(
    hard_digits_run, mnist, tmp_path, capsys
):
    mine = tmp_path / "figures" / "00.png"
    mine.parent.mkdir()
    mine.write_bytes(b"mine")
    flags = ["--run-dir", str(hard_digits_run), "--data-dir", str(mnist), "--out", str(tmp_path)]
    assert main(flags) == 2
    assert "`--out`: expected a folder without `figures`" in capsys.readouterr().err
    assert mine.read_bytes() == b"mine"

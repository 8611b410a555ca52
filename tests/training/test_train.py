"""The training command: flags, errors, and everything a run leaves behind."""

from __future__ import annotations

import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.training.small_runs import exit_of
from training.data.examples import DataError
from training.recipes.captioning import RECIPES
from training.run_state.preemption import Interrupted
from training.train import main, parse


def test_any_key_is_a_flag_nested_ones_with_dots():
    flags = "--seed 7 --encoder.name mobilenet_v2 --encoder.weights a.h5 --data.min_count 3"
    flags += " --optimizer.learning-rate 0.5 --encoder.trainable False --data.mirror True"
    config = parse(flags.split()).config
    assert (config.seed, config.data.min_count, config.optimizer.learning_rate) == (7, 3, 0.5)
    assert (config.encoder.name, config.encoder.weights) == ("mobilenet_v2", "a.h5")
    assert (config.encoder.trainable, config.data.mirror) == (False, True)


def test_a_recipe_of_adamw_may_have_another_optimiser():
    recipe = next(name for name, c in RECIPES.items() if c.optimizer.weight_decay)
    config = parse(["--recipe", recipe, "--optimizer.name", "adam"]).config
    assert config.optimizer.name == "adam"
    flags = ["--recipe", recipe, "--optimizer.name", "adam", "--optimizer.weight_decay", "0"]
    assert parse(flags).config.optimizer.weight_decay == 0.0


def test_none_is_spelled_none():
    flags = ["--recipe", "flickr8k_soft", "--encoder.weights", "None"]
    assert parse(flags).config.encoder.weights is None


def test_a_flag_changes_its_key_alone():
    of_recipe = parse(["--recipe", "scenes_hard"]).config
    found = parse(["--recipe=scenes_hard", "--seed", "7"]).config
    assert found == replace(of_recipe, seed=7) != of_recipe


@pytest.mark.parametrize(
    ("argv", "named"),
    [
        (["--fit.epohcs", "3"], "--fit.epohcs"),
        (["--decoder.hidden_dim", "wide"], "--decoder.hidden"),
        (["--attention.kind", "medium"], "--attention.kind"),
        (["--strategy", "many"], "--strategy"),
        (["--data.name", "mnist"], "--data.name"),
        (["--decoder.output_dropout", "1.5"], "`--decoder.output_dropout`"),
        (["--fit.epochs", "0"], "`--fit.epochs`"),
        (["--seed", "-1"], "`--seed`"),
        (["--optimizer.weight_decay", "0.1"], "expected none with `--optimizer.name adam`"),
        (["--reward.metric", "cider"], "`--init-from`"),
        (
            ["--reward.metric", "cider", "--init-from", "run", "--fit.jit_compile", "True"],
            "`--fit.jit_compile`",
        ),
        (["--reward.samples", "1"], "`--reward.samples`"),
        (["--reward.bleu_weight", "0.5"], "`--reward.bleu_weight`"),
        (["--boxes", "b.jsonl"], "`--attention.supervision_weight`"),
        (
            ["--recipe", "folder_soft", "--attention.supervision_weight", "1"],
            "`--attention.teacher`",
        ),
        (["--attention.supervision_weight", "1", "--boxes", "nowhere"], "`--attention.teacher`"),
        (["--locator", "l.npz"], "`--attention.supervision_weight`"),
        (
            ["--attention.supervision_weight", "1", "--attention.teacher", "l.npz"],
            "`--attention.teacher`: expected no word locator with a trained encoder",
        ),
        (
            ["--attention.supervision_weight", "1", "--locator", "l", "--boxes", "b"],
            "`--locator`: expected none with `--boxes`",
        ),
        (["--attention.supervision_weight", "1", "--data.tokens", "characters"], "`--data.tokens`"),
        (["--predictions", "p.npz"], "`--fit.distillation_weight`"),
        (["--fit.distillation_weight", "0.5"], "`--fit.predictions`"),
        (["--fit.distillation_weight", "0.5", "--predictions", "nowhere"], "`--fit.predictions`"),
        (["--fit.distillation_weight", "1.5"], "`--fit.distillation_weight`"),
        (
            ["--fit.distillation_weight", "1", "--reward.metric", "cider", "--init-from", "runs"],
            "`--fit.distillation_weight`: expected 0 with `--reward.metric`",
        ),
        (["--strategy", "multi_worker", "--fit.jit_compile", "True"], "`--fit.jit_compile`"),
        (["--strategy", "multi_worker", "--fit.precision", "auto"], "`--fit.precision`"),
        (["--strategy", "multi_worker"], "`TF_CONFIG`"),
        (["extra"], "extra"),
    ],
)
def test_an_unknown_key_or_a_wrong_value_is_an_error_that_names_it(
    capsys, monkeypatch, argv, named
):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    status, message = exit_of(capsys, main, *argv)
    assert status == 2 and named in message and "Traceback" not in message


def test_help_lists_the_recipes_and_the_keys(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["--help"])
    text = capsys.readouterr().out
    assert stop.value.code == 0
    assert "flickr8k_hard" in text and "--encoder.name" in text and "--run-dir" in text


@pytest.mark.parametrize(
    "flags", [["--recipe", "x"], ["--recipe", "folder_soft", "--data-dir", "nowhere"]]
)
def test_a_wrong_flag_or_path_is_answered_without_loading_tensorflow(flags):
    code = f"import sys, training.train as t; s = t.main({flags})\n"
    code += "sys.exit(9 if 'tensorflow' in sys.modules else s)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 2


@pytest.fixture
def places_of(monkeypatch):
    """Returns the places in which a command line would train, without training."""
    from training.loop import fit
    from training.tasks.captioning.task import CaptioningTask

    found = []
    monkeypatch.setattr(fit, "fit", lambda task, *_, **__: found.append(task.places))
    monkeypatch.setattr(CaptioningTask, "evaluate", lambda *_: None)

    def run(*argv: str):
        assert main(list(argv)) == 0
        return found.pop()

    return run


def test_a_run_goes_to_runs_and_the_recipe_s_name(places_of):
    assert places_of("--recipe", "scenes_none").run_dir == Path("runs/scenes_none")
    assert places_of("--run-dir", "elsewhere").run_dir == Path("elsewhere")


def test_the_cache_is_a_flag_or_the_default(places_of, monkeypatch):
    assert places_of("--cache-dir", "here").cache_dir == Path("here")
    monkeypatch.setenv("SAT_TF_CACHE", "there")
    assert places_of().cache_dir == Path("there")


@pytest.mark.parametrize("error", [DataError("line 3"), OSError(28, "No space left"), ValueError()])
def test_bad_input_is_an_error_without_a_traceback(capsys, monkeypatch, error):
    from training.loop import fit

    def fail(*_, **__):
        raise error

    monkeypatch.setattr(fit, "fit", fail)
    status, message = exit_of(capsys, main)
    assert status == 2 and message == f"Error: {error}\n"


@pytest.mark.parametrize(
    ("stop", "status", "message"),
    [
        (Interrupted(signal.SIGTERM, "All is kept. "), 143, "Stopped by SIGTERM. All is kept. "),
        (Interrupted(signal.SIGINT, ""), 130, "Stopped by Ctrl-C. Start the same command again"),
        (KeyboardInterrupt(), 130, "Stopped."),
    ],
)
def test_a_stopped_run_says_how_to_resume(capsys, monkeypatch, stop, status, message):
    from training.loop import fit

    def fail(*_, **__):
        raise stop

    monkeypatch.setattr(fit, "fit", fail)
    found, said = exit_of(capsys, main)
    assert found == status and said.startswith(message) and "Traceback" not in said


def test_deterministic_is_a_switch_and_no_key_of_the_configuration():
    arguments = parse(["--deterministic", "--data.mirror", "True"])
    assert arguments.deterministic and not parse([]).deterministic
    assert arguments.config == parse(["--data.mirror", "True"]).config


def spoil_images(folder: Path) -> None:
    for path in (folder / "Flicker8k_Dataset").iterdir():
        path.write_bytes(b"no image")


def remove_dev_list(folder: Path) -> None:
    (folder / "Flickr_8k.devImages.txt").unlink()


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (None, "--data-dir"),
        (spoil_images, "No image of the train split can be read"),
        (remove_dev_list, "has no dev split"),
    ],
)
def test_bad_data_is_told_apart(capsys, tmp_path, make_photographs, spoil, message):
    settings = ["--recipe", "flickr8k_soft", "--data.min_count", "1", "--encoder.weights", "None"]
    settings += ["--encoder.name", "scenes_cnn", "--encoder.image_size", "64"]
    if spoil:
        folder = make_photographs(tmp_path / "flickr8k")
        spoil(folder)
        settings += ["--data-dir", str(folder)]
    status, said = exit_of(capsys, main, *settings, "--run-dir", str(tmp_path / "run"))
    assert status == 2 and message in said and "Traceback" not in said

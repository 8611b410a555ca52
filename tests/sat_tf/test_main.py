"""The command `sat-tf`: a name is run as its module."""

import importlib.util
import shutil
import subprocess
import sys
from types import SimpleNamespace

import pytest

import sat_tf.__main__
from sat_tf.__main__ import COMMANDS, COMPLETION, main
from sat_tf.commands import program


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_is_run_with_the_arguments_after_its_name(name, monkeypatch):
    module, _ = COMMANDS[name]
    called = []
    command = SimpleNamespace(main=lambda argv: called.append((argv, program(module))))
    monkeypatch.setattr(sys, "argv", ["sat-tf"])
    monkeypatch.setattr(sat_tf.__main__, "import_module", lambda _: command)
    main([name, "--run-dir", "a"])
    assert called == [(["--run-dir", "a"], f"sat-tf {name}")]
    spec = importlib.util.find_spec(module)
    runnable = f"{module}.__main__" if spec.submodule_search_locations else module
    assert importlib.util.find_spec(runnable) is not None


@pytest.mark.parametrize(("argv", "status"), [([], 2), (["--help"], 0), (["-h"], 0)])
def test_without_a_command_the_list_is_printed(argv, status, capsys):
    assert main(argv) == status
    said = capsys.readouterr().out
    assert all(f"\n  {name} " in said for name in COMMANDS)


def test_an_unknown_command_is_an_error_with_the_list(capsys):
    assert main(["trian"]) == 2
    said = capsys.readouterr().err
    assert "no command 'trian'. Did you mean train?" in said and all(
        name in said for name in COMMANDS
    )
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"sat-tf {sat_tf.__version__}\n"


@pytest.fixture(scope="module")
def completion(tmp_path_factory):
    """The script that completes commands in bash, as `sat-tf train` prints it."""
    command = [sys.executable, "-m", "sat_tf", "train", COMPLETION, "bash"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    path = tmp_path_factory.mktemp("completion") / "sat-tf"
    path.write_text(done.stdout, encoding="utf-8")
    return path


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["tr"], ["train"]),
        (["li"], ["litert"]),
        (["train", "--fit.ep"], ["--fit.epochs"]),
        (["caption", "--figure", ""], ["png", "jpg", "webp", "none"]),
        (["train", "--recipe", "folder_"], ["folder_from_flickr8k", "folder_hard", "folder_soft"]),
        (["train", "--recipe", "ram_2"], ["ram_28", "ram_28_paper"]),
        (["caption", "--run-dir", "runs/"], ["runs/mine"]),
        (["train", "--init-from", "flickr8k_s"], ["flickr8k_soft"]),
        (["compare", "runs/mine", "runs/m"], ["runs/mine"]),
    ],
)
def test_bash_completes_commands_flags_choices_and_runs(completion, tmp_path, words, expected):
    (tmp_path / "runs" / "mine").mkdir(parents=True)
    (tmp_path / "runs" / "mine" / "config.json").touch()
    (tmp_path / "runs" / "inspection").mkdir()
    script = """
        source "$1"; shift
        function=$(complete -p sat-tf | sed 's/.*-F \\([^ ]*\\) .*/\\1/')
        COMP_WORDS=(sat-tf "$@") COMP_CWORD=$#
        "$function" sat-tf "${COMP_WORDS[-1]}"
        printf '%s\\n' "${COMPREPLY[@]}"
    """
    command = ["bash", "-c", script, "bash", str(completion), *words]
    options = {"capture_output": True, "text": True, "check": True, "timeout": 60}
    done = subprocess.run(command, cwd=tmp_path, **options)
    assert done.stdout.split() == expected


def test_no_command_loads_tensorflow_before_it_has_read_its_flags():
    code = "import importlib, sys\nfrom sat_tf.__main__ import COMMANDS\n"
    code += "for module, _ in COMMANDS.values():\n    importlib.import_module(module)\n"
    code += "    if 'tensorflow' in sys.modules: sys.exit(f'{module} loads TensorFlow')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr

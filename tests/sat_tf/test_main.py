"""The command `sat-tf`: a name is run as its module."""

import importlib.util
import subprocess
import sys
from types import SimpleNamespace

import pytest

import sat_tf.__main__
from sat_tf.__main__ import COMMANDS, main
from sat_tf.util.commands import program


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


def test_no_command_loads_tensorflow_before_it_has_read_its_flags():
    code = "import importlib, sys\nfrom sat_tf.__main__ import COMMANDS\n"
    code += "for module, _ in COMMANDS.values():\n    importlib.import_module(module)\n"
    code += "    if 'tensorflow' in sys.modules: sys.exit(f'{module} loads TensorFlow')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr

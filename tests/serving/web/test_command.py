"""The page's command: its errors, and the whole of it with real exports."""

import importlib.util
import os
import signal
from pathlib import Path

import httpx
import pytest

import digits
from sat_tf.inference import published
from serving.address import parse_server
from serving.web import __main__ as command
from serving.web.__main__ import main
from serving.web.app import Page
from serving.web.model_process import ModelProcess
from tests.serving.processes import children_of, page
from tests.serving.web.page_fixtures import make_export, make_run, photograph
from tests.waiting import eventually

LOADED_WITHIN = 240.0  # seconds


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["--export", "nowhere"], "There is no run folder nowhere"),
        (["--run-dir", "."], "`run_dir`: expected folders of trained captioners"),
        (["--server", "localhost"], "`server`: expected HOST:PORT"),
        (["--server", "localhost:8500", "--max-mb", "0"], "`--max-mb`: expected a number of"),
        (["--allow-host", "https://x.org"], "`allow_host`: expected names such as"),
        (["--model", "flickr8k_soft"], "`model`: expected `--server` with it; `--run-dir` takes"),
        (["--server", "localhost:1", "--run-dir", "x"], "`server`: expected no `--run-dir` and"),
    ],
)
def test_a_mistake_is_one_line(argv, says, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(published, "SHIPPED", tmp_path / "none")
    assert main([*argv, "--no-browser"]) == 2
    assert says in capsys.readouterr().err


def test_missing_packages_are_named_before_anything_is_exported(monkeypatch, capsys):
    found = importlib.util.find_spec
    hidden = ("uvicorn", "python_multipart")
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name in hidden else found(name)
    )
    monkeypatch.setattr(command.sources, "named", lambda _: pytest.fail("exports"))
    assert main(["--no-browser"]) == 2
    told = capsys.readouterr().err
    assert 'The page needs uvicorn, python_multipart: pip install -e ".[web]"' in told


@pytest.fixture
def shown(monkeypatch):
    """Returns the page that a command would serve, and the folders of its captioners."""

    def show(*argv: str) -> tuple[Page, list[list[Path]]]:
        pages, served = [], []

        monkeypatch.setattr(ModelProcess, "start", lambda process: served.append(process._sources))
        monkeypatch.setattr("serving.web.app.Page.app", lambda page: pages.append(page))
        monkeypatch.setattr("uvicorn.Server.run", lambda *_: None)
        assert main([*argv, "--no-browser", "--port", "0"]) == 0
        return pages[0], served

    return show


def test_an_export_and_a_run_of_one_name_are_both_shown(tmp_path, shown):
    run = make_run(tmp_path / "soft")
    export = make_export(run / "export")
    page, served = shown("--export", str(export), "--run-dir", str(run))
    assert list(page.models) == ["soft", "soft-2"]
    assert served == [[export, run]]  # digit models start when their view is opened


def test_the_page_is_served_under_this_machines_names_and_those_allowed(shown):
    server, own = ("--server", "localhost:1"), ("127.0.0.1", "localhost", "::1", "[::1]")
    assert shown(*server)[0].hosts == own
    for listening in ("localhost", "0.0.0.0"):
        page, _ = shown(*server, "--host", listening, "--allow-host", "x.org:8443", "[fe80::1]")
        assert page.hosts == (*own, "x.org", "[fe80::1]")
        assert page.proxies == ("x.org:8443", "[fe80::1]")
    assert shown(*server, "--host", "0.0.0.0")[0].hosts == ("*",)
    assert parse_server("localhost:8500") == ("localhost", 8500)
    assert parse_server("[::1]:8500") == ("::1", 8500)


@pytest.mark.slow
def test_exports_side_by_side_whose_process_may_die(litert_exports):
    folders = tuple(litert_exports(kind).parent for kind in ("hard", "none"))
    with (
        page(folders) as (address, process),
        httpx.Client(base_url=address, timeout=LOADED_WITHIN) as client,
    ):

        def ask(path: str, model: str, image: bytes) -> dict:
            answer = client.post(path, files={"image": image}, data={"model": model})
            assert answer.status_code == 200, answer.text
            return answer.json()

        names = client.get("/api/page").json()["models"]
        hard = ask("/api/caption", names[0], photograph())
        assert hard["grid"] and hard["hypotheses"][1]["words"][0]["map"]
        assert ask("/api/caption", names[1], photograph())["kind"] == "none"
        assert [facts["name"] for facts in client.get("/api/digits").json()] == digits.names()
        started = children_of(process)
        for child in started:
            os.kill(child, signal.SIGKILL)
        assert ask("/api/caption", names[0], photograph())["hypotheses"] == hard["hypotheses"]
        models = set(children_of(process)) - set(started)
        assert models
    eventually(lambda: not any(Path(f"/proc/{child}/stat").exists() for child in models))

"""The models' process: what answers, without TensorFlow; when it starts again, and how it ends."""

import asyncio
import shutil
import time
from pathlib import Path

import numpy as np
import pytest

import sat_tf
from sat_tf.inference import cache
from sat_tf.inference import litert_captioner as lite
from sat_tf.inference import load as runs
from sat_tf.inference.litert_captioner import SETTINGS
from serving.web import model_process
from serving.web.captioning import UploadError
from serving.web.model_process import MOST_TRIES, ModelProcess
from tests.page_data import decode_map
from tests.sat_tf.tiny_runs import png, write_run
from tests.waiting import eventually


@pytest.fixture
def processes():
    """Starts processes of models, which end with the test."""
    made = []

    def start(*folders: Path) -> ModelProcess:
        made.append(ModelProcess(folders))
        made[-1].start()
        return made[-1]

    yield start
    for process in made:
        process.stop()


def ask(process: ModelProcess, folder: Path, content: bytes, sentence: str | None = None):
    return asyncio.run(asyncio.wait_for(process.ask(folder, content, sentence), 300))


def texts(answer: dict) -> list[str]:
    return [hypothesis["text"] for hypothesis in answer["hypotheses"]]


def has_loaded(process: ModelProcess, package: str) -> bool:
    """Returns whether a process has mapped a file of a package."""
    return f"site-packages/{package}/" in Path(f"/proc/{process._process.pid}/maps").read_text()


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> tuple[Path, Path]:
    """A run, and a cache with its graphs: the only folder of graphs there."""
    folder = tmp_path_factory.mktemp("made")
    run = write_run(folder / "soft")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SAT_TF_CACHE", str(folder / "cache"))
        runs.make_graphs(run)
    return run, folder / "cache"


@pytest.fixture
def run(made, monkeypatch) -> Path:
    """The run with its graphs, so that no process loads TensorFlow."""
    monkeypatch.delenv(cache.SWITCH)
    monkeypatch.setenv("SAT_TF_CACHE", str(made[1]))
    return made[0]


def test_a_captioner_answers_from_its_graphs_without_tensorflow(processes, run):
    process = processes(run)
    answer = ask(process, run, png())
    expected = sat_tf.load(run).beam(png())
    assert texts(answer) == [c.text for c in expected] and len(expected) > 1
    shown, best = answer["hypotheses"][0], expected[0]
    found = decode_map(shown["words"][0], shown["peak"], answer["grid"])
    np.testing.assert_allclose(found, best.alpha[0], atol=best.alpha.max() / 255)
    assert answer["kind"] == "soft"
    assert has_loaded(process, "ai_edge_litert") and not has_loaded(process, "tensorflow")
    with pytest.raises(UploadError, match="Cannot read the image") as error:
        ask(process, run, b"text")
    assert error.value.status == 400
    assert texts(ask(process, run, png())) == texts(answer)  # and it goes on
    explained = ask(process, run, png(), sentence="A red unicorn")
    assert texts(explained) == ["a red unicorn"] and explained["unknown"] == ["unicorn"]
    *known, unknown = explained["hypotheses"][0]["words"]
    assert all(word["looking"] is not None for word in known)
    assert unknown["looking"] is unknown["log_prob"] is None and unknown["map"]
    assert texts(ask(process, run, png(), sentence=""))[0] == texts(answer)[0]
    with pytest.raises(UploadError, match="`sentence`"):
        ask(process, run, png(), sentence="...")


@pytest.mark.slow
def test_without_graphs_tensorflow_answers_until_they_are_made(processes, tmp_path, monkeypatch):
    monkeypatch.delenv(cache.SWITCH)
    monkeypatch.setenv("SAT_TF_CACHE", str(tmp_path / "cache"))
    run = write_run(tmp_path / "soft")
    process = processes(run)
    first = ask(process, run, png())
    eventually(lambda: not runs.graphs_missing(run), 240.0)
    again = ask(process, run, png())  # the last one that TensorFlow answers
    light = ask(process, run, png())
    assert not has_loaded(process, "tensorflow")
    assert texts(again)[0] == texts(light)[0] == texts(first)[0]


def test_an_export_for_litert_is_captioned(processes, made, tmp_path):
    run, home = made
    graphs = shutil.copytree(home / "graphs", tmp_path / "graphs")
    (export,) = (settings.parent for settings in graphs.glob(f"*/{SETTINGS}"))
    shutil.copyfile(run / "config.json", export / "config.json")
    answer = ask(processes(export), export, png())
    assert texts(answer)[0] == lite.load(export).caption(png()).text and answer["kind"] == "soft"


def test_a_model_that_cannot_be_loaded_is_told_and_the_others_answer(processes, made, tmp_path):
    run, _ = made
    broken = write_run(tmp_path / "broken")
    (broken / "vocabulary.json").write_text("{")
    process = processes(broken, run)
    with pytest.raises(UploadError, match="It cannot be used: .*vocabulary.json"):
        ask(process, broken, png())
    assert ask(process, run, png())["kind"] == "soft"


def test_a_process_that_the_system_ended_is_started_again(processes, run):
    process = processes(run)
    first = ask(process, run, png())
    process._process.kill()
    assert texts(ask(process, run, png())) == texts(first)


def test_a_question_that_ends_every_process_is_given_up(processes, tmp_path, monkeypatch):
    starts, python = tmp_path / "starts", tmp_path / "python"
    python.write_text(f"#!/bin/sh\necho >> {starts}\nkill -KILL $$\n")
    python.chmod(0o755)
    monkeypatch.setattr(model_process.sys, "executable", str(python))
    process = ModelProcess([tmp_path])
    with pytest.raises(UploadError, match=f"ended by the system {MOST_TRIES} times"):
        ask(process, tmp_path, png())
    assert len(starts.read_text()) == MOST_TRIES


def test_the_process_ends_when_the_page_does(processes, run):
    process = processes(run)
    ask(process, run, png())
    process._pipe.close()  # as the system does when the page ends in whatever way
    eventually(lambda: process._process.poll() == 0)


def test_questions_are_answered_in_their_order(tmp_path, monkeypatch):
    process, asked = ModelProcess([Path("a"), Path("b"), Path("c")]), []

    def answer(question):
        index, *_ = question
        time.sleep(0.1 * (3 - index))  # the first takes longest
        asked.append(index)

    monkeypatch.setattr(process, "_ask", answer)

    async def all_at_once():
        await asyncio.gather(*(process.ask(Path(name), b"") for name in "abc"))

    asyncio.run(all_at_once())
    assert asked == [0, 1, 2]

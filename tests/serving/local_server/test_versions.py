"""Versions come, fail, are drained and go, without a call that fails for it."""

import shutil
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest
from tensorflow_serving.apis import get_model_status_pb2, model_pb2

from serving.local_server.servable import Servable, StatusError
from serving.local_server.versions import Versions
from tests.serving import toys
from tests.serving.toys import predict_request
from tests.waiting import eventually

State = get_model_status_pb2.ModelVersionStatus
SPEC = model_pb2.ModelSpec(name="captioner")


@pytest.fixture
def versions_of():
    """Makes `Versions` of a folder, looked at once; unloaded after the test."""
    made = []

    def make(folder, load=Servable) -> Versions:
        made.append(Versions(folder, "captioner", load))
        made[-1].refresh()
        return made[-1]

    yield make
    for versions in made:
        versions.close()


def states(versions) -> dict[int, int]:
    return {status.version: status.state for status in versions.states(SPEC)}


def test_a_half_copied_version_is_taken_once_it_is_whole(versions_of, place, toy_exports):
    folder = place(1)
    versions = versions_of(folder)
    shutil.copytree(
        toy_exports / "2", folder / "2", ignore=shutil.ignore_patterns("saved_model.pb")
    )
    versions.refresh()
    assert states(versions) == {1: State.AVAILABLE}
    shutil.copy(toy_exports / "2" / "saved_model.pb", folder / "2")
    versions.refresh()
    assert versions.served == 2


def test_a_version_that_fails_leaves_the_old_one(versions_of, place, caplog):
    folder = place(1)
    versions = versions_of(folder)
    place(2)
    (folder / "2" / "saved_model.pb").write_bytes(b"no graph")
    versions.refresh()
    assert states(versions) == {2: State.END, 1: State.AVAILABLE}
    failed = versions.states(SPEC)[0].status
    assert failed.error_code != 0 and failed.error_message
    assert str(folder) not in failed.error_message  # none of the caller's business
    assert "Version 2 of captioner does not load" in caplog.text


def test_a_version_that_failed_is_tried_again_once_it_changes(versions_of, place, toy_exports):
    folder, tried = place(1), []

    def load(path):
        tried.append(path.name)
        return Servable(path)

    versions = versions_of(folder, load=load)
    place(2)
    (folder / "2" / "saved_model.pb").write_bytes(b"no graph")
    versions.refresh()
    versions.refresh()
    assert tried == ["1", "2"]
    shutil.copy(toy_exports / "2" / "saved_model.pb", folder / "2")
    versions.refresh()
    assert versions.served == 2


@pytest.mark.parametrize("placed", [(1, 2), (1,)])
def test_a_version_taken_away_gives_the_one_before_and_the_last_stays(versions_of, place, placed):
    folder = place(*placed)
    versions = versions_of(folder)
    shutil.rmtree(folder / str(placed[-1]))
    versions.refresh()
    assert versions.served == 1


def test_a_version_in_use_goes_after_its_last_call(versions_of, place):
    versions = versions_of(place(1))
    _, old = versions.find(SPEC)
    place(2)
    versions.refresh()
    assert states(versions) == {2: State.AVAILABLE, 1: State.END}
    assert toys.caption_of(old.predict(predict_request(b"ok"))) == "a cat 1"
    with pytest.raises(StatusError, match=r"Specific\(captioner, 1\)"):
        versions.find(predict_request(version=1).model_spec)
    gone = weakref.ref(old)
    del old
    assert gone() is None


def test_new_versions_fail_no_call(serving, place):
    folder, stopped = place(1), threading.Event()
    answers: list[list[str]] = [[] for _ in range(8)]

    def ask(caller, said: list[str]) -> None:
        while not stopped.is_set():
            said.append(caller.caption())

    def all_heard(version: int) -> bool:
        return all(said and said[-1] == f"a cat {version}" for said in answers)

    with serving(folder) as caller, ThreadPoolExecutor(8) as pool:
        asking = [pool.submit(ask, caller, said) for said in answers]
        try:
            eventually(lambda: all_heard(1))
            for version in (2, 3):
                place(version)
                eventually(lambda v=version: all_heard(v))
        finally:
            stopped.set()
        for each in asking:
            each.result()
    for said in answers:
        assert said == sorted(said), "an old version answered after a newer one"
        assert {"a cat 1", "a cat 2", "a cat 3"} == set(said)
    assert caller.server.versions.served is None

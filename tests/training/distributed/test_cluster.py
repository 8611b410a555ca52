"""`TF_CONFIG`: the processes that train together."""

import json

import pytest

from training.cluster import Cluster
from training.distributed import make_strategy


def described(kind: str = "worker", index: int = 0, **jobs: object) -> str:
    return json.dumps({"cluster": jobs, "task": {"type": kind, "index": index}})


def test_the_chief_comes_first_whatever_it_is_called():
    found = Cluster.read(described("worker", 1, worker=["a:1", "b:2"]))
    assert found == Cluster(("a:1", "b:2"), 1)
    jobs = {"worker": ["a:1", "b:2"], "chief": ["c:3"]}
    assert Cluster.read(described("worker", 1, **jobs)) == Cluster(("c:3", "a:1", "b:2"), 2)
    assert Cluster.read(described("chief", 0, **jobs)).index == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "it is not set"),
        ("{", "JSON with `cluster` and `task`"),
        ("{}", "JSON with `cluster` and `task`"),
        (described(worker=["a:1"], ps=["b:2"]), r"\['ps', 'worker'\]"),
        (described(worker=["a"]), "a HOST:PORT for each worker.*got 'a'"),
        (described(worker=["a:99999"]), "a HOST:PORT for each worker.*got 'a:99999'"),
        (described(worker=["a:0"]), "a HOST:PORT for each worker.*got 'a:0'"),
        (described(worker=["::1:12345"]), "a HOST:PORT for each worker.*got '::1:12345'"),
        (described(worker=3), "a list of HOST:PORT as `worker`.*got 3"),
        (described(worker="a:1"), "a list of HOST:PORT as `worker`.*got 'a:1'"),
        (described(worker=["a:1"]).replace(" 0}", " 1e999}"), "JSON with `cluster` and `task`"),
        (described(worker=["a:1", "a:1"]), "another HOST:PORT"),
        (described(index=2, worker=["a:1", "b:2"]), "got worker 2"),
    ],
)
def test_a_wrong_tf_config_is_an_error_that_says_what_is_wrong(monkeypatch, text, said):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    if text is not None:
        monkeypatch.setenv("TF_CONFIG", text)
    with pytest.raises(ValueError, match=f"`TF_CONFIG`.*{said}"):
        make_strategy("multi_worker")

"""`TF_CONFIG`, and how the processes it names come together."""

import contextlib
import json
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from sat_tf.util.errors import RunError
from tests.serving.processes import free_ports
from tests.waiting import eventually
from training.run import cluster
from training.run.cluster import Cluster
from training.run.signals import Interrupted, Interrupts
from training.run.strategy import make_strategy


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


def cluster_of(count: int) -> list[Cluster]:
    addresses = tuple(f"localhost:{port}" for port in free_ports(count))
    return [Cluster(addresses, index) for index in range(count)]


def meet_all(*clusters: Cluster, seconds: float = 120.0) -> list[RunError | None]:
    """Lets processes meet, each in a thread; how each one ends."""

    def meet(cluster: Cluster) -> RunError | None:
        try:
            cluster.meet(seconds)
        except RunError as error:
            return error
        return None

    with ThreadPoolExecutor(len(clusters)) as pool:
        return list(pool.map(meet, clusters))


def connect(cluster: Cluster, said: bytes = b"") -> socket.socket:
    """Connects to the chief as soon as it listens, and says something."""
    port = int(cluster.addresses[0].rpartition(":")[2])

    def connected() -> socket.socket | None:
        with contextlib.suppress(ConnectionRefusedError):
            return socket.create_connection(("localhost", port), 120.0)
        return None

    connection = eventually(connected)
    connection.sendall(said)
    return connection


@pytest.fixture
def time_is_up(monkeypatch) -> Callable[[], None]:
    """Moves the clock of those who meet by an hour."""
    offset = [0.0]
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + offset[0], sleep=time.sleep)
    monkeypatch.setattr(cluster, "time", clock)
    return lambda: offset.append(offset.pop() + 3600.0)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0)])
def test_all_meet_in_whatever_order_they_come(order):
    clusters = cluster_of(3)
    assert meet_all(*(clusters[index] for index in order)) == [None, None, None]


@pytest.mark.parametrize(("present", "missing"), [(1, 2), (2, 1)])
def test_the_chief_names_those_missing_and_counts_no_strangers_or_dead_workers(
    time_is_up, present, missing
):
    chief = cluster_of(3)[0]
    with ThreadPoolExecutor(1) as pool:
        told = pool.submit(meet_all, chief)
        dead = f"sat_tf: worker {missing} of 3\n".encode()
        for said in (b"GET / HTTP/1.1\r\n", b"sat_tf: worker 1 of 2\n", dead):
            connect(chief, said).close()
        with connect(chief, f"sat_tf: worker {present} of 3\n".encode()):
            time_is_up()
            connect(chief).close()  # the chief looks at its clock after each connection
            (error,) = told.result()
    named = f"within 120 s; missing: {missing} ({chief.addresses[missing]})."
    assert named in str(error)


def test_a_worker_says_that_others_were_missing(time_is_up):
    worker = cluster_of(2)[1]
    port = int(worker.addresses[0].rpartition(":")[2])
    with ThreadPoolExecutor(1) as pool, socket.create_server(("", port)) as chief:
        told = pool.submit(meet_all, worker)
        with chief.accept()[0] as connection:
            assert connection.recv(64) == b"sat_tf: worker 1 of 2\n"
            time_is_up()
        (error,) = told.result()
    assert "Worker 1 waited 120 s for the chief" in str(error)
    assert "not all workers had come" in str(error)


def has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


@pytest.mark.skipif(not has_ipv6(), reason="no IPv6 here")
def test_workers_meet_at_an_ipv6_address():
    addresses = [f"[::1]:{port}" for port in free_ports(2)]
    clusters = [Cluster.read(described(index=index, worker=addresses)) for index in range(2)]
    assert meet_all(*clusters) == [None, None]


def stop() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def test_a_signal_ends_the_wait_of_the_chief():
    (chief, _, _) = cluster_of(3)

    def join_and_stop() -> None:
        with connect(chief, b"sat_tf: worker 1 of 3\n"):
            stop()

    with Interrupts(), pytest.raises(Interrupted, match="Stopped by SIGTERM"):
        threading.Thread(target=join_and_stop, daemon=True).start()
        chief.meet(600.0)


def test_a_signal_ends_the_wait_of_a_worker():
    (_, worker) = cluster_of(2)
    server = socket.create_server(("", int(worker.addresses[0].rpartition(":")[2])))

    def accept_and_stop() -> None:
        with server, server.accept()[0] as connection:
            connection.recv(64)
            stop()
            connection.recv(64)  # until the worker is gone

    with Interrupts(), pytest.raises(Interrupted, match="Stopped by SIGTERM"):
        threading.Thread(target=accept_and_stop, daemon=True).start()
        worker.meet(600.0)

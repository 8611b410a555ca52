"""Clients that send nothing, or little, or too much at once do not keep the others out."""

import asyncio
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from serving.web import connections
from serving.web.app import Page
from tests.serving.web.page_fixtures import listening, photograph
from tests.waiting import eventually

HEAD = "POST /api/caption HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9999\r\n"
HEAD += "Content-Type: multipart/form-data; boundary=x\r\n\r\n"


async def answer(content: bytes, _) -> dict:
    return {"size": len(content)}


@pytest.fixture
def page(monkeypatch):
    """The address of a page that keeps eight connections."""
    monkeypatch.setattr(connections, "most_connections", lambda: 8)
    with listening(Page({"soft": answer})) as address:
        yield address


def connect(page: str, sent: str = "") -> socket.socket:
    found = socket.create_connection(("127.0.0.1", int(page.rpartition(":")[2])), timeout=60)
    found.sendall(sent.encode())
    return found


def is_closed(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


@pytest.mark.parametrize("sent", ["", "GET / HTTP/1.1\r\nX: ", HEAD + "--x"])
def test_others_are_served_while_many_send_slowly(page, sent):
    slow = [connect(page, sent) for _ in range(20)]
    for _ in range(3):
        files = {"image": ("photo.jpg", photograph())}
        found = httpx.post(f"{page}/api/caption", files=files, timeout=60)
        assert found.json() == {"size": len(photograph())}
    eventually(lambda: sum(map(is_closed, slow)) >= 12)
    for connection in slow:
        connection.close()


def test_one_that_is_answered_keeps_its_place(monkeypatch):
    monkeypatch.setattr(connections, "most_connections", lambda: 4)
    came, go = threading.Event(), threading.Event()

    async def held(content: bytes, _) -> dict:
        came.set()
        await asyncio.to_thread(go.wait, 120)
        return {"size": len(content)}

    with listening(Page({"soft": held})) as page, ThreadPoolExecutor(1) as pool:
        asked = pool.submit(
            httpx.post, f"{page}/api/caption", files={"image": ("x", b"x")}, timeout=120
        )
        assert came.wait(120)
        slow = [connect(page) for _ in range(9)]
        eventually(lambda: sum(map(is_closed, slow)) >= 6)
        go.set()
        assert asked.result().json() == {"size": 1}


@pytest.mark.parametrize("sent", ["", "GET / HTTP/1.1\r\nX: "])
def test_a_connection_without_a_request_is_closed(page, monkeypatch, sent):
    monkeypatch.setattr(connections, "HEADER_SECONDS", 0.1)
    monkeypatch.setattr(connections, "LOOK_SECONDS", 0.05)
    connection = connect(page, sent)
    eventually(lambda: is_closed(connection))


def test_files_bound_the_connections(monkeypatch):
    for files, most in ((-1, 256), (1024, 256), (256, 76), (64, 8)):
        monkeypatch.setattr(connections.resource, "getrlimit", lambda _, files=files: (files, -1))
        assert connections.most_connections() == most

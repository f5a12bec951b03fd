"""Clients that take nothing: cut off after a while, counted, and told why if they listen again."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from tests.server.running import Running
from tests.support import wait_for

FEED = "/v1/views/users/feed?from=beginning"
ASKED = f"GET {FEED} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()
WHY = "too slow: nothing was taken for 0.5 s"


@pytest.fixture(scope="module")
def much(server: Running) -> str:
    """More than the sockets of both sides take."""
    for name in "abcdefghijkl":
        assert server.send("users", {"id": name, "name": name * 900_000}).json()["accepted"] == 1
    return "users"


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.server.pump.SEND_S", 0.5)
    monkeypatch.setattr("headrace.server.pump.CLOSE_S", 60.0)


def cuts(server: Running) -> float:
    """How many clients were too slow."""
    name = 'headrace_feed_cuts_total{reason="too slow"} '
    text: str = server.http.get("/metrics").text
    return float(next((line.removeprefix(name) for line in text.splitlines() if line.startswith(name)), "0"))


def narrow(server: Running) -> socket.socket:
    """A connection that holds little."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.settimeout(120)
    connection.connect(("127.0.0.1", server.port))
    return connection


@contextmanager
def listening(server: Running, path: str) -> Iterator[ClientConnection]:
    url = f"ws://127.0.0.1:{server.port}{path}"
    with connect(url, sock=narrow(server), max_queue=1, max_size=None, ping_interval=None, proxy=None) as connection:
        yield connection


def until_closed(connection: ClientConnection) -> tuple[list[Any], int | None, str | None]:
    """Everything that was still sent, and how it ended."""
    heard = []
    with suppress(ConnectionClosed):
        while True:
            heard.append(json.loads(connection.recv(60)))
    return heard, connection.close_code, connection.close_reason


def test_a_subscriber_is_closed_with_the_reason(server: Running, much: str) -> None:
    before = cuts(server)
    with listening(server, "/v1/socket") as slow:
        slow.send(json.dumps({"subscribe": "s", "topics": [much], "from": "earliest"}))
        wait_for(lambda: cuts(server) == before + 1, 30, "the cut")
        assert until_closed(slow)[1:] == (1008, WHY)


def test_a_feed_is_closed_with_the_reason(server: Running, much: str) -> None:
    before = cuts(server)
    with listening(server, FEED) as slow:
        wait_for(lambda: cuts(server) == before + 1, 30, "the cut")
        heard, *closed = until_closed(slow)
        assert closed == [1008, WHY]
        assert [one["data"] for one in heard if one["event"] == "cut"] == [{"reason": WHY}]


def test_events_over_http_end_with_the_reason(server: Running, much: str) -> None:
    before = cuts(server)
    with narrow(server) as slow:
        slow.sendall(ASKED)
        wait_for(lambda: cuts(server) == before + 1, 30, "the cut")
        answer = bytearray()
        while b"\r\n0\r\n\r\n" not in answer[-16:] and (data := slow.recv(1 << 20)):
            answer += data
        assert f'event: cut\ndata: {{"reason":"{WHY}"}}\n\n'.encode() in bytes(answer[-200:])


def has(server: Running, port: int) -> bool:
    """Whether the server has a connection of this port, whatever its client thinks."""
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()]
    return any(line[1].endswith(f":{server.port:04X}") and line[2].endswith(f":{port:04X}") for line in lines)


@pytest.mark.parametrize("path", ["/v1/socket", FEED])
def test_who_never_listens_again_is_cut_off(
    server: Running, much: str, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with listening(server, path) as slow:
        if path == "/v1/socket":
            slow.send(json.dumps({"subscribe": "s", "topics": [much], "from": "earliest"}))
        port = slow.local_address[1]
        assert has(server, port)
        # Not before: a busy machine would look when it is over.
        monkeypatch.setattr("headrace.server.pump.CLOSE_S", 0.2)
        wait_for(lambda: not has(server, port), 30, "the end of the connection")


def test_who_never_listens_again_over_http_is_cut_off(
    server: Running, much: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    following = server.services.metrics.following()
    with narrow(server) as slow:
        slow.sendall(ASKED)
        port = slow.getsockname()[1]
        wait_for(lambda: server.services.metrics.following() > following, 30, "the feed")
        monkeypatch.setattr("headrace.server.pump.CLOSE_S", 0.2)
        wait_for(lambda: not has(server, port), 30, "the end of the connection")
        wait_for(lambda: server.services.metrics.following() == following, 30, "the end of the feed")
    assert server.http.get("/healthz").status_code == 200, "and nobody else minds"

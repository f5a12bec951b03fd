"""Connections that say nothing end, and those who subscribe leave room for the others."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from headrace.config import ServerSettings
from headrace.server.connections import COMPARE_LOOKS, Connections
from tests.server.running import Running, running_server
from tests.support import wait_for

TOML = """
[server]
first_byte_seconds = 0.5
max_subscribers = 4
max_subscribers_per_key = 3
max_push_queries = 3
max_push_queries_per_key = 2

[auth]
keys = [
  { key = "reader-key-0123456789", role = "read", name = "reader" },
  { key = "other-key-0123456789", role = "admin", name = "other" },
]
"""
READER, OTHER = "reader-key-0123456789", "other-key-0123456789"
PUSH = {"sql": "SELECT * FROM pageviews EMIT CHANGES;"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running_server(tmp_path_factory.mktemp("connections"), TOML, key=OTHER) as one:
        yield one


def connect(server: Running, said: bytes = b"") -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", server.port))
    connection.settimeout(120)
    connection.sendall(said)
    return connection


def is_closed(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


@pytest.mark.parametrize("said", [b"", b"PRI * HTTP", b"G"])
def test_a_connection_that_does_not_begin_a_request_is_closed(server: Running, said: bytes) -> None:
    with connect(server, said) as connection:
        assert is_closed(connection)
    connections = server.services.connections
    wait_for(lambda: connections is not None and connections.closed_silent > 0, 60, "it is counted")
    assert "headrace_connections_silent_total" in server.http.get("/metrics").text


def test_more_silent_connections_than_fit_keep_nobody_out(tmp_path: Path) -> None:
    """As many as may be open, and then some, all at once."""
    with running_server(tmp_path, "[server]\nmax_connections = 64\n") as server, contextlib.ExitStack() as closing:
        silent = [closing.enter_context(connect(server)) for _ in range(100)]
        assert server.http.get("/healthz", timeout=120).status_code == 200
        answer = server.send("users", [{"id": "u1", "name": "Ann", "age": 41}], timeout=120)
        assert answer.json()["accepted"] == 1
        assert is_closed(silent[0])


def subscribe(server: Running, key: str, closing: contextlib.ExitStack, path: str = "/v1/topics/users/tail") -> int:
    client = closing.enter_context(httpx.Client(base_url=f"http://127.0.0.1:{server.port}", timeout=60))
    headers = {"authorization": f"Bearer {key}"}
    if path == "/v1/query":
        answer = closing.enter_context(client.stream("POST", path, json=PUSH, headers=headers))
    else:
        answer = closing.enter_context(client.stream("GET", path, headers=headers))
    if answer.status_code == 200:
        received = answer.iter_bytes()
        next(received)
        # Kept: the connection ends with it.
        closing.push(lambda *_: received is None)
    return answer.status_code


def nobody_is_subscribed(server: Running) -> bool:
    return not server.services.subscribers.count


def test_one_key_does_not_take_every_subscription(server: Running) -> None:
    wait_for(lambda: nobody_is_subscribed(server), 60, "others have left")
    with contextlib.ExitStack() as closing:
        assert [subscribe(server, READER, closing) for _ in range(4)] == [200, 200, 200, 429]
        assert [subscribe(server, OTHER, closing) for _ in range(2)] == [200, 429]
        assert server.http.get("/healthz").status_code == 200
        refused = 'headrace_subscribers_refused_total{limit="key"} 1.0'
        assert refused in server.http.get("/metrics").text
    wait_for(lambda: nobody_is_subscribed(server), 60, "all have left")


def test_one_key_does_not_take_every_push_query(server: Running) -> None:
    wait_for(lambda: nobody_is_subscribed(server), 60, "others have left")
    with contextlib.ExitStack() as closing:
        assert [subscribe(server, READER, closing, "/v1/query") for _ in range(3)] == [200, 200, 429]
        assert [subscribe(server, OTHER, closing, "/v1/query") for _ in range(2)] == [200, 429]
    wait_for(lambda: nobody_is_subscribed(server), 60, "all have left")


@contextlib.contextmanager
def accepted(listener: socket.socket) -> Iterator[tuple[socket.socket, socket.socket]]:
    """Both ends of a connection to `listener`: the server's first."""
    with socket.create_connection(listener.getsockname()) as client:
        ours, _ = listener.accept()
        with ours:
            yield ours, client


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as found:
        yield found


REQUEST = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


def test_a_look_costs_little_for_connections_that_are_known(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call for each of thousands of connections, twice a second, would keep the event loop waiting."""
    calls: list[int] = []
    fstat = os.fstat

    def counted(descriptor: int) -> os.stat_result:
        calls.append(descriptor)
        return fstat(descriptor)

    connections = Connections(listener.getsockname()[1], ServerSettings())
    with contextlib.ExitStack() as closing:
        for _ in range(200):
            _, client = closing.enter_context(accepted(listener))
            client.sendall(REQUEST)
        connections.look(0.0)
        assert connections.open == 200
        connections.look(100.0)
        assert connections.closed_silent == 0
        monkeypatch.setattr(os, "fstat", counted)
        connections.look(101.0)
        assert connections.open == 200
        assert len(calls) < 100
    connections.look(102.0)
    assert connections.open == 0


def test_a_silent_connection_with_the_number_of_another_is_closed(listener: socket.socket) -> None:
    connections = Connections(listener.getsockname()[1], ServerSettings())
    with accepted(listener) as (busy, client):
        client.sendall(REQUEST)
        connections.look(0.0)
        connections.look(100.0)
        with accepted(listener) as (new, newcomer):
            os.dup2(new.fileno(), busy.fileno())
            new.close()
            for second in range(200, 200 + 2 * COMPARE_LOOKS):
                connections.look(second)
            assert is_closed(newcomer)
        assert connections.closed_silent >= 1

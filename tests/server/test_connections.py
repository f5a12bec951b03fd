"""Connections that say nothing end, and those who subscribe leave room for the others."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

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

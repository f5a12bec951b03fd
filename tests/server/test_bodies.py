"""Bodies that dawdle, never end, or unfold: raw sockets, because no decent client would send them."""

from __future__ import annotations

import contextlib
import gzip
import socket
import time
from pathlib import Path

import zstandard

from tests.server.running import Running, running_server
from tests.support import wait_for

HEAD = "POST /v1/topics/users/events HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"


def connect(server: Running) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=60)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def read_all(connection: socket.socket) -> bytes:
    """Everything until the server closes."""
    pieces = []
    while piece := connection.recv(65536):
        pieces.append(piece)
    return b"".join(pieces)


def test_a_slow_body_is_cut_at_the_deadline(tmp_path: Path) -> None:
    with running_server(tmp_path, "[server]\nbody_seconds = 0.5\n") as server, connect(server) as slow:
        started = time.monotonic()
        slow.sendall((HEAD + 'Content-Length: 100\r\n\r\n{"id":').encode())
        # Meanwhile the others are served. On a busy machine one of theirs may be cut, too: between head and body.
        wait_for(lambda: server.send("users", {"id": "quick"}).status_code == 200, 20, "an answer to somebody else")
        answer = read_all(slow)
        assert time.monotonic() - started > 0.3
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b'"code":"deadline"' in answer
        assert b"within 0.5 s" in answer
        assert [event["key"]["id"] for event in server.events("users")] == ["quick"]


def test_a_client_that_trickles_does_not_get_more_time(tmp_path: Path) -> None:
    with running_server(tmp_path, "[server]\nbody_seconds = 0.5\n") as server, connect(server) as slow:
        slow.sendall((HEAD + "Transfer-Encoding: chunked\r\n\r\n").encode())
        slow.settimeout(0.05)
        answers: list[bytes] = []

        def answered() -> bool:
            with contextlib.suppress(ConnectionError):
                slow.sendall(b"1\r\n \r\n")
            with contextlib.suppress(TimeoutError):
                answers.append(slow.recv(65536))
            return bool(answers)

        wait_for(answered, 20, "an end to the patience")
        slow.settimeout(60)
        with contextlib.suppress(ConnectionError):
            answers.append(read_all(slow))
        assert answers[0].startswith(b"HTTP/1.1 408 ")
        assert b"within 0.5 s" in b"".join(answers)


def test_an_endless_body_is_cut_at_the_limit(tmp_path: Path) -> None:
    with running_server(tmp_path, "[server]\nmax_body_bytes = 100000\n") as server, connect(server) as endless:
        endless.sendall((HEAD + "Transfer-Encoding: chunked\r\n\r\n").encode())
        chunk = b"2710\r\n" + b"x" * 10_000 + b"\r\n"
        for _ in range(11):
            endless.sendall(chunk)
        assert endless.recv(65536).startswith(b"HTTP/1.1 413 ")


def test_a_declared_size_above_the_limit_is_refused_unread(server: Running) -> None:
    with connect(server) as large:
        large.sendall((HEAD + "Content-Length: 999999999999\r\n\r\n").encode())
        assert read_all(large).startswith(b"HTTP/1.1 413 ")


def test_bombs_do_not_unfold(server: Running) -> None:
    for bomb, encoding in (
        (gzip.compress(bytes(50_000_000)), "gzip"),
        (zstandard.compress(bytes(200_000_000)), "zstd"),
    ):
        answer = server.send("users", bomb, headers={"Content-Encoding": encoding})
        assert answer.status_code == 413


def test_half_a_body_is_nothing(tmp_path: Path) -> None:
    """A client that goes away in the middle has sent no event, not even a dead one."""
    with running_server(tmp_path) as server:
        for _ in range(5):
            with connect(server) as hasty:
                hasty.sendall((HEAD + 'Content-Length: 100\r\n\r\n[{"id":"half"},').encode())
        assert server.send("users", {"id": "whole"}).status_code == 200
        assert [event["key"]["id"] for event in server.events("users")] == ["whole"]
        assert server.dead_letters("users") == []


def test_many_bodies_at_once_share_the_memory(tmp_path: Path) -> None:
    toml = "[server]\nmax_body_bytes = 100000\nbody_seconds = 300\n[log]\nmax_pending_bytes = 100000\n"
    with running_server(tmp_path, toml) as server, connect(server) as first:
        first.sendall((HEAD + "Content-Length: 99000\r\n\r\n").encode() + b" " * 90_000)

        budget = server.services.budget
        wait_for(lambda: budget.left == 10_000, 20, "the first body to have arrived")
        refused = server.send("users", b" " * 50_000 + b"{}")
        assert (refused.status_code, refused.json()["error"]["code"]) == (429, "overloaded")
        first.sendall(b" " * 8998 + b"{}")
        assert first.recv(65536).startswith(b"HTTP/1.1 200 ")
        wait_for(lambda: budget.left == 100_000, 20, "its share to be given back")


def test_http2_without_tls(server: Running) -> None:
    """AWS's and ksqlDB's clients speak it: the connection preface is answered with a settings frame."""
    with connect(server) as connection:
        connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00")
        frame = connection.recv(9)
        assert frame[3] == 4

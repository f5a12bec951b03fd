"""Senders that want too much of a source: too many connections, too many bytes, too much time."""

from __future__ import annotations

import contextlib
import http.client
import socket
import struct

import pytest

from headrace.collect.agents.avro_rpc import AvroClient
from headrace.collect.agents.base import AgentError, Event
from headrace.collect.agents.running import Agent
from headrace.collect.agents.sources import avro, listening
from headrace.collect.agents.sources import http as http_source
from tests.collect.agents.making import running
from tests.collect.agents.test_agent import flow, post, shelf_ports, source_port, texts
from tests.support import wait_for

HTTP = "type = http\nbind = 127.0.0.1\nport = 0"
AVRO = "type = avro\nbind = 127.0.0.1\nport = 0"


def connect(agent: Agent) -> socket.socket:
    return socket.create_connection(("127.0.0.1", source_port(agent)), 120)


def drip(client: socket.socket) -> bytes:
    """A byte now and then, until there is an answer, or the end."""
    client.settimeout(0.05)
    found = b""
    for _ in range(2000):
        with contextlib.suppress(ConnectionError):
            client.sendall(b"x")
        try:
            data = client.recv(1000)
        except TimeoutError:
            continue
        except ConnectionError:
            return found
        if not data:
            return found
        found += data
    raise AssertionError("it was listened to for ever")


@pytest.mark.parametrize("begun", [b"POST / HTTP/1.1\r\nContent-Length: 1000000\r\n\r\n", b"POST / HTTP/1.1\r\nX: "])
def test_a_request_that_never_ends_is_ended(begun: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_source, "MESSAGE_S", 0.5)
    shelf, ports = shelf_ports()
    with running(flow(HTTP), ports) as agent, connect(agent) as client:
        client.sendall(begun)
        answer = drip(client)
        assert answer.startswith(b"HTTP/1.1 408 ") or not answer
        wait_for(lambda: agent.counters["source", "r1"].read()["OpenConnectionCount"] == 0, 20, "the thread's end")
        assert post(source_port(agent), [{"body": "still here"}]) == 200
        wait_for(lambda: texts(shelf) == ["still here"], 20, "the event")


@pytest.mark.parametrize("source", [HTTP, AVRO, AVRO.replace("avro", "netcat")])
def test_so_many_connections_and_no_more(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "MAX_CONNECTIONS", 2)
    _, ports = shelf_ports()
    with running(flow(source), ports) as agent:
        counters = agent.counters["source", "r1"]
        with connect(agent), connect(agent):
            wait_for(lambda: counters.read()["OpenConnectionCount"] == 2, 20, "both")
            with connect(agent) as third:
                assert third.recv(1) == b""
        assert counters.read()["ConnectionRefusedCount"] == 1


def test_so_many_bytes_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_source, "IN_FLIGHT", 200_000)
    shelf, ports = shelf_ports()
    with running(flow(f"{HTTP}\nhandler = blob"), ports) as agent:
        with connect(agent) as holding:
            # Somebody is half through: that much is taken.
            holding.sendall(b"POST / HTTP/1.1\r\nContent-Length: 150000\r\n\r\n" + b"x" * 149_999)
            refused = agent.counters["source", "r1"]

            def full() -> bool:
                with contextlib.suppress(OSError, http.client.HTTPException):
                    return post(source_port(agent), b"y" * 60_000) == 503
                return True

            wait_for(full, 20, "a refusal")
            assert refused.read()["RequestRefusedCount"] >= 1
            holding.sendall(b"x")
            assert holding.recv(100).startswith(b"HTTP/1.1 200 ")
        assert post(source_port(agent), b"z" * 190_000) == 200
        wait_for(lambda: {event.body[:1] for event in shelf.events} >= {b"x", b"z"}, 20, "the events")


def test_a_keep_alive_connection_is_as_good_as_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_source, "IN_FLIGHT", 100_000)
    shelf, ports = shelf_ports()
    with running(flow(f"{HTTP}\nhandler = blob"), ports) as agent:
        connection = http.client.HTTPConnection("127.0.0.1", source_port(agent), timeout=120)
        for _ in range(5):
            connection.request("POST", "/", b"x" * 90_000)
            answer = connection.getresponse()
            assert (answer.status, answer.read()) == (200, b"")
        for length, status in (("9" * 5000, 413), ("ten", 411)):
            other = http.client.HTTPConnection("127.0.0.1", source_port(agent), timeout=120)
            other.request("POST", "/", headers={"Content-Length": length})
            assert other.getresponse().status == status
        connection.close()
        wait_for(lambda: len(shelf.events) == 5, 20, "the events")


def test_an_avro_message_that_never_ends_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(avro, "MESSAGE_S", 0.5)
    _, ports = shelf_ports()
    with running(flow(AVRO), ports) as agent, connect(agent) as client:
        client.sendall(struct.pack(">III", 1, 1, 1_000_000))
        assert drip(client) == b""
        wait_for(lambda: agent.counters["source", "r1"].read()["OpenConnectionCount"] == 0, 20, "the thread's end")


def test_avro_takes_so_many_bytes_at_once_and_gives_them_free_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(avro, "IN_FLIGHT", 100_000)
    shelf, ports = shelf_ports()
    with running(flow(AVRO), ports) as agent:
        port = source_port(agent)
        for _ in range(2):
            with pytest.raises(AgentError, match="broke"):
                AvroClient("127.0.0.1", port, 60, 60).append_batch([Event(b"x" * 200_000)])
        client = AvroClient("127.0.0.1", port, 60, 60)
        for _ in range(5):
            client.append_batch([Event(b"y" * 60_000)])
        client.close()
        wait_for(lambda: len(shelf.events) == 5, 20, "the events")


def test_who_is_not_allowed_is_not_listened_to() -> None:
    _, ports = shelf_ports()
    with running(flow(f"{HTTP}\nallow = 10.0.0.0/8"), ports) as agent:
        with connect(agent) as stranger:
            assert stranger.recv(1) == b""
        assert agent.counters["source", "r1"].read()["ConnectionRefusedCount"] == 1


@pytest.mark.parametrize("header", ["Origin: https://evil.example", "Sec-Fetch-Site: cross-site"])
def test_a_web_page_may_not_post(header: str) -> None:
    shelf, ports = shelf_ports()
    body = b'[{"body": "forged"}]'
    with running(flow(HTTP), ports) as agent:
        with connect(agent) as page:
            page.sendall(f"POST / HTTP/1.1\r\n{header}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
            assert page.recv(1000).startswith(b"HTTP/1.1 403 ")
        assert post(source_port(agent), [{"body": "an agent's"}]) == 200
        wait_for(lambda: texts(shelf) == ["an agent's"], 20, "the event")

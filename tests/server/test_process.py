"""The server as a process of its own: killed, stopped, refused."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.server.running import write_project
from tests.support import free_port, wait_for

pytestmark = pytest.mark.slow


@contextmanager
def process(folder: Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "headrace.server.main", "--project", str(folder), "--port", str(port)]
    with (folder / "server.log").open("ab") as log:
        child = subprocess.Popen(command, stderr=log, start_new_session=True)
    try:
        yield child
    finally:
        if child.poll() is None:
            child.kill()
        child.wait(60)


@contextmanager
def client(port: int) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60, trust_env=False) as http:
        wait_for(lambda: "the pipelines" not in http.get("/readyz").json()["waiting_for"], 30, "the server")
        yield http


def test_a_retry_is_harmless_over_kill_9(tmp_path: Path) -> None:
    """A client that got no answer sends again; killed at any moment, every event is there once."""
    folder, port = write_project(tmp_path), free_port()
    acknowledged: set[str] = set()
    batch = 0

    def send(http: httpx.Client) -> None:
        events = [{"id": f"{batch}-{i}", "name": "x"} for i in range(20)]
        answer = http.post("/v1/topics/users/events", json=events, headers={"Idempotency-Key": f"b{batch}"})
        assert answer.status_code == 200, answer.text
        assert answer.json()["accepted"] + answer.json()["duplicates"] == 20
        acknowledged.update(event["id"] for event in events)

    for round_ in range(4):
        with process(folder, port) as child, client(port) as http:
            if round_:
                # The one that was being sent when it died, whether it was taken or not.
                send(http)
                batch += 1
            killer = threading.Timer(0.2 + 0.1 * round_, os.kill, (child.pid, signal.SIGKILL))
            killer.start()
            try:
                while True:
                    send(http)
                    batch += 1
            except httpx.TransportError:
                killer.join()
    with process(folder, port), client(port) as http:
        send(http)
        again = http.post(
            "/v1/topics/users/events",
            json=[{"id": f"0-{i}", "name": "x"} for i in range(20)],
            headers={"Idempotency-Key": "b0"},
        )
        assert again.json()["duplicates"] == 20
        stored: list[str] = []
        for partition in (0, 1):
            end = http.get("/v1/topics/users").json()["partitions"][partition]["end"]
            for start in range(0, end, 1000):
                query: dict[str, str | int] = {"from": start, "partition": partition, "limit": 1000}
                found = http.get("/v1/topics/users/events", params=query).json()["events"]
                stored += [event["key"]["id"] for event in found]
        assert len(stored) == len(set(stored)), "something is there twice"
        assert set(stored) == acknowledged


def test_it_stops_when_told_and_finishes_what_it_was_doing(tmp_path: Path) -> None:
    folder, port = write_project(tmp_path), free_port()
    with process(folder, port) as child:
        with client(port) as http:
            assert http.post("/v1/topics/users/events", json={"id": "a"}).status_code == 200
            with http.stream("GET", "/v1/views/users/feed") as feed:
                child.send_signal(signal.SIGTERM)
                text = "".join(feed.iter_text())
        assert 'event: cut\ndata: {"reason":"stopping"}' in text
        assert child.wait(120) == 0
    assert "stopped" in (folder / "server.log").read_text()


@pytest.mark.parametrize(
    ("toml", "code", "said"),
    [
        ('[server]\nhost = "0.0.0.0"\n', 78, "without keys"),
        ('[[auth.keys]]\nkey = "k"\nrole = "boss"\n', 78, "cannot be `boss`"),
        ("[server]\nprot = 1\n", 78, "prot"),
    ],
)
def test_what_trying_again_cannot_mend(tmp_path: Path, toml: str, code: int, said: str) -> None:
    with process(write_project(tmp_path, toml), free_port()) as child:
        assert child.wait(120) == code
    assert said in (tmp_path / "server.log").read_text()


def test_a_port_in_use_is_said_plainly(tmp_path: Path) -> None:
    """Also when it is in use in a way that would let us share it: granian would, and get half of the requests."""
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        other.bind(("127.0.0.1", 0))
        other.listen(1)
        port = other.getsockname()[1]
        with process(write_project(tmp_path), port) as child:
            assert child.wait(120) == 1
    assert f"port {port} is in use" in (tmp_path / "server.log").read_text()


def test_two_servers_do_not_share_a_project(tmp_path: Path) -> None:
    folder, port = write_project(tmp_path), free_port()
    with process(folder, port) as first, client(port), process(folder, free_port()) as second:
        assert second.wait(120) == 1
        assert f"pid {first.pid}" in (folder / "server.log").read_text()

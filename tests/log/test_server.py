"""The owner's socket: one owner, many clients, and whatever may come through a connection."""

from __future__ import annotations

import json
import os
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.clock import SystemClock
from headrace.errors import Conflict, HeadraceError, NotFound, NotRunning, Overloaded, OwnerLost, UsageError
from headrace.log.base import Append
from headrace.log.local import LocalClient, LocalLog, open_log, wire
from tests.log.support import PLAIN, VIEWS, batch, numbers, open_owner, put, settings
from tests.support import wait_for

OWNER = """
import sys
from pathlib import Path
from headrace.clock import SystemClock
from headrace.config import LogSettings
from headrace.log.local import LocalLog
log = LocalLog(Path(sys.argv[1]), LogSettings(linger_ms=float(sys.argv[2]), min_free_bytes=0), SystemClock())
print("ready", flush=True)
sys.stdin.read()
log.close()
"""


def start_owner(folder: Path, linger_ms: float = 0) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", OWNER, str(folder), str(linger_ms)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    return process


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[LocalLog]:
    log = open_owner(tmp_path / "log", serve=True)
    yield log
    log.close()


class Line:
    """A connection spoken by hand."""

    def __init__(self, folder: Path) -> None:
        self.socket = wire.connect(json.loads((folder / "owner.lock").read_text())["socket"], 30)
        self.file = self.socket.makefile("rb")

    def ask(self, request: bytes | dict[str, Any], *streams: bytes) -> dict[str, Any]:
        line = request if isinstance(request, bytes) else json.dumps(request).encode()
        self.socket.sendall(line + b"\n" + b"".join(streams))
        answer: dict[str, Any] = json.loads(self.file.readline() or b"{}")
        return answer

    def close(self) -> None:
        self.file.close()
        self.socket.close()


@pytest.fixture
def line(owner: LocalLog) -> Iterator[Line]:
    made = Line(owner.folder)
    yield made
    made.close()


def stream(**columns: list[Any]) -> bytes:
    made = batch(**columns)
    return bytes(wire.encode_batches(made.schema, [made]))


# Who owns


def test_a_second_owner_is_refused_with_the_first_ones_pid(owner: LocalLog) -> None:
    with pytest.raises(Conflict, match=f"pid {os.getpid()}"):
        LocalLog(owner.folder, settings(), SystemClock())


def test_whoever_comes_first_owns_and_others_connect(tmp_path: Path) -> None:
    first = open_log(tmp_path / "log", settings(), SystemClock())
    second = open_log(tmp_path / "log", settings(), SystemClock())
    assert (type(first), type(second)) == (LocalLog, LocalClient)
    second.create_topic(PLAIN)
    put(second, "plain", N=[1])
    assert numbers(first) == [1]
    second.close()
    first.close()
    third = open_log(tmp_path / "log", settings(), SystemClock())
    assert type(third) is LocalLog
    third.close()


def test_without_an_owner_there_is_no_client(tmp_path: Path) -> None:
    open_owner(tmp_path / "log").close()
    with pytest.raises(NotRunning):
        LocalClient(tmp_path / "log")


def test_a_stale_socket_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(tmp_path / "log" / "owner.sock"))
    owner = open_owner(tmp_path / "log", serve=True)
    client = LocalClient(tmp_path / "log")
    assert client.owner_alive()
    client.close()
    owner.close()


def test_a_path_too_long_for_a_socket_is_no_obstacle(tmp_path: Path) -> None:
    folder = tmp_path / ("d" * 60) / ("e" * 60) / "log"
    owner = open_owner(folder, serve=True)
    address = Path(json.loads((folder / "owner.lock").read_text())["socket"])
    assert address.parent.stat().st_mode & 0o077 == 0
    client = LocalClient(folder)
    client.create_topic(PLAIN)
    put(client, "plain", N=[1])
    client.close()
    owner.close()
    assert not address.parent.exists()


def test_only_the_user_may_connect(owner: LocalLog) -> None:
    assert (owner.folder / "owner.sock").stat().st_mode & 0o777 == 0o600


# An owner that goes away


@pytest.mark.slow
def test_a_client_outlives_its_owner(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    process = start_owner(folder)
    client = LocalClient(folder)
    client.create_topic(PLAIN)
    put(client, "plain", N=[1])
    process.kill()
    process.wait()
    wait_for(lambda: not client.owner_alive(), 10, "the owner's end to be noticed")
    assert numbers(client) == [1]
    with pytest.raises((NotRunning, OwnerLost)):
        put(client, "plain", N=[2])
    with pytest.raises(NotRunning):
        client.call("x", None)
    process = start_owner(folder)
    wait_for(client.owner_alive, 10, "the new owner")
    put(client, "plain", N=[3])
    assert numbers(client)[-1] == 3
    process.communicate()
    client.close()


@pytest.mark.slow
def test_whoever_waits_for_an_answer_learns_that_the_owner_is_gone(tmp_path: Path) -> None:
    process = start_owner(tmp_path / "log", linger_ms=60_000)
    client = LocalClient(tmp_path / "log")
    client.create_topic(PLAIN)
    future = client.append([Append("plain", batch(N=[1]))])
    assert not future.done()
    process.kill()
    with pytest.raises(OwnerLost):
        future.result(60)
    process.wait()
    client.close()


def test_closing_answers_what_was_taken(tmp_path: Path) -> None:
    owner = open_owner(tmp_path / "log", serve=True, linger_ms=50.0)
    owner.create_topic(PLAIN)
    client = LocalClient(tmp_path / "log")
    futures = [client.append([Append("plain", batch(N=[n]))]) for n in range(20)]
    futures[0].result(60)
    owner.close()
    stored = 0
    for future in futures:
        try:
            stored += len(future.result(60))
        except OwnerLost:
            break
    client.close()
    again = open_owner(tmp_path / "log")
    assert numbers(again)[:stored] == list(range(stored))
    again.close()


# What may come through


def test_many_clients_keep_their_order(owner: LocalLog) -> None:
    owner.create_topic(VIEWS)
    failures: list[BaseException] = []

    def write(name: str) -> None:
        try:
            client = LocalClient(owner.folder)
            futures = [client.append([Append("pageviews", batch(USERID=[name], N=[n]))]) for n in range(100)]
            for future in futures:
                future.result(60)
            client.close()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=write, args=(f"client {number}",)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    seen: dict[str, list[int]] = {}
    for partition in range(2):
        for records in owner.read("pageviews", partition, 0):
            for row in records.batch.to_pylist():
                seen.setdefault(row["USERID"], []).append(row["N"])
    assert seen == {f"client {number}": list(range(100)) for number in range(6)}


def test_the_documented_append(owner: LocalLog, line: Line) -> None:
    owner.create_topic(PLAIN)
    request = {"op": "append", "topic": "plain", "acks": "all", "arrow": True}
    answer = line.ask(request, stream(N=[1, 2], id_=["a", "a"]))
    assert answer == {"ok": True, "positions": [[0, 0, 0]], "duplicates": [1]}


def test_errors_are_answers_and_the_connection_goes_on(owner: LocalLog, line: Line) -> None:
    owner.create_topic(PLAIN)
    codes = [
        line.ask({"op": "nonsense"})["error"]["code"],
        line.ask({"op": "nonsense", "arrow": True}, stream(N=[1]))["error"]["code"],
        line.ask({"op": "append"})["error"]["code"],
        line.ask({"op": "append", "topic": "gone", "arrow": True}, stream(N=[1]))["error"]["code"],
        line.ask({"op": "append", "topic": "plain", "arrow": True}, stream(X=[1]))["error"]["code"],
        line.ask({"op": "append", "appends": [{"topic": "plain"}, {}], "arrow": True}, stream(N=[1]), stream(N=[2]))[
            "error"
        ]["code"],
        line.ask({"op": "stage", "transaction": "t", "arrow": True}, stream(N=[1]))["error"]["code"],
        line.ask({"op": "commit", "transaction": "t", "tasks": [[0, 0]]})["error"]["code"],
        line.ask({"op": "call", "name": "nobody"})["error"]["code"],
    ]
    assert codes == ["usage", "usage", "usage", "not_found", "usage", "usage", "usage", "log", "not_found"]
    assert line.ask({"op": "hello"})["pid"] == os.getpid()
    assert owner.snapshot().arrival == 0


@pytest.mark.parametrize(
    "rubbish", [b"not json", b"[1]", b"\xff\xfe", b"x" * (5 * 1024 * 1024)], ids=lambda r: repr(r[:9])
)
def test_what_is_no_request_ends_the_connection(owner: LocalLog, line: Line, rubbish: bytes) -> None:
    try:
        answer = line.ask(rubbish)
        assert answer.get("error", {}).get("code") in ("usage", None)
    except OSError:
        pass
    assert owner.snapshot().arrival == 0
    client = LocalClient(owner.folder)
    client.create_topic(PLAIN)
    client.close()


def test_an_append_that_broke_off_stores_nothing(owner: LocalLog) -> None:
    """Cut at every place, also between two batches, where Arrow sees nothing wrong."""
    owner.create_topic(PLAIN)
    made = batch(N=[1, 2, 3])
    whole = wire.encode_batches(made.schema, [made, made]).to_pybytes()
    for size in range(0, len(whole), 64):
        line = Line(owner.folder)
        line.socket.sendall(
            json.dumps({"op": "append", "topic": "plain", "arrow": True}).encode() + b"\n" + whole[:size]
        )
        line.socket.shutdown(socket.SHUT_WR)
        line.file.read()
        line.close()
    assert owner.snapshot().arrival == 0


def test_arrow_that_lies_is_refused(owner: LocalLog, line: Line) -> None:
    """Offsets that point outside their buffer would let a reader run anywhere."""
    owner.create_topic(VIEWS)
    honest = stream(PAGEID=["x" * 77])
    lying = honest.replace(struct.pack("<II", 0, 77), struct.pack("<II", 0, 1_000_000))
    assert lying != honest
    answer = line.ask({"op": "append", "topic": "pageviews", "arrow": True}, lying)
    assert not answer["ok"]
    assert owner.snapshot().arrival == 0


def test_calls_reach_the_process_around_the_owner(owner: LocalLog) -> None:
    def answer(body: Any) -> Any:
        if body == "refuse":
            raise UsageError("not that")
        if body == "fail":
            raise ValueError("oh")
        return {"got": body}

    owner.register_call("engine.status", answer)
    client = LocalClient(owner.folder)
    assert client.call("engine.status", [1, {"a": None}]) == {"got": [1, {"a": None}]}
    with pytest.raises(UsageError, match="not that"):
        client.call("engine.status", "refuse")
    with pytest.raises(HeadraceError, match="oh"):
        client.call("engine.status", "fail")
    with pytest.raises(NotFound):
        client.call("other", None)
    client.close()


def test_too_much_waiting_is_refused(tmp_path: Path) -> None:
    owner = open_owner(tmp_path / "log", serve=True, linger_ms=300.0, max_pending_bytes=4000)
    owner.create_topic(PLAIN)
    client = LocalClient(tmp_path / "log")
    futures = [client.append([Append("plain", batch(N=list(range(50))))]) for _ in range(100)]
    results = [future.exception(60) for future in futures]
    refused = [error for error in results if error]
    assert 0 < len(refused) < 100
    assert all(isinstance(error, Overloaded) and error.retry_after > 0 for error in refused)
    many = [Append("plain", batch(N=list(range(50))))] * 8
    with pytest.raises(Overloaded):
        [owner.append(many) for _ in range(12)]
    client.close()
    owner.close()
    again = open_owner(tmp_path / "log")
    assert len(numbers(again)) >= 50 * (100 - len(refused))
    again.close()

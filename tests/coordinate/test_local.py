"""Who runs a project, and who has the port."""

from __future__ import annotations

import fcntl
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from headrace.config import AuthSettings, Key, Project, ProjectSettings, ServerSettings
from headrace.coordinate.local import LOCK_FILE, Holder, UpLock, holder, is_held
from headrace.coordinate.ports import choose_port, port_holder
from headrace.coordinate.supervisor import check_binding
from headrace.errors import Conflict, Refused, UsageError
from tests.support import wait_for

HOLD = """
import sys, pathlib
from headrace.coordinate.local import Holder, UpLock
lock = UpLock.acquire(pathlib.Path(sys.argv[1]))
lock.announce(Holder(pid=4121, port=8080, started_ms=1))
print("held", flush=True)
sys.stdin.read()
"""
LISTEN = """
import socket, sys
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
sys.stdin.read()
"""


def child(code: str, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_a_second_holder_is_refused_and_told_who(tmp_path: Path) -> None:
    process = child(HOLD, str(tmp_path))
    try:
        assert first_line(process) == "held"
        assert holder(tmp_path) == Holder(pid=4121, port=8080, started_ms=1)
        with pytest.raises(Conflict, match=r"already up .pid 4121, http://127\.0\.0\.1:8080") as refused:
            UpLock.acquire(tmp_path)
        assert "headrace down" in str(refused.value)
    finally:
        process.kill()
        process.wait()
    # Killed, not asked: the kernel has let go, though the file still says otherwise.
    wait_for(lambda: not is_held(tmp_path), 5, "the lock to be free")
    assert holder(tmp_path) is None
    UpLock.acquire(tmp_path).release()


def test_nobody_holds_what_does_not_exist(tmp_path: Path) -> None:
    assert holder(tmp_path / "nowhere") is None
    assert not is_held(tmp_path / "nowhere")


def test_asking_who_holds_it_keeps_nobody_out(tmp_path: Path) -> None:
    UpLock.acquire(tmp_path).release()
    for _ in range(50):
        assert holder(tmp_path) is None
        UpLock.acquire(tmp_path).release()


def test_one_who_asks_and_is_stopped_in_the_middle_keeps_nobody_out(tmp_path: Path) -> None:
    """A busy machine may not come back to it for a second."""
    UpLock.acquire(tmp_path).release()
    asking = os.open(tmp_path / LOCK_FILE, os.O_RDONLY)
    fcntl.flock(asking, fcntl.LOCK_SH)
    later = threading.Timer(1.0, os.close, (asking,))
    later.start()
    lock = UpLock.acquire(tmp_path)
    assert is_held(tmp_path)
    lock.release()
    later.join()


@pytest.mark.parametrize(
    ("host", "url"),
    [("127.0.0.1", "http://127.0.0.1:81"), ("0.0.0.0", "http://127.0.0.1:81"), ("::", "http://[::1]:81")],
)
def test_the_address_is_one_that_can_be_opened(host: str, url: str) -> None:
    assert Holder(1, 81, 0, host).url == url


def test_a_port_in_use_says_by_whom() -> None:
    process = child(LISTEN)
    try:
        port = int(first_line(process))
        found = port_holder(port)
        assert found is not None
        assert (found.pid, found.project) == (process.pid, None)
        with pytest.raises(Conflict, match=f"port {port} is in use by pid {process.pid} .python") as taken:
            choose_port("127.0.0.1", port)
        assert taken.value.hint == f"use another:  headrace up --port {port + 1}"
    finally:
        process.kill()
        process.wait()


def test_a_port_held_by_a_headrace_names_its_project(tmp_path: Path) -> None:
    # Only the command line says what it is; a process of that shape is enough.
    process = child(LISTEN + "# headrace.server.main", "--project", str(Path.home() / "shop"))
    try:
        port = int(first_line(process))
        with pytest.raises(Conflict, match=r"\(headrace, ~/shop\)") as taken:
            choose_port("127.0.0.1", port)
        assert "or stop it:  headrace down --project ~/shop" in str(taken.value)
    finally:
        process.kill()
        process.wait()


def test_a_free_port_is_chosen_and_can_be_listened_on() -> None:
    port = choose_port("127.0.0.1", 0)
    with socket.create_server(("127.0.0.1", port)):
        assert (holder_found := port_holder(port)) is not None
        assert holder_found.pid == os.getpid()


def test_an_address_of_somebody_else_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match=r"cannot listen on `192\.0\.2\.1:8080`"):
        choose_port("192.0.2.1", 8080)


def test_only_loopback_goes_without_keys(tmp_path: Path) -> None:
    def project(host: str, *keys: Key) -> Project:
        return Project(tmp_path, ProjectSettings(server=ServerSettings(host=host), auth=AuthSettings(list(keys))))

    for host in ("127.0.0.1", "::1", "localhost", "127.8.8.8"):
        check_binding(project(host))
    check_binding(project("0.0.0.0", Key("secret", "admin")))
    for host in ("0.0.0.0", "::", "192.168.1.4", "example.org"):
        with pytest.raises(Refused, match="without keys") as refused:
            check_binding(project(host))
        assert "auth.keys" in str(refused.value)

"""Who runs a project on this machine: one lock file, held with flock by the supervisor, that says who and where.

The kernel drops the lock when the holder dies, however it dies, so a stale file never keeps anybody out.
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

import msgspec

from headrace.access.files import make_private_folder
from headrace.errors import Conflict
from headrace.structs import ready

LOCK_FILE = "up.lock"
ASKING_S = 30.0
"""How long somebody who only asks who runs a project is waited for."""


class Holder(msgspec.Struct, frozen=True):
    """What the lock file says about the process that holds it."""

    pid: int
    port: int
    started_ms: int
    host: str = "127.0.0.1"
    tls: bool = False

    @property
    def url(self) -> str:
        return own_address(self.host, self.port, self.tls)


def own_address(host: str, port: int, tls: bool = False) -> str:
    """Where commands and our own children find the server: an address for all networks is none to call.

    >>> own_address("0.0.0.0", 8080), own_address("::1", 8080, tls=True)
    ('http://127.0.0.1:8080', 'https://[::1]:8080')
    """
    name = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"{'https' if tls else 'http'}://{f'[{name}]' if ':' in name else name}:{port}"


class UpLock:
    """Held from `acquire` until `release` or the end of the process."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @classmethod
    def acquire(cls, data: Path) -> UpLock:
        """`Conflict`, with the holder's pid, if somebody else holds it."""
        make_private_folder(data)
        path = data / LOCK_FILE
        # Not inherited (PEP 446), so the children do not keep it when we are killed.
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        if not _try_exclusive(descriptor):
            os.close(descriptor)
            raise _held(data)
        os.ftruncate(descriptor, 0)
        return cls(descriptor)

    def announce(self, holder: Holder) -> None:
        """Say who holds it. One small write: readers see all of it or nothing."""
        body = msgspec.json.encode(holder)
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, body, 0)

    def release(self) -> None:
        os.ftruncate(self._descriptor, 0)
        os.close(self._descriptor)


def holder(data: Path) -> Holder | None:
    """Who runs the project whose data folder this is; None if nobody does, or it has not yet said."""
    try:
        descriptor = os.open(data / LOCK_FILE, os.O_RDONLY)
    except OSError:
        return None
    try:
        if _try_shared(descriptor):
            return None
        return msgspec.json.decode(os.pread(descriptor, 4096, 0), type=ready(Holder))
    except msgspec.DecodeError:
        return None
    finally:
        os.close(descriptor)


def is_held(data: Path) -> bool:
    try:
        descriptor = os.open(data / LOCK_FILE, os.O_RDONLY)
    except OSError:
        return False
    try:
        return not _try_shared(descriptor)
    finally:
        os.close(descriptor)


def _try_exclusive(descriptor: int) -> bool:
    """Whoever asks `holder` takes the lock for a moment, on a busy machine for longer: that must not look like somebody
    running. Others can ask at the same time; they cannot while somebody runs."""
    refused, deadline = 0, time.monotonic() + ASKING_S
    while refused < 10 and time.monotonic() < deadline:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            refused += not _try_shared(descriptor)
            time.sleep(0.02)
    return False


def _try_shared(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    return True


def _held(data: Path) -> Conflict:
    found = holder(data)
    who = f"pid {found.pid}, {found.url}" if found else "another process that is just starting"
    return Conflict(
        f"this project is already up ({who})",
        hint="stop it:  headrace down      or see it:  headrace status",
        pid=found.pid if found else None,
    )

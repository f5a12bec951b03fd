"""owner.lock: who owns the log, and where it listens."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import msgspec

from headrace.errors import Conflict
from headrace.log.local.files import write_all
from headrace.structs import ready


class Holder(msgspec.Struct, frozen=True):
    pid: int
    socket: str
    started_ms: int


def read_holder(folder: Path) -> Holder | None:
    """Who says it owns the log. It may be gone: only its socket or the lock itself can tell."""
    try:
        return msgspec.json.decode((folder / "owner.lock").read_bytes(), type=ready(Holder))
    except (OSError, msgspec.DecodeError, msgspec.ValidationError):
        return None


class OwnerLock:
    """Held from construction to `release`, or to the death of the process."""

    def __init__(self, folder: Path) -> None:
        self._descriptor = os.open(folder / "owner.lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._descriptor)
            holder = read_holder(folder)
            who = f"pid {holder.pid}" if holder else "another process"
            raise Conflict(
                f"the log in `{folder}` is in use by {who}",
                hint="connect to it (`open_log` does), or stop that process first",
                pid=holder.pid if holder else None,
            ) from None
        # Nobody can connect yet: say so until `announce`.
        os.ftruncate(self._descriptor, 0)

    def announce(self, holder: Holder) -> None:
        content = msgspec.json.encode(holder)
        write_all(self._descriptor, [content], 0)
        os.ftruncate(self._descriptor, len(content))

    def release(self) -> None:
        if self._descriptor >= 0:
            os.ftruncate(self._descriptor, 0)
            os.close(self._descriptor)
            self._descriptor = -1

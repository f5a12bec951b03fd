"""The way in: own the log if nobody does, otherwise talk to whoever does."""

from __future__ import annotations

import time
from pathlib import Path

from headrace.clock import Clock
from headrace.config import LogSettings
from headrace.errors import Conflict, NotRunning
from headrace.log.local.client import LocalClient
from headrace.log.local.lock import read_holder
from headrace.log.local.log import LocalLog

_WAIT_S = 20.0

__all__ = ["LocalClient", "LocalLog", "open_log"]


def open_log(folder: Path, settings: LogSettings, clock: Clock) -> LocalLog | LocalClient:
    """Become the owner if the lock is free, else a client of the owner; one that is still recovering is waited for."""
    deadline = time.monotonic() + _WAIT_S
    while True:
        try:
            return LocalLog(folder, settings, clock)
        except Conflict:
            holder = read_holder(folder)
            if (holder is not None and not holder.socket) or time.monotonic() > deadline:
                raise
        try:
            return LocalClient(folder)
        except NotRunning:
            # Starting, or just gone.
            time.sleep(0.02)

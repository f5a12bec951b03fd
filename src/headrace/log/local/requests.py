"""What the commit thread is asked to do, and how it says that it could not."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headrace.errors import DiskFull, HeadraceError, LogError
from headrace.log.base import Acks, Appended, BatchIdentity, Committed
from headrace.log.local.producers import Stamp
from headrace.log.writing.prepare import Prepared
from headrace.log.writing.transactions import Staged

logger = logging.getLogger(__name__)


Guard = Callable[[], None]
"""Raises if the request must not be committed after all; asked in the commit thread, before its rows are added."""


def _future() -> Future[Any]:
    """Already running, so that nobody can cancel what will be written."""
    future: Future[Any] = Future()
    future.set_running_or_notify_cancel()
    return future


@dataclass(slots=True)
class AppendRequest:
    parts: list[Prepared]
    bytes: int
    acks: Acks
    stamp: Stamp | None = None
    guard: Guard | None = None
    future: Future[Any] = field(default_factory=_future)
    result: list[Appended] = field(default_factory=list)


@dataclass(slots=True)
class CommitRequest:
    transaction: str
    tasks: Sequence[tuple[int, int]]
    identity: BatchIdentity | None
    stamp: Stamp | None = None
    guard: Guard | None = None
    future: Future[Any] = field(default_factory=_future)
    result: Committed | list[Appended] | None = None
    bytes: int = 0
    taken: list[Staged] = field(default_factory=list)


@dataclass(slots=True)
class ControlRequest:
    """Anything else that changes the log: runs alone in the commit thread."""

    action: Callable[[], Any]
    future: Future[Any] = field(default_factory=_future)
    result: Any = None
    bytes: int = 0


Request = AppendRequest | CommitRequest | ControlRequest


def fail(request: Request, error: HeadraceError) -> None:
    if isinstance(request, AppendRequest) and request.acks != "all":
        logger.error("records that were taken could not be written: %s", error)
    request.future.set_exception(error)


def disk_full(folder: Path, detail: str) -> DiskFull:
    return DiskFull(
        "the disk is full", detail=f"{detail} in `{folder}`", hint="free some space; what was sent is not stored"
    )


def named(folder: Path, error: Exception) -> HeadraceError:
    if isinstance(error, HeadraceError):
        return error
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return disk_full(folder, "a write failed")
    return LogError(
        "a write to the log failed",
        detail=f"{type(error).__name__}: {error}",
        hint="nothing of it was stored; send again",
    )

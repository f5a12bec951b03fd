"""What a failed Spark query says, short enough to read."""

from __future__ import annotations

import errno
import re
from typing import Any

from headrace.errors import BatchConflict, CheckpointOfAnotherLog, DiskFull, HeadraceError, UsageError
from headrace.process.base import QueryError, QuerySpec
from headrace.types import display_name

MESSAGE_LENGTH, DETAIL_LENGTH = 300, 4000
# The owner's and the connector's errors travel through the JVM as text; the code is what is looked for.
CONFLICT = BatchConflict.code
FULL = (DiskFull.code, "No space left on device", "Disk quota exceeded")
MISSING = (
    "CANNOT_READ_DELTA_FILE_NOT_EXISTS",
    "CANNOT_READ_MISSING_SNAPSHOT_FILE",
    "CANNOT_READ_STREAMING_STATE_FILE",
    "create a new checkpoint directory",
    "restore the missing state files",
)
"""What Spark says of a checkpoint whose files are gone. Starting again does not bring them back."""
CALLED = "An error occurred while calling"
_CAUSE = re.compile(r"^\s*Caused by: (?P<cause>.+)$", re.MULTILINE)
_TERMINATED = re.compile(r"terminated with exception: (?P<cause>.+?)(?: SQLSTATE: \w+)?$", re.MULTILINE | re.DOTALL)
_CLASS = re.compile(r"^(?:[a-z][\w$]*\.)+(?P<name>[A-Z][\w$]*)(?:: )?")


def is_permanent(error: BaseException) -> bool:
    """Would starting again end the same way? Everything else is tried again for ever."""
    if isinstance(error, UsageError | BatchConflict | CheckpointOfAnotherLog):
        return True
    text = full_text(error)
    return CONFLICT in text or is_state_missing(text)


def is_state_missing(text: str) -> bool:
    """Whether Spark says that files of a checkpoint are gone.

    >>> is_state_missing("[CANNOT_LOAD_STATE_STORE.CANNOT_READ_DELTA_FILE_NOT_EXISTS] Error reading …")
    True
    """
    return any(said in text for said in MISSING)


def is_disk_full(error: BaseException) -> bool:
    """
    >>> is_disk_full(OSError(errno.ENOSPC, "no space")), is_disk_full(OSError(errno.EIO, "broken"))
    (True, False)
    """
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return True
    return isinstance(error, DiskFull) or any(said in full_text(error) for said in FULL)


def describe_failure(error: BaseException, spec: QuerySpec, now_ms: int) -> QueryError:
    if isinstance(error, BatchConflict) or CONFLICT in full_text(error):
        return _describe_conflict(error, spec, now_ms)
    if not isinstance(error, HeadraceError) and is_state_missing(full_text(error)):
        return _describe_missing_state(error, spec, now_ms)
    if isinstance(error, HeadraceError):
        detail = "\n".join(part for part in (error.detail, error.hint) if part)
        return QueryError(message=error.message, time_ms=now_ms, detail=detail or None)
    text = full_text(error)
    return QueryError(message=_short(text), time_ms=now_ms, detail=text[:DETAIL_LENGTH])


def short_failure(error: BaseException) -> str:
    """In a line."""
    return _short(full_text(error))


def _describe_conflict(error: BaseException, spec: QuerySpec, now_ms: int) -> QueryError:
    return QueryError(
        message="its checkpoint does not fit what is already in the log",
        time_ms=now_ms,
        detail=(
            f"the checkpoint `{spec.checkpoint}` was deleted, rolled back or replaced, so going on would lose or "
            "repeat rows; nothing was written. Put the checkpoint back as it was and start the query again, "
            f"or compute it again from the log:  headrace view rebuild {display_name(spec.plan.sink.name)}\n"
            + _short(full_text(error))
        ),
    )


def _describe_missing_state(error: BaseException, spec: QuerySpec, now_ms: int) -> QueryError:
    return QueryError(
        message="files of its checkpoint are missing",
        time_ms=now_ms,
        detail=(
            f"what it has kept in `{spec.checkpoint}` was deleted in part. Nothing was written since. Put the files "
            "back and start the query again, or compute it again from the log:  "
            f"headrace view rebuild {display_name(spec.plan.sink.name)}\n" + _short(full_text(error))
        ),
    )


def full_text(error: BaseException) -> str:
    """Message and Java causes. PySpark keeps the JVM's stack trace on its exceptions."""
    trace: Any = getattr(error, "_stackTrace", None) or ""
    return f"{error}\n{trace}" if trace else str(error) or type(error).__name__


def _short(text: str) -> str:
    """The deepest cause, without its Java class unless that is all there is."""
    causes = _CAUSE.findall(text)
    terminated = _TERMINATED.search(text)
    lines = text.strip().splitlines() or ["unknown error"]
    # Py4J's own first line says only that something was called.
    first_line = lines[1].removeprefix(": ") if len(lines) > 1 and lines[0].startswith(CALLED) else lines[0]
    cause = causes[-1] if causes else terminated["cause"] if terminated else first_line
    cause = cause.strip().splitlines()[0]
    without_class = _CLASS.sub("", cause)
    named = _CLASS.match(cause)
    return (without_class or (named["name"] if named else cause))[:MESSAGE_LENGTH]

"""Every error Headrace raises on purpose.

HeadraceError
├── UsageError              what was asked cannot be done as asked            400, exit 1
│   ├── SqlError            with line, column and the offending text
│   ├── ConfigError         headrace.toml, with the setting's path
│   └── LimitReached        an answer that is not whole because of a setting
├── NotFound                a topic, view or query that does not exist        404
├── Conflict                it exists already, is in use, or is held          409
├── Gone                    a place to continue from that is no longer kept   410
│   └── PositionOfAnotherLog     one that is of a log that went on differently
├── Refused                 not allowed: roles, binding, another site         403
│   └── Unauthenticated     no key, or an unknown one                         401
├── TooLarge                a body or a request beyond its limit              413
├── UnsupportedMedia        a content type or encoding nobody reads           415
├── Overloaded              try again later, with `retry_after`               429
├── DiskFull                the log cannot take more                          507
├── NotRunning              no server holds this project                      503, exit 3
├── Disconnected            the connection ended before the answer            503
├── LogError
│   ├── CorruptFrame        bytes that do not match their checksum
│   ├── OffsetOutOfRange    before the log's start or past its end
│   ├── OwnerLost           the owner went away before it answered
│   ├── Fenced              another producer of that name, or a newer group, took over
│   ├── OutOfSequence       a producer's write that does not follow the one before
│   ├── BatchConflict       contract 7: same batch, other checkpoint or offsets
│   └── CheckpointOfAnotherLog   a query's checkpoint and the log do not fit      409
├── StoreDamaged            a view that cannot be read; it is being refilled   503
├── QueryFailed             a streaming query stopped, with its cause
└── DeadlineExceeded        a pull query, or a slow body, took too long       408

A message is short, lower case, values in backticks; `detail` says more; `hint` says what to do.
"""

from __future__ import annotations

from typing import Any, ClassVar


def as_text(reason: str) -> str:
    r"""A reason that can be stored and sent: what it quotes may have come as bytes that are no text.

    >>> as_text("`\udcff` is no topic")
    '`\\udcff` is no topic'
    """
    return reason.encode("utf-8", "backslashreplace").decode()


class HeadraceError(Exception):
    """The root. Data is in attributes; `str()` is what a person reads."""

    code: ClassVar[str] = "error"
    status: ClassVar[int] = 500

    def __init__(self, message: str, *, detail: str | None = None, hint: str | None = None, **data: Any) -> None:
        super().__init__(message)
        self.message = message
        self.detail = detail
        self.hint = hint
        self.data = data

    def __str__(self) -> str:
        lines = [self.message]
        if self.detail:
            lines.append(f"  {self.detail}")
        if self.hint:
            lines.append(f"  {self.hint}")
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """The error object of the HTTP API and of the owner's socket."""
        body: dict[str, Any] = {"code": self.code, "message": self.message}
        if self.detail:
            body["detail"] = self.detail
        if self.hint:
            body["hint"] = self.hint
        return body | self.data


class UsageError(HeadraceError):
    code, status = "usage", 400


class SqlError(UsageError):
    """A statement that cannot be understood or run; points at where."""

    code = "sql"

    def __init__(
        self,
        message: str,
        *,
        line: int = 0,
        column: int = 0,
        length: int = 1,
        source_line: str = "",
        detail: str | None = None,
        hint: str | None = None,
        **data: Any,
    ) -> None:
        super().__init__(
            message,
            detail=detail,
            hint=hint,
            line=line,
            column=column,
            length=length,
            source_line=source_line,
            **data,
        )
        self.line, self.column, self.length, self.source_line = line, column, length, source_line

    def __str__(self) -> str:
        if not self.line:
            return super().__str__()
        marker = " " * (self.column - 1) + "^" * max(1, self.length)
        return f"{self.source_line}\n{marker}\nline {self.line}, column {self.column}: {super().__str__()}"


class ConfigError(UsageError):
    code = "config"


class LimitReached(UsageError):
    code = "limit"


class NotFound(HeadraceError):
    code, status = "not_found", 404


class Conflict(HeadraceError):
    code, status = "conflict", 409


class Gone(HeadraceError):
    code, status = "gone", 410


class PositionOfAnotherLog(Gone):
    code = "position_of_another_log"


class Refused(HeadraceError):
    code, status = "refused", 403


class Unauthenticated(Refused):
    code, status = "unauthenticated", 401


class TooLarge(HeadraceError):
    code, status = "too_large", 413


class UnsupportedMedia(HeadraceError):
    code, status = "unsupported_media", 415


class Overloaded(HeadraceError):
    code, status = "overloaded", 429

    def __init__(self, message: str, *, retry_after: float = 1.0, **data: Any) -> None:
        super().__init__(message, retry_after=retry_after, **data)
        self.retry_after = retry_after


class DiskFull(HeadraceError):
    code, status = "disk_full", 507


class NotRunning(HeadraceError):
    code, status = "not_running", 503


class Disconnected(HeadraceError):
    """What was asked may have been done, or not."""

    code, status = "disconnected", 503


class LogError(HeadraceError):
    code = "log"


class CorruptFrame(LogError):
    code = "corrupt_frame"


class OffsetOutOfRange(LogError):
    code, status = "offset_out_of_range", 416


class OwnerLost(LogError):
    code, status = "owner_lost", 503


class Fenced(LogError):
    code, status = "fenced", 409


class OutOfSequence(LogError):
    code, status = "out_of_sequence", 409


class BatchConflict(LogError):
    code, status = "batch_conflict", 409


class CheckpointOfAnotherLog(LogError):
    code, status = "checkpoint_of_another_log", 409


class StoreDamaged(HeadraceError):
    code, status = "store_damaged", 503


class QueryFailed(HeadraceError):
    code = "query_failed"


class DeadlineExceeded(HeadraceError):
    code, status = "deadline", 408


def _all_errors(root: type[HeadraceError]) -> dict[str, type[HeadraceError]]:
    found = {root.code: root}
    for child in root.__subclasses__():
        found |= _all_errors(child)
    return found


def error_from_json(body: dict[str, Any]) -> HeadraceError:
    """The inverse of `to_json`, for errors that crossed a socket."""
    fields = dict(body)
    kind = _all_errors(HeadraceError).get(fields.pop("code", "error"), HeadraceError)
    return kind(fields.pop("message", "unknown error"), **fields)

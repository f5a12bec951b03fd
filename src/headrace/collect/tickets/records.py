"""What is kept of tickets: one record when a request was taken, one with its result, one when its callback is over.

The topic is the only truth. Whoever starts anew folds it, without looking at the bodies, and goes on where it ended.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import msgspec
import pyarrow as pa

from headrace.collect.base import Form, RawEvents
from headrace.collect.gate import Arrival
from headrace.collect.http.bodies import opened
from headrace.collect.tickets.lanes import Lane
from headrace.errors import CorruptFrame, Gone, HeadraceError, OffsetOutOfRange
from headrace.log.base import TIME, Append, Log, TopicConfig, TopicSpec
from headrace.structs import ready
from headrace.types import BYTES, VARCHAR, Column

TICKETS_TOPIC = "_tickets"
State = Literal["waiting", "done", "failed", "delivered", "undelivered"]
NEAR = 1000
"""Requests that are not further apart are read together."""
_COLUMNS = ("TICKET", "STATE", "REQUEST", "BODY", "RESULT", "CALLBACK")


class Wanted(msgspec.Struct, frozen=True):
    """What was asked, all but the body."""

    events: RawEvents
    arrived: Arrival
    encoding: str = ""
    callback: str | None = None

    def read(self, body: bytes, max_bytes: int) -> RawEvents:
        """What a synchronous request would have collected."""
        return opened(self.events, body, self.encoding, max_bytes)


class _Request(msgspec.Struct, frozen=True):
    """The same as it is written down."""

    topic: str
    form: Form
    source: str
    key: bytes | None
    idempotency_key: str | None
    partition: int | None
    arrived: Arrival
    encoding: str
    callback: str | None


class Rejected(msgspec.Struct, frozen=True):
    index: int
    reason: str
    dead_letter: int | None


class Callback(msgspec.Struct, frozen=True):
    """How telling the caller went."""

    url: str
    attempts: int = 0
    error: str | None = None


class Result(msgspec.Struct, frozen=True, omit_defaults=True):
    accepted: int = 0
    duplicates: int = 0
    shed: int = 0
    """Left out on purpose, by the collector's `[shed]`."""
    rejected: list[Rejected] = []
    """The first of them."""
    rejections: int = 0
    """How many there were."""
    positions: list[tuple[int, int, int]] = []
    repeated: bool = False
    """The server was started anew meanwhile and did it again: what the first time wrote counts as duplicates."""
    error: dict[str, Any] | None = None
    """Why nothing was taken."""
    callback: Callback | None = None


class Entry(msgspec.Struct, frozen=True):
    """One record of the topic, without what is large."""

    ticket: str
    state: State
    offset: int
    time_ms: int
    callback: bool


def spec(hours: float) -> TopicSpec:
    return TopicSpec(
        TICKETS_TOPIC,
        value=tuple(Column(name, BYTES if name == "BODY" else VARCHAR) for name in _COLUMNS),
        role="derived",
        config=TopicConfig(retention_ms=int(hours * 3_600_000)),
    )


def lane_of(wanted: Wanted) -> Lane:
    return wanted.events.topic, wanted.arrived.key or wanted.arrived.address


def taken(ticket: str, wanted: Wanted, body: bytes) -> Append:
    raw = wanted.events
    request = _Request(
        topic=raw.topic,
        form=raw.form,
        source=raw.source,
        key=raw.key,
        idempotency_key=raw.idempotency_key or ticket,
        partition=raw.partition,
        arrived=wanted.arrived,
        encoding=wanted.encoding,
        callback=wanted.callback,
    )
    return _append([(ticket, "waiting", msgspec.json.encode(request).decode(), body, None, wanted.callback)])


def finished(results: Sequence[tuple[str, State, Result]]) -> Append:
    return _append(
        [
            (ticket, state, None, None, msgspec.json.encode(result).decode(), _url(result))
            for ticket, state, result in results
        ]
    )


def _url(result: Result) -> str | None:
    return None if result.callback is None else result.callback.url


def _append(rows: Sequence[tuple[str, State, str | None, bytes | None, str | None, str | None]]) -> Append:
    schema = pa.schema([(name, pa.binary() if name == "BODY" else pa.string()) for name in _COLUMNS])
    return Append(
        TICKETS_TOPIC,
        pa.RecordBatch.from_arrays([*map(pa.array, zip(*rows, strict=True), schema.types)], schema=schema),
    )


def read_entries(log: Log, start: int = 0) -> tuple[list[Entry], int]:
    """What the topic still holds from an offset on, in order; and where it ends."""
    ends = log.snapshot().ends.get(TICKETS_TOPIC)
    if not ends:
        return [], start
    first, columns = max(start, ends[0].start), [TIME, "TICKET", "STATE", "CALLBACK"]
    entries = [
        Entry(row["TICKET"], row["STATE"], offset, row[TIME], row["CALLBACK"] is not None)
        for records in log.read(TICKETS_TOPIC, 0, first, ends[0].end, columns)
        for offset, row in zip(records.each_offset(), records.batch.to_pylist(), strict=True)
    ]
    return entries, ends[0].end


def read_wanted(log: Log, offsets: Sequence[int]) -> Iterator[tuple[Wanted, bytes] | HeadraceError]:
    """The requests at these offsets, one after the other, or why one cannot be read. Neighbours are read in one go."""
    for stretch in _stretches(offsets):
        left = deque(stretch)
        with contextlib.suppress(OffsetOutOfRange, CorruptFrame):
            for records in log.read(TICKETS_TOPIC, 0, stretch[0], stretch[-1] + 1, ["REQUEST", "BODY"]):
                for row, offset in enumerate(records.each_offset()):
                    if left and left[0] == offset:
                        left.popleft()
                        yield _wanted(records.batch.slice(row, 1).to_pylist()[0])
        # Some may have expired, or all but some; one may be damaged.
        for offset in left:
            try:
                yield _wanted(_read(log, offset, ["REQUEST", "BODY"]))
            except Gone as error:
                yield error
            except CorruptFrame as error:
                yield HeadraceError("what was asked is damaged", detail=error.message)


def _stretches(offsets: Sequence[int]) -> list[list[int]]:
    """
    >>> _stretches([7, 8, 11, 5000, 3])
    [[7, 8, 11], [5000], [3]]
    """
    found: list[list[int]] = []
    for offset in offsets:
        if found and 0 < offset - found[-1][-1] <= NEAR:
            found[-1].append(offset)
        else:
            found.append([offset])
    return found


def _wanted(row: dict[str, Any]) -> tuple[Wanted, bytes] | HeadraceError:
    try:
        request = msgspec.json.decode(row["REQUEST"], type=ready(_Request))
    except (msgspec.DecodeError, TypeError) as error:
        return HeadraceError("what was asked cannot be read any more", detail=str(error))
    raw = RawEvents(
        topic=request.topic,
        form=request.form,
        source=request.source,
        key=request.key,
        idempotency_key=request.idempotency_key,
        partition=request.partition,
    )
    return Wanted(raw, request.arrived, request.encoding, request.callback), row["BODY"]


def read_result(log: Log, offset: int) -> Result:
    return msgspec.json.decode(_read(log, offset, ["RESULT"])["RESULT"], type=ready(Result))


def _read(log: Log, offset: int, columns: list[str]) -> dict[str, Any]:
    try:
        for records in log.read(TICKETS_TOPIC, 0, offset, offset + 1, columns):
            for row in records.batch.to_pylist():
                return dict(row)
    except OffsetOutOfRange:
        pass
    raise Gone("the ticket has expired", hint="[collect] ticket_hours says how long tickets are kept")

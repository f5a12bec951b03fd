"""Dead letters that would have counted: read as leniently as can be, do they belong to the row?"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from headrace.log.base import TIME, Log
from headrace.log.codecs.json_values import Mismatch, Reader
from headrace.log.dead_letters import DEAD_LETTERS_TOPIC
from headrace.sql.evaluate import compile_expression
from headrace.sql.plan import PersistentQuery, scanned
from headrace.sql.source import Source
from headrace.store.arrivals import addressed
from headrace.types import Timestamp
from headrace.views.aggregates import windows_of
from headrace.views.evaluate import Evaluation
from headrace.views.subject import Subject
from headrace.views.traced import Bounds, Origin, Traced, Wanted, key_of

MOST_LETTERS = 10_000
"""Of the query's own inputs."""
MOST_LOOKED_AT = 500_000
"""Of all topics."""
AT_A_TIME = 20_000
_COLUMNS = [TIME, "TOPIC", "REASON", "PAYLOAD"]


@dataclass(frozen=True, slots=True)
class DeadRecord:
    offset: int
    time_ms: int
    """When it was refused."""
    topic: str
    reason: str
    text: str


@dataclass(frozen=True, slots=True)
class _Given:
    """Stands in for the log: one source's rows are these, the others have none."""

    source: Source
    row: Traced

    def read(self, source: Source, wanted: Wanted) -> list[Traced]:
        return [self.row] if source == self.source else []

    def stream_time(self, topic: str, arrival: int) -> int:
        return -1

    def check_time(self) -> None:
        """A row takes no time."""

    late: Any = ()


def dead_records(
    log: Log, subject: Subject, key: tuple[Any, ...], window: Bounds | None, most: int = MOST_LETTERS
) -> list[DeadRecord]:
    """Of the newest letters of the query's own inputs, those that would have belonged to the row. One whose time cannot
    be read would have belonged to some window: it is among them."""
    inputs = {source.topic: source for source in scanned(subject.query.root) if source.query is None}
    found = []
    for row in newest_letters(log, list(inputs), most):
        source = inputs[row["TOPIC"]]
        for traced in _lenient(source, row["PAYLOAD"]):
            if _belongs(subject, source, traced, key, window):
                text = row["PAYLOAD"].decode("utf-8", "replace")
                found.append(DeadRecord(row["$offset"], row[TIME], row["TOPIC"], row["REASON"], text))
                break
    return found


def newest_letters(log: Log, topics: list[str], most: int) -> list[dict[str, Any]]:
    """The newest of these topics, oldest first. From the end backwards: a flood of others must not hide them."""
    ends = log.snapshot().ends.get(DEAD_LETTERS_TOPIC)
    if not ends or not topics:
        return []
    wanted, found, count = pa.array(topics, pa.string()), list[list[dict[str, Any]]](), 0
    end, least = ends[0].end, max(ends[0].start, ends[0].end - MOST_LOOKED_AT)
    while end > least and count < most:
        start = max(least, end - AT_A_TIME)
        rows = list[dict[str, Any]]()
        if any(pc.any(_is_of(records, wanted)).as_py() for records in _read(log, start, end, ["TOPIC"])):
            for records in _read(log, start, end, _COLUMNS):
                rows += records.filter(_is_of(records, wanted)).to_pylist()
        found.append(rows)
        end, count = start, count + len(rows)
    return [row for rows in reversed(found) for row in rows][-most:]


def _read(log: Log, start: int, end: int, columns: list[str]) -> Iterable[pa.RecordBatch]:
    return (addressed(records) for records in log.read(DEAD_LETTERS_TOPIC, 0, start, end, columns))


def _is_of(records: pa.RecordBatch, topics: pa.Array) -> Any:
    return pc.is_in(records.column("TOPIC"), value_set=topics)


def _lenient(source: Source, payload: bytes | None) -> list[Traced]:
    """The letter as a record: what can be read of it. -1 is a time that cannot."""
    try:
        body = msgspec.json.decode(payload or b"null")
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return []
    objects = [one for one in (body if isinstance(body, list) else [body]) if isinstance(one, dict)]
    found = []
    for one in objects:
        fields = {name.casefold(): value for name, value in one.items()}
        values = {c.name: _convert(Reader(c.type), fields.get(c.name.casefold())) for c in source.key + source.value}
        time = -1
        stamped = values.get(source.timestamp or "")
        if isinstance(stamped, int) and not isinstance(stamped, bool):
            time = stamped // 1000 if _is_timestamp(source, source.timestamp) else stamped
        values |= {"ROWTIME": time, "ROWPARTITION": 0, "ROWOFFSET": 0}
        origin = Origin(source.name, source.topic, 0, 0, 0, time, values)
        found.append(Traced(values, time, -1, 0, (origin,)))
    return found


def _is_timestamp(source: Source, name: str | None) -> bool:
    return any(c.name == name and isinstance(c.type, Timestamp) for c in source.key + source.value)


def _convert(reader: Reader, value: Any) -> Any:
    try:
        return reader.convert(value)
    except (Mismatch, TypeError, ValueError):
        return None


def _belongs(subject: Subject, source: Source, row: Traced, key: tuple[Any, ...], window: Bounds | None) -> bool:
    """Whether the plan would have led it into the row."""
    given: Any = _Given(source, row)
    evaluation = Evaluation(given)
    aggregate = subject.aggregate
    if aggregate is None:
        rows = evaluation.rows(subject.query.root)
        return any(key_of(one.values, _names(subject.query)) == key for one in rows)
    computed = [(named.name, compile_expression(named.expression)) for named in aggregate.keys]
    for one in evaluation.rows(aggregate.input):
        keys = {name: compute(one.values) for name, compute in computed}
        if key_of(keys, tuple(keys)) == key and _in_window(subject, one.time, window):
            return True
    return False


def _in_window(subject: Subject, time: int, window: Bounds | None) -> bool:
    own = subject.aggregate.window if subject.aggregate is not None else None
    if own is None or window is None or time < 0:
        return True
    if own.kind == "session":
        return window[0] - own.size_ms <= time <= window[1] + own.size_ms
    return window in windows_of(own, time)


def _names(query: PersistentQuery) -> tuple[str, ...]:
    return tuple(named.name for named in query.root.key)

"""Functions that are called with records: in a process of their own, tried again, halved where one record spoils all.

`Caller` is the server's side; `load_batches` and `call_batch` run in the process beside it (`host`)."""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from threading import Event
from typing import Any, NamedTuple, Protocol

from headrace.errors import as_text
from headrace.functions.attach import Attached, Record
from headrace.functions.compiled import Limits
from headrace.functions.files import FunctionFile
from headrace.functions.host_child import START_SECONDS, Child, ChildDied, ChildHung
from headrace.functions.loading import load_attribute
from headrace.functions.memory import MEMORY
from headrace.log.base import HEADERS, ID, TIME, TOMBSTONE, Records, Topic
from headrace.log.codecs.event_json import event_maker, fields_json
from headrace.log.codecs.json_encode import to_json

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 10.0
LONGEST_ERROR = 1000
MOST_MADE = 64 * 1024 * 1024
"""Bytes that one call may make: they pass through the server's memory."""

Sent = tuple[int, int, int, str | None, bytes | None, bytes | None, dict[str, Any]]
"""A record on its way: partition, offset, time, id, key, value, headers. Of a typed topic key and value are JSON."""
Made = tuple[bytes | None, bytes | None, bool]
"""What a function made: key, value, whether it is JSON. A value of None: nothing."""


class Failed(Exception):
    """A call that raised, hung, or ended its process."""

    def __init__(self, reason: str) -> None:
        super().__init__(as_text(reason))


class Stopped(Exception):
    """Told to stop while a call was to be tried again."""


@dataclass(slots=True)
class Counts:
    calls: int = 0
    retries: int = 0
    failures: int = 0


class Rejected(NamedTuple):
    """A record that the function fails for, and how."""

    sent: Sent
    reason: str
    attempts: int = 1
    """How often it was called with the record, alone or among others."""


@dataclass(slots=True)
class Worked:
    """What became of some records."""

    made: list[Made] = field(default_factory=list)
    rejected: list[Rejected] = field(default_factory=list)


class Works(Protocol):
    """What has records worked on."""

    @property
    def counts(self) -> Counts: ...

    def work(self, records: Sequence[Sent], stop: Event) -> Worked: ...

    def close(self) -> None: ...


class Caller:
    """Calls one function, in a process that is started when needed. For one thread."""

    def __init__(
        self, file: FunctionFile, attached: Attached, raw: bool, limits: Limits, alive: Callable[[], None]
    ) -> None:
        self._file, self._attached, self._raw = file, attached, raw
        self._memory = limits.memory_bytes
        self._seconds = attached.seconds or limits.seconds
        self._alive = alive
        self._child: Child | None = None
        self.counts = Counts()

    def work(self, records: Sequence[Sent], stop: Event) -> Worked:
        """All of them, whatever it takes. `Stopped` if there is no time for that."""
        return self._work(records, stop, 0)

    def _work(self, records: Sequence[Sent], stop: Event, tried: int) -> Worked:
        """`tried`: how often it was called with these before."""
        tried += self._attached.retries + 1
        try:
            return Worked(self._with_retries(records, stop))
        except Failed as failure:
            if len(records) == 1:
                return Worked(rejected=[Rejected(records[0], str(failure), tried)])
        return self._halved(records, stop, tried)

    def _halved(self, records: Sequence[Sent], stop: Event, tried: int) -> Worked:
        """One try for each half; only a record that is alone is tried again."""
        middle = len(records) // 2
        whole = Worked()
        for half in (records[:middle], records[middle:]):
            try:
                part = self._work(half, stop, tried) if len(half) == 1 else Worked(self._once(half))
            except Failed:
                part = self._halved(half, stop, tried + 1)
            whole.made += part.made
            whole.rejected += part.rejected
        return whole

    def _with_retries(self, records: Sequence[Sent], stop: Event) -> list[Made]:
        pause = FIRST_PAUSE_S
        for left in reversed(range(self._attached.retries + 1)):
            try:
                return self._once(records)
            except Failed:
                if not left:
                    raise
            self.counts.retries += 1
            if stop.wait(pause):
                raise Stopped
            pause = min(pause * 2, LONGEST_PAUSE_S)
        raise AssertionError

    def _once(self, records: Sequence[Sent]) -> list[Made]:
        self._alive()
        self.counts.calls += 1
        try:
            child = self._started()
            made, error = child.ask(("batch", records), self._seconds)
        except ChildHung:
            self.close()
            error = f"it did not answer within {self._seconds:g} s"
        except ChildDied:
            self.close()
            error = "it ended the process it ran in"
        if error is not None:
            self.counts.failures += 1
            raise Failed(error)
        result: list[Made] = made
        return result

    def _started(self) -> Child:
        if self._child is None:
            self._child = Child()
            load = ("batches", self._file, self._attached, self._raw, self._memory)
            error = self._child.ask(load, START_SECONDS)
            if error is not None:
                self.close()
                raise Failed(error)
        return self._child

    def close(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.kill()


def sent_records(records: Records, topic: Topic) -> Iterator[Sent]:
    """Records as they travel to a function."""
    raw, make = topic.spec.kind == "raw", event_maker(topic)
    for offset, row in zip(records.each_offset(), records.batch.to_pylist(maps_as_pydicts=None), strict=True):
        headers = dict(row.get(HEADERS) or ())
        if raw:
            key, value = row["KEY"], None if row[TOMBSTONE] else row["VALUE"]
        else:
            event = make(row, records.partition, offset)
            key = to_json(event["key"]) if event["key"] else None
            value = None if row[TOMBSTONE] else fields_json(event)
        yield records.partition, offset, row[TIME], row.get(ID), key, value, headers


# In the process of its own


@dataclass(frozen=True, slots=True)
class Loaded:
    file: str
    attached: Attached
    body: Callable[[list[Record]], Any]
    raw: bool


def load_batches(file: FunctionFile, attached: Attached, raw: bool, memory_bytes: int) -> Loaded:
    loaded = Loaded(file.file, attached, load_attribute(file, attached.attribute), raw)
    MEMORY.limit(memory_bytes)
    return loaded


def call_batch(loaded: Loaded, records: Sequence[Sent]) -> tuple[list[Made], str | None]:
    """What it made, or why not."""
    try:
        given = [_record(loaded, one) for one in records]
        found = loaded.body(given)
        made = _made(loaded.attached, found, len(records))
        size = sum(len(value) for _, value, _ in made if value is not None)
        if size > MOST_MADE:
            raise ValueError(
                f"it made {size} bytes of {len(records)} records: at most {MOST_MADE}, or a smaller `batch`"
            )
        return made, None
    except BaseException as error:
        # The server's log has it all; a dead letter's reason is one line.
        traceback.print_exception(error)
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == loaded.file]
        place = f" ({loaded.file} line {lines[-1]})" if lines else ""
        return [], f"{type(error).__name__}: {error}{place}"[:LONGEST_ERROR]


def _record(loaded: Loaded, sent: Sent) -> Record:
    partition, offset, time_ms, id_, key, value, headers = sent
    if loaded.raw:
        return Record(loaded.attached.topic, partition, offset, time_ms, id_, key, value, headers)
    columns = None if key is None else json.loads(key)
    plain = next(iter(columns.values())) if columns is not None and len(columns) == 1 else columns
    fields = None if value is None else json.loads(value)
    return Record(loaded.attached.topic, partition, offset, time_ms, id_, plain, fields, headers)


def _made(attached: Attached, found: Any, count: int) -> list[Made]:
    values = [] if found is None else list(found)
    if not attached.topic:
        if len(values) != count:
            raise ValueError(f"a transform returns one value for each record: {count}, not {len(values)}")
        return [(None, None, False) if value is None else _one(value) for value in values]
    if values and not attached.to:
        raise ValueError("it returned records, but its decorator says no topic: on_topic(…, to=…)")
    return [_one(value) for value in values if value is not None]


def _one(value: Any) -> Made:
    if isinstance(value, Record):
        value = (value.key, value.value)
    key = None
    if isinstance(value, tuple) and len(value) == 2:
        key, value = _bytes(value[0]), value[1]
    if isinstance(value, dict):
        return key, json.dumps(value, ensure_ascii=False, default=str).encode(), True
    made = _bytes(value)
    if made is None:
        raise TypeError(f"a function returns dicts, bytes or text, not {type(value).__name__}")
    return key, made, False


def _bytes(value: Any) -> bytes | None:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    return None if value is None or isinstance(value, dict | list) else str(value).encode()

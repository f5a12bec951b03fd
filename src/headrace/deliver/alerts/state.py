"""What becomes of an alert: ok, pending, firing, resolved; one of these for each of its subjects.

Only arithmetic: what is measured and the time go in, the next state and what is to be told come out. All of an
instance is one record of the topic `_alerts`, the newest counts: state, and what is yet to be told to whom. So a server
that was killed goes on where it was, and tells nobody twice what they took.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec
import pyarrow as pa

from headrace.deliver.alerts.definitions import Definition
from headrace.log.base import TIME, TOMBSTONE, Append, Log, TopicConfig, TopicSpec
from headrace.structs import ready
from headrace.types import BIGINT, DOUBLE, VARCHAR, Column

ALERTS_TOPIC = "_alerts"
_KEY = (Column("ALERT", VARCHAR), Column("SUBJECT", VARCHAR))
_VALUE = (
    Column("STATE", VARCHAR),
    Column("SINCE", BIGINT),
    Column("VALUE", DOUBLE),
    Column("DETAIL", VARCHAR),
    Column("FIRED", BIGINT),
    Column("OUTBOX", VARCHAR),
    Column("TOLD", VARCHAR),
)
ALERTS_SPEC = TopicSpec(ALERTS_TOPIC, key=_KEY, value=_VALUE, role="derived", config=TopicConfig(compacted=True))

State = Literal["ok", "pending", "firing", "resolved"]
MOST_WAITING = 100
"""Of one instance: a receiver that is away for days is told the newest."""


class Reading(msgspec.Struct, frozen=True):
    """What a subject measures now. `None`: nobody knows at the moment, so nothing changes."""

    value: float | None
    detail: str = ""


class Notice(msgspec.Struct, frozen=True):
    """Something to be told to one destination, in these words, however often it is tried."""

    id: str
    to: str
    """The destination's key."""
    body: str
    since_ms: int


class Told(msgspec.Struct, frozen=True):
    """How telling a destination went the last time."""

    id: str
    at_ms: int
    attempts: int
    error: str | None = None


class Instance(msgspec.Struct, frozen=True, kw_only=True):
    alert: str
    subject: str
    state: State = "ok"
    since_ms: int = 0
    value: float = 0.0
    """When it came into this state."""
    detail: str = ""
    fired: int = 0
    """How often."""
    outbox: tuple[Notice, ...] = ()
    """Oldest first."""
    told: dict[str, Told] = {}
    """By destination."""

    @property
    def key(self) -> tuple[str, str]:
        return self.alert, self.subject


def step(now: Instance, definition: Definition, reading: Reading | None, now_ms: int, project: str) -> Instance:
    """The instance after one look. No reading at all: the subject is gone."""
    if reading is None:
        reading = Reading(0.0, "it is gone")
    if reading.value is None:
        return now
    too_much = reading.value > definition.settings.above
    if too_much and now.state in ("ok", "resolved"):
        begun = msgspec.structs.replace(now, state="pending", since_ms=now_ms)
        now = _measured(begun, reading)
    if now.state == "pending" and not too_much:
        return _measured(msgspec.structs.replace(now, state="ok", since_ms=now_ms), reading)
    # A clock that was set back must not hold an alert up.
    if now.state == "pending" and (now_ms - now.since_ms >= definition.hold_ms or now_ms < now.since_ms):
        fires = msgspec.structs.replace(now, state="firing", since_ms=min(now.since_ms, now_ms), fired=now.fired + 1)
        return _tell(_measured(fires, reading), definition, now_ms, project)
    if now.state == "firing" and not too_much:
        over = msgspec.structs.replace(now, state="resolved", since_ms=now_ms)
        return _tell(_measured(over, reading), definition, now_ms, project)
    return now


def _measured(instance: Instance, reading: Reading) -> Instance:
    assert reading.value is not None
    return msgspec.structs.replace(instance, value=reading.value, detail=reading.detail[:1000])


def _tell(instance: Instance, definition: Definition, now_ms: int, project: str) -> Instance:
    body = msgspec.json.encode(message(instance, definition, now_ms, project)).decode()
    name = notice_id(instance)
    notices = [Notice(name, place.key, body, now_ms) for place in definition.settings.to]
    return msgspec.structs.replace(instance, outbox=(*instance.outbox, *notices)[-MOST_WAITING:])


def notice_id(instance: Instance) -> str:
    """The same for the same thing, however often it is sent."""
    return f"{instance.alert}/{instance.subject}/{instance.fired}/{instance.state}"


def message(instance: Instance, definition: Definition, now_ms: int, project: str, state: str = "") -> dict[str, Any]:
    """What is told. `text` is all of it in a sentence, for receivers that show just that."""
    settings = definition.settings
    state = state or instance.state
    words = f"{instance.subject}: {instance.value:g} {definition.watch.unit}"
    text = f"[{state}] {definition.name}: {words}"
    return {
        "id": notice_id(instance),
        "alert": definition.name,
        "state": state,
        "project": project,
        "watch": definition.watch.name,
        "subject": instance.subject,
        "value": instance.value,
        "above": settings.above,
        "since_ms": instance.since_ms,
        "time_ms": now_ms,
        "detail": instance.detail,
        "description": settings.description,
        "text": f"{text} ({instance.detail})" if instance.detail else text,
    }


def append_instances(instances: Sequence[Instance], gone: Sequence[tuple[str, str]], now_ms: int) -> Append:
    """As records, with tombstones for those that are no more."""
    rows = [
        (
            one.alert,
            one.subject,
            one.state,
            one.since_ms,
            one.value,
            one.detail,
            one.fired,
            msgspec.json.encode(one.outbox).decode(),
            msgspec.json.encode(one.told).decode(),
        )
        for one in instances
    ]
    rows += [(*key, *(None for _ in _VALUE)) for key in gone]  # type: ignore[misc]
    types = [pa.string()] * 3 + [pa.int64(), pa.float64(), pa.string(), pa.int64(), pa.string(), pa.string()]
    columns = {
        column.name: pa.array([row[place] for row in rows], types[place])
        for place, column in enumerate((*_KEY, *_VALUE))
    }
    columns[TIME] = pa.array([now_ms] * len(rows), pa.int64())
    columns[TOMBSTONE] = pa.array([False] * len(instances) + [True] * len(gone), pa.bool_())
    return Append(ALERTS_TOPIC, pa.record_batch(columns))


def read_instances(log: Log) -> dict[tuple[str, str], Instance]:
    """As they were left."""
    ends = log.snapshot().ends.get(ALERTS_TOPIC)
    found: dict[tuple[str, str], Instance] = {}
    if not ends:
        return found
    names = [column.name for column in (*_KEY, *_VALUE)]
    for records in log.read(ALERTS_TOPIC, 0, ends[0].start, ends[0].end, [*names, TOMBSTONE]):
        for row in records.batch.to_pylist():
            key = (row["ALERT"], row["SUBJECT"])
            if row[TOMBSTONE]:
                found.pop(key, None)
                continue
            found[key] = Instance(
                alert=row["ALERT"],
                subject=row["SUBJECT"],
                state=row["STATE"],
                since_ms=row["SINCE"],
                value=row["VALUE"],
                detail=row["DETAIL"],
                fired=row["FIRED"],
                outbox=msgspec.json.decode(row["OUTBOX"], type=ready(tuple[Notice, ...])),
                told=msgspec.json.decode(row["TOLD"], type=ready(dict[str, Told])),
            )
    return found

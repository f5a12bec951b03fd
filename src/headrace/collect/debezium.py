"""Changes of a database in Debezium's envelopes → rows of a table and tombstones, and the changes with both sides.

An envelope is `{"before", "after", "op", "ts_ms", "source"}`, by itself, as the payload beside Kafka Connect's schema,
or as Debezium's CloudEvents tell it; a record may also come with its key, `{"key": …, "value": …}`. The id is made of
what the source says of the change, so what a connector sends again after a restart is taken once.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from headrace.collect.base import Sent
from headrace.collect.connect_values import convert
from headrace.collect.definitions import CollectorSettings
from headrace.collect.rules.settings import PrivacySettings
from headrace.collect.split import BYTE_ORDER_MARK
from headrace.collect.translate import UNREADABLE, Posted, digest, event_of, moment_ms, sent
from headrace.errors import ConfigError, UsageError
from headrace.log.base import TOMBSTONE
from headrace.log.codecs.json_codec import Event, Unreadable

EXPECTED = '{"before": …, "after": {…}, "op": "c", "ts_ms": …, "source": {…}}, with or without a schema around it'
OPERATIONS = {"c": "create", "u": "update", "d": "delete", "r": "read", "t": "truncate", "m": "message"}
TOMBSTONE_OP = "tombstone"
"""Of a record of Kafka's without a value."""
_SAID_AGAIN_DIFFERENTLY = ("sequence", "snapshot", "version")
"""Fields of `source` that may differ when the same change is sent again."""
_ATTRIBUTE = "iodebezium"
"""What the names of Debezium's attributes begin with, in a CloudEvent."""
_NOT_TOLD = "__debezium_unavailable_value"


class DebeziumSettings(CollectorSettings, frozen=True, kw_only=True):
    topic: str = ""
    """The table's topic: the row after each change, and a tombstone for one that was deleted."""
    tables: dict[str, str] = {}
    """Tables of the database → topics, where one Debezium follows several: `"public.orders" = "orders"`. Rows of tables
    that are not here go to `topic`; without one they are dead letters."""
    changes: str = ""
    """A topic for the changes themselves: `op`, `before`, `after`, `source`, `ts_ms`."""
    add: list[str] = []
    """What of the envelope to add to each row: `op` becomes `__op`, `source.table` `__source_table`."""

    def check(self) -> None:
        if not self.topic and not self.tables and not self.changes:
            raise ConfigError(
                "a collector of changes needs a `topic`, `tables`, or `changes`", hint='topic = "…" is the table\'s'
            )
        if "" in self.tables.values():
            raise ConfigError("a table has no topic", hint='"public.orders" = "orders"', path=("tables",))
        self.check_tables()

    @property
    def destinations(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(filter(None, (self.topic, *self.tables.values(), self.changes))))

    @property
    def hides(self) -> PrivacySettings:
        """A column of the table is in both sides of a change, too, and in what `add` takes from them."""
        return self.privacy.also(self._places)

    def _places(self, column: str) -> Iterator[str]:
        for place in (f"before.{column}", f"after.{column}"):
            yield place
            for path in self.add:
                if f"{place}.".casefold().startswith(f"{path}.".casefold()):
                    yield _added_name(path) + place[len(path) :]
                elif path.casefold().startswith(f"{place}.".casefold()):
                    yield _added_name(path)


@dataclass(frozen=True, slots=True)
class Changes:
    """What a request says."""

    rows: dict[str, Sent]
    """For the tables, by topic."""
    changes: Sent
    """For the topic of changes. What cannot be read is a letter once, so it is here only where there is no table."""


@dataclass(frozen=True, slots=True)
class _Change:
    """An envelope, with the key where it came with one, and values as SQL has them."""

    key: dict[str, Any] = field(default_factory=dict)
    op: str = ""
    before: dict[str, Any] | None = None
    after: dict[str, Any] | None = None
    envelope: dict[str, Any] = field(default_factory=dict)
    place: tuple[str, str] = ("", "")
    """The topic and the partition of Kafka's that the record says it is of."""

    @property
    def deletes(self) -> bool:
        return self.op in ("d", TOMBSTONE_OP)


class Deletions:
    """Behind a deletion Debezium writes Kafka's tombstone, which says the same and has no id: told again after a
    restart of the connector, it would delete a row that came back meanwhile. So it counts only where the deletion
    itself is gone, which is what compaction does."""

    def __init__(self) -> None:
        self._last: dict[Any, Any] = {}
        """By partition: the key of its last record, if that was a deletion."""

    def repeated(self, place: Any, key: Any, *, deletes: bool, tombstone: bool) -> bool:
        """Whether the next record there is a tombstone that says again what the record before it did."""
        last = self._last.pop(place, None)
        if tombstone and key is not None and key == last:
            return True
        if deletes:
            self._last[place] = key
        return False


def translate(posted: Posted, settings: DebeziumSettings) -> Changes:
    originals = list(_records(posted.body))
    deletions = Deletions()
    read = [_once(_read(original), deletions, settings) for original in originals]
    rows: dict[str, list[tuple[Any, Any]]] = {}
    told: list[tuple[Any, Any]] = []
    tables = settings.topic or next(iter(settings.tables.values()), "")
    for each, original in zip(read, originals, strict=True):
        topic = _topic(each, settings) if isinstance(each, _Change) else tables
        row = _row(each, settings.add) if isinstance(each, _Change) else each
        if row is not None and tables:
            unknown = Unreadable("is of a table that `tables` does not name, and there is no `topic` for others")
            rows.setdefault(topic or tables, []).append((row if topic else unknown, original))
        change = _told(each) if isinstance(each, _Change) else None if tables else each
        # A tombstone is no change of its own.
        if change is not None:
            told.append((change, original))
    return Changes({topic: _sent(pairs) for topic, pairs in rows.items()}, _sent(told))


def _sent(pairs: list[tuple[Any, Any]]) -> Sent:
    return sent([event for event, _ in pairs], [original for _, original in pairs])


def _once(
    change: _Change | Unreadable | None, deletions: Deletions, settings: DebeziumSettings
) -> _Change | Unreadable | None:
    """None for a tombstone that says nothing new, or that is of one of several tables and does not say of which: its
    deletion does."""
    if not isinstance(change, _Change):
        return change
    tombstone = change.op == TOMBSTONE_OP
    if deletions.repeated(change.place, change.key, deletes=change.deletes, tombstone=tombstone):
        return None
    return None if tombstone and settings.tables and not change.place[0] else change


def _topic(change: _Change, settings: DebeziumSettings) -> str:
    """Where a change's row goes; nothing if nobody said."""
    if not settings.tables:
        return settings.topic
    source = change.envelope.get("source")
    names: tuple[Any, ...] = ()
    if type(source) is dict:
        table = source.get("table") or source.get("collection")
        names = (f"{source.get('schema')}.{table}", f"{source.get('db')}.{table}", table)
    elif change.place[0]:
        # Debezium calls a table's topic `PREFIX.SCHEMA.TABLE`.
        parts = change.place[0].split(".")
        names = (".".join(parts[-2:]), parts[-1])
    return next((settings.tables[name] for name in names if name in settings.tables), settings.topic)


def row_of(key: bytes | None, value: bytes | None) -> Event | Unreadable | None:
    """What a record of Kafka's means for the table; None for one that changes no row."""
    try:
        record = {
            name: None if data is None else msgspec.json.decode(data) for name, data in (("key", key), ("value", value))
        }
    except UNREADABLE:
        return Unreadable("is not JSON, as a change must be")
    change = _read(record)
    return _row(change, ()) if isinstance(change, _Change) else change


def _records(body: bytes) -> Iterator[Any]:
    """One record, a list of them, or one a line."""
    text = body.removeprefix(BYTE_ORDER_MARK).strip()
    if not text:
        return  # Kafka's tombstone, sent without its key: it says nothing that the deletion did not
    try:
        value = msgspec.json.decode(text)
        yield from value if type(value) is list else [value]
    except UNREADABLE as error:
        lines = [line for line in text.split(b"\n") if line.strip()]
        if len(lines) < 2:
            raise UsageError(f"the body is not JSON: {error}", hint=f"send {EXPECTED}") from None
        for line in lines:
            try:
                yield msgspec.json.decode(line)
            except UNREADABLE:
                yield line


def _read(record: Any) -> _Change | Unreadable | None:
    key: dict[str, Any] = {}
    place = ("", "")
    if type(record) is dict and "value" in record and set(record) <= {"key", "value", "headers", "topic", "partition"}:
        place = (str(record.get("topic") or ""), str(record.get("partition")))
        found = _payload(record.get("key"))
        key, record = found if type(found) is dict else {}, record["value"]
        if record is None:
            return (
                _Change(key, TOMBSTONE_OP, place=place) if key else Unreadable("is a tombstone whose key is no object")
            )
    if record is None:
        return None
    envelope = _of_cloudevent(record) if type(record) is dict and "specversion" in record else _payload(record)
    if _only_a_sign(envelope):
        return None
    if type(envelope) is dict and envelope.get("__deleted") in ("true", "false"):
        return replace(_of_plain_row(key, envelope), place=place)
    if type(envelope) is not dict or "op" not in envelope:
        return Unreadable("is no change: it has no `op`, or it is a change of the schema")
    op, before, after = envelope["op"], envelope.get("before"), envelope.get("after")
    if not isinstance(op, str) or op not in OPERATIONS:
        return Unreadable(f"has an `op` nobody knows: `{msgspec.json.encode(op).decode()[:40]}`")
    for name, row in (("before", before), ("after", after)):
        if row is not None and type(row) is not dict:
            return Unreadable(f"has `{name}`, which is no row")
    return _Change(key, op, before, after, envelope, place)


def _of_plain_row(key: dict[str, Any], row: dict[str, Any]) -> _Change:
    """What Debezium's `ExtractNewRecordState` leaves of an envelope where it is to tell deletions, too."""
    plain = {name: value for name, value in row.items() if name != "__deleted"}
    return _Change(key, "d", plain) if row["__deleted"] == "true" else _Change(key, "u", None, plain)


def _of_cloudevent(event: dict[str, Any]) -> Any:
    """The envelope that Debezium has taken apart: the rows are `data`, the rest are attributes, all of them text."""
    said = {
        name.removeprefix(_ATTRIBUTE): value
        for name, value in event.items()
        if name.startswith(_ATTRIBUTE) and value is not None
    }
    data = _payload(event.get("data"))
    if "op" not in said or type(data) is not dict:
        return data
    source = {name: value for name, value in said.items() if name != "op" and name not in _OF_TRANSACTION}
    if "tsms" in source:
        source["ts_ms"] = moment_ms(source.pop("tsms"))
    return data | {"op": said["op"], "source": source, "ts_ms": moment_ms(event.get("time"))}


_OF_TRANSACTION = ("txid", "txtotalorder", "txdatacollectionorder")


def _only_a_sign(envelope: Any) -> bool:
    """A heartbeat, or where a transaction begins and ends: changes of no row."""
    if type(envelope) is not dict or "op" in envelope:
        return False
    bounds = envelope.get("status") in ("BEGIN", "END") and "event_count" in envelope and "id" in envelope
    return bounds or set(envelope) == {"ts_ms"}


def _payload(value: Any) -> Any:
    """A value without Connect's schema around it, converted by it."""
    if type(value) is dict and set(value) == {"schema", "payload"}:
        return convert(value["payload"], value["schema"])
    return value


def _identity(change: _Change) -> str | None:
    """What the source says of the change. A row may be written twice in the same place of its log only by being the
    same write."""
    source = change.envelope.get("source")
    if type(source) is not dict or not source:
        return None
    where = {name: value for name, value in source.items() if name not in _SAID_AGAIN_DIFFERENTLY}
    parts = (where, change.op, change.key, change.before, change.after)
    return digest(msgspec.json.encode(parts, order="deterministic"))


def _time(change: _Change) -> int | None:
    source = change.envelope.get("source")
    times = (source.get("ts_ms") if type(source) is dict else None, change.envelope.get("ts_ms"))
    return next((found for each in times if (found := moment_ms(each))), None)


def _row(change: _Change, add: Sequence[str]) -> Event | Unreadable | None:
    match change.op:
        case "m":
            return None
        case "t":
            return Unreadable("empties the whole table, which a topic of rows cannot: delete them, or start it anew")
        case _ if change.deletes:
            row = (change.before or {}) | change.key
            if not row:
                return Unreadable("deletes a row and does not say which: it has neither `before` nor a key")
            made = event_of(row, _identity(change), _time(change))
            return made if isinstance(made, Unreadable) else made | {TOMBSTONE: True}
        case _:
            if change.after is None:
                return Unreadable(f"is a change of kind `{change.op}` without `after`")
            if missing := [name for name, value in change.after.items() if _not_told(value)]:
                return Unreadable(
                    f"does not say what is in `{missing[0]}`, which is large and did not change: "
                    "ALTER TABLE … REPLICA IDENTITY FULL makes the database tell it"
                )
            return event_of(change.key | change.after | _added(change, add), _identity(change), _time(change))


def _not_told(value: Any) -> bool:
    """What stands for a value that PostgreSQL keeps elsewhere: as text, as bytes, or as a list of either."""
    if type(value) is list:
        return value in _LISTS_NOT_TOLD
    return type(value) is str and value in _VALUES_NOT_TOLD


_VALUES_NOT_TOLD = (_NOT_TOLD, base64.b64encode(_NOT_TOLD.encode()).decode())
_LISTS_NOT_TOLD = ([_NOT_TOLD], list(_NOT_TOLD.encode()))


def _added(change: _Change, add: Sequence[str]) -> dict[str, Any]:
    found = {}
    for path in add:
        value: Any = change.envelope
        for part in path.split("."):
            value = value.get(part) if type(value) is dict else None
        found[_added_name(path)] = value
    return found


def _added_name(path: str) -> str:
    return "__" + path.replace(".", "_")


def _told(change: _Change) -> Event | Unreadable | None:
    """The change as an event, its key's columns beside it."""
    if change.op == TOMBSTONE_OP:
        return None
    row = change.key or change.after or change.before or {}
    own = {name: value for name, value in row.items() if name not in change.envelope}
    return event_of(own | change.envelope, _identity(change), _time(change))

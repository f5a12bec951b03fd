"""What a real Debezium Server 3.0 said of a real PostgreSQL 15, kept in a file, → rows, tombstones, or nothing.

`python -m tests.chaos.debezium` does it live. The file holds requests' bodies: with Connect's schema (`json`), without
(`noschema`), as CloudEvents (`ce`), and with decimals as text and Connect's times (`string`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.collect import cloudevents, debezium
from headrace.collect.gate import Arrival
from headrace.collect.translate import Posted
from headrace.errors import ConfigError
from headrace.log.base import SchemaVersion, Topic, TopicSpec
from headrace.log.codecs.event_time import TimeBounds
from headrace.log.codecs.json_codec import JsonCodec, Unreadable
from headrace.log.codecs.json_encode import to_json
from headrace.types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    INTEGER,
    TIME,
    TIMESTAMP,
    VARCHAR,
    Array,
    Column,
    DataType,
    Decimal,
)
from tests.collect.gating import gated

FILE = Path(__file__).parents[1] / "fixtures" / "debezium-3.0.jsonl"
TABLES = {"public.orders": "orders", "postgres.nokey": "nokey", "full_": "full"}
ORDERS: dict[str, DataType] = {
    "NAME": VARCHAR,
    "PRICE": Decimal(12, 2),
    "WEIGHT": Decimal(30, 12),
    "RATIO": DOUBLE,
    "SMALL": INTEGER,
    "BIG": BIGINT,
    "FLAG": BOOLEAN,
    "BORN": DATE,
    "AT_TIME": TIME,
    "MADE": TIMESTAMP,
    "MADE_MS": TIMESTAMP,
    "SEEN": TIMESTAMP,
    "DOCB": VARCHAR,
    "TAGS": Array(VARCHAR),
    "U": VARCHAR,
    "RAW": BYTES,
    "MOOD": VARCHAR,
    "AMOUNTS": Array(Decimal(6, 2)),
    "DAYS": Array(DATE),
    "CASH": Decimal(12, 2),
    "TS_ARR": Array(TIMESTAMP),
}


def bodies(form: str) -> Iterator[bytes]:
    for line in FILE.read_text().splitlines():
        kept = json.loads(line)
        if kept["as"] == form:
            yield kept["body"].encode()


def translated(form: str, **options: Any) -> list[debezium.Changes]:
    settings = debezium.DebeziumSettings(type="debezium", **options)
    settings.check()
    return [debezium.translate(Posted(body), settings) for body in bodies(form)]


def rows(found: list[debezium.Changes], topic: str) -> list[Any]:
    return [event for one in found if topic in one.rows for event in one.rows[topic].events]


def briefly(event: Any) -> Any:
    return event.reason.partition(":")[0] if isinstance(event, Unreadable) else (event["id"], "$tombstone" in event)


def test_rows_of_all_tables_come_through_one_door() -> None:
    found = translated("json", tables=TABLES, changes="changes")
    assert [briefly(event) for event in rows(found, "orders")] == [
        (1, False),
        (3, True),  # a key that changed is told as the end of one row and the beginning of another
        (4, False),
        "does not say what is in `doc`, which is large and did not change",
    ]
    assert [event["op"] for one in found for event in one.changes.events] == ["r", "d", "c", "u", "m", "t"]
    found = translated("noschema", tables=TABLES)
    assert [(event["a"], event["b"]) for event in rows(found, "nokey")] == [(1, "a")]
    assert [briefly(event) for event in rows(found, "full")] == [
        (1, False),
        (1, False),
        (1, True),
        (2, False),
        "empties the whole table, which a topic of rows cannot",
        (3, False),
    ]
    assert rows(found, "orders") == []


def test_heartbeats_and_the_bounds_of_transactions_are_no_changes() -> None:
    signs = [body for form in ("json", "noschema") for body in bodies(form) if b'"op":' not in body]
    assert len(signs) == 6
    for body in signs:
        for settings in (
            debezium.DebeziumSettings(type="debezium", topic="t"),
            debezium.DebeziumSettings(type="debezium", changes="c"),
        ):
            found = debezium.translate(Posted(body), settings)
            assert (found.rows, found.changes.events) == ({}, []), body


def test_a_table_nobody_named_is_the_others_or_a_dead_letter() -> None:
    named = {"public.orders": "orders"}
    assert len(rows(translated("noschema", tables=named, topic="others"), "others")) == 7
    [nokey, *_] = rows(translated("noschema", tables=named), "orders")
    assert nokey == Unreadable("is of a table that `tables` does not name, and there is no `topic` for others")
    with pytest.raises(ConfigError, match="a table has no topic"):
        translated("noschema", tables={"orders": ""})


@pytest.mark.parametrize("form", ["json", "ce", "string"])
def test_values_are_what_the_database_has(form: str) -> None:
    [event, *_] = rows(translated(form, tables=TABLES), "orders")
    columns, key = tuple(Column(name, type_) for name, type_ in ORDERS.items()), (Column("ID", INTEGER),)
    topic = Topic(1, TopicSpec("orders", key=key, value=columns), (SchemaVersion(1, key, columns),))
    decoded = JsonCodec(topic).decode([event], lambda row: to_json(event), event["$time"], TimeBounds(1))
    assert (decoded.batch is not None, decoded.rejected) == (True, {})
    assert decoded.batch is not None
    [row] = decoded.batch.to_pylist()
    found = {name: str(row[name]) for name in ORDERS}
    micros = "" if form == "string" else "012"  # Connect's own times are milliseconds
    assert found == {
        "NAME": "Ann ünï 😀",
        "PRICE": "12345.67",
        "WEIGHT": "0.000123456789",
        "RATIO": "0.1",
        "SMALL": "7",
        "BIG": "9007199254740993",
        "FLAG": "True",
        "BORN": "2024-02-29",
        "AT_TIME": "45296789",
        "MADE": f"2024-02-29 12:34:56.789{micros or '000'}+00:00",
        "MADE_MS": "2024-02-29 12:34:56.789000+00:00",
        "SEEN": "2024-02-29 10:34:56.789012+00:00",
        "DOCB": '{"b": [1, null]}',
        "TAGS": "['x', None, 'y z']",
        "U": "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
        "RAW": r"b'\xde\xad\xbe\xef'",
        "MOOD": "happy",
        "AMOUNTS": "[Decimal('1.10'), Decimal('-2.25')]",
        "DAYS": "[datetime.date(2024, 1, 1)]",
        "CASH": "12.34",
        "TS_ARR": "[datetime.datetime(2024, 2, 29, 12, 34, 56, tzinfo=zoneinfo.ZoneInfo(key='UTC'))]",
    }


def test_cloudevents_of_debezium_are_changes_and_each_has_its_own_id() -> None:
    found = rows(translated("ce", tables=TABLES), "orders")
    assert [briefly(event) for event in found] == [(1, False), (2, False), (3, True), (4, False)]
    assert len({event["$id"] for event in found}) == 4
    assert all(event["$time"] > 1_700_000_000_000 for event in found)
    # Debezium gives all rows of a snapshot one id, and both halves of a changed key.
    said = [json.loads(body)["id"] for body in bodies("ce")]
    assert len(set(said)) == 2
    headers = {"content-type": cloudevents.STRUCTURED}
    taken = [cloudevents.translate(Posted(body, headers=headers)).events[0] for body in bodies("ce")]
    assert len({event["$id"] for event in taken}) == 4


def test_rows_that_were_unwrapped_say_whether_they_are_gone() -> None:
    """As `ExtractNewRecordState` writes them with `delete.tombstone.handling.mode=rewrite`."""
    settings = debezium.DebeziumSettings(type="debezium", topic="t")
    sent = [b'{"id":1,"b":"aa","c":"b","__deleted":"false"}', b'{"id":1,"b":"aa","c":"b","__deleted":"true"}']
    kept, gone = (debezium.translate(Posted(body), settings).rows["t"].events[0] for body in sent)
    assert (kept, gone["$tombstone"], gone["id"]) == ({"id": 1, "b": "aa", "c": "b"}, True, 1)


def test_a_tombstone_goes_to_its_table_or_nowhere() -> None:
    """It has no `source`: of several tables it may be any."""
    here = {"topic": "shop.public.orders"}

    def told(*records: dict[str, Any], topic: str = "others") -> dict[str, list[Any]]:
        settings = debezium.DebeziumSettings(type="debezium", tables={"public.orders": "orders"}, topic=topic)
        found = debezium.translate(Posted(json.dumps(records).encode()), settings)
        return {topic: [briefly(event) for event in sent.events] for topic, sent in found.rows.items()}

    tombstone = {"key": {"id": 2}, "value": None}
    assert told(tombstone) == told(tombstone, topic="") == {}
    assert told(tombstone | here) == told(tombstone | here, topic="") == {"orders": [(2, True)]}
    assert told(tombstone | {"topic": "shop.public.carts"}) == {"others": [(2, True)]}
    # Rows that were unwrapped do not say it either.
    assert told({"key": {"id": 2}, "value": {"id": 2, "__deleted": "false"}} | here) == {"orders": [(2, False)]}


def test_a_tombstone_behind_its_deletion_is_not_told() -> None:
    """It has no id: sent again, it would delete a row that came back."""
    source = {"lsn": 4, "schema": "public", "table": "orders"}
    deletion = {"key": {"id": 2}, "value": {"before": {"id": 2}, "after": None, "op": "d", "source": source}}
    tombstone, other = {"key": {"id": 2}, "value": None}, {"key": {"id": 3}, "value": None}
    settings = debezium.DebeziumSettings(type="debezium", topic="orders")

    def told(*records: dict[str, Any]) -> list[Any]:
        events = debezium.translate(Posted(json.dumps(records).encode()), settings).rows["orders"].events
        return [(event["id"], "$id" in event) for event in events if isinstance(event, dict)]

    assert told(deletion, tombstone) == [(2, True)]
    assert told(deletion, other) == [(2, True), (3, False)]
    assert told(tombstone) == [(2, False)], "where there is one table, and compaction took the deletion"


def test_a_private_column_is_hidden_on_both_sides_of_a_change_and_in_what_is_added(tmp_path: Path) -> None:
    text = """
type = "debezium"
topic = "customers"
changes = "changes"
add = ["before", "after.card.number", "op"]

[privacy]
drop = ["email", "card.number"]
truncate = { name = 1, "before.name" = 2 }
"""
    rows_of_table = TopicSpec("customers", key=(Column("ID", BIGINT),), value=(Column("NAME", VARCHAR),))
    before = {"id": 1, "name": "Carol", "Email": "hush-hush", "card": {"number": "hush-hush"}}
    envelope = {"before": before, "after": before | {"name": "Ann"}, "op": "u", "source": {"lsn": 1}}
    with gated(tmp_path, topic=rows_of_table) as project:
        project.log.create_topic(TopicSpec("changes", key=(Column("ID", BIGINT),), value=(Column("OP", VARCHAR),)))
        project.write("shop", text)
        gate = project.gates.named("shop")
        settings = gate.definition.settings_as(debezium.DebeziumSettings)
        for body in (envelope, {"op": "u", "before": None, "after": ["hush-hush"]}):
            found = debezium.translate(Posted(json.dumps(body).encode()), settings)
            gate.take(found.changes, Arrival(), topic="changes").result(30)
            gate.take(found.rows["customers"], Arrival()).result(30)
        [row], [change] = project.rows("customers"), project.rows("changes")
        assert (row["NAME"], json.loads(row["$rest"])["__before"]["name"]) == ("A", "C")
        assert {side: json.loads(change["$rest"])[side]["name"] for side in ("before", "after")} == {
            "before": "Ca",
            "after": "A",
        }
    assert not [file for file in tmp_path.rglob("*") if file.is_file() and b"hush-hush" in file.read_bytes()]

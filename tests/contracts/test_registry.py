"""The schema registry, and topics whose formats need it, on every log there is."""

from __future__ import annotations

import datetime
import decimal
import threading
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from headrace.log.base import Append, FormatOptions, Log, TopicSpec
from headrace.log.registry.base import Schema
from headrace.log.registry.registry import Registry
from headrace.log.registry.schemas import RegistrySchemas
from headrace.log.schema import arrow_type
from headrace.types import BIGINT, TIMESTAMP, VARCHAR, Array, Column, Decimal
from tests.contracts.logs import Place


def test_schemas_are_there_after_a_restart(place: Place) -> None:
    registry = Registry(place.log)
    first = registry.register("s-value", Schema('"string"'))
    second = registry.register("s-value", Schema('["null","string"]'))
    registry.settings.set_config("s-value", "FULL")
    place.reopen()
    again = Registry(place.log)
    assert again.versions("s-value") == [first, second]
    assert again.settings.config("s-value").compatibility == "FULL"
    assert again.register("other-value", Schema('"string"')).id == first.id


def test_two_registries_at_once_give_no_id_twice(log: Log) -> None:
    registries = [Registry(log), Registry(log)]
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for step in range(4):
                size = 1 + number * 10 + step
                schema = f'{{"type":"fixed","name":"F{size}","size":{size}}}'
                registries[number].register(f"s{size}", Schema(schema))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    for registry in registries:
        registry.refresh()
    found = [[registry.version(subject, None).id for subject in registry.subjects()] for registry in registries]
    assert found[0] == found[1]
    assert sorted(found[0]) == list(range(1, 9))


COLUMNS = (
    Column("PAGE", VARCHAR),
    Column("TOTAL", Decimal(9, 2)),
    Column("AT", TIMESTAMP),
    Column("TAGS", Array(VARCHAR)),
)
ROWS: list[dict[str, Any]] = [
    {
        "ID": 1,
        "PAGE": "/a",
        "TOTAL": decimal.Decimal("1.50"),
        "AT": datetime.datetime(2026, 11, 15, 12, tzinfo=datetime.UTC),
        "TAGS": ["x", "y"],
    },
    {"ID": 2, "PAGE": None, "TOTAL": None, "AT": None, "TAGS": []},
]


@pytest.mark.parametrize("format_", ["AVRO", "PROTOBUF", "JSON_SR", "JSON"])
def test_a_topic_holds_the_same_in_every_format(log: Log, format_: str) -> None:
    log.schemas = RegistrySchemas.of_log(log)
    key = (Column("ID", BIGINT),)
    log.create_topic(TopicSpec("orders", key, COLUMNS, key_format=format_, value_format=format_, role="derived"))
    schema = pa.schema([(column.name, arrow_type(column.type)) for column in key + COLUMNS])
    log.append([Append("orders", pa.RecordBatch.from_pylist(ROWS, schema=schema))]).result(30)
    names = [column.name for column in key + COLUMNS]
    [records] = log.read("orders", 0, 0, columns=names)
    assert records.batch.select(names).to_pylist() == ROWS


def test_a_topic_remembers_how_its_format_is_written(place: Place) -> None:
    options = FormatOptions(delimiter="|", wrap_single_value=False)
    spec = TopicSpec("lines", value=(Column("A", VARCHAR), Column("B", BIGINT)), value_format="DELIMITED")
    place.log.create_topic(replace(spec, value_options=options, role="derived"))
    place.reopen()
    log = place.log
    assert log.topic("lines").spec.value_options == options
    batch = pa.record_batch({"A": pa.array(["x|y"]), "B": pa.array([7])})
    log.append([Append("lines", batch)]).result(30)
    [records] = log.read("lines", 0, 0, columns=["A", "B"])
    assert records.batch.select(["A", "B"]).to_pylist() == [{"A": "x|y", "B": 7}]

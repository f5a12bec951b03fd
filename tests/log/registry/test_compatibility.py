"""Which changes of a schema are compatible: tables of pairs, for every level, and real data as a second opinion."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastavro
import pytest
from fastavro.utils import generate_many

from headrace.log.registry.base import LEVELS, Schema
from headrace.log.registry.registry import Incompatible, Registry
from tests.log.support import open_owner

HERE = Path(__file__).parent
TABLES: dict[Any, list[dict[str, Any]]] = {
    "AVRO": json.loads((HERE / "avro_pairs.json").read_text()),
    "JSON": json.loads((HERE / "json_pairs.json").read_text()),
    "PROTOBUF": json.loads((HERE / "protobuf_pairs.json").read_text()),
}


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    """With the older schema of every pair."""
    log = open_owner(tmp_path_factory.mktemp("log"))
    registry = Registry(log)
    for type_, table in TABLES.items():
        for number, pair in enumerate(table):
            registry.register(f"{type_}-{number}", Schema(text(pair["old"]), type_))
    yield registry
    log.close()


def text(schema: Any) -> str:
    return schema if isinstance(schema, str) and schema.startswith("syntax") else json.dumps(schema)


def allowed(pair: dict[str, Any], level: str) -> bool:
    if level == "NONE":
        return True
    backward, forward = level.startswith(("BACKWARD", "FULL")), level.startswith(("FORWARD", "FULL"))
    return (pair["backward"] or not backward) and (pair["forward"] or not forward)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("type_", TABLES)
def test_every_pair_of_the_table(registry: Registry, type_: Any, level: str) -> None:
    wrong = []
    registry.settings.set_config("", level)
    for number, pair in enumerate(TABLES[type_]):
        found = registry.check(f"{type_}-{number}", Schema(text(pair["new"]), type_))
        if bool(found) is allowed(pair, level):
            wrong.append((pair["name"], [str(problem) for one in found for problem in one.problems]))
    assert wrong == []


def test_the_tables_are_large_enough() -> None:
    assert len(TABLES["AVRO"]) >= 40
    for table in TABLES.values():
        assert len({pair["name"] for pair in table}) == len(table)
        assert any(pair["backward"] and not pair["forward"] for pair in table) or table is TABLES["PROTOBUF"]


@pytest.mark.parametrize("pair", TABLES["AVRO"], ids=lambda pair: pair["name"])
def test_what_is_called_compatible_can_be_read(pair: dict[str, Any]) -> None:
    """Random records, written with one schema and read with the other by fastavro."""
    directions = [(pair["old"], pair["new"], pair["backward"]), (pair["new"], pair["old"], pair["forward"])]
    for written, wanted, compatible in directions:
        if not compatible or _is_beyond_fastavro(pair["name"]):
            continue
        writer, reader = fastavro.parse_schema(_copy(written)), fastavro.parse_schema(_copy(wanted))
        for value in generate_many(writer, 20):
            stream = io.BytesIO()
            fastavro.schemaless_writer(stream, writer, value)
            stream.seek(0)
            fastavro.schemaless_reader(stream, writer, reader)
            assert stream.read() == b"", "something of the record was not read"


def _copy(tree: Any) -> Any:
    return json.loads(json.dumps(tree))


def _is_beyond_fastavro(name: str) -> bool:
    """It takes names more strictly than Java's Avro, makes endless lists, and bytes that are no text."""
    return any(words in name for words in ("namespace", "another name", "a list", "becomes bytes"))


def versions(*all_fields: list[tuple[Any, ...]]) -> list[Schema]:
    """Records of (name, type) or (name, type, default)."""
    found = []
    for fields in all_fields:
        trees = [{"name": f[0], "type": f[1]} | ({"default": f[2]} if len(f) > 2 else {}) for f in fields]
        found.append(Schema(json.dumps({"type": "record", "name": "R", "fields": trees})))
    return found


# Each version goes with the one before; the last one does not go with the first.
A = ("a", "int")
CHAINS = {
    "BACKWARD": versions([A], [A, ("b", "int", 0)], [A, ("b", "int")]),
    "FORWARD": versions([A, ("b", "int", 0)], [A], [A, ("b", "string")]),
    "FULL": versions([A, ("b", "int", 0)], [A], [A, ("b", "string", "")]),
}


@pytest.mark.parametrize("level", CHAINS)
def test_transitive_levels_remember_the_first_version(registry: Registry, level: str) -> None:
    *before, last = CHAINS[level]
    for subject, setting in ((f"chain-{level}", level), (f"long-{level}", f"{level}_TRANSITIVE")):
        registry.settings.set_config(subject, setting)
        for schema in before:
            registry.register(subject, schema)
    assert registry.register(f"chain-{level}", last).version == 3
    with pytest.raises(Incompatible) as refused:
        registry.register(f"long-{level}", last)
    assert refused.value.data["problems"][0].startswith("version 1: ")


def test_a_message_says_what_and_where(registry: Registry) -> None:
    found = {}
    for type_, name in (
        ("AVRO", "records in an array get a field without a default"),
        ("JSON", "a nested object gets a property"),
        ("PROTOBUF", "a nested message changes a field's type"),
    ):
        [pair] = [pair for pair in TABLES[type_] if pair["name"] == name]
        registry.settings.set_config(f"say-{type_}", "FULL")
        registry.register(f"say-{type_}", Schema(text(pair["old"]), type_))  # type: ignore[arg-type]
        [one] = registry.check(f"say-{type_}", Schema(text(pair["new"]), type_))  # type: ignore[arg-type]
        found[type_] = str(one.problems[0])
    assert found == {
        "AVRO": "READER_FIELD_MISSING_DEFAULT_VALUE at /fields/0/type/items/fields/1: "
        "the field `b` is not in what was written and has no default",
        "JSON": "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL at #/properties/a/properties/y: "
        "for who reads with the older one: the property `y` is gone and no others are allowed",
        "PROTOBUF": "FIELD_SCALAR_KIND_CHANGED at A.B.y: `int32` is encoded otherwise than `string`",
    }


def test_hostile_schemas_do_not_take_forever(registry: Registry) -> None:
    """Types that use the one before twice: comparing every path would take 2^60 steps."""
    inner: Any = {"type": "record", "name": "T0", "fields": [{"name": "x", "type": "int"}]}
    for number in range(1, 60):
        fields = [{"name": "l", "type": inner}, {"name": "r", "type": f"T{number - 1}"}]
        inner = {"type": "record", "name": f"T{number}", "fields": fields}
    registry.register("deep", Schema(json.dumps(inner)))
    changed = json.dumps(inner).replace('"name": "x", "type": "int"', '"name": "x", "type": "string"')
    assert registry.check("deep", Schema(changed))
    definitions: dict[str, Any] = {"d0": {"type": "object", "properties": {"x": {"type": "string"}}}}
    for number in range(1, 60):
        ref = {"$ref": f"#/definitions/d{number - 1}"}
        definitions[f"d{number}"] = {"type": "object", "properties": {"l": ref, "r": ref}, "anyOf": [ref, ref]}
    tree = {"definitions": definitions, "$ref": "#/definitions/d59"}
    registry.register("deep-json", Schema(json.dumps(tree), "JSON"))
    definitions["d0"]["properties"]["x"]["type"] = "integer"
    assert registry.check("deep-json", Schema(json.dumps(tree), "JSON"))

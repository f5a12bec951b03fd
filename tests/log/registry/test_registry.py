"""The registry over a real log: ids, versions, several writers at once, and what survives a restart."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.log.base import Log
from headrace.log.local import LocalLog
from headrace.log.registry.base import Reference, RegistryError, Schema
from headrace.log.registry.registry import Incompatible, Registry
from headrace.log.registry.schemas import RegistrySchemas
from tests.log.support import open_owner


def record(*fields: tuple[Any, ...], name: str = "R") -> Schema:
    """Fields are (name, type) or (name, type, default)."""
    found = [{"name": one[0], "type": one[1]} | ({"default": one[2]} if len(one) > 2 else {}) for one in fields]
    return Schema(json.dumps({"type": "record", "name": name, "fields": found}))


@pytest.fixture
def log(tmp_path: Path) -> Iterator[LocalLog]:
    log = open_owner(tmp_path)
    yield log
    log.close()


@pytest.fixture
def registry(log: Log) -> Registry:
    return Registry(log)


def code(error: pytest.ExceptionInfo[RegistryError]) -> int:
    return error.value.error_code


def test_the_same_schema_has_the_same_id_however_it_is_written(registry: Registry) -> None:
    one = registry.register("a", Schema('{"type":"record","name":"R","fields":[{"name":"x","type":"int"}]}'))
    two = registry.register(
        "a", Schema('{ "fields":[{"type":{"type":"int"},"name":"x"}], "name":"R","type":"record" }')
    )
    elsewhere = registry.register("b", record(("x", "int")))
    assert one == two
    assert (elsewhere.id, elsewhere.version, elsewhere.subject) == (one.id, 1, "b")


def test_protobuf_is_the_same_as_text_and_as_descriptor(registry: Registry) -> None:
    text = 'syntax="proto3"; message A { int32 x = 1; /* why */ string name = 2; }'
    spaced = 'syntax = "proto3";\n\nmessage A {\n  int32 x = 1;\n  string name = 2;\n}\n'
    one = registry.register("p", Schema(text, "PROTOBUF"))
    assert registry.register("p", Schema(spaced, "PROTOBUF")) == one
    assert registry.schema(one.id).text == spaced


def test_normalizing_ignores_the_order_of_what_has_none(registry: Registry) -> None:
    one = Schema('{"type":"object","properties":{"a":{"type":"string"},"b":{}}}', "JSON")
    other = Schema('{"properties":{"b":{},"a":{"type":"string"}},"type":"object"}', "JSON")
    assert registry.register("n", one, normalize=True) == registry.register("n", other, normalize=True)
    registry.settings.set_config("m", None, True)
    assert registry.register("m", one) == registry.register("m", other)


def test_versions_go_on_after_a_soft_delete_and_begin_anew_after_a_hard_one(registry: Registry) -> None:
    first = registry.register("s", record(("x", "int")))
    assert registry.delete_version("s", None) == 1
    with pytest.raises(RegistryError) as gone:
        registry.version("s", None)
    assert code(gone) == 40401
    again = registry.register("s", record(("x", "int")))
    assert (again.version, again.id) == (2, first.id)
    registry.delete_subject("s")
    with pytest.raises(RegistryError) as twice:
        registry.delete_subject("s")
    assert code(twice) == 40404
    assert registry.delete_subject("s", permanent=True) == [1, 2]
    assert registry.register("s", record(("x", "int"))).version == 1
    assert registry.schema(first.id)


def test_what_was_written_with_a_deleted_schema_can_still_be_read(registry: Registry) -> None:
    one = registry.register("s", record(("x", "int")))
    registry.delete_subject("s")
    registry.delete_subject("s", permanent=True)
    assert RegistrySchemas(registry).by_id(one.id).text == registry.schema(one.id).text


def test_transitive_levels_look_at_all_versions(registry: Registry) -> None:
    registry.register("s", record(("x", "int")))
    registry.register("s", record(("x", "int"), ("y", "int", 0)))
    dropped_default = record(("x", "int"), ("y", "int"))
    assert registry.check("s", dropped_default) == ()
    registry.settings.set_config("s", "BACKWARD_TRANSITIVE")
    with pytest.raises(Incompatible) as refused:
        registry.register("s", dropped_default)
    [problem] = refused.value.data["problems"]
    assert problem.startswith("version 1: READER_FIELD_MISSING_DEFAULT_VALUE at /fields/1: the field `y`")


def test_no_level_no_question(registry: Registry) -> None:
    registry.settings.set_config("s", "NONE")
    registry.register("s", record(("x", "int")))
    assert registry.register("s", Schema('"string"')).version == 2
    assert registry.register("s", Schema('{"type":"string"}', "JSON")).version == 3


def test_references_come_with_what_they_need(registry: Registry) -> None:
    registry.register("zip", record(("code", "string"), name="Zip"))
    registry.register("home", Schema(record(("zip", "Zip"), name="Home").text, "AVRO", (Reference("Zip", "zip", 1),)))
    person = Schema(record(("home", "Home"), name="Person").text, "AVRO", (Reference("Home", "home", 1),))
    registry.register("person", person)
    assert list(registry.references(person)) == ["Zip", "Home"]
    with pytest.raises(RegistryError) as used:
        registry.delete_version("home", 1)
    assert code(used) == 42206
    with pytest.raises(RegistryError, match="no version 9 of subject `zip`"):
        registry.register("bad", Schema('"Zip"', "AVRO", (Reference("Zip", "zip", 9),)))


def test_ids_can_be_brought_along_in_the_mode_import(registry: Registry) -> None:
    with pytest.raises(RegistryError) as refused:
        registry.register("s", record(("x", "int")), id_=77)
    assert code(refused) == 42205
    registry.settings.set_mode("s", "IMPORT")
    one = registry.register("s", record(("x", "int")), id_=77, version=5)
    assert (one.id, one.version) == (77, 5)
    registry.settings.delete_mode("s")
    assert registry.register("t", Schema('"int"')).id == 78


def test_a_second_registry_sees_what_the_first_wrote(log: Log, registry: Registry) -> None:
    other = Registry(log)
    one = registry.register("s", record(("x", "int")))
    other.refresh()
    assert other.version("s", None) == one
    other.settings.set_config("s", "FULL")
    assert other.register("s", record(("x", "int"), ("y", "int", 0))).version == 2
    registry.refresh()
    assert registry.settings.config("s").compatibility == "FULL"
    assert len(registry.versions("s")) == 2


def test_many_writers_never_give_an_id_or_a_version_twice(log: Log) -> None:
    registries = [Registry(log) for _ in range(3)]
    failures: list[BaseException] = []

    def work(number: int) -> None:
        registry = registries[number % 3]
        try:
            for step in range(5):
                registry.register("shared", record(("x", "int"), (f"f{number}_{step}", "int", 0)))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    for registry in registries:
        registry.refresh()
        versions = registry.versions("shared")
        assert [one.version for one in versions] == list(range(1, 31))
        assert len({one.id for one in versions}) == 30
    assert registries[0].versions("shared") == registries[1].versions("shared") == registries[2].versions("shared")


def test_all_of_it_is_there_after_a_restart(tmp_path: Path) -> None:
    log = open_owner(tmp_path / "log")
    registry = Registry(log)
    registry.register("s", record(("x", "int")))
    registry.register("s", record(("x", "int"), ("y", "int", 0)))
    registry.delete_version("s", 1)
    registry.settings.set_config("", "FORWARD")
    registry.settings.set_mode("t", "READONLY")
    log.close()
    log = open_owner(tmp_path / "log")
    again = Registry(log)
    assert [one.version for one in again.versions("s")] == [2]
    assert [one.version for one in again.versions("s", deleted_only=True)] == [1]
    assert again.settings.config("anything").compatibility == "FORWARD"
    assert again.settings.mode("t") == "READONLY"
    log.close()


@pytest.mark.parametrize(
    ("type_", "text", "reason"),
    [
        ("AVRO", "{", "not JSON"),
        ("AVRO", '"strin"', "there is no type `strin`"),
        ("AVRO", '{"type":"record","name":"R","fields":[{"name":"a"}]}', "`type` is missing"),
        ("AVRO", '{"type":"record","name":"1R","fields":[]}', "`1R` is not a name"),
        ("AVRO", '{"type":"record","name":"R","fields":[{"name":"a","type":"int","default":"x"}]}', "does not fit"),
        ("AVRO", '["int","int"]', "twice"),
        ("AVRO", "[" * 300 + "]" * 300, "nested"),
        ("AVRO", '{"type":"array","items":' * 300 + '"int"' + "}" * 300, "nested"),
        ("JSON", "{", "not JSON"),
        ("JSON", '{"type":"strin"}', "`strin` is not a type"),
        ("JSON", '{"$ref":"#/definitions/x"}', "there is nothing"),
        ("JSON", '{"not":' * 5000 + "{}" + "}" * 5000, "nested|not JSON"),
        ("PROTOBUF", "message {", "line 1, column 9"),
        ("PROTOBUF", 'syntax="proto3"; message A { B b = 1; }', "B"),
        ("PROTOBUF", 'import "x.proto";', "there is no such file"),
        ("PROTOBUF", "message A {" * 400 + "}" * 400, "nested|resolve|deep|recurs"),
    ],
)
def test_what_is_no_schema_is_refused_with_a_reason(registry: Registry, type_: Any, text: str, reason: str) -> None:
    with pytest.raises(RegistryError, match=reason) as refused:
        registry.register("s", Schema(text, type_))
    assert code(refused) == 42201

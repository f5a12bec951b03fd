"""`headrace schema` against a real server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Headrace, Said
from tests.server.running import Running, running_server

pytestmark = pytest.mark.slow

ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
WITH_NOTE = ORDER | {"fields": [*ORDER["fields"], {"name": "note", "type": "string", "default": ""}]}
WITH_COUNTRY = ORDER | {"fields": [*ORDER["fields"], {"name": "country", "type": "string"}]}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running_server(tmp_path_factory.mktemp("http")) as server:
        yield server


@pytest.fixture
def run(headrace: Headrace, server: Running) -> Headrace:
    def run(*arguments: str) -> Said:
        return headrace(*arguments, "--url", f"http://127.0.0.1:{server.port}")

    return run


def test_a_schema_is_registered_changed_checked_compared_and_deleted(run: Headrace, tmp_path: Path) -> None:
    for name, schema in (("one", ORDER), ("two", WITH_NOTE), ("bad", WITH_COUNTRY)):
        (tmp_path / f"{name}.avsc").write_text(json.dumps(schema))
    assert "no schemas" in run("schema", "list").out
    assert run("schema", "register", "pageviews-value", "one.avsc").out == "`pageviews-value` version 1 has the id 1\n"
    assert run("schema", "register", "pageviews-value", "one.avsc").out == "`pageviews-value` version 1 has the id 1\n"
    assert run("schema", "check", "pageviews-value", "two.avsc").code == 0

    refused = run("schema", "register", "pageviews-value", "bad.avsc")
    assert refused.code == 1
    assert "incompatible with an earlier one of subject `pageviews-value` (BACKWARD)" in refused.err
    assert "the field `country` is not in what was written and has no default" in refused.err
    assert "breaks stream `pageviews`" in refused.err
    checked = run("schema", "check", "pageviews-value", "bad.avsc")
    assert checked.code == 1
    assert "it would break stream `pageviews`" in checked.out

    assert json.loads(run("schema", "register", "pageviews-value", "two.avsc", "--json").out)["version"] == 2
    [listed] = json.loads(run("schema", "list", "--json").out)["subjects"]
    assert (listed["subject"], listed["versions"], listed["compatibility"]) == ("pageviews-value", 2, "BACKWARD")
    assert '"note"' in run("schema", "show", "pageviews-value").out
    assert '"note"' not in run("schema", "show", "pageviews-value", "--version", "1").out
    assert '+      "name": "note",' in run("schema", "diff", "pageviews-value").out
    assert (
        run("schema", "delete", "pageviews-value", "--version", "1").out == "deleted version 1 of `pageviews-value`\n"
    )
    assert run("schema", "delete", "pageviews-value").code == 0
    assert run("schema", "delete", "pageviews-value", "--permanent", "--yes").code == 0
    gone = run("schema", "show", "pageviews-value")
    assert (gone.code, "not found" in gone.err) == (1, True)


def test_levels_are_set_and_reset(run: Headrace) -> None:
    assert run("schema", "config").out == "subjects without their own level: BACKWARD\n"
    assert run("schema", "config", "s-value", "--level", "full").out == "`s-value`: FULL\n"
    assert run("schema", "config", "s-value", "--level", "default").out == "`s-value`: BACKWARD\n"
    wrong = run("schema", "config", "--level", "sideways")
    assert wrong.code == 1
    assert "`sideways` is not a compatibility level" in wrong.err


def test_other_kinds_and_references(run: Headrace, tmp_path: Path) -> None:
    (tmp_path / "base.proto").write_text('syntax = "proto3"; message Base { string s = 1; }')
    (tmp_path / "uses.proto").write_text('syntax = "proto3"; import "base.proto"; message A { Base b = 1; }')
    (tmp_path / "thing.json").write_text('{"type": "object"}')
    assert run("schema", "register", "base", "base.proto").code == 0
    assert run("schema", "register", "uses-value", "uses.proto", "--reference", "base.proto=base:1").code == 0
    assert ".Base b = 1;" in run("schema", "show", "uses-value").out
    assert run("schema", "register", "thing-value", "thing.json").code == 0
    assert "nothing before version 1" in run("schema", "diff", "thing-value").err
    (tmp_path / "unknown.txt").write_text("{}")
    assert "cannot tell what kind" in run("schema", "register", "x", "unknown.txt").err
    assert "line 1" in run("schema", "register", "x", "unknown.txt", "--type", "protobuf").err

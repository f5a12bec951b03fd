"""`headrace topic`, `group` and `queue`: with a server, and without one."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace import Client
from tests.cli.conftest import Headrace, Said
from tests.server.running import Running, running_server, write_project

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running_server(tmp_path_factory.mktemp("log-commands")) as server:
        yield server


@pytest.fixture(params=["server", "offline"])
def run(request: pytest.FixtureRequest, headrace: Headrace, tmp_path: Path) -> Headrace:
    """The same commands, answered by a server or by the command itself."""
    if request.param == "server":
        where = ("--url", f"http://127.0.0.1:{request.getfixturevalue('server').port}")
    else:
        where = ("--project", str(write_project(tmp_path / "project", sql="")))

    def run(*arguments: str) -> Said:
        said = headrace(*arguments, *where)
        assert "Traceback" not in said.err
        return said

    return run


def body(said: Said) -> Any:
    assert said.code == 0, said.err
    return json.loads(said.out)


def lines(said: Said) -> list[Any]:
    assert said.code == 0, said.err
    return [json.loads(line) for line in said.out.splitlines()]


def fill(run: Headrace, topic: str, count: int = 6) -> None:
    assert run("topic", "create", topic, "--columns", "id VARCHAR KEY, n INT", "--partitions", "1").code == 0
    events = [json.dumps({"id": f"k{number}", "n": number, "note": "x"}) for number in range(count)]
    assert run("topic", "put", topic, *events).out == f"{count} accepted\n"


def test_a_topic_s_life(run: Headrace) -> None:
    made = run(
        "topic", "create", "shape", "--columns", "id VARCHAR KEY, n INT", "--compacted", "--retention-hours", "2"
    )
    assert made.out == "topic `shape` has 1 partition\n"
    assert (
        run("topic", "alter", "shape", "--add-columns", "note VARCHAR", "--compression", "zstd").out
        == "altered `shape`\n"
    )
    shown = body(run("topic", "show", "shape", "--json"))
    assert [column["name"] for column in shown["columns"]] == ["id", "n", "note"]
    assert (shown["config"]["compression"], shown["config"]["compacted"]) == ("zstd", True)
    assert "compacted true, compression zstd" in run("topic", "show", "shape").out
    assert run("topic", "alter", "shape").err.startswith("nothing to change")
    assert run("topic", "delete", "shape", "--yes").out == "deleted `shape`\n"
    assert run("topic", "show", "shape").code == 1


def test_records_by_place_and_condition(run: Headrace) -> None:
    fill(run, "places")
    assert [record["offset"] for record in lines(run("topic", "records", "places", "--json"))] == [0, 1, 2, 3, 4, 5]
    some = lines(run("topic", "records", "places", "--from", "2", "--partition", "0", "-n", "2", "--json"))
    assert [record["offset"] for record in some] == [2, 3]
    found = lines(run("topic", "records", "places", "--where", "n > 3 AND id LIKE 'k%'", "--json"))
    assert [record["value"]["n"] for record in found] == [4, 5]
    assert lines(run("topic", "records", "places", "--from=-1h", "-n", "1", "--json"))[0]["offset"] == 0
    assert run("topic", "records", "places", "--from", "latest").out == ""
    wrong = run("topic", "records", "places", "--where", "nothing = 1")
    assert (wrong.code, "the condition does not fit" in wrong.err) == (1, True)
    assert run("topic", "records", "places", "--from", "whenever").code == 1
    left = body(run("topic", "forget", "places", "--before", "4", "--yes", "--json"))
    assert left["partitions"] == [{"partition": 0, "start": 4, "end": 6}]


def test_tail_prints_in_every_format(run: Headrace) -> None:
    fill(run, "formats", 3)
    tail = ("topic", "tail", "formats", "--no-follow", "-n", "2")
    table = run(*tail).out.splitlines()
    assert (len(table), "id=k2  n=2  note=x" in table[1]) == (2, True)
    assert run(*tail, "--format", "csv").out.splitlines()[0] == "partition,offset,time,id,n,rest"
    assert run(*tail, "--format", "csv").out.splitlines()[2].endswith('Z,k2,2,"{""note"": ""x""}"')
    assert [json.loads(line) for line in run(*tail, "--format", "raw").out.splitlines()][1] == {
        "id": "k2", "n": 2, "note": "x",
    }  # fmt: skip
    assert [record["offset"] for record in lines(run(*tail, "--json"))] == [1, 2]
    small = lines(run("topic", "tail", "formats", "--no-follow", "--json", "--where", "n < 2"))
    assert [record["offset"] for record in small] == [0, 1]
    assert run(*tail, "--format", "xml").code == 1


def test_put_reads_files_of_all_kinds_and_names_the_lines(run: Headrace, tmp_path: Path) -> None:
    run("topic", "create", "files", "--columns", "id VARCHAR KEY, n INT, big DECIMAL(20, 10), ok BOOLEAN")
    (tmp_path / "a.csv").write_text("id,n,ok,note\nx,1,true,hello\ny,many,false,\nz,,,\n")
    (tmp_path / "b.json").write_text('[{"id": "j", "n": 1,\n "big": 0.1234567891}, {"id": "k"}]')
    (tmp_path / "c.ndjson").write_text('{"id": "l"}\n\nnonsense\n{"id": "m"}\n')
    csv = run("topic", "put", "files", "--file", str(tmp_path / "a.csv"))
    assert (csv.code, csv.out) == (1, "2 accepted\n")
    assert f"{tmp_path / 'a.csv'}:3 was rejected: `n` must be" in csv.err
    assert run("topic", "put", "files", "--file", str(tmp_path / "b.json")).out == "2 accepted\n"
    several = run("topic", "put", "files", "-f", str(tmp_path / "c.ndjson"), "--batch", "1", "--json")
    answer = json.loads(several.out)
    assert (several.code, answer["accepted"], [(r["index"], r["place"]) for r in answer["rejected"]]) == (
        1, 2, [(1, f"{tmp_path / 'c.ndjson'}:3")],
    )  # fmt: skip
    found = {record["key"]["id"]: record for record in lines(run("topic", "records", "files", "--json"))}
    assert found["x"]["value"] | found["x"]["rest"] == {"n": 1, "big": None, "ok": True, "note": "hello"}
    assert found["j"]["value"]["big"] == 0.1234567891


def test_put_reads_standard_input_and_sends_again_harmlessly(run: Headrace, monkeypatch: pytest.MonkeyPatch) -> None:
    run("topic", "create", "piped")
    for expected in ("3 accepted\n", "0 accepted, 3 were there already\n"):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b'{"a":1}\n{"a":2}\n{"a":3}\n')))
        assert run("topic", "put", "piped", "--batch", "2", "--idempotency-key", "k").out == expected
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
    assert run("topic", "put", "piped").err.startswith("nothing to send")


def test_a_queue_s_life(run: Headrace) -> None:
    fill(run, "work", 3)
    made = run("queue", "create", "jobs", "--topic", "work", "--max-deliveries", "2")
    assert made.out == "queue `jobs` has 3 messages\n"
    [one, two] = body(run("queue", "receive", "jobs", "-n", "2", "--json"))["messages"]
    assert run("queue", "ack", "jobs", one["receipt"]).out == "1 done\n"
    assert run("queue", "extend", "jobs", two["receipt"], "--lease", "100").code == 0
    assert run("queue", "nack", "jobs", two["receipt"], "--reason", "no stock").code == 0
    shown = body(run("queue", "show", "jobs", "--json"))
    assert (shown["ready"], shown["leased"]) == (2, 0)
    assert run("queue", "receive", "jobs", "-n", "5", "--ack").out.count("×") == 2
    assert run("queue", "receive", "jobs").out == "no messages now\n"
    assert "jobs" in run("queue", "list").out
    late = run("queue", "nack", "jobs", two["receipt"])
    assert (late.code, "somebody else's by now" in late.err) == (1, True)
    assert run("topic", "delete", "work", "--yes").code == 1
    assert run("queue", "delete", "jobs", "--yes").out == "deleted `jobs`\n"
    assert run("queue", "show", "jobs").code == 1


def test_a_group_without_members(run: Headrace) -> None:
    fill(run, "read", 4)
    assert run("group", "reset", "readers", "--to", "latest", "--topic", "read").code == 0
    assert body(run("group", "show", "readers", "--json"))["lag"] == 0
    reset = run("group", "reset", "readers", "--offset", "read:0:1")
    assert "3" in reset.out
    assert body(run("group", "reset", "readers", "--time", "2000-01-01", "--json"))["lag"] == 4
    [found] = [group for group in body(run("group", "list", "--json"))["groups"] if group["name"] == "readers"]
    assert (found["state"], found["lag"]) == ("empty", 4)
    for wrong in ((), ("--to", "somewhere"), ("--offset", "read:1"), ("--to", "latest", "--time", "2000-01-01")):
        assert run("group", "reset", "readers", *wrong).code == 1
    assert run("group", "delete", "readers", "--yes").out == "deleted `readers`\n"
    assert run("group", "show", "readers").code == 1


def test_a_group_with_members_is_not_reset(headrace: Headrace, server: Running) -> None:
    url = f"http://127.0.0.1:{server.port}"
    with Client(url) as client:
        client.create_topic("busy")
        client.produce("busy", [{"n": 1}])
        with client.consumer("crew", "busy", client="worker-1") as consumer:
            assert len(consumer.poll()) == 1
            shown = headrace("group", "show", "crew", "--url", url)
            assert "worker-1" in shown.out
            refused = headrace("group", "reset", "crew", "--to", "earliest", "--url", url)
            assert refused.code == 1
            assert headrace("group", "reset", "crew", "--to", "earliest", "--force", "--url", url).code == 0

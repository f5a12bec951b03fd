"""Agents that run with the project, as collectors."""

from __future__ import annotations

from pathlib import Path

from headrace.collect.definitions import Definition, read_definition
from headrace.log.base import TopicSpec
from headrace.toml_files import Problem
from headrace.types import BIGINT, VARCHAR, Column
from tests.collect.agents.making import values
from tests.collect.listeners import listening
from tests.support import wait_for

ORDERS = TopicSpec("orders", value=(Column("USER", VARCHAR), Column("N", BIGINT)))


def tables(folder: Path, more: str = "") -> str:
    return f"""
type = "agent"
{more}
[sources.tail]
type = "TAILDIR"
channels = ["buffer"]
filegroups = {{ all = "{folder}/.*log" }}

[channels.buffer]
type = "file"
minimumRequiredSpace = 0

[sinks.log]
type = "headrace"
topic = "orders"
channel = "buffer"
"""


def test_an_agent_of_tables_and_its_rules(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "a.log").write_text('{"user":"ann","n":1}\n{"user":"bob"\n{"user":"cid","n":3}\n')
    text = tables(logs) + '\n[privacy]\nhash = ["user"]\nkey = "0123456789abcdef0123"\n'
    with listening(tmp_path, {"web": text}, [ORDERS]) as running:
        found = running.wait_rows("orders", 2)
        assert [row["N"] for row in found] == [1, 3]
        # The collector's rules hold for agents, too.
        assert all(row["USER"] not in ("ann", "cid") for row in found)
        wait_for(lambda: len(running.letters()) == 1, 10, "the dead letter")
        wait_for(lambda: "in channels: buffer 0" in running.status("web").detail, 10, "its state")
        assert running.status("web").accepted == 2
        # Each component says what it did.

        def delivered() -> bool:
            return bool(running.status("web").components["sink log"]["EventDrainSuccessCount"] == 3)

        wait_for(delivered, 10, "its counters")
        components = running.status("web").components
        assert list(components) == ["channel buffer", "source tail", "sink log"]
        assert components["source tail"]["EventAcceptedCount"] == 3


def replace_text(file: Path, text: str) -> None:
    """Write a file as a whole: a collector that saw a part of it would start twice."""
    draft = file.with_name(f"{file.name}.draft")
    draft.write_text(text)
    draft.replace(file)


def test_flumes_file_as_it_stands_and_a_change_of_it(tmp_path: Path) -> None:
    with listening(tmp_path, {}, []) as running:
        file = tmp_path / "collectors" / "a1.properties"
        file.parent.mkdir(exist_ok=True)
        text = (Path(__file__).with_name("deck.properties")).read_text().replace("localhost:9092", "localhost:1")
        text += "a1.sources.r1.totalEvents = 100\n"
        replace_text(file, text)
        wait_for(lambda: len(values(running.log, "mytopic")) == 100, 20, "the events")
        assert values(running.log, "mytopic") == [str(number).encode() for number in range(100)]
        replace_text(file, text.replace("= seq", "= sek"))
        wait_for(lambda: "sek" in (running.status("a1").last_error or ""), 20, "the problem")
        replace_text(file, text.replace("mytopic", "other"))
        wait_for(lambda: len(values(running.log, "other")) == 100, 20, "the events of the changed one")


def test_mistakes_in_the_tables_are_said(tmp_path: Path) -> None:
    file = tmp_path / "web.toml"
    assert isinstance(read_definition(file, tables(tmp_path)), Definition)
    wrong = read_definition(file, tables(tmp_path).replace("TAILDIR", "TALEDIR"))
    assert isinstance(wrong, Problem)
    assert "there is no source of type `TALEDIR`: did you mean `TAILDIR`?" in wrong.message
    both = read_definition(file, tables(tmp_path, 'conf = "x.properties"'))
    assert isinstance(both, Problem)
    assert "either `conf` or tables" in both.message

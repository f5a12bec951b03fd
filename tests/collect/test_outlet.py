"""Each append once, with its cursor: on the local log and on Kafka."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.collect.listening.needed import listeners_needed
from headrace.collect.outlet import Outlet, last_mark
from headrace.config import load_project
from headrace.errors import Conflict, NotFound
from headrace.log.base import Append, Log
from headrace.log.local.client import LocalClient
from tests.kafka import open_kafka
from tests.log.support import PLAIN, batch, numbers, open_owner


@pytest.fixture(params=["local", pytest.param("kafka", marks=pytest.mark.slow)])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Log]:
    if request.param == "local":
        owner = open_owner(tmp_path / "log")
        owner.create_topic(PLAIN)
        yield owner
        owner.close()
        return
    with open_kafka(request.getfixturevalue("kafka")) as found:
        found.create_topic(PLAIN)
        yield found


def outlet(log: Log, name: str = "one") -> Outlet:
    return Outlet(log, name, threading.Event(), lambda why: None)


def test_events_and_cursor_are_written_together_and_the_next_process_goes_on_there(log: Log) -> None:
    first, other = outlet(log), outlet(log, "other")
    assert first.open() is None
    for number in range(3):
        first.advance({"at": number})
        first.append([Append("plain", batch(N=[number]))]).result()
    other.open()
    other.append([Append("plain", batch(N=[100]))]).result()
    second = outlet(log)
    assert second.open() == {"at": 2}
    # Without a new cursor the old one stays.
    second.append([Append("plain", batch(N=[3]))]).result()
    assert outlet(log).open() == {"at": 2}
    assert sorted(numbers(log)) == [0, 1, 2, 3, 100]
    for one in (first, second, other):
        one.close()


def test_whoever_had_the_name_before_writes_nothing_any_more(log: Log) -> None:
    first, second = outlet(log), outlet(log)
    first.open()
    first.append([Append("plain", batch(N=[1]))]).result()
    second.open()
    with pytest.raises(Conflict):
        first.append([Append("plain", batch(N=[2]))])
    second.append([Append("plain", batch(N=[3]))]).result()
    assert numbers(log) == [1, 3]
    first.close()
    second.close()


def test_whoever_was_away_meanwhile_does_not_set_the_cursor_back(log: Log) -> None:
    first, other = outlet(log), outlet(log)
    first.open()
    first.advance("old")
    first.append([Append("plain", batch(N=[1]))]).result()
    # It loses the log in the middle of a write; before it is back, somebody sets its cursor.
    first.close()
    other.open()
    other.advance("new")
    other.settle()
    with pytest.raises(Conflict, match="was reset"):
        first.append([Append("plain", batch(N=[2]))])
    assert numbers(log) == [1]
    last = outlet(log)
    assert last.open() == "new"
    for one in (first, other, last):
        one.close()


def test_what_does_not_fit_takes_nothing_and_the_next_goes_on(log: Log) -> None:
    one = outlet(log)
    one.open()
    one.advance(1)
    with pytest.raises(NotFound):
        one.append([Append("plain", batch(N=[1])), Append("missing", batch(N=[1]))])
    one.append([Append("plain", batch(N=[2]))]).result()
    assert numbers(log) == [2]
    one.close()


def test_while_the_owner_is_away_it_waits_and_says_so(tmp_path: Path) -> None:
    owner = open_owner(tmp_path / "log", serve=True)
    owner.create_topic(PLAIN)
    client = LocalClient(tmp_path / "log")
    said: list[str | None] = []
    waits = threading.Event()

    def say(why: str | None) -> None:
        said.append(why)
        waits.set()

    one = Outlet(client, "one", threading.Event(), say)
    one.open()
    one.append([Append("plain", batch(N=[1]))]).result()
    owner.close()
    waits.clear()
    one.advance("two")
    writing = threading.Thread(target=lambda: one.append([Append("plain", batch(N=[2]))]))
    writing.start()
    assert waits.wait(60)
    assert any(said)
    owner = open_owner(tmp_path / "log", serve=True)
    writing.join(60)
    assert not writing.is_alive()
    assert said.pop() is None
    assert numbers(owner) == [1, 2]
    mark = last_mark(owner, "one")
    assert mark is not None
    assert mark.cursor == "two"
    one.close()
    client.close()
    owner.close()


def test_the_process_is_needed_when_a_file_asks_for_it(tmp_path: Path) -> None:
    (tmp_path / "headrace.toml").write_text("")
    (tmp_path / "collectors").mkdir()
    project = load_project(tmp_path)
    assert not listeners_needed(project)
    (tmp_path / "collectors" / "a.toml").write_text('type = "http"\ntopic = "t"')
    assert not listeners_needed(project)
    (tmp_path / "collectors" / "b.toml").write_text('type = "syslog"\ntopic = ')
    assert listeners_needed(project)

"""Events that break the code that takes them: only they become dead letters, and nothing is tried for ever."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from headrace.clock import SystemClock
from headrace.collect import udp
from headrace.collect.base import Sent, sent_objects
from headrace.collect.columns import Columns
from headrace.collect.definitions import load_definitions
from headrace.collect.feed import Feed
from headrace.collect.gate import Arrival
from headrace.collect.listening.pool import Gathered
from headrace.collect.outlet import last_mark
from headrace.collect.pull import files
from headrace.collect.pull.files import FileSettings, read_any
from headrace.collect.pull.tail import Piece, Place
from headrace.config import load_project
from headrace.log.dead_letters import DEAD_LETTERS_TOPIC, create_dead_letters
from headrace.log.local import LocalLog
from tests.collect.listeners import MESSAGES, listening
from tests.log.support import PLAIN, open_owner, rows
from tests.support import free_port, wait_for


class Hostile:
    """What nobody has thought of: it cannot be told to anybody."""

    def __repr__(self) -> str:
        return "hostile"


@contextmanager
def feed(folder: Path, text: str = "") -> Iterator[tuple[Feed, LocalLog]]:
    (folder / "headrace.toml").write_text("")
    (folder / "collectors").mkdir()
    (folder / "collectors" / "one.toml").write_text(f'type = "file"\ntopic = "plain"\npath = "x"\n{text}')
    log = open_owner(folder / "log")
    create_dead_letters(log)
    log.create_topic(PLAIN)
    project = load_project(folder)
    [definition], _ = load_definitions(project)
    try:
        yield Feed(project, definition, log, SystemClock(), None), log
    finally:
        log.close()


async def put(to: Feed, events: Sent | Columns, cursor: Any) -> None:
    await to.cursor()
    await to.put(events, Arrival(position=lambda row: f"x:{row * 10}"), cursor)
    await to.close(1)


@pytest.mark.parametrize("text", ["", '[validate]\nrequired = ["n"]', "[quota]\nevents_per_second = 1000000.0"])
def test_the_event_that_breaks_a_gate_is_a_letter_and_the_others_are_taken_with_the_cursor(
    tmp_path: Path, text: str
) -> None:
    events: list[Any] = [{"n": n} for n in range(20)]
    events[7] = {"n": Hostile()}
    sent = sent_objects(events, lambda row: b"original")
    with feed(tmp_path, text) as (to, log):
        asyncio.run(put(to, sent, {"at": 20}))
        assert [row["N"] for row in rows(log, "plain")] == [n for n in range(20) if n != 7]
        [letter] = rows(log, DEAD_LETTERS_TOPIC)
        assert "breaks the collector: TypeError: Encoding objects of type Hostile" in letter["REASON"]
        assert letter["PAYLOAD"] == b"{'n': hostile}"
        assert letter["SOURCE"] == "file one x:70"
        mark = last_mark(log, "one")
        assert mark is not None
        assert mark.cursor == {"at": 20}
        status = to.counters.status()
        assert (status.received, status.accepted, status.rejected) == (20, 19, 1)


def test_columns_too(tmp_path: Path) -> None:
    columns = Columns(2, {"n": [1, Hostile()]}, [b"1", b"2"].__getitem__)
    with feed(tmp_path) as (to, log):
        asyncio.run(put(to, columns, None))
        assert [row["N"] for row in rows(log, "plain")] == [1]
        assert [letter["SOURCE"] for letter in rows(log, DEAD_LETTERS_TOPIC)] == ["file one x:10"]


def test_a_datagram_that_breaks_its_reader_is_a_letter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = udp.read_datagrams

    def breaks(gathered: Sequence[Gathered], format: udp.Format) -> Sent:
        if any(b"bad" in message for one in gathered for message in one.messages):
            raise ZeroDivisionError("hostile")
        return read(gathered, format)

    monkeypatch.setattr(udp, "read_datagrams", breaks)
    port = free_port()
    text = f'type = "udp"\ntopic = "messages"\nformat = "text"\nlisten = ["udp://127.0.0.1:{port}"]'
    with listening(tmp_path, {"beacons": text}, [MESSAGES]) as running:
        running.wait_until("beacons")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            for datagram in (b"one", b"bad", b"two"):
                sender.sendto(datagram, ("127.0.0.1", port))
        assert sorted(row["MESSAGE"] for row in running.wait_rows("messages", 2)) == ["one", "two"]
        wait_for(lambda: len(running.letters()) == 1, 10, "a dead letter")
        assert running.letters()[0]["PAYLOAD"] == b"bad"
        status = running.status("beacons")
        assert (status.state, status.received, status.rejected) == ("running", 3, 1)


def test_a_line_that_breaks_its_reader_is_a_letter(monkeypatch: pytest.MonkeyPatch) -> None:
    read = files._read_json

    def breaks(lines: list[bytes], settings: FileSettings) -> Sent:
        if b"bad" in lines:
            raise ZeroDivisionError("hostile")
        return read(lines, settings)

    monkeypatch.setattr(files, "_read_json", breaks)
    settings = FileSettings(type="file", path="x", format="json")
    events, place = read_any(Piece(Place("a.log", 1), b'{"n": 1}\n\nbad\n{"n": 2}\n'), settings)
    assert isinstance(events, Sent)
    assert [events.slices(row) for row in range(3)] == [b'{"n": 1}', b"bad", b'{"n": 2}']
    assert (events.events[0], events.events[2], place.offset) == ({"n": 1}, {"n": 2}, 23)

"""Headers whose bytes are no UTF-8, over every hop: they arrive as they were, and nothing stops."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.cli.agent_log import _record
from headrace.collect.agents.avro_event import ID_HEADER, Reader, write_bytes, write_event, write_long
from headrace.collect.agents.base import Event, Headers
from headrace.collect.agents.channels.file import FileChannel
from headrace.collect.agents.channels.memory import MemoryChannel
from headrace.collect.agents.texts import from_bytes, is_plain, json_headers, readable, to_bytes
from headrace.log.base import HEADERS, Log, TopicSpec
from headrace.types import VARCHAR, Column
from tests.collect.agents.making import counters, local_log, log_ports, running
from tests.collect.agents.test_agent import flow, shelf_ports, source_port
from tests.collect.listeners import listening
from tests.support import wait_for

BINARY = b"k\xff\x80\xc3\xa9"
HEADER = {"key": from_bytes(BINARY), "app": "shop"}
LINES = TopicSpec("lines", value=(Column("N", VARCHAR),))
# Out of a line, its first word: which is no text.
EXTRACT = r"""sources.r1.interceptors = i
sources.r1.interceptors.i.type = regex_extractor
sources.r1.interceptors.i.regex = ^\\{"k": "(\\S+)",
sources.r1.interceptors.i.serializers = s
sources.r1.interceptors.i.serializers.s.name = key"""


@given(st.binary(max_size=50))
def test_any_bytes_are_a_header_and_bytes_again(data: bytes) -> None:
    text = from_bytes(data)
    assert to_bytes(text) == data
    assert is_plain(readable(text))


@given(st.text(st.characters(exclude_categories=[]), max_size=50))
def test_any_text_can_be_written_down(text: str) -> None:
    """Also halves of a pair, which a `.properties` file can say."""
    assert isinstance(to_bytes(text), bytes)
    assert readable(text).encode().decode() == readable(text)
    assert str(json_headers({text: text})).encode()


@pytest.mark.parametrize("kind", ["memory", "file"])
def test_a_channel_gives_back_the_bytes(kind: str, tmp_path: Path) -> None:
    sent = [Event(b"1", HEADER, "a", "/logs/a:"), Event(b"2", {"app": "caf\u00e9"}, "b")]

    def make() -> MemoryChannel | FileChannel:
        return MemoryChannel("c", counters()) if kind == "memory" else FileChannel("c", counters(), tmp_path)

    channel = make()
    with channel.transaction() as transaction:
        transaction.put(sent)
    if kind == "file":
        # What is read from the disk, not what is kept in memory as well.
        channel.close()
        channel = make()
    with channel.transaction() as transaction:
        assert transaction.take(10) == sent
    channel.close()


@given(st.dictionaries(st.text(max_size=5), st.binary(max_size=20).map(from_bytes), max_size=3))
def test_avro_gives_back_the_bytes(headers: Headers) -> None:
    headers.pop(ID_HEADER, None)
    event = Event(b"x", headers, "id")
    assert Reader(write_event(event)).event() == event


def test_names_and_ids_over_avro_are_text() -> None:
    pairs = write_bytes(b"n\xff") + write_bytes(b"v\xff") + write_bytes(ID_HEADER.encode()) + write_bytes(b"i\xfe")
    found = Reader(write_long(2) + pairs + b"\x00" + write_bytes(b"body")).event()
    assert found == Event(b"body", {"n\\xff": from_bytes(b"v\xff")}, "i\\xfe")


def write_lines(folder: Path) -> str:
    folder.mkdir()
    (folder / "a.log").write_bytes(b'{"k": "k\xff\x80\xc3\xa9", "n": 1}\n{"n": "2"}\n')
    return f"type = TAILDIR\nfilegroups = f\nfilegroups.f = {folder}/.*log"


@pytest.mark.slow
def test_two_agents_with_channels_on_disk(tmp_path: Path) -> None:
    shelf, ports = shelf_ports()
    on_disk = "type = file\nminimumRequiredSpace = 0\ndataDirs = "
    with running(
        flow("type = avro\nbind = 127.0.0.1\nport = 0", channel=f"{on_disk}{tmp_path / '2'}"), ports
    ) as second:
        sink = f"type = avro\nhostname = 127.0.0.1\nport = {source_port(second)}"
        text = flow(write_lines(tmp_path / "logs"), sink, f"{on_disk}{tmp_path / '1'}", EXTRACT)
        with running(text + f"a1.sources.r1.positionFile = {tmp_path / 'p.json'}\n"):
            wait_for(lambda: len(shelf.events) == 2, 30, "the events")
    assert to_bytes(shelf.events[0].headers["key"]) == BINARY
    assert "key" not in shelf.events[1].headers


@pytest.mark.parametrize("kind", ["raw", "typed"])
def test_into_the_log(kind: str, tmp_path: Path) -> None:
    source = write_lines(tmp_path / "logs")
    with local_log(tmp_path / "log") as log:
        if kind == "typed":
            log.create_topic(TopicSpec("t", value=(Column("N", VARCHAR),)))
        with running(flow(source, more=EXTRACT), log_ports(log, tmp_path)):
            wait_for(lambda: _count(log, "t") + _count(log, "_dead_letters") == 2, 30, "the events")
        if kind == "raw":
            assert _headers(log, "t") == [{"key": BINARY}, None]
        else:
            # Its body is no JSON, having such bytes.
            assert (_count(log, "t"), _count(log, "_dead_letters")) == (1, 1)


@pytest.mark.parametrize("typed", [False, True])
def test_into_the_log_through_a_collectors_gate(typed: bool, tmp_path: Path) -> None:
    """A file whose name is no text: so is the header with it."""
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / from_bytes(b"caf\xe9.log")).write_text('{"n": "1"}\n')
    text = f"""type = "agent"
[sources.tail]
type = "TAILDIR"
channels = ["buffer"]
filegroups = {{ all = "{logs}/.*log" }}
fileHeader = true
[channels.buffer]
type = "file"
minimumRequiredSpace = 0
[sinks.log]
type = "headrace"
topic = "lines"
channel = "buffer"
"""
    with listening(tmp_path, {"web": text}, [LINES] if typed else []) as running:
        wait_for(lambda: _count(running.log, "lines") == 1, 20, "the event")
        assert _headers(running.log, "lines") == [{"file": bytes(logs) + b"/caf\xe9.log"}]


def test_as_a_record_over_http() -> None:
    event = Event(b"x", HEADER, "id")
    assert _record(event, raw=True)["headers"] == {"key": {"base64": "a/+Aw6k="}, "app": "shop"}
    assert _record(event, raw=True)["key"] == {"base64": "a/+Aw6k="}


def test_a_spooled_file_whose_name_is_no_text(tmp_path: Path) -> None:
    shelf, ports = shelf_ports()
    (tmp_path / from_bytes(b"caf\xe9.txt")).write_text("one\n")
    with running(flow(f"type = spooldir\nspoolDir = {tmp_path}\nbasenameHeader = true"), ports):
        wait_for(lambda: len(shelf.events) == 1, 20, "the line")
    assert to_bytes(shelf.events[0].headers["basename"]) == b"caf\xe9.txt"


def _count(log: Log, topic: str) -> int:
    return sum(ends.end for ends in log.snapshot().ends.get(topic, ()))


def _headers(log: Log, topic: str) -> list[dict[str, bytes] | None]:
    found = [one for records in log.read(topic, 0, 0, columns=[HEADERS]) for one in records.batch[HEADERS].to_pylist()]
    return [dict(one) if one else None for one in found]

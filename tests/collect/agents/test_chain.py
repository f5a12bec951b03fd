"""Agents that send to agents, and groups of sinks that stand in for each other."""

from __future__ import annotations

import contextlib
import socket
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.collect.agents.avro_event import Reader, write_event, write_events, write_long
from headrace.collect.agents.avro_rpc import AvroClient
from headrace.collect.agents.base import AgentError, Event
from headrace.collect.agents.ports import Ports
from headrace.collect.agents.processors import Failover, LoadBalance
from headrace.errors import UsageError
from tests.collect.agents.making import Shelf, running
from tests.collect.agents.test_agent import flow, shelf_ports, source_port, texts
from tests.support import free_port, wait_for

pytestmark = pytest.mark.slow

HEADERS = st.dictionaries(st.text(max_size=20), st.text(max_size=20), max_size=4)
EVENTS = st.builds(Event, st.binary(max_size=200), HEADERS, st.none() | st.text(min_size=1, max_size=20))


@given(st.lists(EVENTS, max_size=10))
def test_what_avro_writes_it_reads(events: list[Event]) -> None:
    reader = Reader(write_events(events))
    assert reader.events() == events
    assert reader.at_end


@given(st.integers(-(2**63), 2**63 - 1))
def test_numbers(number: int) -> None:
    assert Reader(write_long(number)).long() == number


@given(EVENTS, st.data())
def test_what_is_cut_off_is_said(event: Event, data: st.DataObject) -> None:
    whole = write_event(event)
    cut = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(UsageError):
        Reader(whole[:cut]).event()


@given(st.binary(max_size=100))
def test_bytes_that_are_no_avro_harm_nobody(junk: bytes) -> None:
    with contextlib.suppress(UsageError):
        assert len(Reader(junk).events()) <= len(junk)


@pytest.mark.parametrize("compression", ["none", "deflate"])
def test_two_agents(compression: str) -> None:
    shelf, ports = shelf_ports()
    source = f"type = avro\nbind = 127.0.0.1\nport = 0\ncompression-type = {compression}"
    with running(flow(source), ports) as second:
        sink = f"type = avro\nhostname = 127.0.0.1\nport = {source_port(second)}\ncompression-type = {compression}"
        text = flow("type = seq\ntotalEvents = 500\nbatchSize = 50", sink)
        more = "a1.sources.r1.interceptors = i\na1.sources.r1.interceptors.i.type = static\n"
        with running(text + more) as first:
            wait_for(first.finished, 30, "the first agent")
        wait_for(lambda: len(shelf.events) == 500, 30, "the events")
        counted = second.counters["source", "r1"].read()
        assert counted["AppendBatchAcceptedCount"] + counted["AppendAcceptedCount"] >= 5
    assert texts(shelf) == [str(number) for number in range(500)]
    assert shelf.events[0].headers == {"key": "value"}


def test_a_sink_waits_for_the_next_agent(tmp_path: Path) -> None:
    """The channel on disk holds everything meanwhile."""
    port = free_port()
    sink = f"type = avro\nhostname = 127.0.0.1\nport = {port}"
    channel = f"type = file\ndataDirs = {tmp_path}\nminimumRequiredSpace = 0"
    with running(flow("type = seq\ntotalEvents = 100\nbatchSize = 10", sink, channel)) as first:
        wait_for(lambda: first.counters["sink", "k1"].read()["ConnectionFailedCount"] >= 2, 30, "failures")
        wait_for(lambda: first.channels["c1"].size() == 100, 30, "all of it on disk")
        shelf, ports = shelf_ports()
        with running(flow(f"type = avro\nbind = 127.0.0.1\nport = {port}"), ports):
            wait_for(lambda: len(shelf.events) >= 100, 30, "the events")
    assert texts(shelf) == [str(number) for number in range(100)]
    # The channel has named them: sent again, they would be known.
    assert len({event.id for event in shelf.events}) == 100


def test_a_full_agent_says_failed_and_is_asked_again() -> None:
    shelf, ports = shelf_ports()
    shelf.broken.set()
    small = "type = memory\ncapacity = 10\ntransactionCapacity = 10\nkeep-alive = 0"
    with running(flow("type = avro\nbind = 127.0.0.1\nport = 0", channel=small), ports) as agent:
        client = AvroClient("127.0.0.1", source_port(agent), 60, 60)
        client.append_batch([Event(b"%d" % number) for number in range(10)])
        with pytest.raises(AgentError, match="did not take the events: failed"):
            client.append_batch([Event(b"more")])
        shelf.broken.clear()
        wait_for(lambda: not agent.channels["c1"].size(), 30, "room")
        client.append_batch([Event(b"more")])
        client.close()
        wait_for(lambda: len(shelf.events) == 11, 30, "the events")


def test_a_batch_larger_than_a_transaction_goes_in_pieces_each_event_once() -> None:
    shelf, ports = shelf_ports()
    small = "type = memory\ncapacity = 20\ntransactionCapacity = 10\nkeep-alive = 0"
    with running(flow("type = syslogtcp\nhost = 127.0.0.1\nport = 0", channel=small), ports) as agent:
        with socket.create_connection(("127.0.0.1", source_port(agent)), 120) as client:
            client.sendall(b"".join(b"<13>%d\n" % number for number in range(1000)))
        wait_for(lambda: len(shelf.events) >= 1000, 30, "the events")
    assert texts(shelf) == [str(number) for number in range(1000)]


def test_strangers_at_the_door_harm_nobody() -> None:
    shelf, ports = shelf_ports()
    with running(flow("type = avro\nbind = 127.0.0.1\nport = 0"), ports) as agent:
        port = source_port(agent)
        for junk in (
            b"GET / HTTP/1.1\r\n\r\n",
            struct.pack(">III", 1, 1, 2**31),
            struct.pack(">III", 1, 1, 3) + b"abc",
            b"\0",
        ):
            with socket.create_connection(("127.0.0.1", port), 120) as stranger:
                stranger.sendall(junk)
                stranger.shutdown(socket.SHUT_WR)
                while stranger.recv(1000):
                    pass
        client = AvroClient("127.0.0.1", port, 60, 60)
        client.append_batch([Event(b"fine")])
        client.close()
        wait_for(lambda: bool(shelf.events), 30, "the event")
    assert texts(shelf) == ["fine"]


GROUP = """a1.sources = r1
a1.channels = c1
a1.sinks = k1 k2
a1.sinkgroups = g1
a1.sinkgroups.g1.sinks = k1 k2
a1.sources.r1.type = seq
a1.sources.r1.batchSize = 10
a1.sources.r1.totalEvents = 1000
a1.sources.r1.channels = c1
a1.channels.c1.type = memory
a1.sinks.k1.type = avro
a1.sinks.k1.hostname = 127.0.0.1
a1.sinks.k1.channel = c1
a1.sinks.k2.type = avro
a1.sinks.k2.hostname = 127.0.0.1
a1.sinks.k2.channel = c1
"""


def test_failover_goes_to_the_second_and_comes_back() -> None:
    shelves = Shelf(), Shelf()
    ports = free_port(), free_port()
    more = """a1.sinkgroups.g1.processor.type = failover
a1.sinkgroups.g1.processor.priority.k1 = 10
a1.sinkgroups.g1.processor.priority.k2 = 5
a1.sinkgroups.g1.processor.maxpenalty = 300
"""
    more += "".join(f"a1.sinks.{name}.port = {port}\n" for name, port in zip(("k1", "k2"), ports, strict=True))
    text = GROUP.replace("totalEvents = 1000", "totalEvents = 100000000") + more
    source = "type = avro\nbind = 127.0.0.1\nport = {}"
    with (
        running(flow(source.format(ports[1])), Ports(open_log=lambda: shelves[1])),
        running(text) as agent,
    ):
        wait_for(lambda: len(shelves[1].events) > 50, 30, "the second")
        with running(flow(source.format(ports[0])), Ports(open_log=lambda: shelves[0])):
            wait_for(lambda: len(shelves[0].events) > 50, 30, "the first, back again")
            agent._stopping.set()
            agent._threads["source-r1"].join(60)
            wait_for(lambda: not agent.channels["c1"].size(), 30, "the end")
            sent = agent.counters["source", "r1"].read()["EventAcceptedCount"]
            wait_for(lambda: len(shelves[0].events) + len(shelves[1].events) >= sent, 30, "all")
    found = sorted(int(event.body) for shelf in shelves for event in shelf.events)
    assert found == list(range(sent))


def test_penalties_double_and_end() -> None:
    now = [0.0]
    failover = Failover({"a": 1, "b": 2}, 3.0, lambda: now[0])
    assert failover.order() == ["b", "a"]
    for penalty in (1.0, 2.0, 3.0, 3.0):
        failover.failed("b")
        now[0] += penalty - 0.01
        assert failover.order() == ["a"]
        now[0] += 0.02
        assert failover.order() == ["b", "a"]
    failover.succeeded("b")
    failover.failed("b")
    now[0] += 1.01
    assert failover.order() == ["b", "a"]


def test_load_is_balanced_in_turns_without_those_that_failed() -> None:
    now = [0.0]
    balance = LoadBalance(["a", "b", "c"], False, 30.0, lambda: now[0])
    assert {balance.order()[0] for _ in range(3)} == {"a", "b", "c"}
    balance.failed("b")
    assert {balance.order()[0] for _ in range(4)} == {"a", "c"}
    now[0] += 1.1
    assert {balance.order()[0] for _ in range(3)} == {"a", "b", "c"}
    for name in "abc":
        balance.failed(name)
    assert balance.order() == []
    assert sorted(LoadBalance(["a", "b"], True, None, lambda: 0.0).order()) == ["a", "b"]


def test_http_from_agent_to_agent() -> None:
    shelf, ports = shelf_ports()
    with running(flow("type = http\nbind = 127.0.0.1\nport = 0\nhandler = blob"), ports) as second:
        sink = f"type = http\nendpoint = http://127.0.0.1:{source_port(second)}/in"
        with running(flow("type = seq\ntotalEvents = 20", sink)) as first:
            wait_for(first.finished, 30, "the first agent")
        wait_for(lambda: len(shelf.events) == 20, 30, "the events")
    assert texts(shelf) == [str(number) for number in range(20)]

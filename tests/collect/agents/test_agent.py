"""Whole agents: sources, interceptors, selectors, channels and sinks together."""

from __future__ import annotations

import http.client
import json
import socket
import urllib.request
from pathlib import Path

import pytest

from headrace.collect.agents.base import Event
from headrace.collect.agents.metrics import MetricsServer
from headrace.collect.agents.ports import Ports
from headrace.collect.agents.running import Agent, metrics
from headrace.log.base import HEADERS, ID, TopicSpec
from headrace.types import BIGINT, VARCHAR, Column
from tests.collect.agents.making import Shelf, local_log, log_ports, running, values
from tests.support import free_port, wait_for

DECK = Path(__file__).with_name("deck.properties")


def flow(source: str, sink: str = "type = headrace\ntopic = t", channel: str = "type = memory", more: str = "") -> str:
    """An agent of one of each, from their properties."""
    parts = (
        ("sources.r1", source + "\nchannels = c1"),
        ("channels.c1", channel),
        ("sinks.k1", sink + "\nchannel = c1"),
    )
    lines = ["a1.sources = r1", "a1.channels = c1", "a1.sinks = k1"]
    lines += [f"a1.{name}.{line}" for name, text in parts for line in text.splitlines()]
    return "\n".join([*lines, *(f"a1.{line}" for line in more.splitlines())]) + "\n"


def shelf_ports() -> tuple[Shelf, Ports]:
    shelf = Shelf()
    return shelf, Ports(open_log=lambda: shelf)


def texts(shelf: Shelf) -> list[str]:
    return [event.body.decode() for event in shelf.events]


def source_port(agent: Agent, name: str = "r1") -> int:
    found = agent.sources[name]
    wait_for(lambda: found.port > 0, 20, "the port")  # type: ignore[union-attr]
    return int(found.port)  # type: ignore[union-attr]


def test_the_decks_configuration_writes_to_the_log_where_there_is_no_kafka(tmp_path: Path) -> None:
    text = DECK.read_text().replace("localhost:9092", f"localhost:{free_port()}")
    with local_log(tmp_path / "log") as log:
        with running(text, log_ports(log, tmp_path)) as agent:
            wait_for(lambda: len(values(log, "mytopic")) > 500, 30, "some events")
        found = values(log, "mytopic")
        assert found == [str(number).encode() for number in range(len(found))]
        counted = agent.counters["sink", "k1"].read()
        assert counted["EventDrainSuccessCount"] == len(found)


def test_an_event_leaves_the_channel_only_when_the_next_hop_has_it() -> None:
    shelf, ports = shelf_ports()
    shelf.broken.set()
    with running(
        flow("type = seq\ntotalEvents = 250\nbatchSize = 50", channel="type = memory\ncapacity = 100"), ports
    ) as agent:
        counters = agent.counters["sink", "k1"]
        wait_for(lambda: counters.read()["EventWriteFail"] >= 2, 20, "failures")
        assert agent.channels["c1"].size() == 100
        assert counters.last_error == "OSError: the next hop is away"
        shelf.broken.clear()
        wait_for(lambda: len(shelf.events) >= 250, 30, "all events")
    assert texts(shelf) == [str(number) for number in range(250)]
    assert agent.finished()


def test_stopping_drains_what_waits_in_memory() -> None:
    shelf, ports = shelf_ports()
    with running(flow("type = seq\nbatchSize = 10"), ports):
        wait_for(lambda: len(shelf.events) > 100, 20, "some events")
    assert texts(shelf) == [str(number) for number in range(len(shelf.events))]


def test_interceptors_change_and_leave_out() -> None:
    shelf, ports = shelf_ports()
    more = r"""sources.r1.interceptors = keep cut found fixed when who gone named
sources.r1.interceptors.keep.type = regex_filter
sources.r1.interceptors.keep.regex = ^1\\d
sources.r1.interceptors.cut.type = search_replace
sources.r1.interceptors.cut.searchPattern = ^(\\d)(\\d)$
sources.r1.interceptors.cut.replaceString = $2-$1
sources.r1.interceptors.found.type = regex_extractor
sources.r1.interceptors.found.regex = (\\d)-(\\d)
sources.r1.interceptors.found.serializers = s1 s2
sources.r1.interceptors.found.serializers.s1.name = one
sources.r1.interceptors.found.serializers.s2.name = two
sources.r1.interceptors.fixed.type = static
sources.r1.interceptors.fixed.key = zone
sources.r1.interceptors.fixed.value = north
sources.r1.interceptors.when.type = org.apache.flume.interceptor.TimestampInterceptor$Builder
sources.r1.interceptors.who.type = host
sources.r1.interceptors.who.useIP = false
sources.r1.interceptors.gone.type = remove_header
sources.r1.interceptors.gone.matching = tw.*
sources.r1.interceptors.named.type = uuid"""
    with running(flow("type = seq\ntotalEvents = 30", more=more), ports) as agent:
        wait_for(agent.finished, 20, "the end")
    assert texts(shelf) == [f"{number}-1" for number in range(10)]
    [*_, last] = shelf.events
    assert last.headers["zone"] == "north"
    assert last.headers["one"] == "9"
    assert last.headers["host"] == socket.gethostname()
    assert last.headers["timestamp"].isdecimal()
    assert set(last.headers) == {"zone", "one", "host", "timestamp", "id"}
    assert last.id == last.headers["id"]


FAN = """a1.sources = r1
a1.channels = c1 c2
a1.sinks = k1 k2
a1.sources.r1.type = http
a1.sources.r1.bind = 127.0.0.1
a1.sources.r1.port = 0
a1.sources.r1.channels = c1 c2
a1.channels.c1.type = memory
a1.channels.c2.type = memory
a1.channels.c2.capacity = 2
a1.channels.c2.transactionCapacity = 2
a1.channels.c2.keep-alive = 0
a1.sinks.k1.type = file_roll
a1.sinks.k1.channel = c1
a1.sinks.k2.type = file_roll
a1.sinks.k2.channel = c2
"""


def fan(tmp_path: Path, more: str) -> str:
    for name in ("k1", "k2"):
        (tmp_path / name).mkdir()
    folders = "".join(f"a1.sinks.{name}.sink.directory = {tmp_path / name}\n" for name in ("k1", "k2"))
    return FAN + folders + more


def post(port: int, body: object) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    connection.request("POST", "/", json.dumps(body) if not isinstance(body, bytes) else body)
    status = connection.getresponse().status
    connection.close()
    return status


def lines(folder: Path) -> list[str]:
    return sorted(line for file in folder.iterdir() for line in file.read_text().splitlines())


def test_a_multiplexing_selector_goes_by_a_header(tmp_path: Path) -> None:
    more = """a1.sources.r1.selector.type = multiplexing
a1.sources.r1.selector.header = level
a1.sources.r1.selector.mapping.error = c1 c2
a1.sources.r1.selector.default = c1
"""
    with running(fan(tmp_path, more)) as agent:
        sent = [{"headers": {"level": "error"}, "body": "bad"}, {"headers": {}, "body": "fine"}]
        assert post(source_port(agent), sent) == 200
        assert post(source_port(agent), b"[{") == 400
        wait_for(lambda: not any(channel.size() for channel in agent.channels.values()), 20, "both sinks")
    assert lines(tmp_path / "k1") == ["bad", "fine"]
    assert lines(tmp_path / "k2") == ["bad"]


def test_what_belongs_to_no_channel_is_counted(tmp_path: Path) -> None:
    more = """a1.sources.r1.selector.type = multiplexing
a1.sources.r1.selector.header = level
a1.sources.r1.selector.mapping.error = c1
a1.sources.r1.interceptors = i
a1.sources.r1.interceptors.i.type = regex_filter
a1.sources.r1.interceptors.i.regex = ^no$
a1.sources.r1.interceptors.i.excludeEvents = true
"""
    with running(fan(tmp_path, more)) as agent:
        sent = [{"headers": {"level": level}, "body": level} for level in ("error", "info", "debug")]
        assert post(source_port(agent), [*sent, {"body": "no"}]) == 200
        counted = agent.counters["source", "r1"].read()
    assert (counted["EventUnroutedCount"], counted["EventFilteredCount"]) == (2, 1)
    assert lines(tmp_path / "k1") == ["error"]


def test_a_body_that_the_charset_cannot_read_stops_nothing() -> None:
    shelf, ports = shelf_ports()
    more = """sources.r1.interceptors = i
sources.r1.interceptors.i.type = search_replace
sources.r1.interceptors.i.searchPattern = 1
sources.r1.interceptors.i.replaceString = one
sources.r1.interceptors.i.charset = UTF-16BE"""
    with running(flow("type = seq\ntotalEvents = 12", more=more), ports) as agent:
        wait_for(agent.finished, 20, "the end")
    # Of ten, a byte each, none is UTF-16; "10" and "11" are another character.
    assert len(shelf.events) == 12


def test_an_optional_channel_may_miss_what_a_required_one_gets(tmp_path: Path) -> None:
    text = fan(tmp_path, "a1.sources.r1.selector.optional = c2\n")
    (tmp_path / "k2").rmdir()
    with running(text) as agent:
        for number in range(5):
            assert post(source_port(agent), [{"body": str(number)}]) == 200
        wait_for(lambda: not agent.channels["c1"].size(), 20, "the sink")
        assert agent.counters["source", "r1"].read()["OptionalChannelMissedCount"] == 3
        agent._sinks_stop.set()
    assert lines(tmp_path / "k1") == ["0", "1", "2", "3", "4"]


def test_a_full_channel_refuses_for_all(tmp_path: Path) -> None:
    text = fan(tmp_path, "")
    (tmp_path / "k2").rmdir()
    with running(text) as agent:
        assert post(source_port(agent), [{"body": "a"}, {"body": "b"}]) == 200
        assert post(source_port(agent), [{"body": "c"}]) == 503
        wait_for(lambda: not agent.channels["c1"].size(), 20, "the sink")
        agent._sinks_stop.set()
    assert lines(tmp_path / "k1") == ["a", "b"]


def test_netcat_answers_each_line() -> None:
    shelf, ports = shelf_ports()
    with (
        running(flow("type = netcat\nbind = 127.0.0.1\nport = 0\nmax-line-length = 5"), ports) as agent,
        socket.create_connection(("127.0.0.1", source_port(agent)), 120) as client,
    ):
        client.sendall(b"one\ntwo\r\nmuch too long\nend\n")
        answer = b""
        while answer.count(b"\n") < 4:
            answer += client.recv(100)
        assert answer == b"OK\n" * 4
        wait_for(lambda: len(shelf.events) == 4, 20, "the events")
    assert texts(shelf) == ["one", "two", "much ", "end"]


@pytest.mark.parametrize("kind", ["syslogtcp", "syslogudp"])
def test_syslog(kind: str) -> None:
    shelf, ports = shelf_ports()
    with running(flow(f"type = {kind}\nhost = 127.0.0.1\nport = 0"), ports) as agent:
        tcp = kind == "syslogtcp"
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM if tcp else socket.SOCK_DGRAM) as client:
            client.connect(("127.0.0.1", source_port(agent)))
            for line in (b"<13>Oct 11 22:14:15 web su: hello", b"<165>1 2026-11-16T10:00:00Z web app 1 - - hi", b"no"):
                client.send(line + b"\n" if tcp else line)
        wait_for(lambda: len(shelf.events) == 3, 20, "the events")
    first, second, third = shelf.events
    assert (first.body, first.headers["host"], first.headers["Severity"]) == (b"su: hello", "web", "5")
    assert second == Event(b"app 1 - - hi", second.headers)
    assert second.headers["timestamp"] == "1794823200000"
    assert (third.body, third.headers["flume.syslog.status"]) == (b"no", "Invalid")


def test_exec_and_its_end() -> None:
    shelf, ports = shelf_ports()
    source = 'type = exec\nshell = /bin/sh -c\ncommand = for n in 1 2 3; do echo "line $n"; done; printf last'
    with running(flow(source), ports) as agent:
        wait_for(agent.finished, 20, "the end")
    assert texts(shelf) == ["line 1", "line 2", "line 3", "last"]


def test_spooldir_reads_each_file_once(tmp_path: Path) -> None:
    shelf, ports = shelf_ports()
    spool = tmp_path / "spool"
    spool.mkdir()
    (spool / "a.txt").write_text("one\ntwo\n" + "x" * 10 + "\nlast")
    (spool / "b.skip").write_text("no\n")
    source = f"type = spooldir\nspoolDir = {spool}\nignorePattern = skip$\nbasenameHeader = true\n"
    with running(flow(source + "batchSize = 2\ndeserializer.maxLineLength = 8"), ports):
        wait_for(lambda: (spool / "a.txt.COMPLETED").exists(), 20, "the first file")
        (spool / "c.txt").write_text("three\n")
        wait_for(lambda: (spool / "c.txt.COMPLETED").exists(), 20, "the second")
    assert texts(shelf) == ["one", "two", "xxxxxxxx", "xx", "last", "three"]
    assert shelf.events[0].headers == {"basename": "a.txt"}
    assert len({event.id for event in shelf.events}) == 6


def test_a_spooled_file_that_cannot_be_put_away_does_not_stop_the_others(tmp_path: Path) -> None:
    shelf, ports = shelf_ports()
    (tmp_path / "a.txt").write_text("one\n")
    (tmp_path / "a.txt.COMPLETED").write_text("of yesterday\n")
    for number in range(30):
        (tmp_path / f"empty-{number}").touch()
    with running(flow(f"type = spooldir\nspoolDir = {tmp_path}"), ports) as agent:
        wait_for(lambda: texts(shelf) == ["one"], 20, "the first file")
        (tmp_path / "b.txt").write_text("two\n")
        wait_for(lambda: (tmp_path / "b.txt.COMPLETED").exists(), 20, "the second")
        counters = agent.counters["source", "r1"]
    assert texts(shelf) == ["one", "two"]
    assert counters.read()["FileLeftOutCount"] == 1
    assert counters.last_error == (
        f"`{tmp_path}/a.txt` is left out: it was read, but `a.txt.COMPLETED` is there already"
    )


def test_lines_become_rows_of_a_topic_with_columns_and_what_does_not_fit_a_dead_letter(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "a.log").write_text('{"user":"u1","n":1}\nnot json\n{"user":"u2","n":2}\n')
    source = f"type = TAILDIR\nfilegroups = f\nfilegroups.f = {logs}/.*log\nheaders.f.app = shop"
    with local_log(tmp_path / "log") as log:
        log.create_topic(TopicSpec("t", value=(Column("USER", VARCHAR), Column("N", BIGINT))))
        for _ in range(2):
            # The second agent goes on where the first stopped: it finds nothing.
            with running(flow(source), log_ports(log, tmp_path)) as agent:
                wait_for(lambda: log.snapshot().ends["t"][0].end >= 2, 30, "rows")
            counted = agent.counters["sink", "k1"].read()
        rows = [
            row
            for records in log.read("t", 0, 0, columns=["USER", "N", ID, HEADERS])
            for row in records.batch.to_pylist()
        ]
        assert [(row["USER"], row["N"]) for row in rows] == [("u1", 1), ("u2", 2)]
        assert dict(rows[0][HEADERS]) == {"app": b"shop"}
        [letter] = [row for records in log.read("_dead_letters", 0, 0) for row in records.batch.to_pylist()]
        # Behind the twenty bytes of the first line.
        assert (letter["PAYLOAD"], letter["SOURCE"]) == (b"not json", f"agent a1 {logs}/a.log:20")
        assert counted["EventDrainSuccessCount"] == 0


def test_counters_in_flumes_words_and_in_prometheus() -> None:
    shelf, ports = shelf_ports()
    with running(flow("type = seq\ntotalEvents = 3"), ports) as agent:
        wait_for(agent.finished, 20, "the end")
        found = metrics(agent)
        assert found["SOURCE.r1"]["EventAcceptedCount"] == "3"
        assert found["CHANNEL.c1"]["EventTakeSuccessCount"] == "3"
        assert found["SINK.k1"]["EventDrainSuccessCount"] == "3"
        assert found["CHANNEL.c1"]["Type"] == "CHANNEL"
        server = MetricsServer(agent, 0)
        try:
            url = f"http://127.0.0.1:{server.port}/metrics"
            assert json.loads(urllib.request.urlopen(url, timeout=120).read())["SINK.k1"]["Type"] == "SINK"
            asked = urllib.request.Request(url, headers={"Accept": "text/plain;version=0.0.4"})
            text = urllib.request.urlopen(asked, timeout=120).read().decode()
            line = 'headrace_agent_event_drain_success_count{agent="a1",component="sink",name="k1"} 3'
            assert line in text.splitlines()
        finally:
            server.close()
    assert len(shelf.events) == 3

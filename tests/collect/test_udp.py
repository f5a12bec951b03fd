"""One-way events and metrics over UDP: taken, or counted."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from headrace.collect.statsd import read_line
from headrace.log.base import TopicSpec
from headrace.types import DOUBLE, VARCHAR, Column, Map
from tests.collect.listeners import listening
from tests.log.support import VIEWS
from tests.support import free_port, wait_for

METRICS = TopicSpec(
    "metrics",
    key=(Column("METRIC", VARCHAR),),
    value=(Column("KIND", VARCHAR), Column("VALUE", DOUBLE), Column("TAGS", Map(VARCHAR, VARCHAR))),
)


def send(port: int, *datagrams: bytes) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for datagram in datagrams:
            sender.sendto(datagram, ("127.0.0.1", port))


def test_json_in_datagrams(tmp_path: Path) -> None:
    port = free_port()
    text = f'type = "udp"\ntopic = "pageviews"\nlisten = ["udp://127.0.0.1:{port}"]'
    with listening(tmp_path, {"beacons": text}, [VIEWS]) as running:
        running.wait_until("beacons")
        send(port, b'{"userid": "u1", "n": 1}', b'[{"userid": "u2"}, {"userid": 3}]', b"not json", b"")
        rows = running.wait_rows("pageviews", 2)
        assert {row["USERID"] for row in rows} == {"u1", "u2"}
        wait_for(lambda: running.status("beacons").received == 5, 10, "all to be counted")
        status = running.status("beacons")
        assert (status.accepted, status.rejected, status.shed) == (2, 3, 0)
        assert sorted(letter["PAYLOAD"] for letter in running.letters()) == [b"", b"not json", b'{"userid":3}']


def test_bytes_for_a_raw_topic_and_text(tmp_path: Path) -> None:
    raw, text = free_port(), free_port()
    collectors = {
        "raw": f'type = "udp"\ntopic = "bytes"\nformat = "bytes"\nlisten = ["udp://127.0.0.1:{raw}"]',
        "text": f'type = "udp"\ntopic = "words"\nformat = "text"\nlisten = ["udp://127.0.0.1:{text}"]',
    }
    topics = [TopicSpec("bytes", kind="raw"), TopicSpec("words", value=(Column("MESSAGE", VARCHAR),))]
    with listening(tmp_path, collectors, topics) as running:
        running.wait_until("raw")
        running.wait_until("text")
        send(raw, b"\x00\xff")
        send(text, b"hello\n")
        assert running.wait_rows("bytes", 1)[0]["VALUE"] == b"\x00\xff"
        assert running.wait_rows("words", 1)[0]["MESSAGE"] == "hello"


def test_what_does_not_fit_into_memory_is_counted(tmp_path: Path) -> None:
    """Nobody can be told to wait: received is what was sent, whatever became of it."""
    port = free_port()
    text = f'type = "udp"\ntopic = "pageviews"\nlisten = ["udp://127.0.0.1:{port}"]\nbuffer_bytes = 100'
    with listening(tmp_path, {"beacons": text}, [VIEWS]) as running:
        running.wait_until("beacons")
        send(port, *[b'{"userid": "u%d"}' % number for number in range(1000)])
        wait_for(lambda: running.status("beacons").received == 1000, 10, "all to be counted")
        status = running.status("beacons")
        assert status.accepted + status.shed == 1000
        assert len(running.wait_rows("pageviews", status.accepted)) == status.accepted


def test_metrics_become_rows(tmp_path: Path) -> None:
    port = free_port()
    text = f'type = "statsd"\ntopic = "metrics"\nlisten = ["udp://127.0.0.1:{port}"]'
    with listening(tmp_path, {"metrics": text}, [METRICS]) as running:
        running.wait_until("metrics")
        send(port, b"views:1|c|@0.5|#route:home\nitems,shop=eu:2:3|g", b"nonsense")
        rows = running.wait_rows("metrics", 3)
        assert [(row["METRIC"], row["KIND"], row["VALUE"], row["TAGS"]) for row in rows] == [
            ("views", "counter", 1.0, {"route": "home"}),
            ("items", "gauge", 2.0, {"shop": "eu"}),
            ("items", "gauge", 3.0, {"shop": "eu"}),
        ]
        wait_for(lambda: running.status("metrics").rejected == 1, 10, "the dead letter")


def test_lines_of_metrics() -> None:
    assert read_line(b"a.b:1|c") == [{"metric": "a.b", "kind": "counter", "value": 1.0}]
    assert read_line(b"g:-4|g") == [{"metric": "g", "kind": "gauge", "value": -4.0, "relative": True}]
    assert read_line(b"u:ann|s|#vip") == [{"metric": "u", "kind": "set", "member": "ann", "tags": {"vip": ""}}]
    assert read_line(b"t:3.5|ms|@0.1|T1700000000|c:abc") == [
        {"metric": "t", "kind": "timer", "value": 3.5, "rate": 0.1, "$time": 1_700_000_000_000, "container": "abc"}
    ]
    assert read_line(b"a:1|c|#x:1|e:it-false,pu-7|card:low") == [
        {"metric": "a", "kind": "counter", "value": 1.0, "tags": {"x": "1"}}
        | {"external": "it-false,pu-7", "cardinality": "low"}
    ]


@pytest.mark.parametrize(
    "line",
    [b"a", b":1|c", b"a:|c", b"a:1", b"a:1|x", b"a:one|c", b"a:nan|g", b"a:1|c|@2", b"a:1|c|?", b"\xff:1|c", b"_e{1}"],
)
def test_what_is_no_metric(line: bytes) -> None:
    with pytest.raises(ValueError):
        read_line(line)


def test_a_metric_is_not_repeated_until_memory_ends() -> None:
    tags = ",".join(f"t{n}:x" for n in range(4000))
    with pytest.raises(ValueError, match="do not fit into memory"):
        read_line(f"m:{':'.join('1' * 10_000)}|c|#{tags}".encode())
    assert len(read_line(f"m:{':'.join('1' * 10_000)}|c|#route:home".encode())) == 10_000

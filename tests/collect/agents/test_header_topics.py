"""Events that ask in a header for a topic they can never go to: dead letters, while all others go on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headrace.cli.agent_log import _record
from headrace.clock import SystemClock
from headrace.collect.agents.base import Event
from headrace.collect.agents.running import Agent
from headrace.collect.agents.sinks.header_topics import HeaderTopics, refusal, why_not
from headrace.collect.agents.texts import from_bytes
from headrace.collect.base import RawEvents
from headrace.collect.decode import EventCollector
from headrace.config import CollectSettings
from headrace.log.base import Log, TopicSpec
from headrace.log.dead_letters import create_dead_letters
from headrace.types import VARCHAR, Column
from tests.collect.agents.making import local_log, log_ports, running, values
from tests.collect.agents.test_agent import flow, post, source_port
from tests.collect.agents.test_kafka import read_topic
from tests.collect.agents.test_kafka_errors import Cluster
from tests.collect.listeners import listening
from tests.support import free_port, wait_for

HTTP = "type = http\nbind = 127.0.0.1\nport = 0"
SINK = "type = headrace\ntopic = t\nallowTopicOverride = true"


def send(agent: Agent, topic: str | None, body: str) -> None:
    assert post(source_port(agent), [{"headers": {"topic": topic} if topic is not None else {}, "body": body}]) == 200


def letters(log: Log) -> list[tuple[str, str, bytes]]:
    found: list[tuple[str, str, bytes]] = []
    for records in log.read("_dead_letters", 0, 0, columns=["TOPIC", "REASON", "PAYLOAD"]):
        found += [(row["TOPIC"], row["REASON"], row["PAYLOAD"]) for row in records.batch.to_pylist()]
    return found


def test_a_topic_that_cannot_be(tmp_path: Path) -> None:
    with local_log(tmp_path / "log") as log:
        log.create_topic(TopicSpec("counts", value=(Column("N", VARCHAR),), role="derived"))
        with running(flow(HTTP, SINK), log_ports(log, tmp_path)) as agent:
            for number, topic in enumerate(["bad name!", "_dead_letters", "counts", "", "x" * 300, "café"]):
                send(agent, topic, f"bad {number}")
                send(agent, None, f"good {number}")
            wait_for(lambda: len(values(log, "t")) == 6, 20, "the others")
            wait_for(lambda: len(letters(log)) == 6, 20, "the letters")
            counted = agent.counters["sink", "k1"].read()
        assert values(log, "t") == [f"good {number}".encode() for number in range(6)]
        found = letters(log)
        assert {(topic, payload) for topic, _, payload in found} == {("t", b"bad %d" % n) for n in range(6)}
        assert found[0][1] == "header `topic` asks for topic `bad name!`: that is not a topic name"
        assert found[1][1].endswith(
            "`_dead_letters`: topic `_dead_letters` is Headrace's own: nobody sends events to it"
        )
        assert found[2][1].endswith("`counts`: topic `counts` is written by a query")
        assert counted["EventTopicRefusedCount"] == counted["EventDeadLetterCount"] == 6


def test_headers_make_so_many_topics_and_no_more_also_after_a_restart(tmp_path: Path) -> None:
    with local_log(tmp_path / "log") as log:
        log.create_topic(TopicSpec("there", kind="raw"))
        for number in range(2):
            with running(flow(HTTP, f"{SINK}\nmaxHeaderTopics = 3"), log_ports(log, tmp_path)) as agent:
                for name in ("there", *(f"new-{number}-{more}" for more in range(3)), "new-0-0"):
                    send(agent, name, name)
                wait_for(lambda: agent.counters["sink", "k1"].read()["EventDrainSuccessCount"] == 5, 20, "all of them")
        made = sorted(name for name in log.snapshot().ends if name.startswith("new-"))
        assert made == ["new-0-0", "new-0-1", "new-0-2"]
        assert len(values(log, "there")) == 2
        assert len(values(log, "new-0-0")) == 3
        [*_, last] = letters(log)
        assert last[1] == "header `topic` asks for topic `new-1-2`: there is no such topic, and headers may make 3"


def test_what_is_wrong_with_the_sinks_own_topic_is_waited_out(tmp_path: Path) -> None:
    with local_log(tmp_path / "log") as log:
        log.create_topic(TopicSpec("t", value=(Column("N", VARCHAR),), role="derived"))
        with running(flow(HTTP, SINK), log_ports(log, tmp_path)) as agent:
            send(agent, None, '{"n": "1"}')
            wait_for(lambda: "written by a query" in (agent.counters["sink", "k1"].last_error or ""), 20, "the reason")
            log.delete_topic("t")
            wait_for(lambda: values(log, "t") == [b'{"n": "1"}'], 20, "the event")
        assert letters(log) == []


COLLECTOR = """type = "agent"
[sources.in]
type = "http"
bind = "127.0.0.1"
port = {port}
channels = ["c"]
[channels.c]
type = "memory"
[sinks.log]
type = "headrace"
topic = "t"
allowTopicOverride = true
maxHeaderTopics = 1
channel = "c"
"""


def test_through_a_collectors_gate(tmp_path: Path) -> None:
    port = free_port()
    with listening(tmp_path, {"web": COLLECTOR.format(port=port)}, []) as running_:

        def send_to(topic: str, body: str) -> None:
            def sent() -> bool:
                try:
                    return post(port, [{"headers": {"topic": topic}, "body": body}]) == 200
                except OSError:
                    return False

            wait_for(sent, 20, "the source")

        for topic in ("bad name!", "_dead_letters", "one", "two", "t"):
            send_to(topic, topic)
        wait_for(lambda: values(running_.log, "t") == [b"t"], 20, "the last")
        assert values(running_.log, "one") == [b"one"]
        assert [payload for _, _, payload in letters(running_.log)] == [b"bad name!", b"_dead_letters", b"two"]

        def counted() -> tuple[int, int]:
            return running_.status("web").accepted, running_.status("web").rejected

        wait_for(lambda: counted() == (2, 3), 20, "what is counted")
        # With rules of privacy nobody can say what is in it: the reason stays.
        running_.write("web", COLLECTOR.format(port=port) + '[privacy]\ndrop = ["secret"]\n')

        def withheld() -> bool:
            send_to("bad name!", "secret")
            return letters(running_.log)[-1][2] == b""

        wait_for(withheld, 20, "the letter")


def test_kafka_gets_them_in_the_sinks_own_topic(tmp_path: Path) -> None:
    """Kafka has no dead letters."""
    cluster = Cluster()
    cluster.write("t", 1)
    sink = f"type = org.apache.flume.sink.kafka.KafkaSink\nkafka.bootstrap.servers = {cluster.bootstrap}\n"
    sink += "kafka.topic = t\nmaxHeaderTopics = 0\npartitionIdHeader = p"
    sink += "\nkafka.producer.max.request.size = 1000"
    numbers = ("0", "none", "-1", "99", "9" * 40)
    with local_log(tmp_path / "log") as log, running(flow(HTTP, sink), log_ports(log, tmp_path)) as agent:
        sent: list[dict[str, Any]] = [{"headers": {"topic": name}, "body": name} for name in ("bad!", "_x", "new")]
        sent += [{"headers": {"p": number}, "body": f"p{number}"} for number in numbers]
        # Larger than any record: a dead letter, for the log is at hand.
        assert post(source_port(agent), [{"body": "x" * 5000}, *sent]) == 200
        found = read_topic(cluster.bootstrap, "t", 9)
        counted = agent.counters["sink", "k1"].read()
        assert [(topic, payload) for topic, _, payload in letters(log)] == [("t", b"x" * 5000)]
    assert sorted(found) == sorted([b"0", b"bad!", b"_x", b"new", *(f"p{number}".encode() for number in numbers)])
    assert (counted["EventTopicRefusedCount"], counted["EventPartitionRefusedCount"]) == (3, 4)


@pytest.mark.parametrize("name", ["bad name!", from_bytes(b"\xff")])
def test_a_name_that_is_no_text_is_no_name(name: str, tmp_path: Path) -> None:
    with local_log(tmp_path / "log") as log:
        writer = log_ports(log, tmp_path).open_log
        assert writer is not None
        why = why_not(writer(), name, HeaderTopics(tmp_path / "made.json", 1))
        assert why == "that is not a topic name"
        refusal("topic", name, why).encode()


def test_a_server_makes_a_letter_of_what_an_agent_refuses(tmp_path: Path) -> None:
    """Over HTTP nobody can bury anything, but a record with a field that nobody knows is a letter, with all of it."""
    record = {"refused": "why"} | _record(Event(b"x", {"app": "shop"}, "id"), raw=True)
    with local_log(tmp_path / "log") as log:
        log.create_topic(TopicSpec("t", kind="raw"))
        create_dead_letters(log)
        collector = EventCollector(log, SystemClock(), CollectSettings())
        body = msgspec.json.encode({"records": [record]})
        [rejected] = collector.collect(RawEvents("t", body, "records")).result(30).rejected
        assert "`refused`" in rejected.reason
        assert json.loads(letters(log)[0][2]) == record

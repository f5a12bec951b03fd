"""A file → an agent, and what is wrong with it, by line."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.collect.agents.catalogue import KINDS
from headrace.collect.agents.definition import explain
from headrace.collect.agents.options import Problem
from headrace.collect.agents.properties import parse_properties
from headrace.collect.agents.reading import agent_of
from headrace.collect.agents.topology import read_agent, read_agents
from headrace.errors import ConfigError

DECK = Path(__file__).with_name("deck.properties")
GOOD = """a1.sources = r1
a1.channels = c1
a1.sinks = k1
a1.sources.r1.type = seq
a1.sources.r1.channels = c1
a1.channels.c1.type = memory
a1.sinks.k1.type = logger
a1.sinks.k1.channel = c1
"""


def problems(text: str) -> list[Problem]:
    return [problem for agent in read_agents(parse_properties(text)) for problem in agent.problems]


def test_the_decks_agent() -> None:
    agent = agent_of(DECK)
    assert agent.name == "a1"
    assert explain(agent) == [
        "agent a1",
        "  r1 (seq) → c1 (memory, capacity 1000) → k1 (kafka, kafka.topic mytopic, "
        "kafka.bootstrap.servers localhost:9092)",
    ]
    sink = agent.sinks["k1"].options
    assert sink.integer("flumeBatchSize") == 20
    assert sink.below("kafka.producer.*") == {"acks": "1", "linger.ms": "1", "compression.type": "snappy"}
    # The deck's comments have lost their `#`.
    assert {problem.hint for problem in agent.problems} == {"if it is a comment, begin it with `#`"}


def test_the_old_names_of_the_kafka_sink() -> None:
    text = GOOD.replace("k1.type = logger", "k1.type = org.apache.flume.sink.kafka.KafkaSink")
    text += "a1.sinks.k1.brokerList = b:9092\na1.sinks.k1.topic = t\na1.sinks.k1.requiredAcks = -1\n"
    options = read_agent(parse_properties(text + "a1.sinks.k1.batchSize = 7\n"), "a1").sinks["k1"].options
    assert (options.text("kafka.bootstrap.servers"), options.text("kafka.topic")) == ("b:9092", "t")
    assert (options.text("requiredAcks"), options.integer("flumeBatchSize")) == ("-1", 7)


def test_nothing_is_wrong_with_a_good_one() -> None:
    assert problems(GOOD) == []


def change(old: str, new: str) -> str:
    assert old in GOOD
    return GOOD.replace(old, new)


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        (change("= seq", "= sek"), 4, "there is no source of type `sek`: did you mean `seq`?"),
        (change("c1.type = memory", "c1.type = memroy"), 6, "no channel of type `memroy`: did you mean `memory`?"),
        (change("k1.type = logger", "k1.type = hdfs"), 7, "there is no sink of type `hdfs`"),
        (change("a1.sinks.k1.channel = c1\n", ""), 7, "sink `k1` has no channel"),
        (
            change("r1.channels = c1", "r1.channels = c2"),
            5,
            "names a channel `c2` that is not there: did you mean `c1`?",
        ),
        (change("a1.sources.r1.type = seq\n", ""), 4, "source `r1` has no `type`"),
        (change("a1.sinks = k1\n", ""), 1, "agent `a1` has no sinks"),
        (GOOD + "a1.sources.r1.batchsize = 3\n", 9, "has no property `batchsize`: did you mean `batchSize`?"),
        (GOOD + "a1.sources.r1.batchSize = many\n", 9, "`batchSize` of source `r1` (seq) must be a whole number"),
        (GOOD + "a1.sources.r1.batchSize = 0\n", 9, "must be at least 1, got `0`"),
        (GOOD + "a1.channels.c1.capacity = 10\n", 6, "`transactionCapacity` 100 is more than `capacity` 10"),
        (GOOD + "a1.sources.r1.batchSize = 500\n", 9, "is more than the `transactionCapacity` 100 of channel `c1`"),
        (GOOD + "a1.sinks.k2.type = null\n", 9, "`k2` is not among `a1.sinks`: did you mean `k1`?"),
        (GOOD + "a1.sink.k2.type = null\n", 9, "agent `a1` has no `sink`: did you mean `sinks`?"),
        (GOOD + "a1.sources.r1.type = stress\n", 9, "`type` of `r1` stands in line 4 already"),
        (GOOD + "a1.sources.r1.interceptors = i1\n", 9, "interceptor `i1` of source `r1` has no `type`"),
        (
            GOOD + "a1.sources.r1.interceptors = i1\na1.sources.r1.interceptors.i1.type = timestamps\n",
            10,
            "there is no interceptor `timestamps`: did you mean `timestamp`?",
        ),
        (
            GOOD
            + "a1.sources.r1.interceptors = i1\na1.sources.r1.interceptors.i1.type = regex_filter\n"
            + "a1.sources.r1.interceptors.i1.regex = (\n",
            11,
            "is not a regular expression",
        ),
        (GOOD + "a1.sources.r1.selector.type = multi\n", 9, "there is no selector `multi`"),
        (
            GOOD + "a1.sources.r1.selector.type = multiplexing\na1.sources.r1.selector.mapping.x = c9\n",
            10,
            "names `c9`, which is none of its channels",
        ),
        (GOOD + "a1.sinkgroups = g1\na1.sinkgroups.g1.sinks = k1 k7\n", 10, "names a sink `k7` that is not there"),
        (
            GOOD + "a1.sinkgroups = g1\na1.sinkgroups.g1.sinks = k1\na1.sinkgroups.g1.processor.type = failovr\n",
            11,
            "there is no sink processor `failovr`: did you mean `failover`?",
        ),
        (
            change("a1.channels = c1", "a1.channels = c1 c2") + "a1.channels.c2.type = memory\n",
            9,
            "nothing uses channel `c2`",
        ),
        (GOOD + "b1.sources = x\n", 9, "agent `b1` has no channels"),
        (GOOD + "a1.sources.r1.batchSize = ${NOT_SAID}\n", 9, "the environment has no `NOT_SAID`"),
    ],
)
def test_mistakes_are_said_with_their_line(text: str, line: int, message: str) -> None:
    found = [(problem.line, problem.message) for problem in problems(text)]
    assert any(at == line and message in said for at, said in found), found


def test_a_circle_is_found() -> None:
    text = """a.sources = r
a.channels = c
a.sinks = k
a.sources.r.type = avro
a.sources.r.bind = 0.0.0.0
a.sources.r.allow = 10.0.0.0/8
a.sources.r.port = 4141
a.sources.r.channels = c
a.channels.c.type = memory
a.sinks.k.type = avro
a.sinks.k.hostname = localhost
a.sinks.k.port = 4242
a.sinks.k.channel = c
"""
    assert problems(text) == []
    second = text.replace("a.", "b.").replace("4141", "x").replace("4242", "4141").replace("x", "4242")
    [found] = problems(text + second)
    assert "sends events back to where they came from: `a.r` → `b.r` → `a.r`" in found.message


def test_an_agent_with_errors_does_not_run() -> None:
    with pytest.raises(ConfigError, match=r"line 4: there is no source of type `sek`"):
        read_agent(parse_properties(change("= seq", "= sek")), "a1")
    with pytest.raises(ConfigError, match="no agent `a2`: did you mean `a1`"):
        read_agent(parse_properties(GOOD), "a2")


TOML = """
[sources.tail]
type = "TAILDIR"
channels = ["buffer"]
positionFile = "/x/positions.json"

[sources.tail.filegroups]
app = "/var/log/app/.*log"

[sources.tail.interceptors.when]
type = "timestamp"
preserveExisting = true

[channels.buffer]
type = "file"
capacity = 1000
transactionCapacity = 100

[sinks.log]
type = "headrace"
topic = "lines"
channel = "buffer"
"""


def test_the_same_as_toml(tmp_path: Path) -> None:
    file = tmp_path / "web.toml"
    file.write_text(TOML)
    agent = agent_of(file)
    assert agent.name == "web"
    assert agent.sources["tail"].options.below("filegroups.*") == {"app": "/var/log/app/.*log"}
    assert [one.kind.name for one in agent.sources["tail"].interceptors] == ["timestamp"]
    file.write_text(TOML.replace("capacity = 1000", "capacity = 10"))
    with pytest.raises(ConfigError, match="line 17: channel `buffer`: `transactionCapacity` 100 is more than"):
        agent_of(file)


def test_every_property_is_explained() -> None:
    assert [(kind.name, option.name) for kind in KINDS for option in kind.options if not option.meaning] == []


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("replaceString = $2", "`$2` cannot stand there: the pattern has no group 2"),
        ("charset = UTF-9", "there is no charset `UTF-9`"),
    ],
)
def test_a_replacement_that_could_only_fail_is_said_before(wrong: str, said: str) -> None:
    interceptor = "a1.sources.r1.interceptors.i"
    text = f"a1.sources.r1.interceptors = i\n{interceptor}.type = search_replace\n{interceptor}.searchPattern = (x)\n"
    [problem] = problems(GOOD + text + f"{interceptor}.{wrong}\n")
    assert said in problem.message


LISTENING = """a.sources = r
a.channels = c
a.sinks = k
a.sources.r.type = {type}
a.sources.r.port = 4141
a.sources.r.channels = c
a.channels.c.type = memory
a.sinks.k.type = null
a.sinks.k.channel = c
{more}"""


@pytest.mark.parametrize("type_", ["http", "syslogtcp", "syslogudp", "avro", "netcat"])
def test_a_source_that_anybody_could_reach_says_who_may_send(type_: str) -> None:
    """Flume listens on all addresses where it is not told."""
    bind = "host" if type_.startswith("syslog") else "bind"

    def said(more: str) -> list[str]:
        return [problem.message for problem in problems(LISTENING.format(type=type_, more=more))]

    if type_ in ("http", "syslogtcp", "syslogudp"):
        assert said("") == []
    assert said(f"a.sources.r.{bind} = 127.0.0.1") == []
    message = "source `r`: refusing to listen on `0.0.0.0`: anybody who reaches it could send"
    assert said(f"a.sources.r.{bind} = 0.0.0.0") == [message]
    assert said(f"a.sources.r.{bind} = 0.0.0.0\na.sources.r.allow = 10.0.0.0/8 192.168.0.0/16") == []
    assert "`allow`" in said(f"a.sources.r.{bind} = 0.0.0.0\na.sources.r.allow = everybody")[0]

"""Every type of component. A new one costs its module and a line here."""

from __future__ import annotations

from headrace.collect.agents.base import Role
from headrace.collect.agents.channels import file as file_channel
from headrace.collect.agents.channels import kafka as kafka_channel
from headrace.collect.agents.channels import memory
from headrace.collect.agents.options import ComponentKind
from headrace.collect.agents.sinks import avro as avro_sink
from headrace.collect.agents.sinks import http as http_sink
from headrace.collect.agents.sinks import kafka as kafka_sink
from headrace.collect.agents.sinks import log, simple
from headrace.collect.agents.sources import avro, exec, generators, http, kafka, netcat, spooldir, syslog, taildir

KINDS: tuple[ComponentKind, ...] = (
    generators.SEQ,
    generators.STRESS,
    exec.KIND,
    spooldir.KIND,
    taildir.KIND,
    netcat.KIND,
    syslog.TCP,
    syslog.UDP,
    http.KIND,
    kafka.KIND,
    avro.KIND,
    memory.KIND,
    file_channel.KIND,
    kafka_channel.KIND,
    log.KIND,
    kafka_sink.KIND,
    avro_sink.KIND,
    http_sink.KIND,
    simple.FILE_ROLL,
    simple.LOGGER,
    simple.NULL,
)
_BY_NAME = {(kind.role, name.lower()): kind for kind in KINDS for name in kind.names}

_USE_KAFKA = "Flume has it, Headrace has not"
NOT_HERE = {
    "hdfs": f"{_USE_KAFKA}: write to the log, and export it as Parquet",
    "hive": f"{_USE_KAFKA}: write to the log, and export it as Parquet",
    "hbase2": _USE_KAFKA,
    "elasticsearch": _USE_KAFKA,
    "thrift": f"{_USE_KAFKA}: use `avro` between agents",
    "jms": _USE_KAFKA,
    "jdbc": f"{_USE_KAFKA}: use `file`",
    "spillablememory": f"{_USE_KAFKA}: use `file`, which keeps what is new in memory as well",
    "multiport_syslogtcp": f"{_USE_KAFKA}: use a `syslogtcp` source for each port",
    "irc": _USE_KAFKA,
    "netcatudp": f"{_USE_KAFKA}: use `syslogudp`, which keeps lines that are no syslog",
}


def kind_of(role: Role, type_: str) -> ComponentKind | None:
    return _BY_NAME.get((role, type_.strip().lower()))


def names_of(role: Role) -> list[str]:
    return [kind.name for kind in KINDS if kind.role == role]

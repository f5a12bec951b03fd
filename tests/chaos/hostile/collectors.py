"""The project that is attacked: a collector of every type that takes what others send, plain and with all the rules."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from headrace.collect.definitions import read_definition
from headrace.collect.kinds import KINDS
from headrace.toml_files import Problem
from tests.support import free_port

RULED = "-ruled"
EXTRA = {"webhook": 'signature = "token"\nsecrets = ["s"]'}
POLICIES = ('policy = "priority"\nfield = "total"', 'policy = "sample"\nfield = "id"', 'policy = "oldest"')
RULES = """
[shed]
{policy}
events_per_second = {rate}
burst_seconds = 5
[validate]
coerce = ["total", "properties.total"]
[validate.fields.total]
max = 1000000
[validate.fields.id]
max_length = 100
pattern = "^[0-9a-z.]*$"
[validate.fields."who.n"]
type = "number"
[privacy]
hash = ["id", "properties.id", "message"]
drop = ["who.n", "tags"]
truncate = {{ "properties.moment" = 4, client_id = 2, host = "network" }}
key = "0123456789abcdef0123"
[enrich]
address = "address"
user_agent = "agent"
arrival_time = "arrived"
collector = "by"
proxies = ["127.0.0.0/8"]
visitor = "visitor"
[enrich.fields]
"deep.site" = "x"
[quota]
key_field = "id"
"""
OF_HTTP = "tenant_events_per_second = 20\nkey_events_per_second = 5\nburst_seconds = 4\n"
OF_OTHERS = "key_events_per_second = 100000\n"
"""Whoever is not asked waits for a quota, and so would we."""
AGENT = """
[sources.http]
type = "http"
bind = "127.0.0.1"
port = {http}
channels = ["c"]
[sources.netcat]
type = "netcat"
bind = "127.0.0.1"
port = {netcat}
channels = ["c"]
[sources.avro]
type = "avro"
bind = "127.0.0.1"
port = {avro}
channels = ["c"]
[channels.c]
type = "memory"
capacity = 10000
transactionCapacity = 1000
[sinks.log]
type = "headrace"
topic = "{name}"
channel = "c"
"""


@dataclass(frozen=True, slots=True)
class Port:
    """Where raw bytes are sent."""

    collector: str
    what: str
    """What is spoken there."""
    transport: str
    number: int


def http_kinds() -> list[str]:
    return [kind.name for kind in KINDS.values() if kind.where == "http"]


def http_names() -> list[str]:
    return [kind + more for kind in http_kinds() for more in ("", RULED)]


def listener_names() -> list[str]:
    return [kind + more for kind in ("syslog", "udp", "statsd", "agent") for more in ("", RULED)]


def write(folder: Path) -> list[Port]:
    (folder / "collectors").mkdir()
    (folder / "pipelines").mkdir()
    (folder / "headrace.toml").write_text("[server]\nbody_seconds = 2.0\n[log]\nmin_free_bytes = 0\n")
    for number, name in enumerate(http_names()):
        kind = name.removesuffix(RULED)
        rules = RULES.format(policy=POLICIES[number // 2 % 3], rate=4) + OF_HTTP if name != kind else ""
        _write(folder, name, f'type = "{kind}"\ntopic = "{name}"\n{EXTRA.get(kind, "")}\n{rules}')
    return [port for number, name in enumerate(listener_names()) for port in _listener(folder, name, number)]


def _listener(folder: Path, name: str, number: int) -> list[Port]:
    kind = name.removesuffix(RULED)
    rules = RULES.format(policy=POLICIES[number // 2 % 3], rate=20) + OF_OTHERS if name != kind else ""
    if kind == "agent":
        ports = {what: free_port() for what in ("http", "netcat", "avro")}
        _write(folder, name, f'type = "agent"\n{AGENT.format(name=name, **ports)}{rules}')
        return [Port(name, what, "tcp", port) for what, port in ports.items()]
    port = free_port()
    transports = ("udp", "tcp") if kind == "syslog" else ("udp",)
    listen = [f"{transport}://127.0.0.1:{port}" for transport in transports]
    # Plain text: each datagram is one event, whatever is in it, so that they can be counted.
    form = 'format = "text"\n' if name == "udp" else ""
    _write(folder, name, f'type = "{kind}"\ntopic = "{name}"\nlisten = {listen}\n{form}{rules}')
    return [Port(name, kind, transport, port) for transport in transports]


def _write(folder: Path, name: str, text: str) -> None:
    file = folder / "collectors" / f"{name}.toml"
    read = read_definition(file, text)
    assert not isinstance(read, Problem), f"say in EXTRA what a collector such as {name} needs: {read}"
    file.write_text(text)

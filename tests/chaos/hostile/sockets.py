"""Raw bytes at the sockets that collectors open themselves: syslog, UDP, statsd, and the ports of agents."""

from __future__ import annotations

import json
import random
import socket
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress

import httpx

from headrace.collect.agents.avro_event import pack_lists, write_event, write_headers, write_long, write_string
from headrace.collect.agents.avro_rpc import OUR_HASH, PROTOCOL, AvroClient
from headrace.collect.agents.base import Event
from tests.chaos.hostile.cases import ATTACKS, ORDER, Case, bytes_of
from tests.chaos.hostile.collectors import Port

LARGEST = 60_000
"""Of a datagram."""
ANSWER_S = 0.02
"""How long an answer is waited for: most of what is sent deserves none."""


def _syslog(chance: random.Random) -> bytes:
    new = b'<34>1 2026-11-16T12:00:00Z host app 7 ID47 [a@1 k="v \\"q\\""][b x="1"] hello'
    old = b"<13>Nov 16 12:00:00 host app[7]: %ASA-6-302013: Built"
    message = chance.choice((new, old, b"<13>", b"<999>1 - - - - - -", b"hello"))
    return chance.choice((message + b"\n", b"%d %s" % (len(message), message), message + b"\0", message * 50))


def _statsd(chance: random.Random) -> bytes:
    lines = (b"page.views:1|c|#route:home", b"cart:2:3|g|@0.1", b"t:320|ms|c:abc", b"_e{2,3}:ab|cde", b"x,a=b:1|h")
    return b"\n".join(chance.choices(lines, k=chance.randint(1, 5)))


def _http(chance: random.Random) -> bytes:
    body = bytes_of([{"headers": {"key": "k", "timestamp": "1"}, "body": json.dumps(ORDER)}] * chance.randint(1, 3))
    return b"POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


def _avro(chance: random.Random) -> bytes:
    hello = OUR_HASH + write_long(1) + write_string(PROTOCOL) + OUR_HASH + write_long(0)
    event = write_event(Event(bytes_of(ORDER), {"key": "k"}))
    sent: bytes = pack_lists(1, hello + write_headers({}) + write_string("append") + event)
    return sent


SEEDS: dict[str, Callable[[random.Random], bytes]] = {
    "syslog": _syslog,
    "udp": lambda chance: bytes_of(chance.choice((ORDER, [ORDER, 7, None], 7, "text", {"total": 10**400}))),
    "statsd": _statsd,
    "http": _http,
    "netcat": lambda chance: b"\n".join([bytes_of(ORDER)] * chance.randint(1, 4)) + b"\n",
    "avro": _avro,
}


def payload(what: str, seed: int) -> bytes:
    """The bytes of this number, always the same ones."""
    chance = random.Random(f"{what} {seed}")
    attack = ATTACKS[chance.choice(list(ATTACKS))]
    return attack(Case(what, "", "", "", SEEDS[what](chance)), chance).body


def attack_ports(ports: Sequence[Port], seed: int, cases: int, wrong: list[str]) -> Counter[str]:
    """How many datagrams each collector was sent. Some connections stay open, in the middle of what they say."""
    sent: Counter[str] = Counter()
    left_open: list[socket.socket] = []
    datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    for number in range(cases):
        port = ports[number % len(ports)]
        body = payload(port.what, seed * 1_000_003 + number)
        if port.transport == "udp":
            datagrams.sendto(body[:LARGEST], ("127.0.0.1", port.number))
            sent[port.collector] += 1
        else:
            connection = socket.socket()
            left_open.append(connection)
            try:
                connection.connect(("127.0.0.1", port.number))
            except OSError as error:
                wrong.append(f"{port}, after {number}: {error}")
                continue
            _say(connection, body)
            if number % 50 >= len(ports) // 4:
                connection.close()
    datagrams.close()
    for connection in left_open:
        connection.close()
    return sent


def _say(connection: socket.socket, body: bytes) -> None:
    # It may be cut off, or not answered.
    with suppress(OSError):
        connection.settimeout(10)
        connection.sendall(body)
        connection.settimeout(ANSWER_S)
        connection.recv(65536)


def is_well(port: Port) -> str | None:
    """What is wrong with a port that answers, when it is spoken to as it should be."""
    try:
        match port.what:
            case "http":
                events = [{"headers": {}, "body": json.dumps(ORDER)}]
                answer = httpx.post(f"http://127.0.0.1:{port.number}/", json=events, timeout=60, trust_env=False)
                return None if answer.status_code == 200 else f"answers {answer.status_code}"
            case "netcat":
                with socket.create_connection(("127.0.0.1", port.number), 60) as connection:
                    connection.sendall(bytes_of(ORDER) + b"\n")
                    said = connection.recv(100)
                return None if said == b"OK\n" else f"answers {said!r}"
            case "avro":
                client = AvroClient("127.0.0.1", port.number, 60, 60)
                client.append_batch([Event(bytes_of(ORDER))])
                client.close()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None

"""The WebSocket: every message is answered, whatever is in it, and what was acknowledged is stored."""

from __future__ import annotations

import json
import random
from collections import Counter
from contextlib import suppress
from typing import Any

import msgspec
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from tests.chaos.hostile.cases import ATTACKS, ORDER, Case, bytes_of

TOPICS = ("socket", "http-ruled")
ANSWERS = {"ack", "error", "subscribed", "unsubscribed"}


class _Topic(msgspec.Struct):
    topic: str


def message(seed: int) -> bytes:
    chance = random.Random(f"talk {seed}")
    topic = chance.choice(TOPICS)
    publish: dict[str, Any] = {"publish": "p", "topic": topic}
    said = chance.choice(
        (
            publish | {"event": ORDER},
            publish | {"events": [ORDER, ORDER], "key": str(chance.random())},
            publish | {"events": [ORDER, 7, None, []]},
            {"subscribe": str(chance.randint(0, 3)), "topics": [topic], "from": "latest"},
            {"unsubscribe": str(chance.randint(0, 3))},
        )
    )
    attack = ATTACKS[chance.choice(list(ATTACKS))]
    return attack(Case("socket", "", "", "", bytes_of(said)), chance).body


def talk(port: int, seed: int, cases: int, wrong: list[str]) -> int:
    """How many events were acknowledged as stored in the topic without rules."""
    acknowledged: Counter[str] = Counter()
    numbers = iter(range(cases))
    while (number := next(numbers, None)) is not None:
        # The server may end a connection that talks nonsense; then there is another.
        url = f"ws://127.0.0.1:{port}/v1/socket"
        with suppress(ConnectionClosed), connect(url, proxy=None, max_size=None) as connection:
            while number is not None:
                _say(connection, message(seed * 1_000_003 + number), acknowledged, wrong)
                number = next(numbers, None)
    return acknowledged["socket"]


def _say(connection: ClientConnection, body: bytes, acknowledged: Counter[str], wrong: list[str]) -> None:
    connection.send(body)
    try:
        answer = _answer(connection)
    except TimeoutError:
        wrong.append(f"a message over the WebSocket was not answered: {body[:200]!r}")
        return
    if answer.get("error", {}).get("code") == "internal":
        wrong.append(f"a message over the WebSocket failed: {body[:200]!r}")
    if "ack" in answer:
        acknowledged[msgspec.json.decode(body, type=_Topic).topic] += answer["accepted"]


def _answer(connection: ClientConnection) -> dict[str, Any]:
    while True:
        said: dict[str, Any] = json.loads(connection.recv(30))
        if ANSWERS & said.keys():
            return said

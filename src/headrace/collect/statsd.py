"""The collector `statsd`: metrics as events, one for each value that was sent.

    page.views:1|c|@0.1|#route:home,beta     DogStatsD's tags
    page.views,route=home:1|c                Influx's tags
    login.time:3:5:8|ms                      several values

Nothing is added up here: that is what a table over the topic is for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from headrace.collect.base import Sent, sent_objects
from headrace.collect.definitions import Definition
from headrace.collect.feed import Feed
from headrace.collect.listening.pool import Gathered
from headrace.collect.listening.settings import ListenSettings, read_addresses
from headrace.collect.udp import receive
from headrace.log.base import TIME
from headrace.log.codecs.json_codec import Unreadable

KINDS = {"c": "counter", "g": "gauge", "ms": "timer", "h": "histogram", "d": "distribution", "s": "set"}
# Where DogStatsD's clients say they run, and how much of that they want to tell apart.
_ORIGIN = {"c": "container", "e": "external", "card": "cardinality"}
_SHOWN = 60
_MOST_REPEATED = 1024 * 1024
"""Characters of name and tags, which every value of a line has again: 64 KiB of a datagram could become half a GiB."""


class StatsdSettings(ListenSettings, frozen=True, kw_only=True):
    listen: tuple[str, ...] = ("udp://127.0.0.1:8125",)
    """Where to listen: `udp://`, host and port each."""

    def check(self) -> None:
        super().check()
        read_addresses(self.listen, ("udp",), self.allow)


async def start(feed: Feed) -> None:
    settings = feed.settings(StatsdSettings)
    await receive(feed, settings, settings.listen, read_metrics)


def read_metrics(gathered: Sequence[Gathered]) -> Sent:
    events: list[Any] = []
    originals: list[bytes] = []
    for datagram in (message for one in gathered for message in one.messages):
        for line in datagram.splitlines():
            if not line.strip():
                continue
            try:
                found: list[Any] = read_line(line)
            except ValueError as error:
                found = [Unreadable(str(error))]
            events += found
            originals += [line] * len(found)
    return sent_objects(events, originals.__getitem__)


def read_line(line: bytes) -> list[dict[str, Any]]:
    """`ValueError` says why it is no metric.

    >>> read_line(b"cart.items:2:3|g|#shop:eu")[1]
    {'metric': 'cart.items', 'kind': 'gauge', 'value': 3.0, 'tags': {'shop': 'eu'}}
    """
    try:
        text = line.decode().strip()
    except UnicodeDecodeError:
        raise ValueError("is not UTF-8") from None
    if text.startswith(("_e{", "_sc|")):
        raise ValueError("is an event or a service check of DogStatsD, which are no metrics")
    name, colon, rest = text.partition(":")
    values, bar, rest = rest.partition("|")
    if not (name and colon and values and bar):
        raise ValueError(f"is no metric, as in `name:1|c`: `{text[:_SHOWN]}`")
    code, *parts = rest.split("|")
    kind = KINDS.get(code)
    if kind is None:
        raise ValueError(f"has a type that is none of {', '.join(KINDS)}: `{code[:_SHOWN]}`")
    if values.count(":") * (len(text) - len(values)) > _MOST_REPEATED:
        raise ValueError(f"has {values.count(':') + 1} values with so many tags that they do not fit into memory")
    name, *influx = name.split(",")
    common: dict[str, Any] = {"metric": name, "kind": kind}
    tags = dict(_tag(one, "=") for one in influx if one)
    common_parts = [_part(part, tags) for part in parts if part]
    for more in common_parts:
        common |= more
    if tags:
        common["tags"] = tags
    ending = {key: common.pop(key) for key in ("rate", "tags", TIME, *_ORIGIN.values()) if key in common}
    return [common | _value(kind, value) | ending for value in values.split(":")]


def _value(kind: str, text: str) -> dict[str, Any]:
    if kind == "set":
        return {"member": text}
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or "_" in text:
        raise ValueError(f"has a value that is no number: `{text[:_SHOWN]}`")
    # A gauge with a sign is a change of what it was.
    return {"value": value, "relative": True} if kind == "gauge" and text[0] in "+-" else {"value": value}


def _part(text: str, tags: dict[str, str]) -> dict[str, Any]:
    mark, rest = text[0], text[1:]
    if mark == "#":
        tags.update(_tag(one, ":") for one in rest.split(",") if one)
        return {}
    if mark == "@":
        try:
            rate = float(rest)
        except ValueError:
            rate = 0.0
        if not 0 < rate <= 1:
            raise ValueError(f"has a sample rate that is not above 0 and up to 1: `{rest[:_SHOWN]}`")
        return {"rate": rate}
    if mark == "T" and rest.isdigit():
        return {TIME: int(rest) * 1000}
    name, colon, value = text.partition(":")
    if colon and name in _ORIGIN:
        return {_ORIGIN[name]: value}
    raise ValueError(f"has a part that means nothing: `{text[:_SHOWN]}`")


def _tag(text: str, between: str) -> tuple[str, str]:
    name, _, value = text.partition(between)
    return name, value


def sample(definition: Definition) -> Sent:
    """A test event."""
    line = b"headrace.test:1|c|#collector:" + definition.name.encode()
    return sent_objects(read_line(line), lambda row: line)

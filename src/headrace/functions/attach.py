"""`from headrace import on_topic, transform`: what makes a Python function one that is called with records."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import msgspec

from headrace.structs import ready

T = TypeVar("T", bound=Callable[..., Any])

ATTACHED = "__headrace_attached__"
MOST_RECORDS = 10_000
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,100}")


@dataclass(frozen=True, slots=True)
class Record:
    """What a function gets of each record."""

    topic: str
    partition: int
    offset: int
    time_ms: int
    id: str | None
    key: Any
    """The key column's value, a dict where there are several; the bytes of a raw record."""
    value: Any
    """A dict of all fields; the bytes of a raw record; None if the record is a tombstone."""
    headers: dict[str, Any]


class Attached(msgspec.Struct, frozen=True):
    """One such function of a file, as the decorator was told."""

    name: str
    attribute: str
    topic: str = ""
    """Empty for one that a delivery stream calls."""
    to: str = ""
    batch: int = 100
    retries: int = 3
    partitions: tuple[int, ...] = ()
    start: Literal["earliest", "latest"] = "latest"
    seconds: float = 0
    """Longest time of a call; 0 is `[functions] seconds`."""
    summary: str = ""
    line: int = 0


def on_topic(
    topic: str,
    *,
    to: str = "",
    batch: int = 100,
    retries: int = 3,
    shards: Sequence[int] = (),
    start: Literal["earliest", "latest"] = "latest",
    seconds: float = 0,
    name: str | None = None,
) -> Callable[[T], T]:
    """Call a function with the records of a topic, as they come: a list of `Record`, at most `batch` of them, all of
    one partition and in order.

    What it returns is written to the topic `to`: dicts where that has columns, bytes or text where it is raw, or pairs
    of a key and one of these. Output and position are one transaction: whatever is killed, each batch's output is there
    once. (What else it does, it may do again.) If it raises, it is tried again `retries` times with growing pauses;
    then the batch is halved to find the record it fails for, and that becomes a dead letter.

    `shards` are the partitions it is for; all, if none is named. `start` is where a function that is new begins.

    >>> @on_topic("orders", to="large_orders", batch=500)
    ... def large(records):
    ...     return [record.value for record in records if record.value["total"] > 1000]
    """
    options: dict[str, Any] = {
        "topic": topic,
        "to": to,
        "batch": batch,
        "retries": retries,
        "partitions": tuple(shards),
        "start": start,
        "seconds": seconds,
    }
    return lambda target: _marked(target, name, options)


def transform(target: T) -> T:
    """Make a function one that a delivery stream (Firehose) can call: with a list of `Record`, to return as many
    values, bytes, text or dicts; None drops a record.

    >>> @transform
    ... def upper(records):
    ...     return [record.value.upper() for record in records]
    """
    return _marked(target, None, {})


def _marked(target: T, name: str | None, options: dict[str, Any]) -> T:
    summary = (target.__doc__ or "").strip().partition("\n")[0]
    own = getattr(target, "__name__", "")
    line = target.__code__.co_firstlineno if hasattr(target, "__code__") else 0
    setattr(target, ATTACHED, Attached(name or own, own, summary=summary, line=line, **options))
    return target


def wrong_with(attached: Attached) -> str | None:
    """What a decorator was told that cannot be."""
    try:
        msgspec.convert(msgspec.to_builtins(attached), ready(Attached))
    except (msgspec.ValidationError, TypeError) as error:
        return f"its decorator: {error}"
    if not _NAME.fullmatch(attached.name):
        return f"`{attached.name[:100]}` is not a name: letters, digits, `_`, `-` and `.`"
    if not 1 <= attached.batch <= MOST_RECORDS:
        return f"`batch` is 1 to {MOST_RECORDS}, got {attached.batch}"
    if attached.retries < 0 or attached.seconds < 0:
        return "`retries` and `seconds` are not negative"
    if attached.start not in ("earliest", "latest"):
        return f"`start` is earliest or latest, got `{attached.start}`"
    if attached.to and attached.to == attached.topic:
        return "it would read what it writes: `to` is another topic"
    return None

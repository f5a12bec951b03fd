"""What can be asked of a server: calls to make, and what their answers mean."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, TypeVar
from urllib.parse import quote

import msgspec

from headrace.client.calls import Call, Steps, get, send
from headrace.client.rows import RowReading
from headrace.client.values import (
    Answer,
    Group,
    Message,
    NewRecord,
    Offset,
    Page,
    Produced,
    Queue,
    Record,
    Rejected,
    Reply,
    Settled,
    Topic,
)
from headrace.errors import UsageError
from headrace.structs import ready

T = TypeVar("T")
Event = Mapping[str, Any] | NewRecord

ANSWER_S = 600.0
BATCH_RECORDS = 5_000
BATCH_BYTES = 4 * 1024 * 1024
CORRELATION, REPLY_TO = "correlation-id", "reply-to"


def _name(text: str) -> str:
    return quote(text, safe="")


def _as(kind: type[T], body: Any) -> T:
    return msgspec.convert(body, ready(kind))


# Topics


def topics(internal: bool = False) -> Steps[list[Topic]]:
    """All topics."""
    return _as(list[Topic], (yield get("/v1/topics", internal=internal or None))["topics"])


def topic(name: str) -> Steps[Topic]:
    """One topic."""
    return _as(Topic, (yield get(f"/v1/topics/{_name(name)}")))


def create_topic(name: str, columns: str = "", partitions: int = 1, raw: bool = False, **config: Any) -> Steps[Topic]:
    """Make a topic; the same again changes nothing. `columns` as in CREATE STREAM; `config` as in the HTTP API."""
    body = {"name": name, "columns": columns, "partitions": partitions, "kind": "raw" if raw else "typed", **config}
    return _as(Topic, (yield send("POST", "/v1/topics", body, "always")))


def alter_topic(name: str, add_columns: str = "", **config: Any) -> Steps[Topic]:
    """Add columns, or change the configuration."""
    return _as(Topic, (yield send("PATCH", f"/v1/topics/{_name(name)}", {"add_columns": add_columns, **config})))


def delete_topic(name: str) -> Steps[None]:
    """Delete a topic and all its records."""
    yield send("DELETE", f"/v1/topics/{_name(name)}")


def delete_records(name: str, partition: int | None = None, before: int | None = None) -> Steps[None]:
    """Forget the records before an offset, or all there are now."""
    yield send("DELETE", f"/v1/topics/{_name(name)}/records", None, "always", partition=partition, before=before)


# Records


def produce(
    topic: str, events: Iterable[Event], acks: Literal["0", "1", "all"] = "all", key: str | None = None
) -> Steps[Produced]:
    """Send events (mappings) or records (`NewRecord`), in batches. Each gets an id, so what is sent again after a lost
    answer lands once; with a `key` of your own, that also holds when your program starts again."""
    request = key or uuid.uuid4().hex
    total = Produced(0, 0, [], [])
    first = 0
    for number, batch in enumerate(_batches(events)):
        body = yield _produce_call(topic, batch, acks, f"{request}/{number}")
        total = _add(total, body, first)
        first += len(batch)
    return total


def _produce_call(topic: str, batch: Sequence[bytes], acks: str, request: str) -> Call:
    return Call(
        "POST",
        f"/v1/topics/{_name(topic)}/records",
        {"acks": acks},
        b'{"records":[' + b",".join(batch) + b"]}",
        {"content-type": "application/json", "idempotency-key": request},
        "always",
        accept=(422,),
    )


def _batches(events: Iterable[Event]) -> Iterator[list[bytes]]:
    """The JSON of the events, as much as goes into one request each."""
    batch: list[bytes] = []
    size = 0
    for event in events:
        text = encode(event)
        if batch and (len(batch) >= BATCH_RECORDS or size + len(text) > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(text)
        size += len(text) + 1
    if batch:
        yield batch


def encode(event: Event) -> bytes:
    """A plain event is the value: its key's fields are found by their names."""
    record = event if isinstance(event, NewRecord) else {"value": dict(event)}
    return msgspec.json.encode(record)


def _add(total: Produced, body: Any, first: int) -> Produced:
    if body is None:  # acks=0: nothing is known
        return total
    found = _as(Produced, body)
    rejected = [Rejected(one.index + first, one.reason, one.dead_letter) for one in found.rejected]
    return Produced(
        total.accepted + found.accepted,
        total.duplicates + found.duplicates,
        total.rejected + rejected,
        total.positions + found.positions,
        merge_tokens(total.token, found.token),
    )


def merge_tokens(one: str | None, other: str | None) -> str | None:
    """Return one token for two writes to a topic: the later offset of each partition.

    >>> merge_tokens("t@0:7,1:2.ab", "t@0:9,2:1.ab"), merge_tokens(None, "t@0:1"), merge_tokens("t@0:1.ab", "t@.ab")
    ('t@0:9,1:2,2:1.ab', 't@0:1', 't@.ab')
    """
    if one is None or other is None:
        return other if one is None else one
    (topic, _, first), (_, _, second) = one.rpartition("@"), other.rpartition("@")
    offsets: dict[int, int] = {}
    for places in (first.partition(".")[0], second.partition(".")[0]):
        if not places:
            return other if not second.partition(".")[0] else one
        for place in places.split(","):
            partition, _, offset = place.partition(":")
            offsets[int(partition)] = max(int(offset), offsets.get(int(partition), -1))
    # The epoch of the later write: that log has gone on from the earlier one.
    _, dot, epoch = second.partition(".")
    return f"{topic}@{','.join(f'{partition}:{offset}' for partition, offset in sorted(offsets.items()))}{dot}{epoch}"


def page(
    topic: str,
    *,
    at: str | None = None,
    before: str | None = None,
    start: Literal["earliest", "latest"] | None = None,
    partition: int | None = None,
    offset: int | None = None,
    time: str | int | None = None,
    limit: int = 500,
    wait: float = 0.0,
) -> Steps[Page]:
    """One page of a topic's records. See `Page` for how to go on from it."""
    query = {"at": at, "before": before, "from": start, "partition": partition, "offset": offset, "time": time}
    body = yield get(f"/v1/topics/{_name(topic)}/records", wait, **query, limit=limit, wait=wait or None)
    return _as(Page, body)


# Groups


def groups() -> Steps[list[Group]]:
    """All groups, with their lag."""
    return _as(list[Group], (yield get("/v1/groups"))["groups"])


def group(name: str) -> Steps[Group]:
    """One group: members, offsets, lag."""
    return _as(Group, (yield get(f"/v1/groups/{_name(name)}")))


def reset_group(
    name: str,
    to: Literal["earliest", "latest"] | None = None,
    *,
    time: str | int | None = None,
    offsets: Sequence[Offset] | None = None,
    topics: Sequence[str] | None = None,
    force: bool = False,
) -> Steps[Group]:
    """Set a group's offsets. While it has members that is refused, unless forced."""
    body = {"to": to, "time": time, "topics": topics, "force": force}
    body["offsets"] = None if offsets is None else msgspec.to_builtins(list(offsets))
    return _as(Group, (yield send("POST", f"/v1/groups/{_name(name)}/reset", body, "always")))


def delete_group(name: str) -> Steps[None]:
    """Forget a group that has no members."""
    yield send("DELETE", f"/v1/groups/{_name(name)}")


# Queues


def queues() -> Steps[list[Queue]]:
    """All queues."""
    return _as(list[Queue], (yield get("/v1/queues"))["queues"])


def queue(name: str) -> Steps[Queue]:
    """One queue."""
    return _as(Queue, (yield get(f"/v1/queues/{_name(name)}")))


def create_queue(name: str, topic: str, **options: Any) -> Steps[Queue]:
    """Make a queue over a topic; the same again changes nothing. Options: `lease_s`, `max_deliveries`, `order`, …"""
    return _as(Queue, (yield send("POST", "/v1/queues", {"name": name, "topic": topic, **options}, "always")))


def delete_queue(name: str) -> Steps[None]:
    """Forget a queue; its topic stays."""
    yield send("DELETE", f"/v1/queues/{_name(name)}")


def receive(queue: str, limit: int = 1, wait: float = 0.0, lease: float | None = None) -> Steps[list[Message]]:
    """Take messages. An answer that is lost is no harm: they come again when their lease ends."""
    path = f"/v1/queues/{_name(queue)}/receive"
    query = {"limit": limit, "wait": wait or None, "lease": lease}
    body = yield Call("POST", path, query, repeat="always", wait_s=wait)
    return _as(list[Message], body["messages"])


Receipts = Message | Sequence[Message] | Sequence[str]


def ack(queue: str, messages: Receipts) -> Steps[Settled]:
    """Messages are done."""
    return (yield from _settle(queue, "ack", messages))


def nack(queue: str, messages: Receipts, delay: float = 0.0, reason: str | None = None) -> Steps[Settled]:
    """Messages could not be done: again after the delay, or a dead letter if that was the last time."""
    return (yield from _settle(queue, "nack", messages, delay_s=delay, reason=reason))


def extend(queue: str, messages: Receipts, lease: float | None = None) -> Steps[Settled]:
    """Keep messages for another lease."""
    return (yield from _settle(queue, "extend", messages, lease_s=lease))


def _settle(queue: str, how: str, messages: Receipts, **more: Any) -> Steps[Settled]:
    some = [messages] if isinstance(messages, Message) else messages
    receipts = [each.receipt if isinstance(each, Message) else each for each in some]
    body = yield send("POST", f"/v1/queues/{_name(queue)}/{how}", {"receipts": receipts, **more}, "always")
    return _as(Settled, body)


# Requests


def request(
    topic: str, value: Mapping[str, Any], key: Any = None, timeout: float = 10.0, reply_topic: str | None = None
) -> Steps[Reply]:
    """Send a record and wait for the one that answers it. `DeadlineExceeded` if none does."""
    body = msgspec.to_builtins({"value": dict(value), "key": key, "reply_topic": reply_topic})
    path = f"/v1/requests/{_name(topic)}"
    content = json.dumps(body, ensure_ascii=False).encode()
    headers = {"content-type": "application/json"}
    answer = yield Call("POST", path, {"timeout": timeout}, content, headers, wait_s=timeout)
    return _as(Reply, answer)


def reply(to: Record | Message, value: Mapping[str, Any]) -> Steps[Produced]:
    """Answer a request: to the topic and with the correlation id that it names."""
    record = to.record if isinstance(to, Message) else to
    headers = record.headers or {}
    if CORRELATION not in headers or REPLY_TO not in headers:
        raise UsageError(
            "this record asks for no reply", hint=f"a request has the headers `{CORRELATION}` and `{REPLY_TO}`"
        )
    answer = NewRecord(value=dict(value), headers={CORRELATION: headers[CORRELATION]})
    return (yield from produce(headers[REPLY_TO], [answer]))


# SQL


def query(
    sql: str, limit: int | None = None, after: str | Sequence[str] | None = None, wait_s: float | None = None
) -> Steps[Answer]:
    """Ask tables and streams once, with SELECT; all rows of the answer, unless `limit` says how many at most. `rows`
    gives them one at a time, for answers that are too large for memory. `after`: the `token` of what was produced, an
    event id of a feed, or `now`; the answer comes when it includes that, and is waited for `wait_s` seconds."""
    reading, rows = RowReading(), list[list[Any]]()
    for some in reading.read_all((yield query_call(sql, limit, after, wait_s)).split(b"\n")):
        rows += some
    header, end = reading.header or {}, reading.finish()
    return _as(Answer, header | {"rows": rows, "truncated": end["truncated"]})


def query_call(
    sql: str, limit: int | None = None, after: str | Sequence[str] | None = None, wait_s: float | None = None
) -> Call:
    """The call of a query whose answer is streamed."""
    given = {
        "limit": limit,
        "after": after if after is None or isinstance(after, str) else list(after),
        "wait_ms": None if wait_s is None else max(1, round(wait_s * 1000)),
    }
    body = {"sql": sql, "stream": True} | {name: value for name, value in given.items() if value is not None}
    # The server has a deadline of its own, which is longer for what its engine answers.
    return replace(send("POST", "/v1/query", body, "always"), wait_s=ANSWER_S, lines=True)


def statements(sql: str, variables: Mapping[str, str] | None = None) -> Steps[list[dict[str, Any]]]:
    """Run statements one after the other, up to the first error."""
    body = yield send("POST", "/v1/statements", {"sql": sql, "variables": dict(variables or {})})
    results: list[dict[str, Any]] = body["results"]
    return results

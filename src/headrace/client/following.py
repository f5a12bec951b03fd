"""Reading without an end: what to ask next, and what to remember. No I/O here either."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Literal
from urllib.parse import quote

import msgspec

from headrace.client.calls import Call, Steps, get, send
from headrace.client.operations import Event, encode, page, produce, receive
from headrace.client.values import Change, Consumed, Message, NewRecord, Offset, Produced, Record
from headrace.errors import Fenced, HeadraceError, NotFound, error_from_json
from headrace.structs import ready

LONG_POLL_S = 20.0


class TopicReading:
    """A topic from a place on. `position` is where to continue, also in another program."""

    def __init__(
        self,
        topic: str,
        start: Literal["earliest", "latest"] = "earliest",
        *,
        at: str | None = None,
        time: str | int | None = None,
        partition: int | None = None,
        follow: bool = True,
    ) -> None:
        self.topic, self.position = topic, at
        self._start, self._time, self._partition = start, time, partition
        self._follow = follow
        self.over = False

    def step(self) -> Steps[list[Record]]:
        """The next records; when there are none and it does not follow, it is over."""
        wait = LONG_POLL_S if self._follow and self.position is not None else 0.0
        if self.position is not None:
            found = yield from page(self.topic, at=self.position, wait=wait)
        elif self._time is not None:
            found = yield from page(self.topic, time=self._time, partition=self._partition)
        else:
            found = yield from page(self.topic, start=self._start, partition=self._partition)
        self.position = found.place
        self.over = not self._follow and not found.cut
        return found.records


class Membership:
    """A member of a group. Polls are numbered, so that an answer that was lost is given again."""

    def __init__(
        self,
        group: str,
        topics: str | Sequence[str],
        start: Literal["earliest", "latest"] = "earliest",
        session_timeout: float = 30.0,
        client: str = "",
    ) -> None:
        self.group = group
        self._join = {
            "topics": topics if isinstance(topics, str) else list(topics),
            "start": start,
            "session_timeout_s": session_timeout,
            "client": client,
        }
        self._path = f"/v1/groups/{quote(group, safe='')}/consumers"
        self._id: str | None = None
        self._polls = 0
        self._processed: dict[tuple[str, int], int] = {}

    def join(self) -> Steps[None]:
        body = yield send("POST", self._path, self._join | {"id": uuid.uuid4().hex}, "always")
        self._id = body["id"]

    def poll(self, limit: int = 500, wait: float = LONG_POLL_S) -> Steps[list[Record]]:
        """What is new for this member; empty after `wait` seconds. A server that was restarted, or a group that sent it
        away, does not know it any more: it joins again, and goes on from what was committed."""
        self._polls += 1
        query = {"limit": limit, "wait": wait, "poll": self._polls}
        try:
            if self._id is not None:
                return _consumed((yield get(f"{self._path}/{self._id}/records", wait, **query)))
        except (NotFound, Fenced):
            self._id = None
            self._processed.clear()
        yield from self.join()
        return _consumed((yield get(f"{self._path}/{self._id}/records", wait, **query)))

    def processed(self, record: Record) -> None:
        """Remember that a record was dealt with: `commit` commits those, and no others."""
        self._processed[record.topic, record.partition] = record.offset + 1

    def commit(self, offsets: Sequence[Offset] | None = None) -> Steps[None]:
        """Remember, in the group, how far this member is: what was processed, or the offsets given."""
        if offsets is None:
            offsets = [Offset(topic, partition, to) for (topic, partition), to in self._processed.items()]
        if not offsets:
            return
        body = {"offsets": msgspec.to_builtins(list(offsets))}
        try:
            yield send("POST", f"{self._path}/{self._id}/offsets", body, "always")
        except NotFound as error:
            raise Fenced(
                f"this consumer is no longer in group `{self.group}`",
                detail=error.message,
                hint="poll again: it joins anew, and gets what was not committed",
            ) from None

    def heartbeat(self) -> Steps[None]:
        """Stay in the group while processing takes long."""
        yield send("POST", f"{self._path}/{self._id}/heartbeat", None, "always")

    def leave(self) -> Steps[None]:
        if self._id is not None:
            path, self._id = f"{self._path}/{self._id}", None
            with suppress(NotFound):
                yield send("DELETE", path, None, "always")


def _consumed(body: Any) -> list[Record]:
    return msgspec.convert(body, ready(Consumed)).records


class QueueReading:
    """Messages of a queue, as they come. Whoever reads them settles them."""

    def __init__(self, queue: str, limit: int = 10, lease: float | None = None, wait: float = LONG_POLL_S) -> None:
        self._queue, self._limit, self._lease, self._wait = queue, limit, lease, wait

    def step(self) -> Steps[list[Message]]:
        return (yield from receive(self._queue, self._limit, self._wait, self._lease))


class Buffer:
    """Events gathered into batches, each sent once whatever is retried."""

    def __init__(self, topic: str, batch_records: int = 1000, batch_bytes: int = 1024 * 1024) -> None:
        self.topic = topic
        self._most, self._most_bytes = batch_records, batch_bytes
        self._events: list[Event] = []
        self._size = 0
        self._key = uuid.uuid4().hex
        self._flushed = 0

    def add(self, event: Event) -> bool:
        """Whether it is time to flush."""
        self._events.append(event if isinstance(event, NewRecord) else dict(event))
        self._size += len(encode(event))
        return len(self._events) >= self._most or self._size >= self._most_bytes

    def flush(self) -> Steps[Produced]:
        """Sends what was gathered. If that fails it is kept, with its ids: flush again, and it lands once."""
        sent = yield from produce(self.topic, self._events, key=f"{self._key}-{self._flushed}")
        self._events, self._size = [], 0
        self._flushed += 1
        return sent


class FeedReading:
    """Changes of a view. After a break it continues right after the last one: no gap, no repeat."""

    def __init__(
        self, view: str, *, after: str | None = None, snapshot: bool = False, from_beginning: bool = False
    ) -> None:
        self._view, self.last_id = view, after
        self._snapshot, self._beginning = snapshot, from_beginning
        self.failures = 0

    def call(self) -> Call:
        query: dict[str, Any] = {"after": self.last_id}
        if self.last_id is None:
            query |= {"snapshot": self._snapshot or None, "from": "beginning" if self._beginning else None}
        headers = {"accept": "application/x-ndjson"}
        return Call("GET", f"/v1/views/{quote(self._view, safe='')}/feed", query, headers=headers, repeat="always")

    def take(self, line: str) -> Change | None:
        """A line of the feed; None if it is no change. Raises what the server says went wrong."""
        if not line.strip():
            return None
        event = json.loads(line)
        self.failures = 0
        if event.get("id") is not None:
            self.last_id = event["id"]
        match event["event"]:
            case "change":
                return msgspec.convert(event["data"] | {"id": event.get("id")}, ready(Change))
            case "error":
                raise error_from_json(event["data"]["error"])
            case _:
                return None

    def failed(self, error: HeadraceError) -> None:
        self.failures += 1

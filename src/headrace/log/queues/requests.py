"""Request and reply over topics: a request carries a correlation id and the name of a reply topic; whoever answers
writes a record with the same id there.

One thread follows the reply topics somebody waits on, and nothing else; it rests while nobody does."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from headrace.errors import HeadraceError, NotFound, OffsetOutOfRange, Overloaded
from headrace.log.base import HEADERS, Log, Snapshot
from headrace.log.codecs.event_json import records_to_json

CORRELATION = "correlation-id"
REPLY_TO = "reply-to"
WAIT_S = 0.25
MAX_WAITING = 10_000

logger = logging.getLogger("headrace.requests")


@dataclass(slots=True)
class _Followed:
    """A reply topic, where it was read to, and who waits for what."""

    topic_id: int
    offsets: dict[int, int]
    waiting: dict[str, Future[dict[str, Any]]] = field(default_factory=dict)


class Requests:
    """Safe to use from several threads."""

    def __init__(self, log: Log, max_waiting: int = MAX_WAITING) -> None:
        self._log, self._max_waiting = log, max_waiting
        self._lock = threading.Lock()
        self._followed: dict[str, _Followed] = {}
        self._wanted = threading.Event()
        self._closed = False
        self._thread: threading.Thread | None = None

    def expect(self, reply_topic: str, correlation: str) -> Future[dict[str, Any]]:
        """The reply with this id, as the HTTP API shows a record. Call it before the request is sent: only what comes
        from now on is looked at. Cancel the future to stop waiting. `Overloaded` if too many wait."""
        topic = self._log.topic(reply_topic)
        with self._lock:
            if sum(len(followed.waiting) for followed in self._followed.values()) >= self._max_waiting:
                raise Overloaded(f"{self._max_waiting} requests are waiting for replies already", retry_after=1.0)
            followed = self._followed.get(reply_topic)
            if followed is None or followed.topic_id != topic.id:
                ends = self._log.snapshot().ends[reply_topic]
                offsets = {number: end.end for number, end in enumerate(ends)}
                followed = self._followed[reply_topic] = _Followed(topic.id, offsets)
            reply: Future[dict[str, Any]] = Future()
            followed.waiting[correlation] = reply
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="headrace-replies", daemon=True)
                self._thread.start()
            self._wanted.set()
        reply.add_done_callback(lambda _: self._forget(reply_topic, correlation))
        return reply

    def close(self) -> None:
        self._closed = True
        self._wanted.set()
        if self._thread is not None:
            self._thread.join()

    def _forget(self, topic: str, correlation: str) -> None:
        with self._lock:
            followed = self._followed.get(topic)
            if followed is not None:
                followed.waiting.pop(correlation, None)
                if not followed.waiting:
                    del self._followed[topic]
            if not self._followed:
                self._wanted.clear()

    def _run(self) -> None:
        seen = -1
        pause = threading.Event()
        while not self._closed:
            self._wanted.wait()
            try:
                snapshot = self._log.wait(seen, WAIT_S)
                # Read what there is even if nothing is new: who began to wait just now may have been answered already.
                self._read_all(snapshot)
                seen = snapshot.arrival
            except HeadraceError as error:
                logger.warning("replies cannot be read now: %s", error)
                pause.wait(WAIT_S)

    def _read_all(self, snapshot: Snapshot) -> None:
        with self._lock:
            followed = list(self._followed.items())
        for name, one in followed:
            for event in self._news(name, one, snapshot):
                correlation = (event["headers"] or {}).get(CORRELATION)
                reply = one.waiting.get(correlation) if isinstance(correlation, str) else None
                if reply is not None and reply.set_running_or_notify_cancel():
                    reply.set_result(event)

    def _news(self, name: str, followed: _Followed, snapshot: Snapshot) -> Iterator[dict[str, Any]]:
        for number, ends in enumerate(snapshot.ends.get(name, ())):
            start = max(followed.offsets.get(number, ends.start), ends.start)
            if start >= ends.end:
                continue
            followed.offsets[number] = ends.end
            try:
                topic = self._log.topic(name)
                for records in self._log.read(name, number, start, ends.end):
                    # Most replies are for others: look at the headers before anything else is decoded.
                    if records.batch.column(HEADERS).null_count < records.batch.num_rows:
                        yield from records_to_json(records, topic)
            except (OffsetOutOfRange, NotFound):
                continue

"""Batches of events → the log, one after the other, with progress and with errors by line."""

from __future__ import annotations

import contextlib
import queue
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from headrace.cli.backend import Backend
from headrace.cli.event_texts import Found
from headrace.cli.output import duration
from headrace.errors import DeadlineExceeded, Disconnected, NotRunning, Overloaded, OwnerLost, TooLarge

BATCH_BYTES = 1_000_000
"""Less than an event may have: a larger body is looked through for events that are too large."""
SHOWN_ERRORS = 20
KEPT = 1000
"""Events that were not sent, for the answer of whoever does not keep all."""
PATIENCE_S = 60.0
LOOK_S = 0.5
READ_AHEAD = 4
AWAY = (NotRunning, Disconnected, OwnerLost)


class Batch(Protocol):
    """Events that are sent at once, in their order."""

    @property
    def texts(self) -> Sequence[bytes]: ...
    def place(self, index: int) -> str: ...


B = TypeVar("B", bound=Batch)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class FoundBatch:
    events: list[Found]

    @property
    def texts(self) -> list[bytes]:
        return [event.text for event in self.events]

    def place(self, index: int) -> str:
        return self.events[index].place


def batches(events: Iterable[Found], most: int) -> Iterator[FoundBatch]:
    batch: list[Found] = []
    size = 0
    for event in events:
        if batch and size + len(event.text) > BATCH_BYTES:
            yield FoundBatch(batch)
            batch, size = [], 0
        batch.append(event)
        size += len(event.text)
        # At once: the next one may be long in coming.
        if len(batch) >= most:
            yield FoundBatch(batch)
            batch, size = [], 0
    if batch:
        yield FoundBatch(batch)


def ahead(items: Iterable[T], most: int = READ_AHEAD) -> Iterator[T]:
    """The same items in the same order, made by another thread while those before are used.

    >>> list(ahead(iter("abc")))
    ['a', 'b', 'c']
    """
    made: queue.Queue[tuple[str, Any]] = queue.Queue(most)
    over = threading.Event()

    def hand_over(kind: str, what: Any) -> None:
        while not over.is_set():
            with contextlib.suppress(queue.Full):
                made.put((kind, what), timeout=LOOK_S)
                return

    def make() -> None:
        try:
            for item in items:
                hand_over("item", item)
                if over.is_set():
                    return
            hand_over("end", None)
        except BaseException as error:
            hand_over("error", error)

    thread = threading.Thread(target=make, name="read-ahead", daemon=True)
    thread.start()
    try:
        while True:
            kind, what = made.get()
            if kind == "end":
                return
            if kind == "error":
                raise what
            yield what
    finally:
        over.set()
        thread.join(PATIENCE_S)


def how_far(sent: int, seconds: float, before: float | None, now: float | None) -> str:
    """What to show while sending; `before` and `now` are the shares of everything at the beginning and now.

    >>> how_far(5000, 2.0, None, None)
    '5,000 events  2,500/s'
    >>> how_far(5000, 2.0, 0.5, 0.6)
    '5,000 events  2,500/s  60%  8 seconds left'
    """
    text = f"{sent:,} events  {sent / max(0.001, seconds):,.0f}/s"
    if before is None or now is None or now <= before:
        return text
    return f"{text}  {now:.0%}  {duration(seconds * (1 - now) / (now - before))} left"


@dataclass(slots=True)
class Sender(Generic[B]):
    """Sends batch after batch, and gathers what became of them. One batch is under way at a time: two might change
    places, and events that come after later ones may be late for their windows."""

    backend: Backend
    topic: str
    key: str | None
    quiet: bool = False
    keeps: bool = True
    """Whether every rejection and position is kept; else they are only counted and said."""
    sent: int = 0
    accepted: int = 0
    duplicates: int = 0
    rejections: int = 0
    shed: int = 0
    unsent: int = 0
    """Events that are larger than the server takes a request."""
    not_sent: list[dict[str, Any]] = field(default_factory=list)
    """Which those are; the first of them if not everything is kept."""
    rejected: list[dict[str, Any]] = field(default_factory=list)
    positions: list[Any] = field(default_factory=list)
    token: str | None = None
    """What `headrace sql --after` takes, to include all that was sent."""
    acknowledged: Callable[[B], None] = lambda batch: None
    """Called after each batch that the log has."""
    refused: Callable[[B, int], None] = lambda batch, index: None
    """Called with each event that was not sent."""
    share: Callable[[B], float | None] = lambda batch: None
    """How much of everything is sent with this batch, from 0 to 1, for whoever knows."""

    @property
    def answer(self) -> dict[str, Any]:
        return {
            "accepted": self.accepted,
            "duplicates": self.duplicates,
            "rejected": self.rejected,
            "not_sent": self.not_sent,
            "shed": self.shed,
            "positions": self.positions,
            "token": self.token,
        }

    @property
    def failed(self) -> bool:
        """Whether something is not in the log that was to be. What was shed was not to be."""
        return bool(self.rejections or self.unsent)

    def send(self, batches: Iterable[B]) -> None:
        from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        from headrace.cli.output import console

        columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
        target = console(stderr=True)
        key = self.key or uuid.uuid4().hex
        with Progress(*columns, console=target, transient=True, disable=self.quiet or not target.is_terminal) as bar:
            task = bar.add_task("0 events", total=None)
            started, before = time.monotonic(), None
            for number, batch in enumerate(batches):
                # The first batch has the plain key, so that few events are the same however they are sent.
                self._send(batch, 0, batch.texts, key if number == 0 else f"{key}/{number}")
                self.sent += len(batch.texts)
                self.acknowledged(batch)
                if number == 0:
                    started, before = time.monotonic(), self.share(batch)
                text = how_far(self.sent, time.monotonic() - started, before, self.share(batch))
                bar.update(task, description=text)

    def _send(self, batch: B, first: int, texts: Sequence[bytes], key: str) -> None:
        """What is too much for one request is sent in two, and an event that is too much alone is said."""
        try:
            answer = self._patiently(b"\n".join(texts), key)
        except (TooLarge, DeadlineExceeded) as error:
            if len(texts) > 1:
                middle = len(texts) // 2
                self._send(batch, first, texts[:middle], f"{key}/a")
                self._send(batch, first + middle, texts[middle:], f"{key}/b")
                return
            reason = f"{error.message}; see [server] max_body_bytes"
            self._left_out(batch, first, len(texts[0]), reason)
            return
        self.accepted += answer.get("accepted", 0)
        self.duplicates += answer.get("duplicates", 0)
        self.shed += answer.get("shed", 0)
        if self.keeps:
            self.positions += answer.get("positions", [])
        # Imported here: it brings an HTTP library, which commands that send nothing do without.
        from headrace.client.operations import merge_tokens

        self.token = merge_tokens(self.token, answer.get("token"))
        for one in answer.get("rejected", []):
            self._rejected(one, batch, first + one["index"])

    def _left_out(self, batch: B, index: int, size: int, reason: str) -> None:
        self.unsent += 1
        place = batch.place(index)
        if self.keeps or len(self.not_sent) < KEPT:
            self.not_sent.append({"index": self.sent + index, "place": place, "bytes": size, "reason": reason})
        self._say(self.unsent, f"{place} was not sent, it has {size:,} bytes: {reason}")
        self.refused(batch, index)

    def _rejected(self, one: dict[str, Any], batch: B, index: int) -> None:
        self.rejections += 1
        place = batch.place(index)
        if self.keeps:
            self.rejected.append(one | {"index": self.sent + index, "place": place})
        if self.rejections == SHOWN_ERRORS + 1:
            self._say(0, f"more are rejected; all are dead letters:  headrace dlq list {self.topic}")
        self._say(self.rejections, f"{place} was rejected: {one['reason']}")

    def _say(self, number: int, text: str) -> None:
        if not self.quiet and number <= SHOWN_ERRORS:
            print(f"  {text}", file=sys.stderr)

    def _patiently(self, body: bytes, key: str) -> dict[str, Any]:
        """A busy server is asked again, and one that is being restarted. The batch has its key, so it lands once."""
        deadline = time.monotonic() + PATIENCE_S
        waiting = False
        while True:
            try:
                return self.backend.put(self.topic, body, key)
            except (Overloaded, *AWAY) as error:
                pause = error.retry_after if isinstance(error, Overloaded) else LOOK_S
                if time.monotonic() + pause > deadline:
                    raise
                if isinstance(error, AWAY) and not waiting:
                    waiting = True
                    self._say(0, f"{error.message}; waiting for it, {duration(PATIENCE_S)} at most")
                time.sleep(pause)

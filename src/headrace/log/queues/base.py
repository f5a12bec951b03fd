"""What a queue promises.

A queue is a way to read a topic: every record goes to one receiver, who has it for the length of a *lease* and must
acknowledge it. The topic stays what it is; other readers do not notice.

- A record that is not acknowledged before its lease ends, or is refused (`nack`), is delivered again, with its delivery
  count; after `max_deliveries` it becomes a dead letter, with the reason and its original bytes. At least once: a
  receiver that acknowledges too late may find that somebody else has the record (`lost`).
- Order is not promised. With `order="key"`, a record is not delivered before those of the same key in its partition
  that came earlier are acknowledged or dead.
- `ack`, `nack`, `extend` and the deliveries themselves are durable before the call returns: a kill -9 forgets none, and
  leases go on. A record is therefore never delivered more than `max_deliveries` times. What a failed call did is
  unknown, as always; all of them may be repeated.
- Memory is bounded by `max_unsettled` records that are neither acknowledged nor untouched, whatever the topic's length:
  when so many are out, `receive` gives nothing new.
- One process at a time serves the queues of a log: the server, or the command that owns the log.

The state is on the compacted topic `_queues`; `state` says how. A queue's topic may be compacted or lose its oldest
records to retention: what is gone before it was delivered is skipped, and counted in `missing`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from headrace.errors import UsageError
from headrace.log.base import Append, Start

MAX_LEASE_S = 12 * 3600.0


@dataclass(frozen=True, slots=True)
class QueueDefinition:
    name: str
    topic: str
    lease_s: float = 30.0
    """How long a receiver has a message, unless it asks for another time."""
    max_deliveries: int = 5
    """After so many it is a dead letter; 0: never."""
    order: Literal["none", "key"] = "none"
    start: Start = "earliest"
    max_unsettled: int = 10_000
    id: str = ""
    """Given when the queue is made: receipts of another queue of the same name are not this one's."""
    topic_id: int = 0

    def check(self) -> None:
        if not 0 < len(self.name) <= 200 or not all(char.isalnum() or char in "._-" for char in self.name):
            raise UsageError(
                f"`{self.name[:100]}` is not a queue's name",
                hint="letters, digits, dot, underscore and minus, up to 200",
            )
        if not 0 < self.lease_s <= MAX_LEASE_S:
            raise UsageError(f"a lease lasts up to {MAX_LEASE_S:g} s, got `{self.lease_s:g}`")
        if not 0 <= self.max_deliveries <= 1000:
            raise UsageError(f"`max_deliveries` is 0 (no limit) to 1000, got `{self.max_deliveries}`")
        if not 1 <= self.max_unsettled <= 1_000_000:
            raise UsageError(f"`max_unsettled` is 1 to 1000000, got `{self.max_unsettled}`")


@dataclass(frozen=True, slots=True)
class Message:
    receipt: str
    """What to acknowledge it with. Another delivery has another."""
    deliveries: int
    """Which delivery this is, from 1."""
    event: dict[str, Any]
    """The record as the HTTP API shows it."""
    size: int


@dataclass(frozen=True, slots=True)
class Settled:
    """What became of receipts."""

    done: int
    lost: tuple[str, ...] = ()
    """Those whose message is somebody else's by now, or never was."""


@dataclass(frozen=True, slots=True)
class QueueStats:
    ready: int
    """Could be received now, or as soon as those before them are settled."""
    leased: int
    delayed: int
    dead: int
    """Dead letters since this process serves the queue."""
    missing: int
    next_due_s: float | None
    """When the next lease or delay ends."""


@dataclass(frozen=True, slots=True)
class Spent:
    """A message that is given up."""

    queue: str
    topic: str
    partition: int
    offset: int
    deliveries: int
    reason: str
    event_id: str | None
    payload: bytes


Bury = Callable[[Sequence[Spent]], Append]
"""Makes the append that keeps dead letters; it becomes part of the same atomic write as the queue's state."""

"""`memory`: fast, and gone with the process."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from headrace.collect.agents.base import Channel, ChannelFull, Counters, Event, Transaction
from headrace.collect.agents.channels.room import TAKE_BYTES, Room
from headrace.collect.agents.options import ComponentKind, Context, Option, Options

BYTE_CAPACITY = 256 * 1024 * 1024


class MemoryChannel(Channel):
    def __init__(
        self,
        name: str,
        counters: Counters,
        capacity: int = 100,
        transaction_capacity: int = 100,
        byte_capacity: int = BYTE_CAPACITY,
        patience_s: float = 3.0,
    ) -> None:
        self.name, self.counters, self.transaction_capacity = name, counters, transaction_capacity
        self.room = Room(name, capacity, byte_capacity or None, patience_s)
        self.events: deque[Event] = deque()

    def transaction(self) -> Transaction:
        return MemoryTransaction(self)

    def size(self) -> int:
        return self.room.events

    def capacity(self) -> int:
        return self.room.capacity

    def wake(self) -> None:
        self.room.wake()


class MemoryTransaction(Transaction):
    """Put events wait here, with their room reserved, until the commit; taken ones are kept until then, to go back."""

    def __init__(self, channel: MemoryChannel) -> None:
        self._channel = channel
        self._put: list[Event] = []
        self._put_bytes = 0
        self._taken: list[Event] = []

    def put(self, events: Sequence[Event]) -> None:
        channel = self._channel
        channel.counters.add("EventPutAttemptCount", len(events))
        check_transaction(channel, len(self._put) + len(events))
        size = self._size(events)
        channel.room.reserve(len(events), size)
        self._put += events
        self._put_bytes += size

    def _size(self, events: Sequence[Event]) -> int:
        """One that is larger than the channel has it for itself."""
        most = self._channel.room.byte_capacity
        return sum(len(event.body) if most is None else min(len(event.body), most) for event in events)

    def take(self, most: int) -> list[Event]:
        channel, room = self._channel, self._channel.room
        channel.counters.add("EventTakeAttemptCount")
        most = min(most, channel.transaction_capacity - len(self._taken))
        with room.changed:
            if not channel.events and not room.stopping:
                room.changed.wait(min(room.patience_s, 0.5))
            popleft = channel.events.popleft
            found: list[Event] = []
            size = 0
            while channel.events and len(found) < most and size < TAKE_BYTES:
                found.append(popleft())
                size += len(found[-1].body)
        self._taken += found
        return found

    def commit(self) -> None:
        channel, room = self._channel, self._channel.room
        if self._put:
            with room.changed:
                channel.events.extend(self._put)
                room.changed.notify_all()
            channel.counters.add("EventPutSuccessCount", len(self._put))
        if self._taken:
            room.release(len(self._taken), self._size(self._taken))
            channel.counters.add("EventTakeSuccessCount", len(self._taken))
        self._put, self._taken = [], []

    def rollback(self) -> None:
        room = self._channel.room
        if self._put:
            room.release(len(self._put), self._put_bytes)
        if self._taken:
            with room.changed:
                self._channel.events.extendleft(reversed(self._taken))
                room.changed.notify_all()
        self._put, self._taken = [], []


def check_transaction(channel: Channel, events: int) -> None:
    if events > channel.transaction_capacity:
        raise ChannelFull(
            f"a transaction of {events} events is more than the {channel.transaction_capacity} that channel "
            f"`{channel.name}` takes at once",
            hint="raise its `transactionCapacity`, or make the batches smaller",
        )


def check_capacities(options: Options) -> Iterable[tuple[str, str, str | None]]:
    capacity, transaction = options.integer("capacity"), options.integer("transactionCapacity")
    if transaction > capacity:
        yield (
            "transactionCapacity",
            f"`transactionCapacity` {transaction} is more than `capacity` {capacity}",
            "a transaction must fit into the channel: raise `capacity`",
        )


def _make(context: Context) -> MemoryChannel:
    options = context.options
    usable = 1 - options.integer("byteCapacityBufferPercentage") / 100
    return MemoryChannel(
        context.name,
        context.counters,
        options.integer("capacity"),
        options.integer("transactionCapacity"),
        int(options.integer("byteCapacity") * usable),
        options.number("keep-alive"),
    )


KIND = ComponentKind(
    "channel",
    ("memory", "org.apache.flume.channel.MemoryChannel"),
    "Events wait in memory: fast, and lost when the process is killed.",
    _make,
    (
        Option("capacity", "integer", 100, "Most events.", least=1),
        Option("transactionCapacity", "integer", 100, "Most events of one transaction.", least=1),
        Option("byteCapacity", "integer", BYTE_CAPACITY, "Most bytes of bodies; 0 is no limit.", least=0),
        Option(
            "byteCapacityBufferPercentage", "integer", 20, "Share of `byteCapacity` kept free for headers.", least=0
        ),
        Option("keep-alive", "number", 3.0, "Seconds a put waits for room, before the source tries again.", least=0),
    ),
    check_capacities,
)

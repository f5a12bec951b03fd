"""A queue: receive, acknowledge, refuse, extend. See `base` for what it promises.

Changes happen in memory under a lock and are handed to the log in the same order; the caller waits for the log without
the lock, so that many receivers share its syncs. Only giving a message up waits inside: its dead letter and its end
must be one."""

from __future__ import annotations

import heapq
import itertools
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any

from headrace.clock import Clock
from headrace.errors import Gone, HeadraceError, NotFound, UsageError
from headrace.log.base import Appended, Log, PartitionEnds, Topic
from headrace.log.codecs.json_encode import to_json
from headrace.log.queues.base import MAX_LEASE_S, Bury, Message, QueueDefinition, QueueStats, Settled, Spent
from headrace.log.queues.lane import Lane
from headrace.log.queues.reading import key_hashes, payload_of, read_events
from headrace.log.queues.state import Key, append_state

MAX_REASON = 500
LEAST_TO_TIDY = 1000
BURY_AGAIN_S = 1.0
REMEMBERED = 1000
"""How many of those given up are remembered, to say so to whoever acknowledges one too late."""


class Queue:
    """Safe to use from several threads."""

    def __init__(self, log: Log, clock: Clock, definition: QueueDefinition, bury: Bury, lanes: dict[int, Lane]) -> None:
        self.definition = definition
        self._log, self._clock, self._bury = log, clock, bury
        self._lock = threading.Lock()
        self._lanes = lanes
        self._timers: list[tuple[float, int, int]] = []
        self._tidy_at = LEAST_TO_TIDY
        self._ready: deque[tuple[int, int]] = deque()
        self._dead = self._missing = 0
        self._given_up: deque[tuple[int, int]] = deque(maxlen=REMEMBERED)
        for lane in lanes.values():
            self._resume(lane)

    # The four things to do with it

    def receive(self, limit: int = 1, lease_s: float | None = None, max_bytes: int = 4 * 1024 * 1024) -> list[Message]:
        """Up to `limit` messages, at once; none if there are none. They are this caller's until the lease ends."""
        lease = self._lease(lease_s)
        with self._lock:
            self._sweep()
            now = self._clock.monotonic()
            messages = self._take(limit, max_bytes, now + lease)
            saved = self._save()
        if saved is not None:
            saved.result()
        return messages

    def ack(self, receipts: Sequence[str]) -> Settled:
        """These are done. Saying it twice is fine."""

        def settle(lane: Lane, offset: int) -> None:
            self._settle(lane, offset)

        return self._for_each(receipts, settle, settled_is_fine=True)

    def nack(self, receipts: Sequence[str], delay_s: float = 0.0, reason: str | None = None) -> Settled:
        """These could not be done: again after `delay_s`, or a dead letter if that was the last time."""
        if not 0 <= delay_s <= MAX_LEASE_S:
            raise UsageError(f"a delay is 0 to {MAX_LEASE_S:g} s, got `{delay_s:g}`")
        due = self._clock.monotonic() + delay_s

        def refuse(lane: Lane, offset: int) -> None:
            lane.put_back(offset, due, (reason or "refused")[:MAX_REASON])
            self._set_timer(lane, offset)

        settled = self._for_each(receipts, refuse)
        self.sweep()
        return settled

    def extend(self, receipts: Sequence[str], lease_s: float | None = None) -> Settled:
        """Keep these for another lease, from now."""
        until = self._clock.monotonic() + self._lease(lease_s)

        def keep(lane: Lane, offset: int) -> None:
            lane.extend(offset, until)
            self._set_timer(lane, offset)

        return self._for_each(receipts, keep)

    def sweep(self) -> None:
        """Give up what was delivered too often. `receive` does it too; this is for queues that nobody receives from."""
        with self._lock:
            self._sweep()

    def stats(self) -> QueueStats:
        with self._lock:
            now = self._clock.monotonic()
            ends = self._ends()
            outs = [out for lane in self._lanes.values() for out in lane.out.values()]
            leased = sum(out.leased and out.due > now for out in outs)
            delayed = sum(not out.leased and out.due > now for out in outs)
            ready = sum(self._unsettled(number, end) for number, end in enumerate(ends)) - leased - delayed
            due = min((out.due for out in outs if out.due > now), default=None)
            return QueueStats(
                max(0, ready), leased, delayed, self._dead, self._missing, None if due is None else max(0.0, due - now)
            )

    def due_after(self, moment: float) -> float | None:
        """Seconds until the first lease or delay ends that had not ended at a moment of the clock; 0 if it has since:
        whoever looked then has not seen what it sets free."""
        with self._lock:
            outs = (out for lane in self._lanes.values() for out in lane.out.values())
            due = min((out.due for out in outs if out.due > moment), default=None)
            return None if due is None else max(0.0, due - self._clock.monotonic())

    def check(self) -> None:
        """`Gone` if its topic is."""
        self._topic()

    def heads(self) -> dict[int, int]:
        """Where new messages would come from: whoever waits for some waits for records from there on."""
        with self._lock:
            return {number: lane.head for number, lane in self._lanes.items()}

    # Receiving

    def _take(self, limit: int, max_bytes: int, until: float) -> list[Message]:
        topic = self._topic()
        messages: list[Message] = []
        while len(messages) < limit:
            wanted = list(itertools.islice(self._candidates(limit), limit - len(messages)))
            wanted.sort(key=lambda one: (one[0].partition, one[1]))
            left = deque(wanted)
            try:
                full = self._deliver(topic, left, messages, max_bytes, until)
            except HeadraceError:
                # Damage, say. What was read before it is good; who asks next is told.
                if not messages:
                    raise
                full = True
            finally:
                self._ready.extendleft((lane.partition, offset) for lane, offset in reversed(left))
            if full or not wanted:
                break
        return messages

    def _deliver(
        self, topic: Topic, left: deque[tuple[Lane, int]], messages: list[Message], max_bytes: int, until: float
    ) -> bool:
        """Turn those left into messages, one after the other; whether that is all that fits."""
        size = sum(message.size for message in messages)
        for lane, offset, event in self._read(topic, list(left)):
            if event is None:
                self._missing += self._was_there(topic, lane.partition, offset)
                self._settle(lane, offset)
            else:
                length = len(to_json(event))
                if messages and size + length > max_bytes:
                    return True
                size += length
                out = lane.deliver(offset, until)
                self._set_timer(lane, offset)
                messages.append(Message(self._receipt(lane, offset, out.deliveries), out.deliveries, event, length))
            left.popleft()
        return False

    def _was_there(self, topic: Topic, partition: int, offset: int) -> bool:
        """Whether a message is missing, or there was none: of Kafka's offsets some are marks of transactions."""
        counted = "counted" in self._log.capabilities or topic.spec.config.compacted
        return counted or offset < self._ends()[partition].start

    def _read(self, topic: Topic, wanted: list[tuple[Lane, int]]) -> Iterator[tuple[Lane, int, dict[str, Any] | None]]:
        """Each with its event, None where that is gone. Read as far as somebody asks, neighbours together."""
        for partition, group in itertools.groupby(wanted, key=lambda one: one[0].partition):
            lane, offsets = self._lanes[partition], [offset for _, offset in group]
            events = read_events(self._log, topic, lane.partition, offsets)
            event = next(events, None)
            for offset in offsets:
                while event is not None and event["offset"] < offset:
                    event = next(events, None)
                yield lane, offset, event if event is not None and event["offset"] == offset else None

    def _candidates(self, limit: int) -> Iterator[tuple[Lane, int]]:
        """What may be delivered now: again first, then anew."""
        while self._ready:
            partition, offset = self._ready.popleft()
            lane = self._lanes[partition]
            if offset in lane.out:
                yield lane, offset
        for number, ends in enumerate(self._ends()):
            lane = self._lane(number, ends)
            yield from self._untouched(lane, ends.end, limit)

    def _lane(self, number: int, ends: PartitionEnds) -> Lane:
        """A partition that was not there when the queue was made is new as a whole; what retention took is skipped."""
        lane = self._lanes.get(number)
        if lane is None:
            ordered = self.definition.order == "key"
            lane = self._lanes[number] = Lane(self.definition.name, number, ends.start, ordered)
        missing, following = lane.skip_below(ends.start)
        self._missing += missing
        self._ready.extend((number, offset) for offset in following)
        return lane

    def _untouched(self, lane: Lane, end: int, limit: int) -> Iterator[tuple[Lane, int]]:
        """Offsets nobody has looked at, up to the end or until too many are unsettled."""
        while True:
            start = self._next_untouched(lane)
            room = self.definition.max_unsettled - self._unsettled_now()
            if start >= end or room <= 0:
                return
            stop = min(end, start + min(room, max(limit, 1)), lane.done.next_taken(start) or end)
            offsets = list(itertools.takewhile(lambda offset: offset not in lane.out, range(start, stop)))
            keys = key_hashes(self._log, self._topic(), lane.partition, offsets) if lane.ordered else {}
            # One by one: what the caller does not take has not been looked at.
            for offset in offsets:
                if lane.look_at(offset, keys.get(offset)):
                    yield lane, offset

    def _next_untouched(self, lane: Lane) -> int:
        offset = lane.done.next_free(lane.head)
        while offset in lane.out:
            offset = lane.done.next_free(offset + 1)
        return offset

    def _resume(self, lane: Lane) -> None:
        """After a restart: timers for what is out and, with order, what of each key is unsettled."""
        if lane.ordered and lane.out:
            last = max(lane.out)
            offsets = list(self._unsettled_offsets(lane, last + 1))
            keys = key_hashes(self._log, self._topic(), lane.partition, offsets)
            for offset in offsets:
                may = lane.look_at(offset, keys.get(offset))
                if may and not lane.out[offset].deliveries:
                    self._ready.append((lane.partition, offset))
        for offset, out in lane.out.items():
            if out.deliveries:
                self._set_timer(lane, offset)

    def _unsettled_offsets(self, lane: Lane, end: int) -> Iterator[int]:
        offset = lane.done.next_free(lane.floor)
        while offset < end:
            yield offset
            offset = lane.done.next_free(offset + 1)

    # Settling

    def _for_each(
        self, receipts: Iterable[str], do: Callable[[Lane, int], None], settled_is_fine: bool = False
    ) -> Settled:
        lost: list[str] = []
        done = 0
        with self._lock:
            for receipt in receipts:
                lane, offset, deliveries = self._parse(receipt)
                out = lane.out.get(offset) if lane else None
                if lane and out and out.deliveries == deliveries:
                    do(lane, offset)
                    done += 1
                elif lane and settled_is_fine and self._is_acknowledged(lane, offset):
                    done += 1
                else:
                    lost.append(receipt)
            saved = self._save()
        if saved is not None:
            saved.result()
        return Settled(done, tuple(lost))

    def _is_acknowledged(self, lane: Lane, offset: int) -> bool:
        settled = offset < lane.floor or offset in lane.done
        return settled and (lane.partition, offset) not in self._given_up

    def _settle(self, lane: Lane, offset: int) -> None:
        following = lane.settle(offset)
        if following is not None:
            self._ready.append((lane.partition, following))

    def _sweep(self) -> None:
        """What is due again becomes ready, or is given up."""
        now = self._clock.monotonic()
        spent: list[tuple[Lane, int]] = []
        while self._timers and self._timers[0][0] <= now:
            due, partition, offset = heapq.heappop(self._timers)
            if not self._is_set(due, partition, offset):
                continue  # settled or extended since
            if 0 < self.definition.max_deliveries <= self._lanes[partition].out[offset].deliveries:
                spent.append((self._lanes[partition], offset))
            else:
                self._ready.append((partition, offset))
        if spent:
            try:
                self._give_up(spent)
            except Exception:
                # Nothing of it was written, so nothing of it has happened; in a moment it is tried again.
                for lane, offset in spent:
                    lane.out[offset].due, lane.out[offset].leased = now + BURY_AGAIN_S, False
                    self._set_timer(lane, offset)
                raise

    def _give_up(self, spent: list[tuple[Lane, int]]) -> None:
        """Dead letters and the end of their messages, in one write, before anybody else changes anything."""
        topic = self._topic()
        letters = [letter for lane, offset in spent for letter in self._letters(topic, lane, offset)]
        before = [(lane, offset, lane.out[offset]) for lane, offset in spent]
        for lane, offset in spent:
            self._settle(lane, offset)
        try:
            appends = [self._bury(letters)] if letters else []
            self._log.append([*appends, append_state(self._changes())]).result()
        except Exception:
            for lane, offset, out in before:
                lane.unsettle(offset, out)
            self._ready = deque(place for place in self._ready if self._lanes[place[0]].may_go(place[1]))
            raise
        self._dead += len(letters)
        self._given_up.extend((lane.partition, offset) for lane, offset in spent)

    def _letters(self, topic: Topic, lane: Lane, offset: int) -> Iterator[Spent]:
        out = lane.out[offset]
        why = f": {out.reason}" if out.reason else ", the last time until its lease ended"
        times = f"{out.deliveries} time{'s' * (out.deliveries != 1)}"
        for event in read_events(self._log, topic, lane.partition, [offset]):
            yield Spent(
                self.definition.name,
                topic.name,
                lane.partition,
                offset,
                out.deliveries,
                f"delivered {times} by queue `{self.definition.name}` without being acknowledged{why}",
                event["id"],
                payload_of(event, topic),
            )

    # Details

    def _save(self) -> Future[list[Appended]] | None:
        entries = self._changes()
        return self._log.append([append_state(entries)]) if entries else None

    def _changes(self) -> list[tuple[Key, Any]]:
        now, now_ms = self._clock.monotonic(), self._clock.now_ms()
        return [entry for lane in self._lanes.values() for entry in lane.changes(now, now_ms)]

    def _set_timer(self, lane: Lane, offset: int) -> None:
        heapq.heappush(self._timers, (lane.out[offset].due, lane.partition, offset))
        if len(self._timers) > self._tidy_at:
            # What was settled and leases that were extended leave their old timers behind.
            self._timers = [timer for timer in self._timers if self._is_set(*timer)]
            heapq.heapify(self._timers)
            self._tidy_at = LEAST_TO_TIDY + 4 * len(self._timers)

    def _is_set(self, due: float, partition: int, offset: int) -> bool:
        out = self._lanes[partition].out.get(offset)
        return out is not None and out.due == due

    def _topic(self) -> Topic:
        try:
            topic = self._log.topic(self.definition.topic)
        except NotFound:
            topic = None
        if topic is None or topic.id != self.definition.topic_id:
            raise Gone(
                f"the topic `{self.definition.topic}` of queue `{self.definition.name}` was deleted",
                hint="delete the queue, and make it again if the topic was",
            )
        return topic

    def _ends(self) -> tuple[PartitionEnds, ...]:
        return self._log.snapshot().ends.get(self.definition.topic, ())

    def _unsettled_now(self) -> int:
        return sum(len(lane.out) for lane in self._lanes.values())

    def _unsettled(self, number: int, ends: PartitionEnds) -> int:
        lane = self._lanes.get(number)
        if lane is None:
            return ends.end - ends.start
        low = max(lane.floor, ends.start)
        return max(0, ends.end - low - sum(high - start for start, high in lane.done.within(low, ends.end)))

    def _lease(self, lease_s: float | None) -> float:
        lease = self.definition.lease_s if lease_s is None else lease_s
        if not 0 < lease <= MAX_LEASE_S:
            raise UsageError(f"a lease lasts up to {MAX_LEASE_S:g} s, got `{lease:g}`")
        return lease

    def _receipt(self, lane: Lane, offset: int, deliveries: int) -> str:
        return f"{self.definition.id}.{lane.partition}.{offset}.{deliveries}"

    def _parse(self, receipt: str) -> tuple[Lane | None, int, int]:
        parts = receipt.split(".")
        digits = "".join(parts[1:])
        if len(receipt) > 100 or len(parts) != 4 or not all(parts[1:]) or not (digits.isascii() and digits.isdecimal()):
            raise UsageError(f"`{receipt[:40]}` is not a receipt", hint="give back the `receipt` of a message")
        lane = self._lanes.get(int(parts[1])) if parts[0] == self.definition.id else None
        return lane, int(parts[2]), int(parts[3])

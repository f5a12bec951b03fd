"""All queues of a log: made, found, deleted. Their state is folded once, when they are opened."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator
from dataclasses import replace

import msgspec

from headrace.clock import Clock
from headrace.errors import Conflict, HeadraceError, NotFound, Refused
from headrace.log.base import Log
from headrace.log.queues.base import Bury, QueueDefinition
from headrace.log.queues.lane import Lane
from headrace.log.queues.ownership import Ownership
from headrace.log.queues.queue import Queue
from headrace.log.queues.state import (
    QUEUES_SPEC,
    QUEUES_TOPIC,
    Key,
    append_state,
    definition_key,
    definition_value,
    floor_key,
    read_chunk,
    read_definition,
    read_state,
)

__all__ = ["QUEUES_TOPIC", "Queues"]


class Queues:
    """Safe to use from several threads. Makes its topic if it is not there."""

    def __init__(self, log: Log, clock: Clock, bury: Bury) -> None:
        self._log, self._clock, self._bury = log, clock, bury
        self._lock = threading.Lock()
        log.create_topic(QUEUES_SPEC)
        self._ownership = Ownership(log, clock)
        state = read_state(log)
        self._queues = {
            definition.name: self._open(definition, state)
            for key, value in state.items()
            if key[0] == "q"
            for definition in (read_definition(value),)
        }

    def __iter__(self) -> Iterator[Queue]:
        with self._lock:
            return iter(sorted(self._queues.values(), key=lambda queue: queue.definition.name))

    def queue(self, name: str) -> Queue:
        """`Fenced` if another server on the same log has taken the queues over."""
        self._ownership.check()
        found = self._queues.get(name)
        if found is None:
            raise NotFound(
                f"queue `{name[:100]}` does not exist", hint="make it:  headrace queue create NAME --topic TOPIC"
            )
        return found

    def over_topic(self, topic: str) -> list[str]:
        return [queue.definition.name for queue in self if queue.definition.topic == topic]

    def create(self, wanted: QueueDefinition) -> Queue:
        """Make a queue. `Conflict` if the name is taken by one that differs; the same again changes nothing."""
        wanted.check()
        topic = self._log.topic(wanted.topic)
        if topic.internal:
            raise Refused(f"topic `{wanted.topic}` is Headrace's own")
        with self._lock:
            existing = self._queues.get(wanted.name)
            if existing is not None:
                known = existing.definition
                if (
                    replace(known, id="", topic_id=0) == replace(wanted, id="", topic_id=0)
                    and known.topic_id == topic.id
                ):
                    return existing
                raise Conflict(
                    f"queue `{wanted.name}` exists and differs", hint="delete it first, or take another name"
                )
            definition = replace(wanted, id=secrets.token_hex(4), topic_id=topic.id)
            lanes = self._new_lanes(definition)
            floors = [(floor_key(definition.name, lane.partition), lane.floor) for lane in lanes.values()]
            entries = [(definition_key(definition.name), definition_value(definition)), *floors]
            self._log.append([append_state(entries)]).result()
            made = self._queues[definition.name] = Queue(self._log, self._clock, definition, self._bury, lanes)
            return made

    def delete(self, name: str) -> None:
        """Forget the queue. The topic and its records stay."""
        with self._lock:
            self.queue(name)
            gone: list[tuple[Key, None]] = [(key, None) for key in read_state(self._log) if key[1] == name]
            self._log.append([append_state(gone)]).result()
            del self._queues[name]

    def sweep(self) -> None:
        """Give up what was delivered too often, in all queues. What one cannot do keeps no other from it."""
        self._ownership.check()
        failed: HeadraceError | None = None
        for queue in self:
            try:
                queue.sweep()
            except HeadraceError as error:
                failed = error
        if failed is not None:
            raise failed

    def _new_lanes(self, definition: QueueDefinition) -> dict[int, Lane]:
        ends = self._log.snapshot().ends[definition.topic]
        floors = [end.end if definition.start == "latest" else end.start for end in ends]
        return {
            number: Lane(definition.name, number, floor, definition.order == "key", saved_floor=floor)
            for number, floor in enumerate(floors)
        }

    def _open(self, definition: QueueDefinition, state: dict[Key, bytes]) -> Queue:
        now, now_ms = self._clock.monotonic(), self._clock.now_ms()
        lanes: dict[int, Lane] = {}
        for key, value in state.items():
            if key[0] == "f" and key[1] == definition.name:
                floor, partition = msgspec.json.decode(value), int(key[2])
                lanes[partition] = Lane(definition.name, partition, floor, definition.order == "key", saved_floor=floor)
        for key, value in sorted((k, v) for k, v in state.items() if k[0] == "c" and k[1] == definition.name):
            if (lane := lanes.get(int(key[2]))) is not None:
                lane.restore(int(key[3]), read_chunk(value), now, now_ms)
        return Queue(self._log, self._clock, definition, self._bury, lanes)

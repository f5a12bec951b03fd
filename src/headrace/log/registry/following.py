"""The registry's topic: what is on it, folded, and how something is added."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable

import msgspec
import pyarrow as pa

from headrace.errors import OwnerLost
from headrace.log.base import Append, Log, TopicSpec
from headrace.log.registry.base import RegistryError
from headrace.log.registry.state import Event, State, decode_event, encode_event
from headrace.types import VARCHAR, Column

SCHEMAS_TOPIC = "_schemas"
EVENT_COLUMN = "EVENT"
SCHEMAS_SPEC = TopicSpec(SCHEMAS_TOPIC, value=(Column(EVENT_COLUMN, VARCHAR),), role="derived")
_ATTEMPTS = 50


class SchemaLog:
    """`state` changes in place: look at it under `lock`."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self.lock = threading.RLock()
        self.state = State()
        self._offset = 0
        # Events on their way: whether they had an effect, None until they are read back.
        self._marks: dict[str, bool | None] = {}
        log.create_topic(SCHEMAS_SPEC)
        self.refresh()

    def refresh(self) -> None:
        """Apply what others wrote. Cheap when nothing is new."""
        with self.lock:
            ends = self._log.snapshot().ends.get(SCHEMAS_TOPIC)
            if not ends or ends[0].end <= self._offset:
                return
            for records in self._log.read(SCHEMAS_TOPIC, 0, self._offset, ends[0].end, [EVENT_COLUMN]):
                for text in records.batch.column(EVENT_COLUMN).to_pylist():
                    event = decode_event(text)
                    applied = self.state.apply(event)
                    if event.mark in self._marks:
                        self._marks[event.mark] = applied
                self._offset = records.next_offset

    def change(self, make: Callable[[State], Event | None]) -> None:
        """Write the event that `make` makes of the state as it is; again if somebody else was faster. None changes
        nothing."""
        with self.lock:
            for _ in range(_ATTEMPTS):
                self.refresh()
                event = make(self.state)
                if event is None or self._write(event):
                    return
        raise RegistryError(50001, "too many writers at once: the change did not get through", hint="try again")

    def _write(self, event: Event) -> bool:
        event = msgspec.structs.replace(event, base=self.state.events, mark=secrets.token_hex(8))
        self._marks[event.mark] = None
        try:
            batch = pa.record_batch({EVENT_COLUMN: pa.array([encode_event(event)], pa.string())})
            self._log.append([Append(SCHEMAS_TOPIC, batch)]).result(30)
            arrival = -1
            for _ in range(_ATTEMPTS):
                self.refresh()
                applied = self._marks[event.mark]
                if applied is not None:
                    return applied
                arrival = self._log.wait(arrival, 1.0).arrival
            raise OwnerLost("the registry's own event did not come back")
        finally:
            del self._marks[event.mark]

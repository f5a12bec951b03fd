"""Which process serves the queues of a log that several can write to.

The local log has one owner, and so have its queues. On Kafka any server could deliver and settle: whoever opens the
queues last writes that they are its own, and an earlier one, which looks once a second and before it gives anything up,
stops. In between a message may be delivered by both, as a queue may; what is settled stays so.
"""

from __future__ import annotations

import secrets
import threading

import msgspec

from headrace.clock import Clock
from headrace.errors import Fenced
from headrace.log.base import Log
from headrace.log.queues.state import OWNER_KEY, QUEUES_TOPIC, append_state

LOOK_SECONDS = 1.0


class Ownership:
    """Of all queues of a log. Safe to use from several threads."""

    def __init__(self, log: Log, clock: Clock) -> None:
        self._log, self._clock = log, clock
        self._shared = "arrival" not in log.capabilities
        self._token = secrets.token_hex(8)
        self._lock = threading.Lock()
        self._lost = False
        self._looked = clock.monotonic()
        self._seen = 0
        if self._shared:
            self._seen = log.snapshot().ends[QUEUES_TOPIC][0].end
            log.append([append_state([(OWNER_KEY, self._token)])]).result()

    def check(self) -> None:
        """`Fenced` once another process has taken over."""
        if not self._shared:
            return
        with self._lock:
            now = self._clock.monotonic()
            if not self._lost and now - self._looked >= LOOK_SECONDS:
                self._looked = now
                self._look()
            if self._lost:
                raise Fenced(
                    "another server on this log delivers its queues",
                    hint="ask that one; stop it and start this one again to have them here",
                )

    def _look(self) -> None:
        end = self._log.snapshot().ends[QUEUES_TOPIC][0].end
        owner = self._token
        for records in self._log.read(QUEUES_TOPIC, 0, self._seen, end, ["KEY", "VALUE"]):
            columns = (records.batch.column(name).to_pylist() for name in ("KEY", "VALUE"))
            for key, value in zip(*columns, strict=True):
                if value is not None and tuple(msgspec.json.decode(key)) == OWNER_KEY:
                    owner = msgspec.json.decode(value)
        self._seen, self._lost = end, owner != self._token

"""Which dead letters belong to which topic: counts, and where the newest are. Follows the log; kept in memory."""

from __future__ import annotations

import logging
import threading
from collections import Counter, deque
from typing import Any

from headrace.errors import CorruptFrame, OffsetOutOfRange
from headrace.log.base import TIME, Log
from headrace.log.dead_letters import DEAD_LETTERS_TOPIC, Redriven

logger = logging.getLogger("headrace.server")

NEWEST = 1000
"""How many of a topic can be looked at here; all of them can be queried with SQL."""


class DeadLetterIndex:
    """Safe to use from several threads. Every answer is caught up with the log first."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._lock = threading.Lock()
        self._next = 0
        self._counts: Counter[str] = Counter()
        self._newest: dict[str, deque[int]] = {}
        self._redriven = Redriven()

    def counts(self) -> Counter[str]:
        """Topic → how many there ever were."""
        with self._lock:
            self._catch_up()
            return Counter(self._counts)

    def open_counts(self) -> Counter[str]:
        """Topic → how many there are that were not sent again with success."""
        with self._lock:
            self._catch_up()
            return self._counts - self._redriven.by_topic

    def newest(self, topic: str, limit: int) -> list[dict[str, Any]]:
        """The newest letters as rows, newest first, with their `offset`, how often they were tried (`attempts`), and
        whether they were `redriven`."""
        with self._lock:
            self._catch_up()
            offsets = list(self._newest.get(topic, ()))[-limit:] if limit else []
        rows: list[dict[str, Any]] = []
        for offset in reversed(offsets):
            rows += self._read(offset)
        return rows

    def letter(self, offset: int) -> dict[str, Any] | None:
        with self._lock:
            self._catch_up()
        return next(iter(self._read(offset)), None)

    def _read(self, offset: int) -> list[dict[str, Any]]:
        columns = [TIME, "TOPIC", "REASON", "SOURCE", "EVENT_ID", "PAYLOAD", "ATTEMPTS"]
        try:
            return [
                row
                | {
                    "offset": offset,
                    "redriven": offset in self._redriven.sent,
                    "attempts": self._redriven.attempts(offset, row["ATTEMPTS"]),
                }
                for records in self._log.read(DEAD_LETTERS_TOPIC, 0, offset, offset + 1, columns)
                for row in records.batch.to_pylist()
            ]
        except (OffsetOutOfRange, CorruptFrame):
            return []

    def _catch_up(self) -> None:
        now = self._log.snapshot()
        self._redriven.catch_up(self._log, now)
        ends = now.ends.get(DEAD_LETTERS_TOPIC)
        if not ends or ends[0].end <= self._next:
            return
        try:
            self._read_new(max(self._next, ends[0].start), ends[0].end)
        except CorruptFrame as damage:
            # The overview shows these counts: a damaged dead letter must not hide everything else.
            logger.warning("dead letters from offset %d on are not counted: %s", self._next, damage)
        self._next = ends[0].end

    def _read_new(self, start: int, end: int) -> None:
        for records in self._log.read(DEAD_LETTERS_TOPIC, 0, start, end, ["TOPIC"]):
            offsets = records.offsets or range(records.first_offset, records.next_offset)
            for offset, topic in zip(offsets, records.batch.column("TOPIC").to_pylist(), strict=True):
                self._counts[topic] += 1
                self._newest.setdefault(topic, deque(maxlen=NEWEST)).append(offset)
            self._next = records.next_offset

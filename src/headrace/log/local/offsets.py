"""Committed offsets: the fold of the topic `_offsets`, kept level with it in the owner's memory."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.errors import NotFound
from headrace.log.base import TOMBSTONE, Topic, TopicConfig, TopicPartition, TopicSpec
from headrace.types import BIGINT, INTEGER, VARCHAR, Column

if TYPE_CHECKING:
    from headrace.log.local.log import LocalLog

TOPIC = "_offsets"
SPEC = TopicSpec(
    TOPIC,
    key=(Column("GROUP", VARCHAR), Column("TOPIC", VARCHAR), Column("PARTITION", INTEGER)),
    value=(Column("OFFSET", BIGINT), Column("TOPIC_ID", BIGINT)),
    role="derived",
    config=TopicConfig(compacted=True),
)
_COLUMNS = ["GROUP", "TOPIC", "PARTITION", "OFFSET", "TOPIC_ID", TOMBSTONE]

Committed = dict[TopicPartition, tuple[int, int]]
"""Offset, and the id of the topic it is meant for: a topic made again does not inherit it."""


def offset_rows(group: str, offsets: Mapping[TopicPartition, tuple[int, int] | None]) -> pa.RecordBatch:
    """Rows for `_offsets`; None forgets."""
    values = [value or (None, None) for value in offsets.values()]
    return pa.RecordBatch.from_pydict(
        {
            "GROUP": [group] * len(offsets),
            "TOPIC": [at.topic for at in offsets],
            "PARTITION": pa.array([at.partition for at in offsets], pa.int32()),
            "OFFSET": pa.array([offset for offset, _ in values], pa.int64()),
            "TOPIC_ID": pa.array([topic_id for _, topic_id in values], pa.int64()),
            TOMBSTONE: [value is None for value in offsets.values()],
        }
    )


class Offsets:
    """Safe to use from several threads. Reads only: whoever commits appends to the topic."""

    def __init__(self, log: LocalLog) -> None:
        self._log = log
        self._lock = threading.Lock()
        self._topic_id = 0
        self._position = 0
        self._groups: dict[str, Committed] = {}

    def topic(self) -> Topic:
        """`_offsets`, made if it is not there yet."""
        try:
            return self._log.topic(TOPIC)
        except NotFound:
            return self._log.create_topic(SPEC)

    def names(self) -> list[str]:
        with self._lock:
            self._catch_up()
            return list(self._groups)

    def committed(self, group: str) -> dict[TopicPartition, int]:
        """Offsets in topics that are still the same."""
        with self._lock:
            self._catch_up()
            known = dict(self._groups.get(group, {}))
        ids = {topic.name: topic.id for topic in self._log.topics()}
        return {at: offset for at, (offset, topic_id) in known.items() if ids.get(at.topic) == topic_id}

    def everything(self, group: str) -> Iterable[TopicPartition]:
        """All that is remembered, also of topics that are gone."""
        with self._lock:
            self._catch_up()
            return list(self._groups.get(group, {}))

    def _catch_up(self) -> None:
        try:
            topic = self._log.topic(TOPIC)
        except NotFound:
            self._topic_id, self._position, self._groups = 0, 0, {}
            return
        end = self._log.snapshot().ends[TOPIC][0]
        if topic.id != self._topic_id or self._position < end.start:
            self._topic_id, self._position, self._groups = topic.id, end.start, {}
        if self._position == end.end:
            return
        for records in self._log.read(TOPIC, 0, self._position, end.end, _COLUMNS):
            self._fold(records.batch)
        self._position = end.end

    def _fold(self, batch: pa.RecordBatch) -> None:
        for group, topic, partition, offset, topic_id, gone in zip(
            *(column.to_pylist() for column in batch.columns), strict=True
        ):
            known = self._groups.setdefault(group, {})
            if gone:
                known.pop(TopicPartition(topic, partition), None)
                if not known:
                    del self._groups[group]
            else:
                known[TopicPartition(topic, partition)] = (offset, topic_id)

"""Moving a project's log to Kafka: its topics, and everything that has a position in them.

Views and feeds translate their own positions when they meet the new log (`log.copy.moves`). Groups get theirs here. A
query's state cannot be carried over: it belongs to a Spark plan with another source. So it is noted how far the results
go that were copied, and the query, when it starts on Kafka, makes its state again from the records up to there,
without writing anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from headrace.config import Project
from headrace.coordinate.catalog import Catalog
from headrace.errors import UsageError
from headrace.log.base import TOMBSTONE, Append, BatchIdentity, Log, TopicPartition
from headrace.log.copy.copier import Progress, copy_topics
from headrace.log.copy.moves import MOVED_TOPIC, Moves, moved_rows
from headrace.log.kafka import KafkaLog
from headrace.log.queues.state import QUEUES_SPEC, QUEUES_TOPIC, append_state
from headrace.process.progress import parse_offsets

COPY = "log-copy"


@dataclass(frozen=True, slots=True)
class Moved:
    topics: int
    records: int
    queries: int
    groups: int
    queues: int


class KafkaWriter:
    """Each chunk once: its number is part of the transaction."""

    def __init__(self, log: KafkaLog) -> None:
        last = log.last_identity(COPY, 1)
        self._log, self._number = log, -1 if last is None else last.batch

    def __call__(self, appends: Sequence[Append], stream_times: Sequence[Sequence[int] | None]) -> None:
        self._number += 1
        self._log.take_copy(BatchIdentity(COPY, 1, COPY, self._number, ""), appends, stream_times)


def move_to_kafka(source: Log, target: Log, progress: Progress) -> Moved:
    """What the source holds now. Going on after an interruption, or when the source has more, is the same call."""
    assert isinstance(target, KafkaLog)
    write = KafkaWriter(target)
    copied = copy_topics(source, target, write, progress)
    moves = Moves(target)
    queries = _move_queries(source, moves, write)
    groups = _move_groups(source, target, moves)
    return Moved(copied.topics, copied.records, queries, groups, _move_queues(source, target, moves))


def _move_queries(source: Log, moves: Moves, write: KafkaWriter) -> int:
    catalog = Catalog(source)
    rows = []
    for query in catalog.queries():
        identity = source.last_identity(query.id, query.version)
        inputs = [found for name in query.sources if (found := catalog.source(name)) is not None]
        if identity is None or not inputs:
            continue
        topic = inputs[0].topic
        offsets = moves.offsets(topic, parse_offsets(identity.offsets))
        known = moves.queries.get((query.id, query.version))
        if known != {topic: offsets}:
            rows.append(("query", query.id, query.version, {topic: offsets}))
    if rows:
        write([Append(MOVED_TOPIC, moved_rows(rows), 0)], [None])
    return len(catalog.queries())


def _move_groups(source: Log, target: Log, moves: Moves) -> int:
    names = source.groups()
    for name in names:
        offsets: dict[TopicPartition, int] = {}
        for one in source.group(name).offsets:
            partition = moves.partitions.get((one.at.topic, one.at.partition))
            if one.committed is not None and partition is not None:
                offsets[one.at] = partition.offset(one.committed)
        if offsets:
            target.reset_group(name, offsets)
    return len(names)


def _move_queues(source: Log, target: Log, moves: Moves) -> int:
    """Definitions, and up to where everything is settled. What was settled beyond that is delivered once more, as a
    queue may."""
    ends = source.snapshot().ends.get(QUEUES_TOPIC)
    if not ends or QUEUES_TOPIC in target.snapshot().ends:
        return 0
    state: dict[tuple[str | int, ...], object] = {}
    for records in source.read(QUEUES_TOPIC, 0, ends[0].start, ends[0].end, ["KEY", "VALUE", TOMBSTONE]):
        for row in records.batch.to_pylist():
            key = tuple(msgspec.json.decode(row["KEY"]))
            state[key] = None if row[TOMBSTONE] or row["VALUE"] is None else msgspec.json.decode(row["VALUE"])
    topics = {key[1]: value.get("topic") for key, value in state.items() if key[0] == "q" and isinstance(value, dict)}
    # A definition names the very topic it is for.
    entries: list[tuple[Any, Any]] = [
        (key, value | {"topic_id": target.topic(value["topic"]).id})
        for key, value in state.items()
        if key[0] == "q" and isinstance(value, dict)
    ]
    for key, value in state.items():
        partition = moves.partitions.get((str(topics.get(key[1])), int(key[2]))) if key[0] == "f" else None
        if partition is not None and isinstance(value, int):
            entries.append((key, partition.offset(value)))
    target.create_topic(QUEUES_SPEC)
    if entries:
        target.append([append_state(entries)]).result()
    return len(topics)


def require_local(project: Project) -> None:
    if project.settings.log.backend != "local":
        raise UsageError("the log is on Kafka already", hint='`[log] backend` in headrace.toml is "kafka"')

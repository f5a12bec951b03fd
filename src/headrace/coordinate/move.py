"""Moving a project's log to Kafka, or back: its topics, and everything that has a position in them.

Views and feeds translate their own positions when they meet the new log (`log.copy.moves`). Groups get theirs here. A
query's state cannot be carried over: it belongs to a Spark plan with another source. So it is noted how far the results
go that were copied, and the query, when it starts there, makes its state again from the records up to there, without
writing anything. On Kafka that place is an offset by partition; the local log has one number for it, the end of what
was copied, so a query must have read all of that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

import msgspec

from headrace.config import Project
from headrace.coordinate.base import QueryDefinition
from headrace.coordinate.catalog import Catalog
from headrace.coordinate.moved_layers import say_places_again
from headrace.coordinate.planning import checkpoint_name, plan_definition
from headrace.coordinate.published import move_published
from headrace.errors import UsageError
from headrace.log.base import TOMBSTONE, Append, Appended, BatchIdentity, Log, TopicPartition
from headrace.log.copy.copier import Progress, copy_topics
from headrace.log.copy.moves import MOVED_TOPIC, Moves, moved_rows
from headrace.log.dead_letters import DEAD_LETTERS_TOPIC, create_redriven, read_marks, write_marks
from headrace.log.kafka import KafkaLog
from headrace.log.queues.state import QUEUES_SPEC, QUEUES_TOPIC, append_state
from headrace.process.kafka.checkpoint import PlannedBatch, planned_batch
from headrace.process.progress import parse_arrival, parse_offsets
from headrace.sql.plan import waits_for_time

COPY = "log-copy"
NEVER = -1


@dataclass(frozen=True, slots=True)
class Moved:
    topics: int
    records: int
    queries: int
    groups: int
    queues: int
    behind: tuple[str, ...] = ()
    """Queries that have not read all that was copied: they cannot go on there yet."""


class KafkaWriter:
    """Each chunk once: its number is part of the transaction."""

    def __init__(self, log: KafkaLog) -> None:
        last = log.settled_identity(COPY, 1)
        self._log, self._number = log, -1 if last is None else last.batch

    def __call__(self, appends: Sequence[Append], stream_times: Sequence[Sequence[int] | None]) -> list[Appended]:
        self._number += 1
        self._log.take_copy(BatchIdentity(COPY, 1, COPY, self._number, ""), appends, stream_times)
        return []


class LocalWriter:
    """Records and their note are one append: all of it is there, or nothing."""

    def __init__(self, log: Log) -> None:
        self._log = log

    def __call__(self, appends: Sequence[Append], stream_times: Sequence[Sequence[int] | None]) -> list[Appended]:
        return self._log.append(appends).result()


def move_to_kafka(source: Log, target: Log, checkpoints: Path, progress: Progress) -> Moved:
    """What the source holds now. Going on after an interruption, or when the source has more, is the same call.
    `checkpoints` of the queries say what they have closed."""
    assert isinstance(target, KafkaLog)
    write = KafkaWriter(target)
    copied = copy_topics(source, target, write, progress)
    moves = Moves(target)
    catalog = Catalog(source)
    rows: list[tuple[str, str, int, Any]] = []
    for query in catalog.queries():
        old = _read_locally(source, catalog, query)
        offsets = {topic: moves.offsets(topic, at) for topic, at in old.items()}
        if offsets and moves.queries.get((query.id, query.version)) != offsets:
            rows.append(("query", query.id, query.version, offsets))
        rows += _closed(source, catalog, query, checkpoints, moves)
    if rows:
        write([Append(MOVED_TOPIC, moved_rows(rows), 0)], [None])
    say_places_again(source, target, catalog, moves)
    move_published(source, target, catalog, moves)
    groups = _move_groups(source, target, moves)
    _move_marks(source, target, moves)
    return Moved(copied.topics, copied.records, len(catalog.queries()), groups, _move_queues(source, target, moves))


def move_to_local(source: Log, target: Log, checkpoints: Path, progress: Progress) -> Moved:
    """The same the other way. `checkpoints` of the queries on Kafka say how far they have read."""
    assert isinstance(source, KafkaLog)
    write = LocalWriter(target)
    copied = copy_topics(source, target, write, progress)
    moves = Moves(target)
    now, catalog = target.snapshot(), Catalog(source)
    rows: list[tuple[str, str, int, Any]] = []
    behind: list[str] = []
    for query in catalog.queries():
        if source.settled_identity(query.id, query.version) is None:
            continue
        old = _read_on_kafka(source, catalog, query, checkpoints)
        there = {topic: moves.offsets(topic, at) for topic, at in old.items()}
        ends = {topic: {number: at.end for number, at in enumerate(now.ends[topic])} for topic in there}
        until = now.arrival if there and there == ends else None
        behind += [] if until is not None else [query.id]
        if moves.known.get((query.id, query.version), NEVER) != until:
            rows.append(("known", query.id, query.version, {"until": until}))
        rows += _closed(source, catalog, query, checkpoints, moves)
    if rows:
        write([Append(MOVED_TOPIC, moved_rows(rows), 0)], [None])
    say_places_again(source, target, catalog, moves)
    move_published(source, target, catalog, moves)
    groups = _move_groups(source, target, moves)
    queues = _move_queues(source, target, moves)
    _move_marks(source, target, moves)
    return Moved(copied.topics, copied.records, len(catalog.queries()), groups, queues, tuple(behind))


def _topics(catalog: Catalog, query: QueryDefinition) -> list[str]:
    """What a query reads, each topic once."""
    return list(dict.fromkeys(source.topic for source in plan_definition(query, catalog).inputs))


def _read_locally(source: Log, catalog: Catalog, query: QueryDefinition) -> dict[str, dict[int, int]]:
    """How far the query has read, by topic: all its inputs up to one arrival number."""
    identity = source.last_identity(query.id, query.version)
    arrival = None if identity is None else parse_arrival(identity.offsets)
    if identity is None:
        return {}
    topics = _topics(catalog, query)
    if arrival is None:
        return {topics[0]: parse_offsets(identity.offsets)}
    return {
        topic: {
            number: source.offset_at_arrival(topic, number, arrival)
            for number in range(source.topic(topic).spec.partitions)
        }
        for topic in topics
    }


def _read_on_kafka(
    source: KafkaLog, catalog: Catalog, query: QueryDefinition, checkpoints: Path
) -> dict[str, dict[int, int]]:
    """As the checkpoint of its last batch says; nothing if it is not here."""
    planned = _last_batch(source, query, checkpoints)
    if planned is None:
        return {}
    return {topic: planned.ends(*source.kafka_names(topic)) for topic in _topics(catalog, query)}


def _last_batch(source: Log, query: QueryDefinition, checkpoints: Path) -> PlannedBatch | None:
    """The one whose results are the last in the log."""
    identity = source.last_identity(query.id, query.version)
    try:
        return None if identity is None else planned_batch(checkpoints / checkpoint_name(query), identity.batch)
    except UsageError:
        return None


def _closed(
    source: Log, catalog: Catalog, query: QueryDefinition, checkpoints: Path, moves: Moves
) -> list[tuple[str, str, int, Any]]:
    """Of results that wait for time, which are there, if that is not noted already. The logs go by different clocks:
    where it is made again, the state would say something else."""
    if not waits_for_time(plan_definition(query, catalog)):
        return []
    planned = _last_batch(source, query, checkpoints)
    if planned is None or moves.closed.get((query.id, query.version)) == planned.watermark:
        return []
    return [("closed", query.id, query.version, {"watermark": planned.watermark})]


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


def _move_marks(source: Log, target: Log, moves: Moves) -> None:
    """Which dead letters were sent again: they have other offsets now."""
    letters = moves.partitions.get((DEAD_LETTERS_TOPIC, 0))
    if letters is None:
        return
    marks = Counter(replace(mark, letter=letters.offset(mark.letter)) for mark in read_marks(source)[0])
    new = list((marks - Counter(read_marks(target)[0])).elements())
    if new:
        create_redriven(target)
        target.append([write_marks(new)]).result()


def put_checkpoints_aside(project: Project, target: Log) -> None:
    """Before the first copy to a new local log: checkpoints that lie here are of another one."""
    folder = project.data / "checkpoints"
    if MOVED_TOPIC not in target.snapshot().ends and folder.is_dir():
        free = (project.data / f"checkpoints-old-{number}" for number in count(1))
        folder.rename(next(path for path in free if not path.exists()))


def require_backend(project: Project, backend: str) -> None:
    """Where the log is that is to be copied."""
    now = project.settings.log.backend
    if now != backend:
        raise UsageError(f"the log is not on `{backend}`", hint=f'`[log] backend` in headrace.toml is "{now}"')

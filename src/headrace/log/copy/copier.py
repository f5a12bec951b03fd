"""Copies a log into another, partition by partition, in order, each record once however often it is interrupted.

A chunk of records and the note of where they went are one transaction, so what is noted is there and what is there is
noted. Running it again goes on behind the last note: so a log that is in use can be copied ahead, and again when it
rests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from headrace.errors import Conflict, LogError
from headrace.log.base import ARRIVAL, STREAM_TIME, Append, Appended, Log, PartitionEnds, Records, Snapshot, Topic
from headrace.log.copy.moves import (
    MOVED_SPEC,
    MOVED_TOPIC,
    NO_ARRIVAL,
    Moves,
    PartitionMoves,
    Run,
    moved_rows,
    runs_body,
)
from headrace.log.copy.ordered import Lane, in_order, paged

CHUNK_ROWS = 20_000
CHUNK_BYTES = 8 * 1024 * 1024
PAGES_ROWS, LEAST_PAGE = 200_000, 1_000
"""How many records are at hand while all partitions are copied together, and of one partition at least."""
NOT_COPIED = frozenset({"_offsets", "_queues", "_redriven", MOVED_TOPIC})
"""They hold offsets: groups and queues are translated."""

Progress = Callable[[int, int], None]
"""Records copied so far, and all there are."""
Write = Callable[[Sequence[Append], Sequence[Sequence[int] | None]], Sequence[Appended]]
"""Appends in one transaction, and for each the stream times its records were stamped with. Where they went, if the
target knows records by their event ids and may have left some out."""


@dataclass(frozen=True, slots=True)
class Copied:
    topics: int
    records: int
    """In this run."""


def copy_topics(source: Log, target: Log, write: Write, progress: Progress = lambda done, total: None) -> Copied:
    """Everything the source holds now."""
    target.create_topic(MOVED_SPEC)
    now = source.snapshot()
    topics = [topic for topic in source.topics() if topic.name not in NOT_COPIED and topic.name in now.ends]
    copier = _Copier(source, target, write, progress, Moves(target), _to_do(topics, now))
    if _stamped(target):
        copier.copy_in_order(topics, now)
    else:
        for topic in topics:
            copier.copy(topic, now)
    copier.finish(topics, now)
    return Copied(len(topics), copier.done - copier.before)


def _to_do(topics: Sequence[Topic], now: Snapshot) -> int:
    return sum(ends.end - ends.start for topic in topics for ends in now.ends[topic.name])


class _Copier:
    def __init__(self, source: Log, target: Log, write: Write, progress: Progress, moves: Moves, total: int) -> None:
        self._source, self._target, self._write, self._progress = source, target, write, progress
        self._moves, self._total = moves, total
        self.done = self.before = 0

    def copy(self, topic: Topic, now: Snapshot) -> None:
        """Partition by partition."""
        self._prepare(topic)
        for number, ends in enumerate(now.ends[topic.name]):
            start = self._start(topic, number, ends)
            for chunk in chunks(self._source.read(topic.name, number, start, ends.end)):
                self._copy_chunk(topic, number, self._moves.partitions[topic.name, number], chunk)

    def copy_in_order(self, topics: Sequence[Topic], now: Snapshot) -> None:
        """All at once: the target numbers records as they come, and that order is one of time."""
        for topic in topics:
            self._prepare(topic)
        rows = max(LEAST_PAGE, PAGES_ROWS // max(1, sum(len(now.ends[topic.name]) for topic in topics)))
        lanes = []
        for place, topic in enumerate(topics):
            for number, ends in enumerate(now.ends[topic.name]):
                start = self._start(topic, number, ends)
                source = paged(self._source, topic.name, number, start, ends.end, rows)
                lanes.append(Lane(place, topic.name, number, source))
        for chunk in in_order(lanes, CHUNK_ROWS):
            self._copy_ordered(chunk)

    def finish(self, topics: Sequence[Topic], now: Snapshot) -> None:
        """At the end of a partition there may be offsets without a record (Kafka's marks): they are behind us too."""
        ends = {(topic.name, number): at.end for topic in topics for number, at in enumerate(now.ends[topic.name])}
        passed = {key: end for key, end in ends.items() if self._moves.partitions[key].next < end}
        if passed:
            self._write([self._note(passed, {key: [] for key in passed})], [None])
            for key, end in passed.items():
                self._moves.partitions[key].next = end

    def _start(self, topic: Topic, number: int, ends: PartitionEnds) -> int:
        """The offset to go on with."""
        moves = self._moves.partitions.setdefault((topic.name, number), PartitionMoves(topic.id, ends.start))
        if moves.topic_id != topic.id:
            raise Conflict(
                f"topic `{topic.name}` is not the one that was copied before: it was made anew since",
                hint="delete it in the target, with its copy, or copy to another place",
            )
        start = max(moves.next, ends.start)
        self.done += start - ends.start
        self.before += start - ends.start
        self._confirm(topic.name, number, moves)
        return start

    def _copy_ordered(self, chunk: list[Records]) -> None:
        """Records of several partitions, in the order given, and one note for each partition."""
        ends = self._target.snapshot().ends
        starts = {(topic, number): end.end for topic, parts in ends.items() for number, end in enumerate(parts)}
        by_partition: dict[tuple[str, int], list[Records]] = {}
        for records in chunk:
            by_partition.setdefault((records.topic, records.partition), []).append(records)
        found = {key: runs_of(parts, starts[key], False) for key, parts in by_partition.items()}
        appends = [Append(records.topic, without_stamps(records), records.partition) for records in chunk]
        nexts = {key: parts[-1].next_offset for key, parts in by_partition.items()}
        appended = self._write([*appends, self._note(nexts, found)], [None] * (len(appends) + 1))
        if corrected := without_repeats(chunk, appended, starts):
            self._write([self._note(nexts, corrected)], [None])
            found |= corrected
        for key, runs in found.items():
            self._moves.partitions[key].next = nexts[key]
            self._moves.partitions[key].add(runs)
        self.done += sum(records.batch.num_rows for records in chunk)
        self._progress(min(self.done, self._total), self._total)

    def _note(self, nexts: Mapping[tuple[str, int], int], found: Mapping[tuple[str, int], list[Run]]) -> Append:
        bodies = [
            ("runs", *key, runs_body(self._moves.partitions[key].topic_id, nexts[key], runs))
            for key, runs in found.items()
        ]
        return Append(MOVED_TOPIC, moved_rows(bodies), 0)

    def _prepare(self, topic: Topic) -> None:
        made = self._target.create_topic(topic.spec)
        if made.spec.partitions != topic.spec.partitions:
            raise Conflict(
                f"topic `{topic.name}` has {made.spec.partitions} partitions there, not {topic.spec.partitions}",
                hint="delete it there, or copy to another place",
            )
        if not self._moves.knows(topic.name):
            records = sum(ends.end for ends in self._target.snapshot().ends[topic.name])
            if records:
                raise Conflict(
                    f"topic `{topic.name}` already holds records there that are not from here",
                    hint="copy to another place: another [log.kafka] prefix, or move the local log's folder away",
                )

    def _copy_chunk(self, topic: Topic, number: int, moves: PartitionMoves, chunk: list[Records]) -> None:
        at = self._target.snapshot().ends[topic.name][number].end
        keep_arrivals = topic.spec.role == "derived" and "arrival" in self._source.capabilities
        runs = runs_of(chunk, at, keep_arrivals)
        next_ = chunk[-1].next_offset
        appends, stamps = [], []
        for records in chunk:
            appends.append(Append(topic.name, without_stamps(records), number))
            stamps.append(records.batch.column(STREAM_TIME).to_pylist() if _stamped(self._source) else None)
        note = moved_rows([("runs", topic.name, number, runs_body(topic.id, next_, runs))])
        self._write([*appends, Append(MOVED_TOPIC, note, 0)], [*stamps, None])
        moves.next = next_
        moves.add(runs)
        self._confirm(topic.name, number, moves)
        self.done += sum(records.batch.num_rows for records in chunk)
        self._progress(min(self.done, self._total), self._total)

    def _confirm(self, topic: str, number: int, moves: PartitionMoves) -> None:
        """Are the last records where they were expected? A transaction that was tried twice has left the offsets of
        the first try unused."""
        if not moves.runs or not moves.runs[-1].count:
            return
        chunk = [moves.runs[-1]]
        while len(chunk) < len(moves.runs) and _adjoin(moves.runs[-len(chunk) - 1], chunk[0]):
            chunk.insert(0, moves.runs[-len(chunk) - 1])
        end = self._target.snapshot().ends[topic][number].end
        found = next(iter(self._target.read(topic, number, chunk[0].new, end)), None)
        if found is None:
            raise LogError(f"records of `{topic}`/{number} that were copied are not there", hint="copy it anew")
        moved_by = found.first_offset - chunk[0].new
        if moved_by:
            corrected = [replace(run, new=run.new + moved_by) for run in chunk]
            note = moved_rows([("runs", topic, number, runs_body(moves.topic_id, moves.next, corrected))])
            self._write([Append(MOVED_TOPIC, note, 0)], [None])
            moves.add(corrected)


def without_repeats(
    chunk: Sequence[Records], appended: Sequence[Appended], starts: Mapping[tuple[str, int], int]
) -> dict[tuple[str, int], list[Run]]:
    """Where the records of partitions are from which the target left some out: it has their event ids already. A run
    of none at the front takes the place of what was noted."""
    repeated = {(one.topic, one.partition) for one, done in zip(chunk, appended, strict=False) if done.duplicates}
    found: dict[tuple[str, int], list[Run]] = {}
    for records, done in zip(chunk, appended, strict=False):
        key = (records.topic, records.partition)
        if key not in repeated:
            continue
        runs = found.setdefault(key, [Run(records.first_offset, 0, starts[key])])
        left_out = set(done.duplicates)
        for row, old in enumerate(records.each_offset()):
            if row not in left_out:
                runs.append(Run(old, 1, runs[-1].new + runs[-1].count))
    return found


def _adjoin(earlier: Run, later: Run) -> bool:
    """Were they written together? Nothing lies between them here."""
    return earlier.new + earlier.count == later.new


def _stamped(log: Log) -> bool:
    return "arrival" in log.capabilities


def chunks(found: Iterator[Records]) -> Iterator[list[Records]]:
    """What goes into one transaction."""
    chunk: list[Records] = []
    rows = size = 0
    for records in found:
        if not records.batch.num_rows:
            continue
        chunk.append(records)
        rows, size = rows + records.batch.num_rows, size + records.batch.nbytes
        if rows >= CHUNK_ROWS or size >= CHUNK_BYTES:
            yield chunk
            chunk, rows, size = [], 0, 0
    if chunk:
        yield chunk


def runs_of(chunk: Sequence[Records], at: int, keep_arrivals: bool) -> list[Run]:
    """The chunk's records begin at offset `at` in the target."""
    runs: list[Run] = []
    for records in chunk:
        offsets = records.offsets or range(records.first_offset, records.next_offset)
        arrivals = records.batch.column(ARRIVAL).to_pylist() if keep_arrivals else [NO_ARRIVAL] * len(offsets)
        for old, arrival in zip(offsets, arrivals, strict=True):
            last = runs[-1] if runs else None
            follows = last is not None and old == last.old + last.count
            if last is not None and follows and (not keep_arrivals or arrival == last.arrival + last.count):
                runs[-1] = replace(last, count=last.count + 1)
            else:
                runs.append(Run(old, 1, at, arrival))
            at += 1
    return runs


def without_stamps(records: Records) -> object:
    """What a producer may say about its records."""
    names = [name for name in records.batch.schema.names if name not in (ARRIVAL, STREAM_TIME, "$offset", "$partition")]
    return records.batch.select(names)

"""A group: everything that is committed with one journal record.

Offsets, arrival numbers and stream times are given here and nowhere else, in the order rows are added.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor, Future, wait
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.log.base import Appended
from headrace.log.local.cuts import cut_positions
from headrace.log.local.frame import encode_slices
from headrace.log.local.id_runs import pack
from headrace.log.local.ids import IdIndex
from headrace.log.local.journal import Frame
from headrace.log.local.partition import Partition, Span, is_small
from headrace.log.local.producers import Answer, Stamp, answer_payload
from headrace.log.local.segment import SegmentWriter
from headrace.log.local.state import TopicState, batch_payload
from headrace.log.writing.identities import CommittedBatch
from headrace.log.writing.partitioning import Partitions
from headrace.log.writing.prepare import Prepared, Preparer, place, upgrade

FLUSH_BYTES = 16 * 1024 * 1024
"""Rows beyond this are made into frames before more are added, so that a large transaction does not need its size in
memory."""
JOURNAL_BYTES, SYNC_BYTES = 1024 * 1024, 32 * 1024
"""The journal takes a group's frames if they are not more than this, altogether and for each sync of a segment that it
saves: in the time of one, a disk writes about as much."""


@dataclass(slots=True)
class OwnedTopic:
    """A topic and all that its owner holds open for it."""

    state: TopicState
    preparer: Preparer
    partitions: list[Partition]
    ids: IdIndex | None

    @property
    def name(self) -> str:
        return self.state.topic.name


@dataclass(slots=True)
class _Pending:
    """Rows of one topic that are not in frames yet."""

    batches: list[pa.RecordBatch] = field(default_factory=list)
    arrivals: list[int] = field(default_factory=list)
    partitions: list[Partitions] = field(default_factory=list)
    stamps: set[Stamp | None] = field(default_factory=set)


@dataclass(slots=True)
class _Piece:
    """Frames for one segment."""

    topic_id: int
    partition: int
    writer: SegmentWriter
    buffers: list[Any]

    def write(self) -> None:
        self.writer.write(self.buffers)

    def join(self) -> Frame:
        """As the journal has it. What is written to the segment then is one buffer too."""
        data = b"".join(self.buffers)
        self.buffers = [data]
        return self.topic_id, self.partition, self.writer.base, self.writer.written, data


class Group:
    def __init__(self, topics: Mapping[str, OwnedTopic], next_arrival: int, workers: Executor) -> None:
        self._topics = topics
        self._workers = workers
        self._writing: Future[None] | None = None
        self.next_arrival = next_arrival
        self.batches: dict[tuple[str, int], CommittedBatch] = {}
        self.writes: dict[int, dict[int, Answer]] = {}
        """What producers wrote, by producer and sequence."""
        self._pending: dict[str, _Pending] = {}
        self._bytes = 0
        self._touched: dict[str, set[int]] = {}
        self._stream_times: dict[str, int] = {}
        self._ids: dict[str, dict[bytes, int]] = {}
        """By topic: digest → packed place."""
        self._flushed = False
        self.frames: list[Frame] = []
        """For the journal, after `finish`; none if segments have to be synced instead."""

    # Adding

    def note_write(self, stamp: Stamp, results: Sequence[Appended]) -> None:
        self.writes.setdefault(stamp.producer, {})[stamp.sequence] = answer_payload(results)

    def add(self, prepared: Prepared, stamp: Stamp | None = None) -> list[Appended]:
        """Rows of one topic, an answer for each send. Rows whose event id is known are left out."""
        topic = self._topics[prepared.topic]
        batch, partitions = upgrade(prepared, topic.preparer), place(prepared, topic.preparer)
        duplicates: list[int] = []
        digests = prepared.digests
        if digests is not None and topic.ids is not None:
            duplicates = self._duplicates(topic, topic.ids, digests)
            if duplicates:
                kept = np.delete(np.arange(batch.num_rows), duplicates)
                batch = batch.take(pa.array(kept))
                partitions = partitions if isinstance(partitions, int) else partitions[kept]
                digests = [digests[row] for row in kept.tolist()]
        if not batch.num_rows:
            return cut_positions(Appended((), tuple(duplicates)), partitions, prepared.cuts or (0,))
        positions = self._reserve(topic, partitions, batch.num_rows)
        if digests is not None and topic.ids is not None:
            self._note_ids(topic.name, digests, partitions, positions)
        self._push(topic, batch, partitions, prepared.bytes, stamp)
        return cut_positions(Appended(positions, tuple(duplicates)), partitions, prepared.cuts or (0,))

    def _duplicates(self, topic: OwnedTopic, ids: IdIndex, digests: Sequence[bytes | None]) -> list[int]:
        seen = self._ids.setdefault(topic.name, {})
        present = [digest for digest in digests if digest is not None] if None in digests else digests
        known = ids.known(present)  # type: ignore[arg-type]
        if not known and len(set(present)) == len(present) and seen.keys().isdisjoint(present):
            return []
        here: set[bytes] = set()
        duplicates = []
        for row, digest in enumerate(digests):
            if digest is None:
                continue
            if digest in known or digest in seen or digest in here:
                duplicates.append(row)
            here.add(digest)
        return duplicates

    def _reserve(self, topic: OwnedTopic, partitions: Partitions, rows: int) -> tuple[tuple[int, int, int], ...]:
        touched = self._touched.setdefault(topic.name, set())
        if isinstance(partitions, int):
            counts = [(partitions, rows)]
        else:
            numbers = np.bincount(partitions, minlength=len(topic.partitions)).tolist()
            counts = [(number, count) for number, count in enumerate(numbers) if count]
        positions = []
        for number, count in counts:
            first = topic.partitions[number].reserve(count)
            positions.append((number, first, first + count - 1))
            touched.add(number)
        return tuple(positions)

    def _note_ids(
        self,
        name: str,
        digests: Sequence[bytes | None],
        partitions: Partitions,
        positions: Iterable[tuple[int, int, int]],
    ) -> None:
        nexts = {number: first for number, first, _ in positions}
        seen = self._ids.setdefault(name, {})
        if isinstance(partitions, int) and None not in digests:
            first = pack(partitions, nexts[partitions])
            seen.update(zip(digests, range(first, first + len(digests)), strict=True))  # type: ignore[arg-type]
            return
        numbers = [partitions] * len(digests) if isinstance(partitions, int) else partitions.tolist()
        for digest, number in zip(digests, numbers, strict=True):
            if digest is not None:
                seen[digest] = pack(number, nexts[number])
            nexts[number] += 1

    def _push(
        self, topic: OwnedTopic, batch: pa.RecordBatch, partitions: Partitions, size: int, stamp: Stamp | None
    ) -> None:
        pending = self._pending.setdefault(topic.name, _Pending())
        pending.batches.append(batch)
        pending.arrivals.append(self.next_arrival)
        pending.partitions.append(partitions)
        pending.stamps.add(stamp)
        self.next_arrival += batch.num_rows
        self._bytes += size
        if self._bytes >= FLUSH_BYTES:
            self._write_meanwhile()

    # Making frames

    def _make_frames(self) -> list[_Piece]:
        """Stamp what was added; the frames that have to be written."""
        for name, pending in self._pending.items():
            self._frame(self._topics[name], pending)
        self._pending, self._bytes = {}, 0
        return [
            _Piece(topic.state.topic.id, partition.number, writer, buffers)
            for topic, partitions in self.touched()
            for partition in partitions
            for writer in partition.dirty_writers()
            if (buffers := writer.take_buffers())
        ]

    def _write_meanwhile(self) -> None:
        """Write what was added, to the page cache, while more is added."""
        pieces = self._make_frames()
        self._written()
        self._flushed = True
        self._writing = self._workers.submit(_write, pieces)

    def _written(self) -> None:
        """Wait for what is being written; raises what went wrong."""
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()

    def finish(self) -> list[SegmentWriter]:
        """Write the rest, to the page cache. Returns the writers that have to be synced: none if the frames are such
        that the journal can have them."""
        pieces = self._make_frames()
        self._written()
        if journaled := not self._flushed and self._fits_journal(pieces):
            self.frames = [piece.join() for piece in pieces]
        _write(pieces)
        return [] if journaled else self._dirty_writers()

    def _fits_journal(self, pieces: Sequence[_Piece]) -> bool:
        """Not if a segment was begun: its name has to be synced anyway, and the one before it, which is sealed now."""
        if any(partition.new_files for _, partitions in self.touched() for partition in partitions):
            return False
        size = sum(len(buffer) for piece in pieces for buffer in piece.buffers)
        return size <= min(JOURNAL_BYTES, len(pieces) * SYNC_BYTES)

    def settle(self) -> None:
        """After a failure: nothing of this group is being written any more, so its files may be closed."""
        if self._writing is not None:
            wait([self._writing])

    def _dirty_writers(self) -> list[SegmentWriter]:
        return [writer for _, partitions in self.touched() for p in partitions for writer in p.dirty_writers()]

    def _frame(self, topic: OwnedTopic, pending: _Pending) -> None:
        batch = pending.batches[0] if len(pending.batches) == 1 else pa.concat_batches(pending.batches)
        counts = [part.num_rows for part in pending.batches]
        arrivals = _spread(pending.arrivals, counts)
        stream_times = self._stamp_stream_time(topic, batch.column(0).to_numpy())
        schema, version = topic.preparer.frame_schema, topic.preparer.version
        chosen = _join_partitions(pending.partitions, counts)
        if isinstance(chosen, int):
            runs = [(chosen, 0, batch.num_rows)]
        else:
            if (chosen[1:] < chosen[:-1]).any():
                order = np.argsort(chosen, kind="stable")
                batch, arrivals, stream_times = _take(batch, order), arrivals[order], stream_times[order]
                chosen = chosen[order]
            runs = _runs(chosen)
        stamped = pa.RecordBatch.from_arrays(
            [pa.array(arrivals), pa.array(stream_times), *batch.columns], schema=schema
        )
        stamp = next(iter(pending.stamps)) if len(pending.stamps) == 1 else None
        if is_small(stamped):
            spans = _spans(runs, arrivals, stream_times, batch.column(0).to_numpy())
            bodies = encode_slices(
                stamped, [0, *(last for _, _, last in runs)], topic.state.topic.spec.config.compression
            )
            for (number, first, last), span, body in zip(runs, spans, bodies, strict=True):
                topic.partitions[number].add_frame(*body, last - first, span, version, stamp)
            return
        for number, first, last in runs:
            rows = slice(first, last)
            piece = stamped.slice(first, last - first)
            topic.partitions[number].write(piece, arrivals[rows], stream_times[rows], version, stamp)

    def _stamp_stream_time(self, topic: OwnedTopic, times: Any) -> Any:
        """For each row the largest time of the topic's rows before it, over all partitions, in order of arrival."""
        before = self._stream_times.get(topic.name, topic.state.stream_time)
        running = np.maximum.accumulate(times)
        stamped = np.empty_like(running)
        stamped[0] = before
        np.maximum(running[:-1], before, out=stamped[1:])
        self._stream_times[topic.name] = max(before, int(running[-1]))
        return stamped

    # Committing

    def touched(self) -> list[tuple[OwnedTopic, list[Partition]]]:
        return [
            (self._topics[name], [self._topics[name].partitions[number] for number in sorted(numbers)])
            for name, numbers in self._touched.items()
        ]

    def touch(self, name: str, number: int) -> None:
        """Commit a partition's position although no row was added (a new segment)."""
        self._touched.setdefault(name, set()).add(number)

    def is_empty(self) -> bool:
        return not self._touched and not self.batches and not self.writes

    def payload(self, number: int) -> list[Any]:
        """The journal's group record; a full one if it has frames."""
        ends = [
            [topic.state.topic.id, partition.number, *partition.position()]
            for topic, partitions in self.touched()
            for partition in partitions
        ]
        stream_times = [[self._topics[name].state.topic.id, value] for name, value in self._stream_times.items()]
        batches = [batch_payload(batch) for batch in self.batches.values()]
        writes = [[producer, *write] for producer, answers in self.writes.items() for write in answers.items()]
        return [number, self.next_arrival, ends, stream_times, batches, writes, *([self.frames] if self.frames else [])]

    def remember_ids(self) -> bool:
        """Whether an index of event ids should be written soon."""
        crowded = False
        for topic, partitions in self.touched():
            if topic.ids is not None:
                ends = {partition.number: partition.state.end for partition in partitions}
                crowded |= topic.ids.remember(self._ids.get(topic.name, {}), ends)
        return crowded


def _write(pieces: list[_Piece]) -> None:
    for piece in pieces:
        piece.write()


def _spread(firsts: list[int], counts: list[int]) -> Any:
    """Arrival numbers of all rows, from the first one and the length of each run."""
    total = sum(counts)
    if firsts[-1] + counts[-1] - firsts[0] == total:
        return np.arange(firsts[0], firsts[0] + total, dtype=np.int64)
    lengths = np.array(counts)
    shifts = np.array(firsts, np.int64) - (np.cumsum(lengths) - lengths)
    return np.repeat(shifts, lengths) + np.arange(total, dtype=np.int64)


def _join_partitions(parts: list[Partitions], counts: list[int]) -> Partitions:
    if all(isinstance(part, int) for part in parts):
        if len(set(parts)) == 1:
            return parts[0]
        return np.repeat(np.array(parts, np.int64), counts)
    whole = [
        np.full(count, part, np.int64) if isinstance(part, int) else part
        for part, count in zip(parts, counts, strict=True)
    ]
    return whole[0] if len(whole) == 1 else np.concatenate(whole)


def _take(batch: pa.RecordBatch, order: Any) -> pa.RecordBatch:
    """Rows in another order. Columns without values, such as headers mostly, stay as they are."""
    filled = [place for place, column in enumerate(batch.columns) if column.null_count < batch.num_rows]
    taken = dict(zip(filled, batch.select(filled).take(pa.array(order)).columns, strict=True))
    columns = [taken.get(place, column) for place, column in enumerate(batch.columns)]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _spans(runs: Sequence[tuple[int, int, int]], arrivals: Any, stream_times: Any, times: Any) -> list[Span]:
    """For all frames at once: of a row or two each, that is what takes time."""
    firsts = [first for _, first, _ in runs]
    columns = (
        arrivals[firsts],
        arrivals[[last - 1 for _, _, last in runs]],
        np.minimum.reduceat(times, firsts),
        np.maximum.reduceat(times, firsts),
        np.maximum.reduceat(stream_times - times, firsts),
    )
    return list(map(Span._make, zip(*(column.tolist() for column in columns), strict=True)))


def _runs(ordered: Any) -> list[tuple[int, int, int]]:
    """(partition, first row, row after the last) of each run of equal numbers."""
    cuts = np.flatnonzero(ordered[1:] != ordered[:-1]) + 1
    edges = [0, *cuts.tolist(), len(ordered)]
    return [(number, *edge) for number, edge in zip(ordered[edges[:-1]].tolist(), pairwise(edges), strict=True)]

"""A topic's records, page by page: forwards from a place, or backwards from one.

A page is bounded in records and in bytes, and so is what is held while it is made: records are decoded a few at a time,
partitions are merged as they are read. Every page says where it begins and ends, so the next and the one before can be
asked for."""

from __future__ import annotations

import heapq
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import pyarrow as pa

from headrace.deliver.filtering import Where
from headrace.errors import CorruptFrame, OffsetOutOfRange, UsageError
from headrace.log.base import ARRIVAL, TIME, Log, PartitionEnds, Records, Topic
from headrace.log.codecs.event_json import event_maker
from headrace.log.codecs.json_encode import to_json
from headrace.log.codecs.times import moment
from headrace.store.arrivals import has_arrivals, topic_ends, without_arrival
from headrace.store.columns import arrow_rows

Offsets: TypeAlias = Mapping[int, int]
"""Partition → offset. Partitions that are not named are not read."""

DECODED_BYTES = 256 * 1024
DECODED_ROWS = 256
"""About how much of a partition is decoded at once."""
PAGE_BYTES = 4 * 1024 * 1024
LOOKED_AT = 100_000
"""How many records one page looks at for those that are wanted; the next page goes on behind them."""


@dataclass(frozen=True, slots=True)
class Row:
    partition: int
    offset: int
    columns: dict[str, Any]
    wanted: bool = True


@dataclass(frozen=True, slots=True)
class Page:
    """Records as the JSON of the HTTP API's Event, in order."""

    records: list[bytes]
    first: dict[int, int]
    """Where the page begins: give it to `read_before` for the page before."""
    next: dict[int, int]
    """Where it ends: give it to `read_after` for the page that follows."""
    ends: tuple[PartitionEnds, ...]
    cut: bool
    """Whether the limits ended it, and not the log."""
    damage: CorruptFrame | None = None
    """What cannot be read at the end of one of its partitions. The page has what comes before it."""
    epoch: str | None = None
    """Of the log: with it, `next` is refused by a log that was restored to an earlier moment since."""


def read_after(
    log: Log, name: str, at: Offsets, limit: int, max_bytes: int = PAGE_BYTES, where: Where | None = None
) -> Page:
    """Records from `at` on, oldest first. `OffsetOutOfRange` if the log no longer holds the first of them."""
    topic, ends = log.topic(name), topic_ends(log.snapshot(), name)
    damaged: dict[int, CorruptFrame] = {}
    rows = heapq.merge(
        *(
            _until_damage(
                _forward(log, topic, number, offset, check_offset(ends, number, offset, name), where), number, damaged
            )
            for number, offset in at.items()
        ),
        key=_order(log),
    )
    taken = _take(rows, topic, limit, max_bytes)
    _refuse_empty(taken, damaged)
    reached = {
        number: taken.seen.get(number, offset - 1) + 1
        if taken.cut or number in damaged
        else max(offset, ends[number].end)
        for number, offset in at.items()
    }
    damage = next(iter(damaged.values()), None)
    return Page(taken.texts, dict(at), reached, ends, taken.cut, damage, log.current_epoch())


def read_before(
    log: Log, name: str, before: Offsets, limit: int, max_bytes: int = PAGE_BYTES, where: Where | None = None
) -> Page:
    """The last records before `before`, oldest first."""
    topic, ends = log.topic(name), topic_ends(log.snapshot(), name)
    limits = {number: min(offset, _ends(ends, number).end) for number, offset in before.items()}
    damaged: dict[int, CorruptFrame] = {}
    rows = heapq.merge(
        *(
            _until_damage(_backward(log, topic, number, ends[number].start, offset, where), number, damaged)
            for number, offset in limits.items()
        ),
        key=_order(log),
        reverse=True,
    )
    taken = _take(rows, topic, limit, max_bytes)
    _refuse_empty(taken, damaged)
    first = {
        number: taken.seen.get(number, offset) if taken.cut or number in damaged else min(offset, ends[number].start)
        for number, offset in limits.items()
    }
    damage = next(iter(damaged.values()), None)
    return Page(taken.texts[::-1], first, limits, ends, taken.cut, damage, log.current_epoch())


def _until_damage(rows: Iterator[Row], number: int, damaged: dict[int, CorruptFrame]) -> Iterator[Row]:
    """Yield the rows of a partition, and end at damage instead of failing; `damaged` then has it."""
    try:
        yield from rows
    except CorruptFrame as error:
        damaged[number] = error


def _refuse_empty(taken: _Taken, damaged: dict[int, CorruptFrame]) -> None:
    """A page that begins at damage, and has nothing else to show, is the error."""
    if damaged and not taken.seen:
        raise next(iter(damaged.values()))


def offsets_at(
    log: Log,
    name: str,
    *,
    partition: int | None = None,
    offset: int | None = None,
    time: str | int | None = None,
    at: str | None = None,
    before: str | None = None,
    **start: str,
) -> dict[int, int]:
    """Where somebody wants to begin: at an offset of a partition, at a time, where a page said (`at`, `before`), or
    `from` the earliest (the default) or the latest."""
    ends = topic_ends(log.snapshot(), name)
    numbers = chosen(ends, partition)
    ways = {"at": at, "before": before, "offset": offset, "time": time} | start
    given = [way for way, value in ways.items() if value is not None]
    if len(given) > 1:
        raise UsageError(f"`{given[0]}` and `{given[1]}` both say where to begin", hint="give one of them")
    if at is not None:
        return _checked_position(log, name, at, "at")
    if before is not None and before != "latest":
        return _checked_position(log, name, before, "before")
    if time is not None:
        return offsets_at_time(log, name, moment(str(time), "time"), partition)
    if offset is not None:
        if len(numbers) > 1:
            raise UsageError(f"an offset needs a partition: `{name}` has {len(ends)}", hint="name one, such as 0")
        return {numbers[0]: offset}
    where = "latest" if before is not None else start.get("from", "earliest")
    if where not in ("earliest", "latest"):
        raise UsageError(f"`from` must be earliest or latest, got `{where[:40]}`")
    return {number: ends[number].end if where == "latest" else ends[number].start for number in numbers}


def _checked_position(log: Log, topic: str, text: str, name: str) -> dict[int, int]:
    """`PARTITION:OFFSET,…`, and perhaps `@EPOCH`: then it must be of this log."""
    offsets, _, epoch = text.partition("@")
    found = parse_position(offsets, name)
    log.check_offsets(topic, found, epoch or None, f"`{text[:60]}`", "begin again:  from=earliest, or at a time")
    return found


def offsets_at_time(log: Log, name: str, time_ms: int, partition: int | None = None) -> dict[int, int]:
    """Where records of that time or later can begin."""
    ends = topic_ends(log.snapshot(), name)
    return {
        number: max(ends[number].start, log.offset_at_time(name, number, time_ms)) for number in chosen(ends, partition)
    }


def chosen(ends: tuple[PartitionEnds, ...], partition: int | None) -> list[int]:
    """The partitions somebody means: one, or all."""
    if partition is None:
        return list(range(len(ends)))
    _ends(ends, partition)
    return [partition]


def parse_position(text: str, name: str) -> dict[int, int]:
    """
    >>> parse_position("0:48211,1:7", "at")
    {0: 48211, 1: 7}
    """
    if not re.fullmatch(r"\d{1,6}:\d{1,18}(,\d{1,6}:\d{1,18})*", text, re.ASCII):
        raise UsageError(f"`{name}` must be PARTITION:OFFSET,…, got `{text[:40]}`", hint="as a page's `next` says")
    return {int(number): int(offset) for number, offset in (pair.split(":") for pair in text.split(","))}


def position_text(offsets: dict[int, int]) -> str:
    """The inverse of `parse_position`."""
    return ",".join(f"{number}:{offset}" for number, offset in sorted(offsets.items()))


def _ends(ends: tuple[PartitionEnds, ...], partition: int) -> PartitionEnds:
    if not 0 <= partition < len(ends):
        raise UsageError(f"there is no partition `{partition}`", hint=f"partitions are 0 to {len(ends) - 1}")
    return ends[partition]


def check_offset(ends: tuple[PartitionEnds, ...], number: int, offset: int, name: str) -> int:
    """The partition's end; an error if the offset is before its start."""
    found = _ends(ends, number)
    if offset < found.start:
        raise OffsetOutOfRange(
            f"offset `{offset}` of `{name}`/{number} is no longer there: the oldest is `{found.start}`",
            hint="continue from there, or from `earliest`, knowing that something was missed",
            partition=number,
            start=found.start,
        )
    return found.end


def _order(log: Log) -> Callable[[Row], Any]:
    """What puts records of several partitions in order. Without arrival numbers that is their time, and within a
    partition always the offset."""
    if has_arrivals(log):
        return lambda row: row.columns[ARRIVAL]
    return lambda row: (row.columns[TIME], row.partition, row.offset)


@dataclass(frozen=True, slots=True)
class _Taken:
    texts: list[bytes]
    seen: dict[int, int]
    """Of each partition the last offset that was looked at."""
    cut: bool


def _take(rows: Iterable[Row], topic: Topic, limit: int, max_bytes: int) -> _Taken:
    """The JSON of rows up to the limits, but at least one."""
    texts: list[bytes] = []
    seen: dict[int, int] = {}
    size = 0
    make = event_maker(topic)
    for looked_at, row in enumerate(rows):
        if len(texts) >= limit or looked_at >= LOOKED_AT:
            return _Taken(texts, seen, True)
        if row.wanted:
            text = to_json(make(row.columns, row.partition, row.offset))
            size += len(text) + 1
            if texts and size > max_bytes:
                return _Taken(texts, seen, True)
            texts.append(text)
        seen[row.partition] = row.offset
    return _Taken(texts, seen, False)


def _forward(log: Log, topic: Topic, number: int, first: int, end: int, where: Where | None) -> Iterator[Row]:
    if first < end:
        for records in _read(log, topic, number, first, end):
            yield from decode_rows(records, where)


def _read(log: Log, topic: Topic, number: int, first: int, end: int) -> Iterator[Records]:
    found = log.read(topic.name, number, first, end)
    return found if has_arrivals(log) else map(without_arrival, found)


def _backward(log: Log, topic: Topic, number: int, start: int, before: int, where: Where | None) -> Iterator[Row]:
    """Read in steps that grow while records are small, each turned round."""
    step = 4
    while before > start:
        first = max(start, before - step)
        found: list[Row] = []
        size = 0
        for records in _read(log, topic, number, first, before):
            size += records.batch.nbytes
            found += decode_rows(records, where)
        yield from reversed(found)
        before = first
        step = min(DECODED_ROWS, step * 2) if size < DECODED_BYTES else max(1, step // 2)


def decode_rows(records: Records, where: Where | None = None) -> Iterator[Row]:
    """A few rows at a time, so that a frame of large records is never decoded as a whole."""
    if not records.batch.num_rows:
        return
    average = max(1, records.batch.nbytes // records.batch.num_rows)
    step = max(1, min(DECODED_ROWS, DECODED_BYTES // average))
    for start in range(0, records.batch.num_rows, step):
        yield from _decode(_slice(records, start, step), where)


def _slice(records: Records, start: int, rows: int) -> Records:
    batch = records.batch.slice(start, rows)
    if records.offsets is None:
        return replace(records, batch=batch, first_offset=records.first_offset + start)
    offsets = records.offsets[start : start + rows]
    return replace(records, batch=batch, first_offset=offsets[0], offsets=offsets)


def _decode(records: Records, where: Where | None) -> Iterator[Row]:
    offsets = records.offsets or range(records.first_offset, records.next_offset)
    if where is None:
        for offset, columns in zip(offsets, arrow_rows(records.batch), strict=True):
            yield Row(records.partition, offset, columns)
        return
    wanted = where(records)
    found = iter(arrow_rows(records.batch.filter(pa.array(wanted, pa.bool_()))))
    # Of the others only their place is needed.
    known = [name for name in (ARRIVAL, TIME) if name in records.batch.schema.names]
    places = arrow_rows(records.batch.select(known))
    for offset, hit, place in zip(offsets, wanted, places, strict=True):
        yield Row(records.partition, offset, next(found) if hit else place, hit)


def page_json(page: Page) -> bytes:
    """The JSON of a page. Records are in it as they were written once."""
    tail = to_json(
        {
            "from": position_text(page.first),
            "next": position_text(page.next),
            "starts": position_text({number: ends.start for number, ends in enumerate(page.ends)}),
            "ends": position_text({number: ends.end for number, ends in enumerate(page.ends)}),
            "cut": page.cut,
            "epoch": page.epoch,
        }
        | ({"damage": page.damage.to_json()} if page.damage else {})
    )
    return b'{"records":[' + b",".join(page.records) + b"]," + tail[1:]

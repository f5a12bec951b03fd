"""AS OF: a table as it was, made from its changelog up to a place.

A moment of the past is a moment of stream time: the table as it was before it held anything newer. Clocks of machines
have no part in that, so the answer is the same whenever it is asked, and after a replay.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import product
from typing import Any

from headrace.deliver.ask.budget import Budget
from headrace.deliver.base import AsOfNote, Delivery, Inexact
from headrace.errors import Gone, NotFound, UsageError
from headrace.log.base import Log, PartitionEnds, Snapshot
from headrace.sql.clauses import AsOf
from headrace.sql.expressions import ColumnRef, Comparison, Expression, In, Literal, Logical
from headrace.sql.functions.arrays import hashable
from headrace.sql.source import Source
from headrace.store.arrivals import (
    behind,
    first_arrival_at,
    has_arrivals,
    position_at_end,
    position_at_start,
    read_stretch,
    topic_ends,
)
from headrace.store.base import ViewStore
from headrace.store.expiry import NEVER, newest_time
from headrace.store.layers import changelog_decoder
from headrace.store.memory import MemoryView
from headrace.store.snapshots import open_snapshot
from headrace.types import display_name

ROWS_PER_STRETCH = 100_000
SKEW_MS = 2_000
"""By how much the clock of whoever asks may be ahead of ours."""
MOST_ROWS = 1_000_000
"""They are all held in memory, for as long as the question takes."""
MOST_KEYS = 1_000
"""Rows that are computed again one by one."""
BUILT = "a version is computed in a few large steps, so what the one that serves would have been then cannot be told"


@dataclass(frozen=True, slots=True)
class PastView:
    """A table as it was: rows, and what of the changelog is still to be laid over them."""

    view: ViewStore
    note: AsOfNote | None = None
    until: Snapshot | None = None
    """If the rows are a snapshot's: up to where its changelog is to be replayed."""


def view_as_of(
    delivery: Delivery, serving: ViewStore, as_of: AsOf, predicate: Expression | None, budget: Budget
) -> PastView:
    """Return the rows that the version which served then had, and which moment they are of. `Gone` if the log no longer
    holds how they came to be, or if that version is not kept.

    A query writes what a batch of records comes to, so a changelog has no state between two batches. Rows of a moment
    in between are computed again from the records themselves, where that is possible (`Delivery.rows_at`); the
    note says whether they were."""
    version, until = _then(delivery, serving, as_of)
    if as_of.kind != "timestamp" or not isinstance(as_of.at, int):
        return replace(_from_changelog(delivery, version, until, budget), note=None)
    if version.source.query is None:
        # Its topic has every change: there are no batches.
        found = _from_changelog(delivery, version, until, budget)
        return replace(found, note=AsOfNote(as_of.at, as_of.at, True))
    reason: str | None = None
    if delivery.rows_at is not None:
        keys = keys_of(version.source, predicate)
        try:
            # The rest of the time is for the changelog.
            rows = delivery.rows_at(version, as_of.at, keys, budget.left / 2)
            view = MemoryView(version.source, version.version)
            view.fill(rows, position_at_end(delivery.log, until, version.source.topic))
            return PastView(view, AsOfNote(as_of.at, as_of.at, True))
        except Inexact as error:
            reason = error.message
            if keys is None and error.hint:
                reason = f"{reason}; {error.hint}"
    found = _from_changelog(delivery, version, until, budget)
    represents = found.note.represents_ms if found.note is not None else None
    return replace(found, note=AsOfNote(as_of.at, represents, False, reason))


def _from_changelog(delivery: Delivery, version: ViewStore, until: Snapshot, budget: Budget) -> PastView:
    """From the nearest snapshot, or from the beginning."""
    taken = open_snapshot(delivery.log, version, until)
    if taken is not None:
        snapshot, newest = taken
        return PastView(snapshot, AsOfNote(0, newest, False), until)
    view, newest = _replayed(delivery, version, until, budget)
    return PastView(view, AsOfNote(0, None if newest == NEVER else newest, False))


def _replayed(delivery: Delivery, version: ViewStore, until: Snapshot, budget: Budget) -> tuple[MemoryView, int]:
    """Put the table together from its changelog. Returns the newest event time in it, too."""
    log, source = delivery.log, version.source
    view, newest = MemoryView(source, version.version), NEVER
    decoder = changelog_decoder(log, version)
    position = position_at_start(log, until, source.topic)
    while behind(until, source.topic, position):
        stretch = read_stretch(log, source.topic, position, until, decoder.columns, ROWS_PER_STRETCH)
        for records in stretch.records:
            newest = newest_time(records.batch, newest)
        view.apply([decoder.decode(records) for records in stretch.records], stretch.position)
        position = stretch.position
        budget.look()
        budget.read += sum(records.batch.num_rows for records in stretch.records)
        if view.count() > MOST_ROWS:
            raise UsageError(
                f"`{display_name(source.name)}` had more than {MOST_ROWS:,} rows: too many to be put together here",
                hint="build a version of it up to there",
            )
    return view, newest


def keys_of(source: Source, predicate: Expression | None) -> frozenset[tuple[Any, ...]] | None:
    """Return the keys that a predicate leaves, if it names a few: `key = value` or `key IN (…)` for each key column."""
    found: dict[str, set[Any]] = {}
    for part in _conjuncts(predicate):
        match part:
            case Comparison("=", ColumnRef() as column, Literal() as value) | Comparison(
                "=", Literal() as value, ColumnRef() as column
            ):
                values = {hashable(value.value)}
            case In(ColumnRef() as column, options) if all(isinstance(one, Literal) for one in options):
                values = {hashable(one.value) for one in options if isinstance(one, Literal)}
            case _:
                continue
        found[column.name] = found[column.name] & values if column.name in found else values
    if any(column.name not in found for column in source.key):
        return None
    if math.prod(len(found[column.name]) for column in source.key) > MOST_KEYS:
        return None
    return frozenset(product(*(found[column.name] for column in source.key)))


def _conjuncts(predicate: Expression | None) -> Iterator[Expression]:
    match predicate:
        case None:
            return
        case Logical("AND", left, right):
            yield from _conjuncts(left)
            yield from _conjuncts(right)
        case _:
            yield predicate


def _then(delivery: Delivery, serving: ViewStore, as_of: AsOf) -> tuple[ViewStore, Snapshot]:
    """The version that served then, and the moment as if its topic ended there. An offset is one of the serving one's
    changelog, and a time has its place in each."""
    log, name, history = delivery.log, serving.source.name, list(delivery.history(serving.source.name))
    now = log.snapshot()
    numbers = dict.fromkeys([serving.version, *(number for _, number in reversed(history) if number)])
    problem = Gone(f"which version of `{display_name(name)}` served then cannot be told", hint=BUILT)
    for number in numbers:
        try:
            version = serving if number == serving.version else delivery.views.version(name, number)
        except NotFound:
            continue
        _check_whole(log, now, version.source.topic, display_name(name))
        _check_past(delivery, now, version.source, as_of)
        until = _until(log, now, version.source.topic, as_of)
        if as_of.kind == "offset" or not history:
            return version, until
        served = next((known for begun, known in reversed(history) if begun <= until.arrival), 0)
        if served == number:
            return _with_columns(version, serving), until
        if version is serving or as_of.kind == "arrival":
            problem = _not_kept(name, served, until.arrival)
    raise problem


def _not_kept(name: str, number: int, arrival: int) -> Gone:
    then, shown = f"at arrival number {arrival}", display_name(name)
    if not number:
        return Gone(f"there was no `{shown}` {then}")
    return Gone(f"version {number} of `{shown}` served {then}, and is not kept any more", hint=BUILT)


def _with_columns(version: ViewStore, serving: ViewStore) -> ViewStore:
    """What is asked of the version that serves must be known to the one that served."""
    known = version.source.all_columns
    for column in serving.source.all_columns:
        if column not in known:
            name, missing = display_name(version.source.name), display_name(column.name)
            raise Gone(
                f"version {version.version} of `{name}` served then, and had no `{missing}` like this",
                hint=f"headrace view rollback {name} lets it answer, while it is kept",
            )
    return version


def _check_whole(log: Log, now: Snapshot, topic: str, name: str) -> None:
    """Every change must still be there: a row that has not changed since has only its first."""
    if log.topic(topic).spec.config.compacted:
        raise Gone(
            f"what `{name}` was is not kept: its topic `{topic}` is compacted", hint="only its newest rows are there"
        )
    gone = sum(ends.start for ends in topic_ends(now, topic))
    if gone:
        raise Gone(
            f"what `{name}` was cannot be told: retention has removed {gone:,} changes of `{topic}`",
            hint="a longer retention of its topic keeps them",
        )


def _check_past(delivery: Delivery, now: Snapshot, source: Source, as_of: AsOf) -> None:
    """What is still to come has no answer that would be the same later. Time is that of the records: a table that holds
    something newer was at that moment, whatever the clock says."""
    clock_ms = delivery.clock.now_ms()
    if as_of.kind != "timestamp" or not isinstance(as_of.at, int) or as_of.at <= clock_ms + SKEW_MS:
        return
    log, ends = delivery.log, enumerate(topic_ends(now, source.topic))
    if all(log.offset_at_time(source.topic, number, as_of.at + 1) >= end.end for number, end in ends):
        raise UsageError(
            f"`{display_name(source.name)}` as of {_shown(as_of.at)} is still to come: it is {_shown(clock_ms)}",
            hint="leave AS OF out for what it is now",
        )


def _shown(time_ms: int) -> str:
    """
    >>> _shown(1_794_744_000_500), _shown(10**17)
    ('2026-11-15T12:00:00.500Z', '100000000000000000 ms')
    """
    try:
        moment = datetime.fromtimestamp(time_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return f"{time_ms} ms"
    return f"{moment.replace(tzinfo=None).isoformat(timespec='milliseconds')}Z"


def _until(log: Log, now: Snapshot, topic: str, as_of: AsOf) -> Snapshot:
    """The moment as if the topic ended there."""
    ends = topic_ends(now, topic)
    match as_of:
        case AsOf("offset", tuple(offsets)):
            for number, (offset, end) in enumerate(zip(offsets, ends, strict=True)):
                if offset > end.end:
                    raise UsageError(f"offset {offset} of `{topic}`/{number} is not there yet: it ends at {end.end}")
            return _cut(now, topic, list(offsets))
        case AsOf("arrival", int(arrival)):
            if not has_arrivals(log):
                raise UsageError(
                    "this log gives no arrival numbers", hint="AS OF OFFSET or AS OF TIMESTAMP can be asked"
                )
            if arrival > now.arrival:
                raise UsageError(f"arrival number {arrival} is not given yet: the next is {now.arrival}")
            return _before(log, now, topic, arrival)
        case AsOf("timestamp", int(moment)):
            newer = [log.offset_at_time(topic, number, moment + 1) for number in range(len(ends))]
            if not has_arrivals(log):
                return _cut(now, topic, newer)
            return _before(log, now, topic, first_arrival_at(log, now, topic, newer))
    raise AssertionError(as_of)


def _before(log: Log, now: Snapshot, topic: str, arrival: int) -> Snapshot:
    count = len(topic_ends(now, topic))
    cut = _cut(now, topic, [log.offset_at_arrival(topic, number, arrival) for number in range(count)])
    return replace(cut, arrival=arrival)


def _cut(now: Snapshot, topic: str, offsets: list[int]) -> Snapshot:
    ends = topic_ends(now, topic)
    clipped = tuple(PartitionEnds(one.start, min(one.end, end)) for one, end in zip(ends, offsets, strict=True))
    return replace(now, ends={**now.ends, topic: clipped})

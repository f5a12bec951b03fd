"""AS OF: a table as it was, made from its changelog up to a place.

A moment of the past is a moment of stream time: the table as it was before it held anything newer. Clocks of machines
have no part in that, so the answer is the same whenever it is asked, and after a replay.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from headrace.deliver.ask.budget import Budget
from headrace.deliver.base import Delivery
from headrace.errors import Gone, NotFound, UsageError
from headrace.log.base import ARRIVAL, Log, PartitionEnds, Snapshot
from headrace.sql.clauses import AsOf
from headrace.sql.source import Source
from headrace.store.arrivals import behind, has_arrivals, position_at_start, read_stretch, topic_ends
from headrace.store.base import ViewStore
from headrace.store.layers import changelog_decoder
from headrace.store.memory import MemoryView
from headrace.types import display_name

ROWS_PER_STRETCH = 100_000
SKEW_MS = 2_000
"""By how much the clock of whoever asks may be ahead of ours."""
MOST_ROWS = 1_000_000
"""They are all held in memory, for as long as the question takes."""
BUILT = "a version is computed in a few large steps, so what the one that serves would have been then cannot be told"


def view_as_of(delivery: Delivery, serving: ViewStore, as_of: AsOf, budget: Budget) -> ViewStore:
    """The rows that the version which served then had. `Gone` if the log no longer holds how they came to be, or if
    that version is not kept."""
    log = delivery.log
    version, until = _then(delivery, serving, as_of)
    source = version.source
    view = MemoryView(source, version.version)
    decoder = changelog_decoder(log, version)
    position = position_at_start(log, until, source.topic)
    while behind(until, source.topic, position):
        stretch = read_stretch(log, source.topic, position, until, decoder.columns, ROWS_PER_STRETCH)
        view.apply([decoder.decode(records) for records in stretch.records], stretch.position)
        position = stretch.position
        budget.look()
        if view.count() > MOST_ROWS:
            raise UsageError(
                f"`{display_name(source.name)}` had more than {MOST_ROWS:,} rows: too many to be put together here",
                hint="build a version of it up to there",
            )
    return view


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
            return _before(log, now, topic, _first_arrival(log, now, topic, newer))
    raise AssertionError(as_of)


def _first_arrival(log: Log, now: Snapshot, topic: str, offsets: list[int]) -> int:
    """Of the records at these offsets, the one that arrived first."""
    found = now.arrival
    for number, (offset, end) in enumerate(zip(offsets, topic_ends(now, topic), strict=True)):
        if offset < end.end:
            for records in log.read(topic, number, offset, offset + 1, [ARRIVAL]):
                found = min(found, records.batch.column(ARRIVAL)[0].as_py())
    return found


def _before(log: Log, now: Snapshot, topic: str, arrival: int) -> Snapshot:
    count = len(topic_ends(now, topic))
    cut = _cut(now, topic, [log.offset_at_arrival(topic, number, arrival) for number in range(count)])
    return replace(cut, arrival=arrival)


def _cut(now: Snapshot, topic: str, offsets: list[int]) -> Snapshot:
    ends = topic_ends(now, topic)
    clipped = tuple(PartitionEnds(one.start, min(one.end, end)) for one, end in zip(ends, offsets, strict=True))
    return replace(now, ends={**now.ends, topic: clipped})

"""Event ids of feeds: where to go on after an event.

Where the log gives arrival numbers an id is `VERSION-ARRIVAL.EPOCH`: the event's own number, and the epoch of the log
(`log.epochs`) that it was written in, so that an id of a log that was restored since is noticed. (Older ones have no
epoch.) Elsewhere no number says what came
before it in other partitions, so it names the next offset of each: `VERSION@A.B.C`, in base 36. Either is all that a
feed needs to go on without a gap or a repeat, whoever was restarted in between.

On the way from one version's rows to another's (`deliver.way`) a client has some of both. Its id names how far each of
them has come, and the place below which rows are the new version's: `OLD~NEW~PLACE`. In the middle of a snapshot there
is no old version: `~NEW~PLACE`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from headrace.errors import Gone, PositionOfAnotherLog, UsageError
from headrace.log.base import ARRIVAL, OFFSET, PARTITION, Log, PartitionEnds, Snapshot
from headrace.log.copy.moves import Moves
from headrace.log.epochs import Epochs
from headrace.store.arrivals import has_arrivals, position_of, topic_ends
from headrace.store.base import Position, ViewStore
from headrace.types import display_name

_BY_ARRIVAL = re.compile(r"(?P<version>[0-9]{1,9})-(?P<arrival>[0-9]{1,19}|-1)(\.(?P<epoch>[0-9a-f]{1,32}))?", re.ASCII)
_BY_OFFSETS = re.compile(r"(?P<version>[0-9]{1,9})@(?P<offsets>[0-9a-z]{1,13}(\.[0-9a-z]{1,13})*)", re.ASCII)
_PLACE = re.compile(r"[0-9a-z]{1,13}", re.ASCII)
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True, slots=True)
class EventId:
    version: int
    arrival: int | None = None
    """Of the event; -1 is before everything."""
    offsets: tuple[int, ...] = ()
    """By partition: the next one."""
    epoch: str | None = None
    """Of the log, when the event was written; None if the id does not say."""


def parse_id(text: str) -> EventId:
    """
    >>> parse_id("1-48112.0badcafe")
    EventId(version=1, arrival=48112, offsets=(), epoch='0badcafe')
    >>> parse_id("2@1a.0")
    EventId(version=2, arrival=None, offsets=(46, 0), epoch=None)
    """
    if found := _BY_ARRIVAL.fullmatch(text):
        return EventId(int(found["version"]), int(found["arrival"]), epoch=found["epoch"])
    if found := _BY_OFFSETS.fullmatch(text):
        return EventId(int(found["version"]), offsets=tuple(int(part, 36) for part in found["offsets"].split(".")))
    raise no_id(text)


def no_id(text: str) -> UsageError:
    return UsageError(
        f"`{text[:40]}` is not an event id", hint="an id looks like 1-48112.0badcafe or 1@1a.0: take one that came"
    )


@dataclass(frozen=True, slots=True)
class Midway:
    """`old` and `new` are ids of events; there is no old one in a snapshot."""

    old: str | None
    new: str
    done: int
    """Rows at places below it are the new version's."""


def parse_midway(text: str) -> Midway | None:
    """None if it is not of the middle of anything.

    >>> parse_midway("1-7.ab~2-9.ab~1a"), parse_midway("~2@1a.0~z"), parse_midway("1-7")
    (Midway(old='1-7.ab', new='2-9.ab', done=46), Midway(old=None, new='2@1a.0', done=35), None)
    """
    if "~" not in text:
        return None
    old, new, done = text.split("~") if text.count("~") == 2 else ("", "", "")
    if not _PLACE.fullmatch(done):
        raise no_id(text)
    for part in (old, new) if old else (new,):
        parse_id(part)
    return Midway(old or None, new, int(done, 36))


def midway_id(old: str | None, new: str, done: int) -> str:
    """
    >>> midway_id("1-7", "2-9", 46), midway_id(None, "2-9", 0)
    ('1-7~2-9~1a', '~2-9~0')
    """
    return f"{old or ''}~{new}~{base36(done)}"


def id_after(log: Log, version: int, position: Position) -> str:
    """The id from which a feed goes on right behind `position`."""
    if has_arrivals(log):
        epochs = log.epochs()
        return f"{version}-{position.arrival - 1}{_suffix(epochs, position.arrival)}"
    return id_of_offsets(version, _in_order(position.offsets))


def _suffix(epochs: Epochs | None, arrival: int) -> str:
    return "" if epochs is None else f".{epochs.at(arrival).id}"


def id_of_offsets(version: int, offsets: Sequence[int]) -> str:
    """
    >>> id_of_offsets(2, [46, 0])
    '2@1a.0'
    """
    return f"{version}@{'.'.join(map(base36, offsets))}"


def base36(number: int) -> str:
    digits = ""
    while number >= 36:
        number, last = divmod(number, 36)
        digits = _DIGITS[last] + digits
    return _DIGITS[number] + digits


def ids_of(batch: pa.RecordBatch, version: int, after: Position, epochs: Epochs | None = None) -> Iterator[str]:
    """One for each record of a stretch that begins at `after`, in the order in which they are sent."""
    if ARRIVAL in batch.schema.names:
        start, current = (0, "") if epochs is None else (epochs.current.start, f".{epochs.current.id}")
        for arrival in batch.column(ARRIVAL).to_pylist():
            yield f"{version}-{arrival}{current if arrival >= start else _suffix(epochs, arrival + 1)}"
        return
    parts = [base36(offset) for offset in _in_order(after.offsets)]
    for partition, offset in zip(batch.column(PARTITION).to_pylist(), batch.column(OFFSET).to_pylist(), strict=True):
        parts += ["0"] * (partition + 1 - len(parts))
        parts[partition] = base36(offset + 1)
        yield f"{version}@{'.'.join(parts)}"


def _in_order(offsets: Mapping[int, int]) -> list[int]:
    return [offsets.get(partition, 0) for partition in range(max(offsets, default=0) + 1)]


def position_after(log: Log, now: Snapshot, view: ViewStore, id_: str) -> Position:
    """Right behind an event. `Gone` if what follows it may no longer be complete."""
    parsed = parse_id(id_)
    if has_arrivals(log):
        _check_epoch(log, parsed, id_)
    if parsed.version != view.version:
        raise gone(id_, f"`{display_name(view.source.name)}` is at version {view.version} now")
    topic, ends = view.source.topic, topic_ends(now, view.source.topic)
    if parsed.arrival is not None and not has_arrivals(log):
        return _after_moved(log, topic, parsed.arrival, len(ends), id_)
    if parsed.arrival is None and has_arrivals(log):
        return _after_moved_offsets(log, now, topic, parsed, id_)
    if parsed.arrival is None:
        return _after_offsets(ends, topic, parsed, id_)
    return _after_arrival(log, now, topic, parsed.arrival, id_)


def _check_epoch(log: Log, parsed: EventId, id_: str) -> None:
    epochs = log.epochs()
    if epochs is None or parsed.epoch is None or parsed.arrival is None:
        return
    if not epochs.include(parsed.epoch, parsed.arrival + 1):
        raise PositionOfAnotherLog(
            f"a feed cannot be continued after `{id_[:80]}`: it is not of this log",
            detail="the log was restored to an earlier moment since, or is another one; rows that were sent after that "
            "moment may not exist any more",
            hint="begin again with ?snapshot=true",
        )


def _after_arrival(log: Log, now: Snapshot, topic: str, arrival: int, id_: str) -> Position:
    if arrival >= now.arrival:
        raise gone(id_, "the log has not got that far: it must be another one")
    offsets: dict[int, int] = {}
    for number, ends in enumerate(topic_ends(now, topic)):
        offsets[number] = log.offset_at_arrival(topic, number, arrival + 1)
        # At a start that moved, nobody knows whether something between the id and it was removed.
        if offsets[number] <= ends.start and ends.start > 0:
            raise gone(id_, f"topic `{topic}` no longer holds all that came after it")
    return Position(arrival + 1, offsets)


def _after_moved(log: Log, topic: str, arrival: int, partitions: int, id_: str) -> Position:
    """An id of the log that this one was copied from."""
    moves = Moves(log)
    if not moves.knows(topic):
        raise gone(id_, "it is of another log")
    return position_of(moves.after_arrival(topic, arrival, partitions))


def _after_moved_offsets(log: Log, now: Snapshot, topic: str, parsed: EventId, id_: str) -> Position:
    """The other way: an id of a log without arrival numbers. What is left of it is sent in order of arrival."""
    moves = Moves(log)
    if not moves.knows(topic):
        raise gone(id_, "it is of another log")
    offsets = moves.offsets(topic, dict(enumerate(parsed.offsets)))
    arrival = now.arrival
    for number, ends in enumerate(topic_ends(now, topic)):
        at = offsets.setdefault(number, 0)
        for records in log.read(topic, number, at, at + 1, [ARRIVAL]) if ends.start <= at < ends.end else ():
            arrival = min(arrival, records.batch.column(ARRIVAL)[0].as_py())
    return Position(arrival, offsets)


def _after_offsets(ends: Sequence[PartitionEnds], topic: str, parsed: EventId, id_: str) -> Position:
    if len(parsed.offsets) > len(ends):
        raise gone(id_, f"topic `{topic}` has {len(ends)} partitions, not {len(parsed.offsets)}")
    offsets = dict(enumerate(parsed.offsets)) | dict.fromkeys(range(len(parsed.offsets), len(ends)), 0)
    for number, end in enumerate(ends):
        if offsets[number] > end.end:
            raise gone(id_, "the log has not got that far: it must be another one")
        if offsets[number] < end.start:
            raise gone(id_, f"topic `{topic}` no longer holds all that came after it")
    return position_of(offsets)


def gone(id_: str, detail: str) -> Gone:
    return Gone(f"a feed cannot be continued after `{id_[:80]}`", detail=detail, hint="begin again with ?snapshot=true")

"""What differs between two versions of a view, as changes; or between nothing and a version, which is a snapshot.

Each version is read once, at one position of its own, into files by the rows' places, and these are compared one after
the other: a large view costs disk for a while, not memory. Changes come in order of their places. So a client that has
those below some place has the new version's rows there and the old one's from there on, and can be told exactly what it
misses, however long ago it left, from both changelogs and the rows of now (`deliver.way`).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import IO, Any, TypeAlias

from headrace.deliver.base import FeedEvent
from headrace.deliver.changes import snapshot_columns
from headrace.deliver.ids import id_after, midway_id
from headrace.deliver.reel import Reel, temporary, wind
from headrace.deliver.sharing import Stop
from headrace.errors import DeadlineExceeded
from headrace.log.base import Log
from headrace.log.codecs.json_encode import from_json, to_json
from headrace.sql.source import Source
from headrace.store.base import Position, Scan, ViewStore
from headrace.store.json_rows import to_json_rows
from headrace.types import display_name

PART_ROWS = 20_000
"""About what is in one file: so many rows of each version are in memory at a time."""
MOST_PARTS = 256
CHUNK = 1_000
SCAN_SECONDS = 600.0

PLACE_BITS = 63
PLACES = 1 << PLACE_BITS

Changes: TypeAlias = tuple[tuple[int, FeedEvent], ...]


@dataclass(frozen=True, slots=True)
class Places:
    """Where a version's rows are among those of both: by a hash of what a client knows them by. Where keys are of other
    types the same key is not the same row, and what is gone comes before what is new."""

    source: Source
    half: int | None = None

    def of(self, key: bytes, window: bytes) -> int:
        digest = blake2b(key + window, digest_size=8).digest()
        place = int.from_bytes(digest) >> (64 - PLACE_BITS)
        return place if self.half is None else (place + self.half * PLACES) >> 1

    def of_change(self, data: dict[str, Any]) -> int:
        return self.of(to_json(data["key"]), to_json(data.get("window")))


def places(old: Source | None, new: Source) -> tuple[Places | None, Places]:
    if old is None:
        return None, Places(new)
    if _layout(old) == _layout(new):
        return Places(old), Places(new)
    return Places(old, 0), Places(new, 1)


def _layout(source: Source) -> tuple[Any, ...]:
    return source.key, source.window is not None


@dataclass(frozen=True, slots=True, eq=False)
class Crossing:
    old: Position | None
    """Where the old version was read: a feed must have come exactly here."""
    new: Position
    """Where the new version was read, and goes on."""
    reel: Reel
    ids: tuple[str | None, str]
    """The event ids of both positions."""
    number: int = field(default_factory=itertools.count().__next__)
    """No other has it in this process."""

    def changes(self, block: int) -> Changes:
        """With an id after which exactly the rest follows. Where two rows share a place only the last has one."""
        old, new = self.ids
        found = self.reel.read(block)
        following = [place for place, _ in found[1:]] + [-1]
        ids = [
            None if place == after else midway_id(old, new, place + 1)
            for (place, _), after in zip(found, following, strict=True)
        ]
        if block == len(self.reel.blocks) - 1:
            ids[-1] = new
        return tuple(
            (place, FeedEvent("change", from_json(data), id_)) for (place, data), id_ in zip(found, ids, strict=True)
        )


def cross(log: Log, folder: Path | None, old: ViewStore | None, new: ViewStore, stop: Stop) -> Crossing:
    """From `old`, or from nothing."""
    before, now = places(None if old is None else old.source, new.source)
    count = max(_parts(view) for view in (old, new) if view is not None)
    with ExitStack() as files:
        if old is None or before is None:
            at, was, mark = None, None, b'"snapshot":true'
        else:
            at, was = _spool(old, before, count, folder, files, stop)
            mark = b'"switch":{"from":%d,"to":%d}' % (old.version, new.version)
        position, rows = _spool(new, now, count, folder, files, stop)
        reel = wind(_differences(was, rows, mark, stop), folder)
    old_id = None if old is None or at is None else id_after(log, old.version, at)
    return Crossing(at, position, reel, (old_id, id_after(log, new.version, position)))


def _parts(view: ViewStore) -> int:
    try:
        return max(1, min(MOST_PARTS, -(-view.count() // PART_ROWS)))
    except DeadlineExceeded:
        return MOST_PARTS


def _spool(
    view: ViewStore, where: Places, parts: int, folder: Path | None, closing: ExitStack, stop: Stop
) -> tuple[Position, list[IO[bytes]]]:
    """Lines of place, key, window, value and time, in files by place."""
    files = [closing.enter_context(temporary(folder)) for _ in range(parts)]
    names = [column.name for column in snapshot_columns(view.source)]
    with view.scan(names, deadline=SCAN_SECONDS) as scan:
        for place, line in _lines(where, scan, stop):
            files[place * parts >> PLACE_BITS].write(line)
    for file in files:
        file.seek(0)
    return scan.position, files


def _lines(where: Places, scan: Scan, stop: Stop) -> Iterator[tuple[int, bytes]]:
    source = where.source
    columns = snapshot_columns(source)
    names = [display_name(column.name) for column in columns]
    first_key = len(columns) - len(source.key) - len(source.value)
    first_value = first_key + len(source.key)
    key_names, value_names = names[first_key:first_value], names[first_value:]
    while chunk := list(itertools.islice(scan.rows, CHUNK)):
        stop.check()
        for row, shown in zip(chunk, to_json_rows(columns, chunk), strict=True):
            key = to_json(dict(zip(key_names, shown[first_key:first_value], strict=True)))
            value = to_json(dict(zip(value_names, shown[first_value:], strict=True)))
            window = to_json({"start": row[1], "end": row[2]} if source.window else None)
            place = where.of(key, window)
            yield place, b"%d\t%b\t%b\t%b\t%d\n" % (place, key, window, value, row[0])


def _differences(
    old: list[IO[bytes]] | None, new: list[IO[bytes]], mark: bytes, stop: Stop
) -> Iterator[tuple[int, bytes]]:
    for number, file in enumerate(new):
        stop.check()
        before = {} if old is None else dict(_rows(old[number]))
        found = []
        for row, (value, time) in _rows(file):
            was = before.pop(row, None)
            if was is None or was[0] != value:
                found.append(_change(row, value, time, mark))
        found += [_change(row, b"null", time, mark) for row, (_, time) in before.items()]
        yield from sorted(found)


def _rows(lines: Iterable[bytes]) -> Iterator[tuple[bytes, tuple[bytes, bytes]]]:
    """What a row is known by, its value and time."""
    for line in lines:
        row, value, time = line[:-1].rsplit(b"\t", 2)
        yield row, (value, time)


def _change(row: bytes, value: bytes, time: bytes, mark: bytes) -> tuple[int, bytes]:
    place, key, window = row.split(b"\t")
    windowed = b"" if window == b"null" else b'"window":%b,' % window
    return int(place), b'{"key":%b,"value":%b,"time_ms":%b,%b%b}' % (key, value, time, windowed, mark)

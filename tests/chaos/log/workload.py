"""A process that does everything the log's disk can see, and says on its standard output what was acknowledged.

    python -m tests.chaos.log.workload FOLDER FIRST COUNT [ROWS]

Each step writes ROWS records, numbered on, with the number as event id, so what was not acknowledged can be sent again
by the next process. Every fifth record is, in the same transaction, in a second topic; some transactions are staged
and given up, and must never be read; some come from a producer, with the offsets of a group; now and then segments are
sealed, rewritten, compacted and archived. Prints `ok FIRST AFTER`, `failed FIRST AFTER CODE`, and `done` at the end.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from headrace.clock import SystemClock
from headrace.config import ArchiveSettings, LogSettings
from headrace.errors import HeadraceError
from headrace.log.base import Append, Route, TopicConfig, TopicPartition, TopicSpec
from headrace.log.local import LocalLog, ids, journal, unsynced
from headrace.types import BIGINT, VARCHAR, Column
from tests.log.support import batch

EVENTS = TopicSpec("events", (Column("K", VARCHAR),), (Column("N", BIGINT), Column("FILL", VARCHAR)), partitions=2)
TOTALS = TopicSpec(
    "totals",
    (Column("K", VARCHAR),),
    (Column("N", BIGINT),),
    role="derived",
    config=TopicConfig(compacted=True, tombstone_ms=0),
)
TOGETHER, PRODUCED, ABANDONED, CARE = 5, 4, 17, 20
"""Every so many steps: both topics at once, by a producer, a transaction that is given up, housekeeping."""
GROUP, READ = "readers", TopicPartition("events", 0)


def settings(archive: bool) -> LogSettings:
    to = ArchiveSettings(folder="archive" if archive else "", after_hours=0)
    return LogSettings(linger_ms=0.0, segment_bytes=6_000, min_free_bytes=0, archive=to)


def hurry() -> None:
    """Few bytes are written here: let the background syncs, new journals and runs of ids that belong to many come with
    them."""
    unsynced.ROUND_BYTES, journal.MOST_BYTES = 3_000, 16_000
    ids.FLUSH_AT, ids.FAN = 15, 2


def key_of(number: int) -> str:
    return f"k{number % 7}"


def total_key(number: int) -> str:
    return f"t{number % 3}"


def open_workload(folder: Path, archive: bool = True) -> LocalLog:
    """The log below `folder`, its archive beside it."""
    hurry()
    log = LocalLog(folder / "log", settings(archive), SystemClock(), serve=False)
    log.create_topic(EVENTS)
    log.create_topic(TOTALS)
    return log


def events_of(numbers: Sequence[int]) -> Append:
    events = batch(
        K=[key_of(n) for n in numbers],
        N=list(numbers),
        FILL=["x" * (n * 37 % 900) for n in numbers],
        id_=[str(n) for n in numbers],
    )
    return Append("events", events)


def write(log: LocalLog, numbers: range) -> None:
    appends = [events_of(numbers)]
    if totals := [n for n in numbers if n % TOGETHER == 0]:
        appends.append(Append("totals", batch(K=[total_key(n) for n in totals], N=totals)))
    if numbers.start % ABANDONED == 0:
        routes, name = [Route("events", {"K": "K", "N": "N"})], f"abandoned-{numbers.start}"
        log.stage(name, 0, 0, routes, iter([batch(K=["k0"], N=[-numbers.start - 1])]))
        log.abort(name)
    if produced := [n for n in numbers if n % PRODUCED == 0]:
        produce(log, appends, produced[-1])
    else:
        log.append(appends).result(60)


def produce(log: LocalLog, appends: list[Append], offset: int) -> None:
    """The same in a producer's transaction, with an offset of a group."""
    with log.producer("chaos", linger_ms=0) as producer:
        producer.begin()
        for append in appends:
            producer.send(append.topic, append.batch)
        producer.send_offsets(GROUP, {READ: offset})
        producer.commit()


def run(log: LocalLog, numbers: range, say: Callable[[str], None], rows: int = 1) -> None:
    for step, first in enumerate(range(numbers.start, numbers.stop, rows)):
        after = min(first + rows, numbers.stop)
        try:
            write(log, range(first, after))
            say(f"ok {first} {after}")
        except HeadraceError as error:
            say(f"failed {first} {after} {error.code}")
        if step % CARE == CARE - 1:
            # In a server this is a thread of its own, which tries again later.
            with contextlib.suppress(HeadraceError, OSError, sqlite3.Error):
                log.maintain()


def say(line: str) -> None:
    # One write, unbuffered: a line is in the pipe before the next step begins.
    os.write(1, line.encode() + b"\n")


if __name__ == "__main__":
    place, first, count, *rest = sys.argv[1:]
    opened = open_workload(Path(place))
    run(opened, range(int(first), int(first) + int(count)), say, int(rest[0]) if rest else 1)
    opened.close()
    say("done")

"""A process that appends to a log and says on its standard output what was acknowledged: the tests' ledger.

    python -m tests.log.writer FOLDER FIRST COUNT [OUTSTANDING [JOURNAL BYTES]]

Each record carries its number as event id; numbers from FIRST on are sent in order, so after a crash the
unacknowledged ones can be sent again. Groups above JOURNAL BYTES are synced in their segments. Prints `ok N`,
`failed N CODE`, and `done` at the end.
"""

from __future__ import annotations

import sys
from collections import deque
from concurrent.futures import Future
from pathlib import Path

from headrace.clock import SystemClock
from headrace.config import LogSettings
from headrace.errors import DiskFull, HeadraceError
from headrace.log.base import Append, Appended
from headrace.log.local import LocalLog, group
from tests.log.support import VIEWS, batch


def main(folder: Path, first: int, count: int, outstanding: int) -> None:
    settings = LogSettings(linger_ms=0.2, segment_bytes=20_000, min_free_bytes=0)
    log = LocalLog(folder, settings, SystemClock(), serve=False)
    log.create_topic(VIEWS)
    waiting: deque[tuple[int, Future[list[Appended]]]] = deque()
    for number in range(first, first + count):
        rows = batch(USERID=[f"u{number % 7}"], N=[number], PAGEID=["p" * (number % 50)], id_=[str(number)])
        try:
            waiting.append((number, log.append([Append("pageviews", rows)])))
        except DiskFull as error:
            say(f"failed {number} {error.code}")
        while len(waiting) >= outstanding:
            settle(*waiting.popleft())
    while waiting:
        settle(*waiting.popleft())
    log.close()
    say("done")


def settle(number: int, future: Future[list[Appended]]) -> None:
    try:
        future.result(30)
        say(f"ok {number}")
    except HeadraceError as error:
        say(f"failed {number} {error.code}")


def say(line: str) -> None:
    # One write, unbuffered: a line is in the pipe before the next record is settled.
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    folder, first, count, *rest = sys.argv[1:]
    if rest[1:]:
        group.JOURNAL_BYTES = int(rest[1])
    main(Path(folder), int(first), int(count), int(rest[0]) if rest else 1)

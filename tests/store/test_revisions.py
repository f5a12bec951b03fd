"""What was revised, asked of the log: the newest of a row, those of a view, and no memory for each of them."""

from __future__ import annotations

import sqlite3
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import DiskFull
from headrace.log.codecs.json_encode import to_json
from headrace.log.local.open import LocalLog
from headrace.store.revisions import REVISIONS_SPEC, Revision, Revisions, append_revisions, parse_row
from tests.store.project import open_log


@pytest.fixture
def log(tmp_path: Path) -> Iterator[LocalLog]:
    made = open_log(tmp_path / "log")
    made.create_topic(REVISIONS_SPEC)
    yield made
    made.close()


def revision(number: int, **changes: Any) -> Revision:
    start, end = 60_000 * number, 60_000 * (number + 1)
    made = Revision(
        "BY_PAGE", 1, "CTAS_1", f'{{"page":"/{number}"}}', start, end, '{"n":1}', '{"n":2}', 1, number, time_ms=7
    )
    return replace(made, **changes)


def write(log: LocalLog, *revisions: Revision) -> None:
    log.append([append_revisions(revisions)]).result()


def test_the_newest_of_a_row(log: LocalLog) -> None:
    revisions, row = Revisions(log), revision(3).row
    assert revisions.of_row(row) is None
    write(log, revision(3), revision(4), revision(3, old='{"n":2}', new=None))
    write(log, revision(3, old=None, new=None))
    newest = revisions.of_row(row)
    assert newest is not None
    assert (newest.old, newest.new, newest.offset) == (None, None, 3)
    # Counted, and nothing had changed: it made the row nothing.
    made = [revisions.with_value(row, new) for new in ('{"n":2}', None, '{"n":9}')]
    assert [one and one.offset for one in made] == [0, 2, None]
    assert revisions.of_row((row[0], 2, *row[2:])) is None


def test_a_row_is_read_to_the_last_digit() -> None:
    text = '{"total":12.90,"exact":123456789012345678901234567890.12,"mean":0.1,"n":3}'
    assert to_json(parse_row(text)).decode() == text


def test_those_of_a_view(log: LocalLog) -> None:
    revisions = Revisions(log)
    assert (revisions.has("BY_PAGE", 1), revisions.windows("BY_PAGE", 1)) == (False, None)
    assert revisions.changed("BY_PAGE", 1, 10) == ([], 0)
    write(log, revision(1, old=None, new=None), *(revision(number) for number in (5, 2, 9)), revision(7, version=2))
    assert (revisions.has("BY_PAGE", 1), revisions.has("BY_PAGE", 2), revisions.has("OTHER", 1)) == (True, True, False)
    found, count = revisions.changed("BY_PAGE", 1, 2)
    assert ([one.ledger for one in found], count) == ([9, 2], 3)
    assert revisions.windows("BY_PAGE", 1) == (2 * 60_000, 10 * 60_000)


def test_many_of_them_take_no_memory(log: LocalLog) -> None:
    for first in range(0, 20_000, 5_000):
        write(log, *(revision(number) for number in range(first, first + 5_000)))
    revisions = Revisions(log)
    tracemalloc.start()
    try:
        assert revisions.of_row(revision(12_345).row) is not None
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 2_000_000


def test_after_a_full_disk_they_are_read_again(log: LocalLog, monkeypatch: pytest.MonkeyPatch) -> None:
    write(log, revision(1))
    revisions = Revisions(log)
    small = sqlite3.connect("", isolation_level=None, check_same_thread=False)
    small.execute("CREATE TABLE revisions (view TEXT)")
    small.execute("PRAGMA max_page_count = 2")
    small.execute("DROP TABLE revisions")
    columns = ", ".join(f"c{number}" for number in range(12))
    small.execute(f"CREATE TABLE revisions ({columns})")
    with monkeypatch.context() as disk:
        disk.setattr("headrace.store.revisions._opened", lambda: small)
        write(log, *(revision(number) for number in range(1_000)))
        with pytest.raises(DiskFull):
            revisions.of_row(revision(1).row)
    # A file without a name takes room as long as it is open.
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        small.execute("SELECT 1")
    assert revisions.of_row(revision(1).row) is not None

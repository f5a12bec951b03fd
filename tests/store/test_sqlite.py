"""The file: how it is found again, how it is searched, and what readers and the writer do to each other."""

from __future__ import annotations

import logging
import random
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import DeadlineExceeded, NotFound, StoreDamaged
from headrace.sql.expressions import Between, ColumnRef, Comparison, Expression, In, Like, Literal, Logical
from headrace.sql.source import Source
from headrace.store import sqlite_view
from headrace.store.base import Position
from headrace.store.sqlite import SqliteStore, SqliteView, file_name
from headrace.types import BIGINT, BOOLEAN, VARCHAR, Column
from tests.store.changelog import COUNTS, PER_MINUTE, apply, everything
from tests.support import wait_for

PAGE, VIEWS = ColumnRef("PAGE", type=VARCHAR), ColumnRef("VIEWS", type=BIGINT)
START = ColumnRef("WINDOWSTART", type=BIGINT)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    made = SqliteStore(tmp_path / "views", readers=4)
    yield made
    made.close()


def text(value: str) -> Literal:
    return Literal(value, type=VARCHAR)


def compare(operator: Any, left: Expression, right: Expression) -> Comparison:
    return Comparison(operator, left, right, type=BOOLEAN)


def test_names_cannot_lead_elsewhere(store: SqliteStore, tmp_path: Path) -> None:
    names = ["../../etc", "/", "..", "a/b", "ü" * 100, "x" * 300, "a", "A", ""]
    for name in names:
        source = Source(name, "table", "t", COUNTS.key, COUNTS.value)
        apply(store.open_view(source, 1), {"PAGE": name, "VIEWS": 1})
    assert len({file_name(name) for name in names}) == len(names)
    files = [path for path in tmp_path.rglob("*.sqlite") if path.is_file()]
    assert len(files) == len(names)
    assert all(path.parent.parent == tmp_path / "views" for path in files)


# Files that cannot be used


def reopened(store: SqliteStore, source: Source = COUNTS) -> SqliteView:
    for view in list(store._open.values()):
        view.close()
    return store.open_view(source, 1)


@pytest.mark.parametrize("damage", ["empty", "garbage", "cut", "header", "foreign", "newer", "older", "no meta"])
def test_a_file_that_cannot_be_used_is_thrown_away(
    store: SqliteStore, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    view = store.open_view(COUNTS, 1)
    apply(view, *({"PAGE": f"/{n}", "VIEWS": n} for n in range(2_000)))
    view.close()
    path = store.path("COUNTS", 1)
    spoil(path, damage)
    with caplog.at_level(logging.WARNING, "headrace.store"):
        again = store.open_view(COUNTS, 1)
    assert (everything(again), again.position()) == ([], Position(0, {}))
    assert "view `COUNTS` v1 is thrown away and filled again" in caplog.text
    apply(again, {"PAGE": "/a", "VIEWS": 1})
    assert everything(reopened(store)) == [("/a", 1)]


def spoil(path: Path, damage: str) -> None:
    content = path.read_bytes()
    match damage:
        case "empty":
            path.write_bytes(b"")
        case "garbage":
            path.write_bytes(random.Random(1).randbytes(20_000))
        case "cut":
            path.write_bytes(content[:5_000])
        case "header":
            path.write_bytes(b"\0" * 100 + content[100:])
        case "foreign":
            path.unlink()
            run(path, "CREATE TABLE t (x)")
        case "newer" | "older":
            run(path, f"PRAGMA user_version = {99 if damage == 'newer' else 0}")
        case "no meta":
            run(path, "DROP TABLE meta")


def run(path: Path, statement: str) -> None:
    connection = sqlite3.connect(path)
    connection.execute(statement)
    connection.commit()
    connection.close()


def test_damage_found_while_reading_is_noted(store: SqliteStore) -> None:
    view = store.open_view(COUNTS, 1)
    apply(view, *({"PAGE": f"/{n:05}", "VIEWS": n} for n in range(5_000)))
    view.close()
    path = store.path("COUNTS", 1)
    content = bytearray(path.read_bytes())
    for page in range(8, len(content) // 4096):
        content[page * 4096 : page * 4096 + 64] = b"\xff" * 64
    path.write_bytes(content)
    view = store.open_view(COUNTS, 1)
    with pytest.raises(StoreDamaged):
        view.select(["PAGE", "VIEWS"])
    assert view.damaged


def test_a_write_ahead_log_of_a_file_that_is_gone_is_not_taken_for_its_own(store: SqliteStore, tmp_path: Path) -> None:
    view = store.open_view(COUNTS, 1)
    apply(view, {"PAGE": "/old", "VIEWS": 1})
    path = store.path("COUNTS", 1)
    left = path.with_name(path.name + "-wal").read_bytes()
    store.drop_view("COUNTS", 1)
    assert not path.parent.exists()
    path.parent.mkdir(parents=True)
    path.with_name(path.name + "-wal").write_bytes(left)
    assert everything(store.open_view(COUNTS, 1)) == []


# Finding rows


def plan(view: SqliteView, predicate: Expression, **options: Any) -> str:
    view.select([column.name for column in view.source.columns], predicate, **options)
    statement = view.statements()[-1]
    with view._readers.lend(1.0) as connection:
        names = {f"p{number}": None for number in range(20)} | {"limit": 1}
        rows = connection.execute("EXPLAIN QUERY PLAN " + statement, names).fetchall()
    return " / ".join(str(row[3]) for row in rows)


PRIMARY_KEY = "USING INDEX sqlite_autoindex_rows_1"


def test_keys_and_ranges_of_keys_use_the_primary_key(store: SqliteStore) -> None:
    view = store.open_view(COUNTS, 1)
    assert plan(view, compare("=", PAGE, text("/a"))) == f"SEARCH rows {PRIMARY_KEY} (PAGE=?)"
    assert plan(view, In(PAGE, (text("/a"), text("/b")), type=BOOLEAN)) == f"SEARCH rows {PRIMARY_KEY} (PAGE=?)"
    between = Between(PAGE, text("/a"), text("/b"), type=BOOLEAN)
    assert plan(view, between) == f"SEARCH rows {PRIMARY_KEY} (PAGE>? AND PAGE<?)"
    like = Like(PAGE, text("/a%"), type=BOOLEAN)
    assert plan(view, like) == f"SEARCH rows {PRIMARY_KEY} (PAGE>? AND PAGE<?)"
    # In the key's order nothing is sorted.
    assert plan(view, between, order=[("PAGE", False)]) == f"SEARCH rows {PRIMARY_KEY} (PAGE>? AND PAGE<?)"


def test_windows_are_found_by_their_start(store: SqliteStore) -> None:
    view = store.open_view(PER_MINUTE, 1)
    since = compare(">=", START, Literal(60_000, type=BIGINT))
    assert plan(view, since) == "SEARCH rows USING INDEX rows_by_window (WINDOWSTART>?)"
    both = Logical("AND", compare("=", PAGE, text("/a")), since, type=BOOLEAN)
    assert plan(view, both) == f"SEARCH rows {PRIMARY_KEY} (PAGE=? AND WINDOWSTART>?)"


# Readers and the writer


@pytest.mark.slow
def test_readers_see_whole_batches_while_there_is_writing(store: SqliteStore) -> None:
    view = store.open_view(COUNTS, 1)
    keys = 200
    stop, errors, seen = threading.Event(), [], [0, 0, 0]

    def read(number: int) -> None:
        try:
            while not stop.is_set():
                with view.scan(["VIEWS"]) as scan:
                    values = {value for [value] in scan.rows}
                    # Every batch writes its number to every key, and the position says which batch it is.
                    assert values == ({(scan.position.arrival - 1) // keys} if scan.position.arrival else set())
                seen[number] += 1
        except BaseException as error:
            errors.append(error)
            stop.set()

    readers = [threading.Thread(target=read, args=(number,)) for number in range(3)]
    for reader in readers:
        reader.start()
    for batch in range(1, 300):
        if stop.is_set():
            break
        apply(view, *({"PAGE": f"/{n}", "VIEWS": batch} for n in range(keys)))
    stop.set()
    for reader in readers:
        reader.join()
    assert errors == []
    assert min(seen) > 0


@pytest.mark.slow
def test_the_write_ahead_log_stays_small_under_constant_reading(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_view, "WAL_BYTES", 1_000_000)
    monkeypatch.setattr(sqlite_view, "CHECKPOINT_SECONDS", 0.0)
    source = Source("WIDE", "table", "wide", (Column("PAGE", VARCHAR),), (Column("TEXT", VARCHAR),))
    view = store.open_view(source, 1)
    stop = threading.Event()

    def read() -> None:
        # One scan begins before the other ends: there is never a moment without a reader.
        while not stop.is_set():
            with view.scan(["PAGE"]) as scan:
                for _ in scan.rows:
                    if stop.is_set():
                        break

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    wal = store.path("WIDE", 1).with_name("v1.sqlite-wal")
    largest = 0
    for batch in range(100):
        apply(view, *({"PAGE": f"/{n}", "TEXT": f"{batch}" * 500} for n in range(100)))
        largest = max(largest, wal.stat().st_size)
    stop.set()
    for reader in readers:
        reader.join()
    written = 100 * 100 * 500
    assert largest < written / 2


def test_a_reader_that_finds_no_free_connection_waits_no_longer_than_it_may(store: SqliteStore) -> None:
    view = store.open_view(COUNTS, 1)
    apply(view, {"PAGE": "/a", "VIEWS": 1})
    scans = [view.scan(["PAGE"]) for _ in range(4)]
    for scan in scans:
        scan.__enter__()
    with pytest.raises(DeadlineExceeded, match="took longer"):
        view.select(["PAGE"], deadline=0.01)
    for scan in scans:
        scan.__exit__(None, None, None)
    assert everything(view) == [("/a", 1)]


def test_dropping_does_not_disturb_a_scan(store: SqliteStore) -> None:
    view = store.open_view(COUNTS, 1)
    apply(view, *({"PAGE": f"/{n:05}", "VIEWS": n} for n in range(5_000)))
    with view.scan(["PAGE"]) as scan:
        first = next(scan.rows)
        store.drop_view("COUNTS", 1)
        assert len([first, *scan.rows]) == 5_000
    with pytest.raises(NotFound, match="closed"):
        view.select(["PAGE"])


def test_who_waits_for_a_connection_is_told_that_the_view_was_dropped(tmp_path: Path) -> None:
    """And not, as late as they would wait, that it took too long."""
    store, said = SqliteStore(tmp_path / "views", readers=1), list[str]()
    view = store.open_view(COUNTS, 1)
    apply(view, {"PAGE": "/a", "VIEWS": 1})

    def wait() -> None:
        try:
            with view.scan(["VIEWS"], deadline=60.0):
                said.append("served")
        except (NotFound, DeadlineExceeded) as error:
            said.append(error.message)

    waiting = [threading.Thread(target=wait) for _ in range(3)]
    with view.scan(["VIEWS"]) as scan:
        for thread in waiting:
            thread.start()
        wait_for(lambda: len(view._readers._free.not_empty._waiters) == 3, 20, "all to wait")  # type: ignore[attr-defined]
        store.drop_view(COUNTS.name, 1)
        for thread in waiting:
            thread.join(30)
        assert said == ["this view is closed: it was dropped or replaced"] * 3
        assert list(scan.rows) == [(1,)]
    store.close()


def test_a_scan_that_is_left_early_holds_nothing(store: SqliteStore) -> None:
    view = store.open_view(COUNTS, 1)
    apply(view, *({"PAGE": f"/{n:05}", "VIEWS": n} for n in range(5_000)))
    for _ in range(20):
        with view.scan(["PAGE"]) as scan:
            next(scan.rows)
    with view._readers.lend(1.0) as connection:
        assert connection.in_transaction
    apply(view, {"PAGE": "/a", "VIEWS": 1})
    busy, _, _ = view._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    assert busy == 0

"""AS OF from snapshots: the same rows, for the cost of what lies between the snapshot and the moment."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.deliver.ask.budget import Budget
from headrace.deliver.row_stream import open_rows
from headrace.sql.plan import PushQuery
from headrace.store.snapshots import snapshot_files, take_snapshot
from headrace.store.sqlite import SqliteView
from tests.deliver.serving import Serving
from tests.deliver.test_as_of import NOON, PRICES
from tests.store.project import write

CHANGES, EVERY, BATCH = 800, 200, 20


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Serving]:
    """Prices of fifty things change, and some are taken away; a snapshot is taken after each two hundred changes."""
    serving = Serving(tmp_path)
    serving.add(PRICES, partitions=2)
    chance = random.Random(7)
    for first in range(0, CHANGES, BATCH):
        rows = []
        for number in range(first, first + BATCH):
            gone = chance.random() < 0.1
            row = {"ID": f"p{chance.randrange(50)}", "PRICE": None if gone else number}
            rows.append(row | {"$time": NOON + number * 1000, "$tombstone": gone})
        write(serving.log, PRICES, *rows)
        if (first + BATCH) % EVERY == 0:
            serving.caught_up("PRICES")
            assert take_snapshot(serving.followers.view("PRICES"), EVERY, 3)
            assert not take_snapshot(serving.followers.view("PRICES"), EVERY, 3), "nothing has changed since"
    yield serving
    serving.close()


def ask(shop: Serving, sql: str) -> tuple[list[tuple[Any, ...]], int]:
    """The rows, and how many records and rows were read for them."""
    plan = shop.plan(sql)
    assert not isinstance(plan, PushQuery)
    budget = Budget(60.0, 1 << 28)
    with open_rows(shop.delivery, plan, budget) as stream:
        return [row for chunk in stream.limited() for row in chunk], budget.read


def test_the_same_rows_for_less(shop: Serving) -> None:
    view = shop.followers.view("PRICES")
    assert isinstance(view, SqliteView)
    assert [one.changes for one in snapshot_files(view)] == [400, 600, 800], "three, the newest among them"
    chance = random.Random(8)
    moments = [0, 399, 400, 799, *(chance.randrange(CHANGES) for _ in range(20))]
    texts = [f"AS OF TIMESTAMP {NOON + moment * 1000}" for moment in moments]
    texts += [f"AS OF ARRIVAL {shop.log.snapshot().arrival - moment}" for moment in moments]
    texts += ["AS OF OFFSET (300, 200)", "AS OF OFFSET (0, 0)"]
    where = ("", "WHERE id = 'p7'", "WHERE price > 300")
    asked = [f"SELECT id, price, ROWTIME FROM prices {text} {one} ORDER BY id;" for text in texts for one in where]
    fast = [ask(shop, sql) for sql in asked]
    shutil.rmtree(view.path.parent / "snapshots")
    slow = [ask(shop, sql) for sql in asked]
    assert [rows for rows, _ in fast] == [rows for rows, _ in slow]
    last = f"SELECT COUNT(*) FROM prices AS OF TIMESTAMP {NOON + (CHANGES - 1) * 1000};"
    assert ask(shop, last)[1] > CHANGES


def test_the_cost_is_the_distance(shop: Serving) -> None:
    rows, read = ask(shop, f"SELECT id FROM prices AS OF TIMESTAMP {NOON + (CHANGES - 1) * 1000};")
    assert 0 < len(rows) <= 50
    assert read <= EVERY + 2 * 50, "without snapshots it is every change there ever was"


def test_they_go_with_their_version(shop: Serving) -> None:
    view = shop.followers.view("PRICES")
    assert isinstance(view, SqliteView)
    folder = view.path.parent
    shop.followers.close()
    shop.store.keep_only([("PRICES", 2)])
    assert not (folder / "snapshots" / "v1").exists()


def test_one_of_a_log_that_was_restored_since_is_not_used(shop: Serving) -> None:
    view = shop.followers.view("PRICES")
    assert isinstance(view, SqliteView)
    sql = f"SELECT id, price FROM prices AS OF TIMESTAMP {NOON + (CHANGES - 1) * 1000} ORDER BY id;"
    before, _ = ask(shop, sql)
    for one in snapshot_files(view):
        copy = SqliteView(one.path, view.source, view.version, 1)
        copy.stamp("another")
        copy.close()
    after, read = ask(shop, sql)
    assert (after, read > CHANGES, snapshot_files(view)) == (before, True, [])


def test_one_that_is_not_this_views_is_not_used(shop: Serving) -> None:
    view = shop.followers.view("PRICES")
    assert isinstance(view, SqliteView)
    for one in snapshot_files(view):
        one.path.write_bytes(b"nothing")
    rows, _ = ask(shop, f"SELECT id FROM prices AS OF TIMESTAMP {NOON + (CHANGES - 1) * 1000};")
    assert rows
    assert snapshot_files(view) == []

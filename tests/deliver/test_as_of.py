"""AS OF: a table as it was, from its changelog."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.clock import ManualClock
from headrace.errors import Gone, SqlError, UsageError
from headrace.log.base import TopicConfig
from headrace.sql.source import Source
from headrace.types import BIGINT, VARCHAR, Column
from tests.deliver.serving import Serving
from tests.store.project import View, create_topic, write

PRICES = Source("PRICES", "table", "prices", (Column("ID", VARCHAR),), (Column("PRICE", BIGINT),), partitions=2)
CLICKS = Source("CLICKS", "stream", "clicks", (), (Column("N", BIGINT),))
NOON = 1_794_744_000_000


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Serving]:
    serving = Serving(tmp_path)
    serving.add(PRICES, CLICKS, partitions=2)
    yield serving
    serving.close()


def price(shop: Serving, id_: str, price: int | None, time: int, partition: int) -> int:
    """Returns the arrival number that the next record will have."""
    write(
        shop.log, PRICES, {"ID": id_, "PRICE": price, "$time": time, "$tombstone": price is None}, partition=partition
    )
    return shop.log.snapshot().arrival


def test_a_table_as_it_was(shop: Serving) -> None:
    price(shop, "a", 1, NOON, 0)
    price(shop, "b", 2, NOON + 1000, 1)
    then = price(shop, "a", 3, NOON + 2000, 0)
    price(shop, "b", None, NOON + 3000, 1)
    price(shop, "a", 4, NOON + 4000, 0)
    ask = "SELECT id, price FROM prices {} ORDER BY id;"
    assert shop.rows(ask.format("")) == [["a", 4]]
    assert shop.rows(ask.format(f"AS OF TIMESTAMP {NOON - 1}")) == []
    assert shop.rows(ask.format("AS OF TIMESTAMP '2026-11-15T12:00:00Z'")) == [["a", 1]]
    assert shop.rows(ask.format("AS OF TIMESTAMP '2026-11-15T12:00:02.5Z'")) == [["a", 3], ["b", 2]]
    assert shop.rows(ask.format(f"AS OF ARRIVAL {then}")) == [["a", 3], ["b", 2]]
    assert shop.rows(ask.format("AS OF OFFSET (1, 2)")) == [["a", 1]]
    assert shop.rows(ask.format("AS OF OFFSET (1, 1)")) == [["a", 1], ["b", 2]]
    # Then beside now, which is what changed.
    changed = """SELECT old.id, old.price, new.price FROM prices AS OF ARRIVAL {} AS old
        LEFT JOIN prices AS new ON old.id = new.id ORDER BY 1;"""
    assert shop.rows(changed.format(then)) == [["a", 3, 4], ["b", 2, None]]
    found = shop.query(ask.format(f"AS OF ARRIVAL {then}"))
    assert found.position is not None
    assert dict(found.position.offsets) == {0: 2, 1: 1}, "the answer's address is the one that was asked for"


def test_what_is_still_to_come_is_refused(shop: Serving) -> None:
    clock = ManualClock(NOON)
    shop.delivery = replace(shop.delivery, clock=clock)
    price(shop, "a", 1, NOON, 0)
    ask = "SELECT id, price FROM prices AS OF {};"
    with pytest.raises(UsageError) as refused:
        shop.rows(ask.format("TIMESTAMP '2026-11-15T12:00:02.001Z'"))
    assert (refused.value.message, refused.value.hint) == (
        "`prices` as of 2026-11-15T12:00:02.001Z is still to come: it is 2026-11-15T12:00:00.000Z",
        "leave AS OF out for what it is now",
    )
    # Whose clock is a little ahead is answered, and so is who asks for what the table's own time has come to.
    assert shop.rows(ask.format(f"TIMESTAMP {NOON + 2000}")) == [["a", 1]]
    price(shop, "a", 2, NOON + 3_600_000, 0)
    assert shop.rows(ask.format(f"TIMESTAMP {NOON + 3_599_999}")) == [["a", 1]]
    with pytest.raises(UsageError, match="is still to come"):
        shop.rows(ask.format(f"TIMESTAMP {NOON + 3_600_000}"))
    for place in ("OFFSET (3, 0)", f"ARRIVAL {shop.log.snapshot().arrival + 1}"):
        with pytest.raises(UsageError, match="yet: "):
            shop.rows(ask.format(place))


def test_what_a_version_was_before_it_served_is_not_told(shop: Serving) -> None:
    """Its changelog has how it was built: all of the past in a few steps, which nobody was ever shown."""
    price(shop, "a", 1, NOON, 0)
    switch = price(shop, "b", 2, NOON + 1000, 1)
    price(shop, "a", 3, NOON + 2000, 0)
    shop.serve(PRICES, version=2)
    shop.delivery = replace(shop.delivery, history=lambda name: ((0, 1), (switch, 2)))
    ask = "SELECT id, price FROM prices AS OF {} ORDER BY id;"
    for place in (f"TIMESTAMP {NOON}", f"ARRIVAL {switch - 1}"):
        with pytest.raises(Gone, match=r"version 1 of `prices` served at arrival number \d+, and is not kept any more"):
            shop.rows(ask.format(place))
    for place in (f"TIMESTAMP {NOON + 1000}", f"ARRIVAL {switch}"):
        assert shop.rows(ask.format(place)) == [["a", 1], ["b", 2]]
    assert shop.rows(ask.format("OFFSET (1, 0)")) == [["a", 1]], "an offset is one of this very changelog"
    shop.delivery = replace(shop.delivery, history=lambda name: ((0, 1), (1, 0), (switch, 2)))
    with pytest.raises(Gone, match="there was no `prices` at arrival number 1"):
        shop.rows(ask.format("ARRIVAL 1"))


def test_a_version_that_is_kept_tells_of_when_it_served(shop: Serving) -> None:
    second = replace(PRICES, topic="prices.v2")
    create_topic(shop.log, second, partitions=2)
    price(shop, "a", 1, NOON, 0)
    then = price(shop, "a", 2, NOON + 1000, 0)
    # All of the past in one step, and by another definition.
    write(shop.log, second, {"ID": "a", "PRICE": 20, "$time": NOON + 1000}, partition=0)
    switch = shop.log.snapshot().arrival
    write(shop.log, second, {"ID": "a", "PRICE": 30, "$time": NOON + 2000}, partition=0)
    shop.known["PRICES"] = second
    shop.delivery = replace(shop.delivery, history=lambda name: ((0, 1), (switch, 2)))

    def serve(first: Source) -> None:
        shop.followers.sync([View("PRICES", 2, second.topic)], {"PRICES": second}.get, [(1, first)])

    serve(PRICES)
    ask = "SELECT id, price FROM prices AS OF {};"
    places = {f"ARRIVAL {then - 1}": 1, f"TIMESTAMP {NOON}": 1, f"ARRIVAL {then}": 2, f"ARRIVAL {switch}": 20}
    assert {place: shop.rows(ask.format(place)) for place in places} == {p: [["a", n]] for p, n in places.items()}
    assert shop.rows("SELECT price FROM prices;") == [[30]]
    serve(replace(PRICES, value=(Column("COST", BIGINT),)))
    with pytest.raises(Gone, match="version 1 of `prices` served then, and had no `price` like this"):
        shop.rows(ask.format(f"ARRIVAL {then}"))


def test_a_late_change_does_not_bring_back_the_past(shop: Serving) -> None:
    price(shop, "a", 1, NOON + 5000, 0)
    price(shop, "a", 2, NOON, 0)  # its time is before, but the table was newer already
    assert shop.rows(f"SELECT id, price FROM prices AS OF TIMESTAMP {NOON};") == []


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT * FROM clicks AS OF ARRIVAL 1;", "is a stream"),
        ("SELECT * FROM prices AS OF TIMESTAMP 'noon';", "`noon` is not a timestamp"),
        ("SELECT * FROM prices AS OF OFFSET 3;", "has 2 partitions"),
        ("SELECT * FROM prices AS OF OFFSET (0, 99);", "is not there yet"),
        ("SELECT * FROM prices AS OF ARRIVAL 999999;", "is not given yet"),
        ("SELECT * FROM prices AS OF ARRIVAL 1 EMIT CHANGES;", "AS OF is for a SELECT without EMIT"),
    ],
)
def test_what_cannot_be_asked_is_said(shop: Serving, sql: str, message: str) -> None:
    with pytest.raises((SqlError, UsageError), match=message):
        shop.query(sql)


def test_of_is_still_a_name(shop: Serving) -> None:
    price(shop, "a", 1, NOON, 0)
    assert shop.rows("SELECT of.price FROM prices AS of;") == [[1]]


def test_what_is_no_longer_kept_is_said(shop: Serving) -> None:
    price(shop, "a", 1, NOON, 0)
    price(shop, "a", 2, NOON, 0)
    shop.log.delete_records("prices", 0, 1)
    with pytest.raises(Gone, match="retention has removed 1 changes of `prices`"):
        shop.query("SELECT * FROM prices AS OF OFFSET (1, 0);")
    spec = shop.log.topic("prices").spec
    shop.log.alter_topic(replace(spec, config=TopicConfig(compacted=True)))
    with pytest.raises(Gone, match="is compacted"):
        shop.query("SELECT * FROM prices AS OF OFFSET (1, 0);")

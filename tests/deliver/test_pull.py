"""Pull queries: SQL in, rows with their address out."""

from __future__ import annotations

import datetime
import decimal
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.deliver.pull import pull
from headrace.errors import DeadlineExceeded, NotFound
from headrace.log.base import Append, TopicSpec
from headrace.sql.plan import PullQuery
from headrace.sql.source import Source
from headrace.types import BIGINT, DATE, DOUBLE, TIMESTAMP, VARCHAR, Array, Column, Map
from headrace.types import Decimal as DecimalType
from tests.deliver.serving import Serving
from tests.store.changelog import COUNTS, PER_MINUTE
from tests.store.project import write

CLICKS = Source(
    "CLICKS", "stream", "clicks", (Column("USERID", VARCHAR),), (Column("PAGE", VARCHAR), Column("MS", BIGINT))
)


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Serving]:
    made = Serving(tmp_path)
    yield made
    made.close()


@pytest.fixture
def pages(serving: Serving) -> Serving:
    serving.add(COUNTS, PER_MINUTE)
    write(serving.log, COUNTS, *({"PAGE": f"/{n}", "VIEWS": n * n % 7, "$time": n} for n in range(10)))
    for minute in range(3):
        bounds = {"$window_start": minute * 60_000, "$window_end": (minute + 1) * 60_000}
        write(serving.log, PER_MINUTE, {"PAGE": "/a", "VIEWS": minute, **bounds}, {"PAGE": "/b", "VIEWS": 9, **bounds})
    return serving


def test_by_key(pages: Serving) -> None:
    assert pages.rows("SELECT * FROM counts WHERE page = '/3';") == [["/3", 2]]
    assert pages.rows("SELECT * FROM counts WHERE page = '/none';") == []
    assert pages.rows("SELECT views FROM counts WHERE page IN ('/3', '/4') ORDER BY page;") == [[2], [2]]


def test_an_answer_has_its_address(pages: Serving) -> None:
    pages.caught_up("COUNTS")
    answer = pages.query("SELECT views + 1 AS more, page FROM counts WHERE page = '/3';")
    assert [str(column) for column in answer.columns] == ["MORE BIGINT", "PAGE VARCHAR"]
    assert (answer.view, answer.version, answer.truncated) == ("COUNTS", 1, False)
    assert answer.position == pages.followers.view("COUNTS").position()
    assert answer.took_ms < 1_000


def test_key_columns_come_first_then_the_window(pages: Serving) -> None:
    rows = pages.rows("SELECT * FROM per_minute WHERE page = '/a' AND windowstart >= 60000 ORDER BY windowstart;")
    assert rows == [["/a", 60_000, 120_000, 1], ["/a", 120_000, 180_000, 2]]


def test_any_predicate(pages: Serving) -> None:
    """Pushed, not pushed, and both."""
    assert pages.rows("SELECT page FROM counts WHERE views > 3 AND LEN(page) = 2 ORDER BY page;") == [
        ["/2"],
        ["/5"],
        ["/9"],
    ]
    assert pages.rows("SELECT page FROM counts WHERE views * 2 = 8 ORDER BY page;") == [["/2"], ["/5"], ["/9"]]
    assert pages.rows("SELECT page FROM counts WHERE NOT (views < 4 OR page LIKE '/5') ORDER BY page;") == [
        ["/2"],
        ["/9"],
    ]


def test_thousands_of_constants(pages: Serving) -> None:
    many = ", ".join(f"'/{n}'" for n in range(5, 2_000))
    assert pages.rows(f"SELECT page FROM counts WHERE page IN ({many}) AND views > 3 ORDER BY page;") == [
        ["/5"],
        ["/9"],
    ]


def test_as_deep_as_the_parser_lets_through(pages: Serving) -> None:
    either = " OR ".join(f"views = {n}" for n in range(4, 90))
    assert pages.rows(f"SELECT page FROM counts WHERE {either} ORDER BY page;") == [["/2"], ["/5"], ["/9"]]
    both = " AND ".join("views = 4" for _ in range(90))
    assert pages.rows(f"SELECT page FROM counts WHERE {both} ORDER BY page;") == [["/2"], ["/5"], ["/9"]]


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("page", ["/0", "/1", "/2"]),
        ("page DESC", ["/9", "/8", "/7"]),
        ("views DESC, page", ["/2", "/5", "/9"]),
        ("views * -1, page DESC", ["/9", "/5", "/2"]),
        ("LEN(page), views, page DESC", ["/7", "/0", "/8"]),
        ("rowtime DESC", ["/9", "/8", "/7"]),
    ],
)
def test_any_order(pages: Serving, order: str, expected: list[str]) -> None:
    assert pages.rows(f"SELECT page FROM counts ORDER BY {order} LIMIT 3;") == [[page] for page in expected]


def test_limits(pages: Serving) -> None:
    pages.caught_up("COUNTS")
    assert len(pages.query("SELECT * FROM counts LIMIT 4;").rows) == 4
    cut = pages.query("SELECT * FROM counts ORDER BY views;", max_rows=4)
    assert (len(cut.rows), cut.truncated) == (4, True)
    exact = pages.query("SELECT * FROM counts;", max_rows=10)
    assert (len(exact.rows), exact.truncated) == (10, False)
    hard = pages.query("SELECT * FROM counts WHERE LEN(page) = 2 LIMIT 3;", max_rows=2)
    assert (len(hard.rows), hard.truncated) == (2, True)


def test_a_deadline(serving: Serving) -> None:
    serving.add(COUNTS)
    for start in range(0, 60_000, 10_000):
        write(serving.log, COUNTS, *({"PAGE": f"/{n}", "VIEWS": n} for n in range(start, start + 10_000)))
    serving.caught_up("COUNTS")
    for sql in ("SELECT * FROM counts WHERE views < 0;", "SELECT * FROM counts WHERE LEN(page) > 99;"):
        with pytest.raises(DeadlineExceeded, match="took longer than"):
            serving.query(sql, deadline_s=0.0001)


def test_a_table_that_is_not_served(serving: Serving) -> None:
    serving.known["COUNTS"] = COUNTS
    with pytest.raises(NotFound, match="table `counts` is not served"):
        serving.query("SELECT * FROM counts;")


def test_values_are_json(serving: Serving) -> None:
    value = (
        Column("M", DecimalType(6, 2)),
        Column("D", DOUBLE),
        Column("T", TIMESTAMP),
        Column("DAY", DATE),
        Column("TS", Array(TIMESTAMP)),
        Column("MAP", Map(VARCHAR, BIGINT)),
    )
    serving.add(Source("TYPES", "table", "types", (Column("K", BIGINT),), value))
    moment = datetime.datetime(2026, 11, 15, 12, tzinfo=datetime.UTC)
    row = {
        "K": 1,
        "M": decimal.Decimal("1.50"),
        "D": float("nan"),
        "T": moment,
        "DAY": moment.date(),
        "TS": [moment, None],
        "MAP": [("a", 1)],
    }
    write(serving.log, serving.known["TYPES"], row)
    iso = "2026-11-15T12:00:00.000Z"
    assert serving.rows("SELECT * FROM types;") == [
        [1, decimal.Decimal("1.50"), None, iso, "2026-11-15", [iso, None], {"a": 1}]
    ]
    assert serving.rows("SELECT k FROM types WHERE t >= '2026-11-15T00:00:00Z' AND m = 1.5;") == [[1]]


# Streams


def clicks(serving: Serving, count: int, partitions: int = 2) -> None:
    serving.add(CLICKS, partitions=partitions)
    rows = [{"USERID": f"u{n % 5}", "PAGE": f"/{n}", "MS": n} for n in range(count)]
    for start in range(0, count, 1_000):
        write(serving.log, CLICKS, *rows[start : start + 1_000])


def test_a_stream_is_its_records_so_far_in_order_of_arrival(serving: Serving) -> None:
    clicks(serving, 20)
    answer = serving.query("SELECT ms, userid FROM clicks WHERE userid = 'u1';")
    assert answer.rows == [[1, "u1"], [6, "u1"], [11, "u1"], [16, "u1"]]
    assert (answer.view, answer.version) == (None, None)
    assert answer.position is not None
    assert sum(answer.position.offsets.values()) == 20
    assert serving.query("SELECT ms FROM clicks ORDER BY ms % 10 DESC, ms LIMIT 3;").rows == [[9], [19], [8]]


def test_a_limit_without_a_predicate_reads_little(serving: Serving) -> None:
    clicks(serving, 30_000, partitions=1)
    few = []
    for _ in range(5):
        started = time.monotonic()
        assert len(serving.query("SELECT * FROM clicks LIMIT 3;").rows) == 3
        few.append(time.monotonic() - started)
    started = time.monotonic()
    assert len(serving.query("SELECT * FROM clicks;", max_rows=100_000).rows) == 30_000
    assert min(few) < (time.monotonic() - started) / 3


def test_a_record_without_a_value_is_no_row_of_a_stream(serving: Serving) -> None:
    serving.add(CLICKS)
    write(serving.log, CLICKS, {"USERID": "a", "$tombstone": True}, {"USERID": "b", "MS": 1})
    assert serving.query("SELECT userid FROM clicks;").rows == [["b"]]


def test_a_stream_has_a_deadline_too(serving: Serving) -> None:
    clicks(serving, 5_000)
    with pytest.raises(DeadlineExceeded):
        serving.query("SELECT * FROM clicks WHERE ms < 0;", deadline_s=0.0)


def test_fields_nobody_had_declared_are_found_later(serving: Serving) -> None:
    serving.log.create_topic(TopicSpec("clicks", value=(Column("PAGE", VARCHAR),)))
    batch = pa.record_batch({"PAGE": ["/a", "/b"], "$rest": ['{"ms": 5}', None]})
    serving.log.append([Append("clicks", batch)]).result()
    serving.add(Source("CLICKS", "stream", "clicks", (), (Column("PAGE", VARCHAR), Column("MS", BIGINT))))
    assert serving.query("SELECT * FROM clicks;").rows == [["/a", 5], ["/b", None]]


def test_by_key_takes_far_less_than_a_millisecond(pages: Serving) -> None:
    pages.caught_up("COUNTS")
    plans = [pages.plan(f"SELECT * FROM counts WHERE page = '/{n}';") for n in range(10)]
    took = []
    for number in range(500):
        plan = plans[number % 10]
        assert isinstance(plan, PullQuery)
        started = time.perf_counter()
        answer = pull(pages.delivery, plan, 60.0, 100)
        took.append(time.perf_counter() - started)
        assert len(answer.rows) == 1
    assert sorted(took)[250] < 0.001

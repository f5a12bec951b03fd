"""Questions: pull queries that group, join, rank and read ranges, in stories."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.deliver.base import Delivery
from headrace.deliver.pull import pull
from headrace.errors import DeadlineExceeded, UsageError
from headrace.sql.ask_plan import AskQuery
from headrace.sql.source import Source
from headrace.store.base import ViewStore
from headrace.store.memory import MemoryStore
from headrace.types import BIGINT, DOUBLE, VARCHAR, Array, Column
from tests.deliver.serving import Serving
from tests.store.project import write

USERS = Source(
    "USERS",
    "table",
    "users",
    (Column("ID", VARCHAR),),
    (Column("NAME", VARCHAR), Column("REGION", VARCHAR), Column("AGE", BIGINT)),
)
REGIONS = Source("REGIONS", "table", "regions", (Column("ID", VARCHAR),), (Column("TITLE", VARCHAR),))
CLICKS = Source(
    "CLICKS",
    "stream",
    "clicks",
    (Column("USERID", VARCHAR),),
    (Column("PAGE", VARCHAR), Column("MS", BIGINT), Column("TAGS", Array(VARCHAR)), Column("SCORE", DOUBLE)),
    partitions=2,
)


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Serving]:
    serving = Serving(tmp_path)
    serving.add(USERS, REGIONS)
    serving.add(CLICKS, partitions=2)
    people = [("u1", "Ada", "n", 30), ("u2", "Bob", "n", 40), ("u3", "Cid", "s", 50), ("u4", "Dee", None, None)]
    rows = ({"ID": i, "NAME": n, "REGION": r, "AGE": a} for i, n, r, a in people)
    write(serving.log, USERS, *rows)
    write(serving.log, REGIONS, {"ID": "n", "TITLE": "North"}, {"ID": "w", "TITLE": "West"})
    for number, (user, page) in enumerate([("u1", "/a"), ("u2", "/a"), ("u1", "/b"), ("u9", "/a"), ("u1", "/a")]):
        row = {"USERID": user, "PAGE": page, "MS": number * 10, "TAGS": ["x", "y"][: number % 3], "SCORE": number / 2}
        write(serving.log, CLICKS, row | {"$time": number * 1_000}, partition=number % 2)
    yield serving
    serving.close()


def test_groups(shop: Serving) -> None:
    rows = shop.rows(
        "SELECT region, COUNT(*), SUM(age), AVG(age), MIN(name) FROM users GROUP BY region ORDER BY region;"
    )
    assert rows == [["n", 2, 70, 35.0, "Ada"], ["s", 1, 50, 50.0, "Cid"]]  # a null key is left out, as in a stream
    assert shop.rows("SELECT region FROM users GROUP BY region HAVING COUNT(*) > 1;") == [["n"]]
    assert shop.rows("SELECT page, COUNT(DISTINCT userid) AS n FROM clicks GROUP BY page ORDER BY n DESC;") == [
        ["/a", 3],
        ["/b", 1],
    ]
    assert shop.rows("SELECT LEN(name) AS l, COUNT(*) + 1 AS n FROM users WHERE age > 30 GROUP BY LEN(name);") == [
        [3, 3]
    ]


def test_a_sum_of_integers_wraps_as_the_engines_does(shop: Serving) -> None:
    largest = 2**63 - 1
    [[total]] = shop.rows(f"SELECT SUM(CAST({largest} AS BIGINT)) FROM users WHERE age IS NOT NULL;")
    [[count]] = shop.rows("SELECT COUNT(*) FROM users WHERE age IS NOT NULL;")
    assert count > 1
    assert total == (largest * count + 2**63) % 2**64 - 2**63
    [[listed]] = shop.rows("SELECT SUM_LIST(ARRAY[2000000000]) FROM users WHERE age IS NOT NULL;")
    assert listed == (2_000_000_000 * count + 2**31) % 2**32 - 2**31


def test_one_group_without_group_by(shop: Serving) -> None:
    assert shop.rows("SELECT COUNT(*), MAX(age), COUNT(age) FROM users;") == [[4, 50, 3]]
    assert shop.rows("SELECT COUNT(*), MAX(age), SUM(age) FROM users WHERE age > 99;") == [[0, None, 0]]
    assert shop.rows("SELECT COLLECT_LIST(page) FROM clicks WHERE userid = 'u1';") == [[["/a", "/b", "/a"]]]
    assert shop.rows("SELECT TOPK(ms, 2), LATEST_BY_OFFSET(page), HISTOGRAM(page) FROM clicks;") == [
        [[40, 30], "/a", {"/a": 4, "/b": 1}]
    ]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("JOIN", [["Ada", "North"], ["Bob", "North"]]),
        ("LEFT JOIN", [["Ada", "North"], ["Bob", "North"], ["Cid", None], ["Dee", None]]),
        ("RIGHT JOIN", [[None, "West"], ["Ada", "North"], ["Bob", "North"]]),
        ("FULL JOIN", [[None, "West"], ["Ada", "North"], ["Bob", "North"], ["Cid", None], ["Dee", None]]),
    ],
)
def test_joins_of_views(shop: Serving, kind: str, expected: list[list[Any]]) -> None:
    sql = f"SELECT u.name, r.title FROM users u {kind} regions r ON u.region = r.id ORDER BY u.name, r.title;"
    assert shop.rows(sql) == expected


def test_joins_by_any_condition(shop: Serving) -> None:
    assert shop.rows("SELECT a.name, b.name FROM users a JOIN users b ON a.age < b.age ORDER BY 1, 2;") == [
        ["Ada", "Bob"],
        ["Ada", "Cid"],
        ["Bob", "Cid"],
    ]
    assert len(shop.rows("SELECT * FROM users CROSS JOIN regions;")) == 8
    sql = "SELECT a.name FROM users a LEFT JOIN users b ON a.region = b.region AND b.age > a.age WHERE b.id IS NULL"
    assert shop.rows(sql + " AND a.age IS NOT NULL ORDER BY 1;") == [["Bob"], ["Cid"]]


def test_what_is_in_a_subquery(shop: Serving) -> None:
    titled = "SELECT id FROM regions WHERE title LIKE '%th'"
    assert shop.rows(f"SELECT name FROM users WHERE region IN ({titled}) ORDER BY name;") == [["Ada"], ["Bob"]]
    # A null is in nothing, so it is among those that are not.
    sql = f"SELECT name FROM users WHERE region NOT IN ({titled}) AND name <> 'Eve' ORDER BY name;"
    assert shop.rows(sql) == [["Cid"], ["Dee"]]
    # A value that is there twice does not make a row come twice, and the rows of a stream keep their order.
    assert shop.rows("SELECT id FROM users WHERE id IN (SELECT userid FROM clicks) ORDER BY id;") == [["u1"], ["u2"]]
    both = "userid IN (SELECT id FROM users WHERE age < 40) AND page IN (SELECT page FROM clicks WHERE userid = 'u9')"
    assert shop.rows(f"SELECT ms FROM clicks WHERE {both};") == [[0], [40]]
    windowed = (
        "SELECT page, COUNT(*) AS n FROM clicks WINDOW TUMBLING (SIZE 1 MINUTE) WHERE userid IN (SELECT id FROM users)"
    )
    assert sorted(shop.rows(windowed + " GROUP BY page;")) == [["/a", 3], ["/b", 1]]
    assert shop.rows("SELECT * FROM users WHERE age IN (SELECT MAX(age) FROM users);") == [["u3", "Cid", "s", 50]]
    nested = "SELECT id FROM regions WHERE id IN (SELECT region FROM users WHERE age IN (SELECT ms FROM clicks))"
    assert shop.rows(f"SELECT name FROM users WHERE region IN ({nested}) ORDER BY 1;") == [["Ada"], ["Bob"]]


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT id FROM users WHERE id IN (SELECT id, name FROM users);", "the subquery of IN has one column, not 2"),
        ("SELECT id FROM users WHERE id IN (SELECT id FROM regions) OR age > 3;", "IN (SELECT …) cannot stand here"),
        ("SELECT id IN (SELECT id FROM regions) FROM users;", "IN (SELECT …) cannot stand here"),
        ("SELECT id FROM users WHERE id IN (SELECT id FROM regions) EMIT CHANGES;", "IN (SELECT …) cannot stand here"),
        ("SELECT id FROM users WHERE age IN (SELECT id FROM regions);", "cannot compare BIGINT with VARCHAR by `=`"),
        ("SELECT id FROM users WHERE id IN (SELECT id FROM users EMIT CHANGES);", "a subquery has no EMIT"),
    ],
)
def test_subqueries_of_in_that_cannot_be(shop: Serving, sql: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        shop.rows(sql)
    assert caught.value.message == message


def test_a_stream_with_a_table(shop: Serving) -> None:
    sql = "SELECT c.page, u.name, COUNT(*) AS n FROM clicks c LEFT JOIN users u ON c.userid = u.id"
    assert shop.rows(sql + " GROUP BY c.page, u.name ORDER BY c.page, u.name;") == [
        ["/a", "Ada", 2],
        ["/a", "Bob", 1],
        ["/b", "Ada", 1],
    ]
    near = "SELECT a.ms, b.ms FROM clicks a JOIN clicks b WITHIN (0 SECONDS, 1 SECOND) ON a.page = b.page"
    assert shop.rows(near + " WHERE a.ms <> b.ms ORDER BY 1;") == [[0, 10], [30, 40]]


def test_windows_over_rows(shop: Serving) -> None:
    sql = """SELECT name, ROW_NUMBER() OVER (ORDER BY age DESC) AS n,
      RANK() OVER (PARTITION BY region ORDER BY name) AS r, SUM(age) OVER (ORDER BY name) AS running,
      LAG(name, 1, '-') OVER (ORDER BY name) AS before,
      SUM(age) OVER (ORDER BY name ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS two FROM users ORDER BY name;"""
    assert shop.rows(sql) == [
        ["Ada", 3, 1, 30, "-", 30],
        ["Bob", 2, 2, 70, "Ada", 70],
        ["Cid", 1, 1, 120, "Bob", 90],
        ["Dee", 4, 1, 120, "Cid", 50],
    ]
    ranked = "SELECT page, COUNT(*) AS n, RANK() OVER (ORDER BY COUNT(*) DESC) AS place FROM clicks GROUP BY page"
    assert shop.rows(ranked + " ORDER BY place;") == [["/a", 4, 1], ["/b", 1, 2]]
    assert shop.rows(f"SELECT page FROM ({ranked}) x WHERE place = 2;") == [["/b"]]


def test_the_best_of_each_group(shop: Serving) -> None:
    sql = """WITH
      ranked AS (SELECT name, region, ROW_NUMBER() OVER (PARTITION BY region ORDER BY age DESC) AS n FROM users),
      first AS (SELECT * FROM ranked WHERE n = 1)
      SELECT f.name, COUNT(*) AS behind FROM first f JOIN ranked r ON f.region = r.region GROUP BY f.name ORDER BY 1;"""
    assert shop.rows(sql) == [["Bob", 2], ["Cid", 1]]


def test_distinct_limit_offset(shop: Serving) -> None:
    assert shop.rows("SELECT DISTINCT region FROM users ORDER BY region;") == [[None], ["n"], ["s"]]
    assert shop.rows("SELECT name FROM users ORDER BY name LIMIT 2 OFFSET 1;") == [["Bob"], ["Cid"]]
    assert shop.rows("SELECT DISTINCT page FROM clicks LIMIT 1 OFFSET 1;") == [["/b"]]


def test_rows_of_arrays(shop: Serving) -> None:
    assert shop.rows("SELECT ms, EXPLODE(tags) AS tag FROM clicks;") == [[10, "x"], [20, "x"], [20, "y"], [40, "x"]]
    assert shop.rows("SELECT tag, COUNT(*) AS n FROM (SELECT EXPLODE(tags) AS tag FROM clicks) t GROUP BY tag;") == [
        ["x", 3],
        ["y", 1],
    ]


def test_ranges(shop: Serving) -> None:
    between = "SELECT ms FROM clicks BETWEEN '1970-01-01T00:00:01' AND '1970-01-01T00:00:03' ORDER BY ms;"
    assert shop.rows(between) == [[10], [20], [30]]
    assert shop.rows("SELECT ms FROM clicks BETWEEN 4000 AND 9000;") == [[40]]
    assert shop.rows("SELECT ms FROM clicks OFFSETS BETWEEN 1 AND 1 ORDER BY ms;") == [[20], [30]]
    assert shop.rows("SELECT ms FROM clicks OFFSETS (0 BETWEEN 1 AND 99) ORDER BY ms;") == [[20], [40]]
    assert shop.rows("SELECT ms FROM clicks OFFSETS BETWEEN 90 AND 99;") == []
    assert shop.rows("SELECT page, COUNT(*) AS n FROM clicks BETWEEN 0 AND 1000 GROUP BY page;") == [["/a", 2]]


def test_time_windows_of_a_stream(shop: Serving) -> None:
    sql = "SELECT page, WINDOWSTART, COUNT(*) AS n FROM clicks WINDOW {} GROUP BY page ORDER BY WINDOWSTART, page;"
    assert shop.rows(sql.format("TUMBLING (SIZE 2 SECONDS)")) == [
        ["/a", 0, 2],
        ["/a", 2000, 1],
        ["/b", 2000, 1],
        ["/a", 4000, 1],
    ]
    hopping = shop.rows(sql.format("HOPPING (SIZE 2 SECONDS, ADVANCE BY 1 SECOND)"))
    assert hopping[:3] == [["/a", 0, 2], ["/a", 1000, 1], ["/b", 1000, 1]]
    sessions = (
        "SELECT page, WINDOWSTART, WINDOWEND, COUNT(*) FROM clicks WINDOW SESSION (1 SECOND) GROUP BY page ORDER BY 2;"
    )
    assert shop.rows(sessions) == [["/a", 0, 1000, 2], ["/b", 2000, 2000, 1], ["/a", 3000, 4000, 2]]


def test_late_records_are_late_here_too(shop: Serving) -> None:
    write(shop.log, CLICKS, {"USERID": "u1", "PAGE": "/late", "MS": 1, "$time": 0}, partition=0)
    sql = "SELECT COUNT(*) FROM clicks WINDOW TUMBLING (SIZE 1 SECOND, GRACE PERIOD {}) WHERE ms = 1 GROUP BY page;"
    assert shop.rows(sql.format("0 SECONDS")) == []
    assert shop.rows(sql.format("1 HOUR")) == [[1]]


def test_an_answer_says_what_it_was_made_of(shop: Serving) -> None:
    for name in ("USERS", "REGIONS"):
        shop.caught_up(name)
    answer = shop.query(
        "SELECT COUNT(*) FROM users u JOIN regions r ON u.region = r.id JOIN clicks c ON c.userid = u.id;"
    )
    assert [(read.name, read.version) for read in answer.reads] == [("USERS", 1), ("REGIONS", 1), ("CLICKS", None)]
    assert len({read.position.arrival for read in answer.reads}) == 1
    assert (answer.view, answer.position) == (None, None)
    alone = shop.query("SELECT COUNT(*) FROM users;")
    assert (alone.view, alone.version, alone.position) == ("USERS", 1, shop.followers.view("USERS").position())


def test_views_that_lag_are_brought_to_one_moment(shop: Serving) -> None:
    """The follower is stopped: what the views have not applied comes from the log."""
    for name in ("USERS", "REGIONS"):
        shop.caught_up(name)
    shop.followers._stop.set()
    shop.followers._thread.join()
    write(shop.log, USERS, {"ID": "u3", "REGION": "w", "NAME": "Cid"}, {"ID": "u1", "$tombstone": True})
    write(shop.log, REGIONS, {"ID": "w", "TITLE": "Wild West"})
    sql = "SELECT u.name, r.title FROM users u JOIN regions r ON u.region = r.id JOIN clicks c ON c.ms = 0 ORDER BY 1;"
    assert shop.query(sql).rows == [["Bob", "North"], ["Cid", "Wild West"]]
    # Without the stream the moment is the newest that a view has.
    assert shop.query("SELECT u.name FROM users u JOIN regions r ON u.region = r.id ORDER BY 1;").rows == [
        ["Ada"],
        ["Bob"],
    ]


def test_a_view_that_is_replaced_meanwhile_is_asked_again(shop: Serving, tmp_path: Path) -> None:
    shop.caught_up("USERS")
    closed = MemoryStore().open_view(USERS, 1)
    closed.close()

    class Switching:
        """The views as they are when one is switched between being found and being read."""

        def __init__(self) -> None:
            self.found = 0

        def view(self, name: str) -> ViewStore:
            self.found += 1
            return closed if self.found == 1 else shop.followers.view(name)

        def version(self, name: str, version: int) -> ViewStore:
            return self.view(name)

        def of_source(self, source: Source) -> ViewStore:
            return self.view(source.name)

        def names(self) -> list[str]:
            return shop.followers.names()

    plan = shop.plan("SELECT COUNT(*) FROM users;")
    assert isinstance(plan, AskQuery)
    delivery = Delivery(shop.log, Switching())
    assert pull(delivery, plan).rows == [[4]]
    delivery.close()


def test_time_and_memory_are_bounded(shop: Serving) -> None:
    write(shop.log, CLICKS, *({"USERID": f"u{n}", "PAGE": f"/{n}", "MS": n} for n in range(5_000)), partition=0)
    with pytest.raises(DeadlineExceeded, match="took longer than"):
        shop.query("SELECT COUNT(*) FROM clicks a JOIN clicks b ON a.ms < b.ms;", deadline_s=0.2)
    for sql in (
        "SELECT page, COUNT(*) FROM clicks GROUP BY page;",
        "SELECT * FROM clicks ORDER BY ms LIMIT 5000 OFFSET 1;",
        "SELECT DISTINCT page FROM clicks;",
        "SELECT COUNT(DISTINCT page) FROM clicks;",
        "SELECT a.ms FROM clicks a JOIN clicks b ON a.ms = b.ms;",
        "SELECT ROW_NUMBER() OVER (ORDER BY ms) FROM clicks;",
    ):
        with pytest.raises(UsageError, match="hold more than") as caught:
            shop.query(sql, max_bytes=200_000)
        assert "query_bytes" in (caught.value.hint or "")
    cut = shop.query("SELECT page, COUNT(*) FROM clicks GROUP BY page;", max_rows=10)
    assert (len(cut.rows), cut.truncated) == (10, True)

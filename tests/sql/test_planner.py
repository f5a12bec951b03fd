"""CREATE … AS SELECT, SELECT and INSERT as plans: keys, names, lifted aggregates, windows, formats."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pytest

from headrace.errors import SqlError
from headrace.sql.api import explain, transient_query, validate
from headrace.sql.plan import Aggregate, Filter, PersistentQuery, PlanNode, Project, PushQuery, Scan, walk
from headrace.sql.printer import print_expression
from headrace.sql.source import Source, Window
from headrace.types import BIGINT, INTEGER, VARCHAR, Column
from tests.sql.catalog import declare, plan, pull, push, refused, shop


def outline(node: PlanNode) -> list[str]:
    """The nodes from top to bottom, in one line each."""
    return [_line(one) for one in walk(node)]


def _line(node: PlanNode) -> str:
    def named(parts: Any) -> str:
        return ", ".join(f"{print_expression(part.expression)} AS {part.name}" for part in parts)

    match node:
        case Project(_, key, value):
            return f"project {named(key)} | {named(value)}"
        case Filter(_, predicate):
            return f"filter {print_expression(predicate)}"
        case Aggregate(_, keys, aggregates, window):
            size = f" per {window.size_ms} ms" if window else ""
            return f"aggregate {named(keys)} | {named(aggregates)}{size}"
        case Scan(source):
            return f"scan {source.name}"
        case _:
            return type(node).__name__.lower()


def test_a_stream_of_a_stream() -> None:
    query = plan(
        "CREATE STREAM long AS SELECT userid AS u, UCASE(pageid) page, seconds / 60 FROM pageviews WHERE seconds > 60;"
    )
    assert outline(query.root) == [
        "project USERID AS U | UCASE(PAGEID) AS PAGE, SECONDS / 60 AS KSQL_COL_0",
        "filter SECONDS > 60",
        "scan PAGEVIEWS",
    ]
    assert query.sink == Source(
        name="LONG",
        kind="stream",
        topic="LONG",
        key=(Column("U", VARCHAR),),
        value=(Column("PAGE", VARCHAR), Column("KSQL_COL_0", INTEGER)),
        partitions=2,
        statement=query.sink.statement,
    )
    assert query.sink.statement.startswith("CREATE STREAM long AS")
    assert query.inputs == (shop().source("PAGEVIEWS"),)


def test_a_windowed_table() -> None:
    query = plan(
        "CREATE TABLE v WITH (KAFKA_TOPIC='views', PARTITIONS=1) AS SELECT pageid, WINDOWSTART AS since, COUNT(*) AS "
        "views, "
        "SUM(seconds) / COUNT(*) AS mean, COUNT_DISTINCT(userid) FROM pageviews WINDOW HOPPING (SIZE 1 HOUR, ADVANCE "
        "BY 10 "
        "MINUTES, GRACE PERIOD 5 SECONDS, RETENTION 2 DAYS) WHERE pageid <> '/health' GROUP BY pageid HAVING "
        "COUNT(*) > 1;"
    )
    assert outline(query.root) == [
        "project PAGEID AS PAGEID | WINDOWSTART AS SINCE, KSQL_AGG_0 AS VIEWS, CAST(KSQL_AGG_1 AS BIGINT) / "
        "KSQL_AGG_0 AS MEAN, "
        "KSQL_AGG_2 AS KSQL_COL_0",
        "filter KSQL_AGG_0 > 1",
        "aggregate PAGEID AS PAGEID | COUNT(*) AS KSQL_AGG_0, SUM(SECONDS) AS KSQL_AGG_1, COUNT_DISTINCT(USERID) AS "
        "KSQL_AGG_2 "
        "per 3600000 ms",
        "filter PAGEID <> '/health'",
        "scan PAGEVIEWS",
    ]
    sink = query.sink
    assert (sink.kind, sink.topic, sink.partitions) == ("table", "views", 1)
    assert sink.key == (Column("PAGEID", VARCHAR),)
    assert sink.value[0] == Column("SINCE", BIGINT)
    assert sink.window == Window("hopping", 3_600_000, 600_000, 5_000, 172_800_000)
    assert [column.name for column in sink.columns] == [
        "PAGEID", "WINDOWSTART", "WINDOWEND", "SINCE", "VIEWS", "MEAN", "KSQL_COL_0",
    ]  # fmt: skip


def test_grace_is_what_is_left_of_a_day() -> None:
    def grace(size: str) -> int:
        window = plan(
            f"CREATE TABLE t AS SELECT pageid, COUNT(*) FROM pageviews WINDOW TUMBLING (SIZE {size}) GROUP BY pageid;"
        ).sink.window
        assert window is not None
        assert window.advance_ms == window.size_ms
        return window.grace_ms

    assert grace("1 HOUR") == 23 * 3_600_000
    assert grace("2 DAYS") == 0


def test_keys_are_in_the_order_of_group_by_and_may_be_expressions() -> None:
    query = plan(
        "CREATE TABLE t AS SELECT COUNT(*) AS n, seconds > 5 AS slow, pageid, AS_VALUE(pageid) AS page FROM pageviews "
        "GROUP BY pageid, seconds > 5;"
    )
    assert outline(query.root)[:2] == [
        "project PAGEID AS PAGEID, KSQL_KEY_1 AS SLOW | KSQL_AGG_0 AS N, AS_VALUE(PAGEID) AS PAGE",
        "aggregate PAGEID AS PAGEID, COALESCE(SECONDS > 5, FALSE) AS KSQL_KEY_1 | COUNT(*) AS KSQL_AGG_0",
    ]
    assert query.sink.window is None
    # The KAFKA format holds one column.
    assert query.sink.key_format == "JSON"


def test_equal_aggregates_are_computed_once_and_having_may_have_its_own() -> None:
    query = plan(
        "CREATE TABLE t AS SELECT pageid, COUNT(*) AS a, COUNT(*) + 1 AS b FROM pageviews GROUP BY pageid HAVING "
        "MAX(seconds) > 1;"
    )
    assert outline(query.root)[2] == "aggregate PAGEID AS PAGEID | COUNT(*) AS KSQL_AGG_0, MAX(SECONDS) AS KSQL_AGG_1"


OF_USERS = "CREATE TABLE latest AS SELECT userid, LATEST_BY_OFFSET(pageid) AS page FROM pageviews GROUP BY userid;"


@pytest.mark.parametrize(
    "below",
    [
        OF_USERS,
        OF_USERS.replace("latest", "l") + "CREATE TABLE latest AS SELECT * FROM l WHERE page <> '/';",
        OF_USERS.replace("latest", "l")
        + "CREATE TABLE latest AS SELECT users.id, page FROM users JOIN l ON users.id = l.userid;",
        OF_USERS.replace("latest", "l")
        + "CREATE TABLE latest (userid VARCHAR PRIMARY KEY, page VARCHAR) WITH (KAFKA_TOPIC='L');",
    ],
)
def test_where_what_was_there_depends_on_cuts_an_empty_group_goes(below: str) -> None:
    grouped = "CREATE TABLE t AS SELECT page, HISTOGRAM(page) AS h FROM latest GROUP BY page"
    for having in ("", " HAVING COUNT(*) < 9"):
        *_, (_, query) = validate(f"{below} {grouped}{having};", shop())
        assert isinstance(query, PersistentQuery)
        condition = "KSQL_AGG_1 > 0" + (" AND KSQL_AGG_1 < 9" if having else "")
        assert outline(query.root)[1:3] == [
            f"filter {condition}",
            "aggregate PAGE AS PAGE | HISTOGRAM(PAGE) AS KSQL_AGG_0, COUNT(*) AS KSQL_AGG_1",
        ]
        assert query.sink.per_batch
    *_, (_, watched) = validate(f"{below} SELECT page, COUNT(*) FROM latest GROUP BY page EMIT CHANGES;", shop())
    assert isinstance(watched, PushQuery)
    assert not any(line.startswith("filter") and "KSQL_AGG" in line for line in outline(watched.root))


@pytest.mark.parametrize(
    "below", ["", "CREATE TABLE named AS SELECT * FROM users WHERE name <> 'x';"], ids=["declared", "of a query"]
)
def test_where_every_change_is_a_record_an_empty_group_stays(below: str) -> None:
    source = "named" if below else "users"
    *_, (_, query) = validate(f"{below} CREATE TABLE t AS SELECT name, COUNT(*) FROM {source} GROUP BY name;", shop())
    assert isinstance(query, PersistentQuery)
    assert isinstance(query.root.input, Aggregate)
    assert not any(source.per_batch for source in query.inputs)


def test_aggregates_take_expressions_and_widths_of_ksql() -> None:
    query = plan(
        "CREATE TABLE t AS SELECT customer, SUM(amount * 2) AS s, AVG(id) AS a, MIN(placed) AS m, SUM(weight) AS w "
        "FROM orders "
        "GROUP BY customer;"
    )
    assert [str(column) for column in query.sink.value] == ["S DECIMAL(21, 2)", "A DOUBLE", "M DATE", "W DOUBLE"]


def test_an_aggregate_of_no_column_is_of_the_rows_times() -> None:
    query = plan(
        "CREATE TABLE t AS SELECT customer, MAX(*) AS m, AVG() AS a, COUNT(*) AS n FROM orders GROUP BY customer;"
    )
    assert outline(query.root)[1].endswith(
        "| MAX(ROWTIME) AS KSQL_AGG_0, AVG(ROWTIME) AS KSQL_AGG_1, COUNT(*) AS KSQL_AGG_2"
    )


def test_stars_expand_to_columns_without_system_columns() -> None:
    query = plan("CREATE STREAM copy AS SELECT p.*, ROWTIME AS at FROM pageviews p;")
    assert [column.name for column in query.sink.columns] == ["USERID", "PAGEID", "VIEWTIME", "SECONDS", "AT"]
    windowed = plan("CREATE TABLE copy AS SELECT * FROM views_per_minute WHERE views > 10;")
    assert [column.name for column in windowed.sink.value] == ["VIEWS"]
    assert windowed.sink.window == windowed.inputs[0].window


def test_names_come_from_columns_fields_and_numbers() -> None:
    [_, (_, query)] = validate(
        "CREATE STREAM odd (k INT KEY, KSQL_COL_1 INT, s STRUCT<k INT, x INT>);"
        "CREATE STREAM t AS SELECT k, s->k, s->x, s->x AS y, s->x, k + 1, k + 2, k + 3 AS z, CAST(k AS INT) FROM odd;"
    )
    assert isinstance(query, PersistentQuery)
    assert [column.name for column in query.sink.columns] == [
        "K", "K_1", "X", "Y", "X_1", "KSQL_COL_0", "KSQL_COL_2", "Z", "KSQL_COL_3",
    ]  # fmt: skip


def test_a_stream_without_a_key_stays_without() -> None:
    query = plan("CREATE STREAM t AS SELECT x, y FROM clicks;")
    assert (query.sink.key, query.root.key) == ((), ())


def test_a_table_of_a_table() -> None:
    query = plan("CREATE TABLE named AS SELECT id, name FROM users WHERE name IS NOT NULL EMIT CHANGES;")
    assert query.sink.key == (Column("ID", VARCHAR),)
    assert outline(query.root)[1] == "filter NAME IS NOT NULL"


def test_a_sinks_properties() -> None:
    query = plan("CREATE STREAM t WITH (FORMAT='JSON', TIMESTAMP='viewtime', REPLICAS=3) AS SELECT * FROM pageviews;")
    assert (query.sink.key_format, query.sink.value_format, query.sink.timestamp) == ("JSON", "JSON", "VIEWTIME")
    inherited = plan("CREATE STREAM t AS SELECT * FROM pageviews;")
    assert (inherited.sink.key_format, inherited.sink.value_format, inherited.sink.timestamp) == ("KAFKA", "JSON", None)


def test_declared_sources() -> None:
    users = declare(
        "CREATE TABLE u (registertime BIGINT, userid VARCHAR, interests ARRAY<VARCHAR>) "
        "WITH (KAFKA_TOPIC='user_topic', VALUE_FORMAT='json', KEY='userid', PARTITIONS='3', TIMESTAMP='registertime');"
    )
    assert users.key == (Column("USERID", VARCHAR),)
    assert [column.name for column in users.value] == ["REGISTERTIME", "INTERESTS"]
    assert (users.topic, users.partitions, users.timestamp) == ("user_topic", 3, "REGISTERTIME")
    quoted = declare(
        "CREATE STREAM q (`userId` VARCHAR KEY, at VARCHAR) WITH (TIMESTAMP='at', TIMESTAMP_FORMAT='yyyy');"
    )
    assert quoted.key == (Column("userId", VARCHAR),)
    assert (quoted.topic, quoted.timestamp, quoted.timestamp_format) == ("Q", "AT", "yyyy")
    several = declare("CREATE TABLE s (a INT PRIMARY KEY, b INT PRIMARY KEY, c INT);")
    assert several.key_format == "JSON"
    assert declare("CREATE STREAM d (a BOOLEAN KEY, b INT);").key_format == "JSON"


def test_pull_queries() -> None:
    query = pull(
        "SELECT pageid AS p, views * 2 AS twice, WINDOWSTART FROM views_per_minute v WHERE v.pageid LIKE '/a%' AND "
        "WINDOWEND > "
        "'2026-11-15' ORDER BY twice DESC, pageid, 3 LIMIT 5;"
    )
    assert [named.name for named in query.items] == ["P", "TWICE", "WINDOWSTART"]
    assert query.predicate is not None
    assert print_expression(query.predicate) == "PAGEID LIKE '/a%' AND WINDOWEND > 1794700800000"
    ordered = [(print_expression(one.expression), one.descending) for one in query.order]
    assert ordered == [("VIEWS * 2", True), ("PAGEID", False), ("WINDOWSTART", False)]
    assert query.limit == 5
    star = pull("SELECT * FROM views_per_minute;")
    assert [named.name for named in star.items] == ["PAGEID", "WINDOWSTART", "WINDOWEND", "VIEWS"]
    assert [named.name for named in pull("SELECT ROWTIME, ROWOFFSET FROM clicks;").items] == ["ROWTIME", "ROWOFFSET"]


def test_push_queries() -> None:
    stateless = push("SELECT pageid, userid, ROWTIME FROM pageviews WHERE seconds > 1 EMIT CHANGES LIMIT 3;")
    assert stateless.stateless
    assert [column.name for column in stateless.root.columns] == ["PAGEID", "USERID", "ROWTIME"]
    assert stateless.limit == 3
    stateful = push(
        "SELECT COUNT(*), pageid FROM pageviews WINDOW TUMBLING (SIZE 1 MINUTE) GROUP BY pageid EMIT CHANGES;"
    )
    assert not stateful.stateless
    assert outline(stateful.root)[0] == "project  | KSQL_AGG_0 AS KSQL_COL_0, PAGEID AS PAGEID"
    transient = transient_query(stateful, "TRANSIENT_1")
    assert transient.root == stateful.root
    assert (transient.sink.topic, transient.sink.kind, transient.sink.partitions) == ("TRANSIENT_1", "stream", 2)
    assert transient.sink.columns == stateful.root.columns


def inserted(sql: str) -> tuple[str, list[dict[str, Any]]]:
    [(_, meaning)] = validate(sql, shop())
    assert isinstance(meaning, tuple)
    source, rows = meaning
    return source.name, rows


def test_whoever_watches_may_have_one_group_of_all_rows() -> None:
    watched = push("SELECT COUNT(*) AS views, MAX(seconds) FROM pageviews EMIT CHANGES;")
    assert [str(column) for column in watched.root.columns] == ["VIEWS BIGINT", "KSQL_COL_0 INTEGER"]
    assert isinstance(watched.root.input, Aggregate)
    assert [named.name for named in watched.root.input.keys] == ["KSQL_KEY_0"]
    message = "column `userid` is neither in GROUP BY nor in an aggregate"
    assert refused("SELECT userid, COUNT(*) FROM pageviews EMIT CHANGES;").message == message


def test_inserted_rows() -> None:
    assert inserted("INSERT INTO clicks VALUES (1, 2), (1 + 2, NULL);") == (
        "CLICKS",
        [{"X": 1, "Y": 2}, {"X": 3, "Y": None}],
    )
    assert inserted("INSERT INTO clicks (y, ROWTIME) VALUES (5, 1000), (6, '1970-01-01T00:00:02Z');")[1] == [
        {"X": None, "Y": 5, "ROWTIME": 1000},
        {"X": None, "Y": 6, "ROWTIME": 2000},
    ]
    [row] = inserted(
        "INSERT INTO orders (id, amount, placed, weight, tags, counts, address, picture, at) VALUES (7, 1.5, "
        "'2026-11-15', 3, "
        "ARRAY['a', UCASE('b')], MAP('k' := 1), STRUCT(street := 'Main', city := STRUCT(name := 'X', zip := 1)), "
        "X'CAFE', '10:00');"
    )[1]
    assert row == {
        "ID": 7,
        "CUSTOMER": None,
        "AMOUNT": Decimal("1.50"),
        "PAID": None,
        "PLACED": datetime.date(2026, 11, 15),
        "WEIGHT": 3.0,
        "TAGS": ["a", "B"],
        "COUNTS": {"k": 1},
        "ADDRESS": {"STREET": "Main", "CITY": {"NAME": "X", "ZIP": 1}},
        "PICTURE": b"\xca\xfe",
        "AT": 36_000_000,
    }
    assert type(row["WEIGHT"]) is float


def test_a_plan_survives_planning_again_from_its_text() -> None:
    query = plan("CREATE TABLE t AS SELECT pageid, COUNT(*) AS n FROM pageviews GROUP BY pageid;")
    assert plan(query.sink.statement) == query


EXPLAINED = """\
TABLE T  emits changes
│  topic   T, 2 partitions
│  format  key KAFKA, value JSON
│  key     PAGEID VARCHAR
│  value   N BIGINT
│  window  TUMBLING (SIZE 1 MINUTE, GRACE PERIOD 10 SECONDS)
└─ PROJECT
   │  key     PAGEID
   │  value   KSQL_AGG_0 AS N
   └─ FILTER the changes of groups
      │  KSQL_AGG_0 > 1
      └─ AGGREGATE
         │  by      PAGEID
         │  compute COUNT(*) AS KSQL_AGG_0
         │  window  TUMBLING (SIZE 1 MINUTE, GRACE PERIOD 10 SECONDS)
         │  state   one row per group and window
         │  moves   rows to the partition of their group (repartition)
         └─ SCAN stream PAGEVIEWS
               topic   pageviews, 2 partitions
               format  key KAFKA, value JSON
               key     USERID VARCHAR
               value   PAGEID VARCHAR, VIEWTIME TIMESTAMP, SECONDS INTEGER
               time    VIEWTIME"""


def test_explain() -> None:
    query = plan(
        "CREATE TABLE t AS SELECT pageid, COUNT(*) AS n FROM pageviews WINDOW TUMBLING (SIZE 1 MINUTE, GRACE PERIOD "
        "10 SECONDS) "
        "GROUP BY pageid HAVING COUNT(*) > 1;"
    )
    assert explain(query) == EXPLAINED


@pytest.mark.parametrize(
    ("sql", "lines"),
    [
        ("SELECT * FROM clicks EMIT CHANGES LIMIT 2;", ["PUSH QUERY  runs in the server, row by row, until 2 rows"]),
        (
            "SELECT x, COUNT(*) FROM clicks GROUP BY x EMIT CHANGES;",
            ["runs as a query on Spark while somebody listens"],
        ),
        (
            "SELECT x FROM clicks WHERE x > 1 ORDER BY y DESC;",
            ["PULL QUERY", "SORT by Y DESC", "X > 1", "SCAN stream CLICKS"],
        ),
        ("SELECT id FROM users;", ["LOOK UP table USERS", "key     ID VARCHAR"]),
    ],
)
def test_explained_queries(sql: str, lines: list[str]) -> None:
    [(_, meaning)] = validate(sql, shop())
    assert not isinstance(meaning, Source | tuple)
    assert meaning is not None
    text = explain(meaning)
    assert [line for line in lines if line not in text] == []


def test_validation_sees_what_statements_before_would_have_made() -> None:
    meanings = validate(
        "CREATE STREAM a (k INT KEY, v INT); CREATE STREAM b AS SELECT * FROM a; EXPLAIN CREATE STREAM c AS SELECT * "
        "FROM b; "
        "DESCRIBE b; DROP STREAM b; DROP STREAM IF EXISTS b; SHOW STREAMS; DESCRIBE FUNCTION len; INSERT INTO a "
        "VALUES (1, 2);"
    )
    assert [type(meaning).__name__ for _, meaning in meanings] == [
        "Source", "PersistentQuery", "PersistentQuery", "Source", *["NoneType"] * 4, "tuple",
    ]  # fmt: skip


def test_classic_sources_have_a_rowkey() -> None:
    declared = "CREATE STREAM v (userid VARCHAR, n INT) WITH (KAFKA_TOPIC='v', KEY='userid');"
    [_, (_, query)] = validate(declared + "CREATE STREAM x AS SELECT ROWKEY AS k, n FROM v WHERE ROWKEY <> 'a';")
    assert isinstance(query, PersistentQuery)
    assert [column.name for column in query.sink.key] == ["K"]
    with pytest.raises(SqlError, match="`rowkey` does not exist"):
        validate("CREATE STREAM v (userid VARCHAR KEY, n INT); SELECT ROWKEY FROM v;")

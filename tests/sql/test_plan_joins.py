"""Joins, new keys, table functions, aggregates over tables and inserts as plans: keys, names, forms, times."""

from __future__ import annotations

import pytest

from headrace.sql.api import Draft, explain, parse
from headrace.sql.expressions import ColumnRef
from headrace.sql.plan import (
    Aggregate,
    FlatMap,
    Join,
    PartitionBy,
    PersistentQuery,
    Within,
    is_table,
    primary_key,
    walk,
)
from headrace.sql.source import Header, Source, Window
from headrace.sql.validate import check
from headrace.types import BIGINT, BYTES, INTEGER, VARCHAR, Column

CATALOG = """
CREATE STREAM views (userid VARCHAR KEY, pageid VARCHAR, seconds INT) WITH (PARTITIONS=2);
CREATE STREAM buys (buyer VARCHAR KEY, product VARCHAR, seconds INT) WITH (PARTITIONS=3);
CREATE TABLE users (id VARCHAR PRIMARY KEY, name VARCHAR, region INT);
CREATE TABLE scores (id VARCHAR PRIMARY KEY, score INT);
CREATE TABLE regions (region INT PRIMARY KEY, title VARCHAR);
CREATE STREAM tagged (id INT KEY, tags ARRAY<VARCHAR>, sizes ARRAY<INT>, place STRUCT<city VARCHAR, zip INT>);
CREATE STREAM w1 (id INT KEY, v INT) WITH (WINDOW_TYPE='TUMBLING', WINDOW_SIZE='1 MINUTE');
CREATE STREAM w2 (id INT KEY, v INT) WITH (WINDOW_TYPE='HOPPING', WINDOW_SIZE='1 MINUTE');
CREATE STREAM sessions (id INT KEY, v INT) WITH (WINDOW_TYPE='SESSION');
"""


def plan(sql: str) -> PersistentQuery:
    draft = Draft()
    for statement in parse(CATALOG):
        check(statement, draft)
    [statement] = parse(sql)
    found = check(statement, draft)
    assert isinstance(found, PersistentQuery)
    return found


def join_of(query: PersistentQuery) -> Join:
    return next(node for node in walk(query.root) if isinstance(node, Join))


def schema(source: Source) -> str:
    return f"{', '.join(map(str, source.key))} | {', '.join(map(str, source.value))}"


def test_stream_with_stream() -> None:
    query = plan(
        "CREATE STREAM x AS SELECT * FROM views v JOIN buys b WITHIN (1 MINUTE, 2 HOURS) GRACE PERIOD 5 SECONDS "
        "ON b.buyer = v.userid;"
    )
    join = join_of(query)
    assert (join.kind, join.form, join.within) == ("inner", "stream-stream", Within(60_000, 7_200_000, 5_000))
    # However ON is written, the left source's side is the left one.
    assert join.left_key == ColumnRef("V_USERID", type=VARCHAR)
    assert join.right_key == ColumnRef("B_BUYER", type=VARCHAR)
    assert schema(query.sink) == (
        "V_USERID VARCHAR | V_PAGEID VARCHAR, V_SECONDS INTEGER, B_BUYER VARCHAR, B_PRODUCT VARCHAR, B_SECONDS INTEGER"
    )
    # The key is the join's own column, which is there whichever side is missing.
    [key] = query.root.key
    assert key.expression == ColumnRef("KSQL_JOIN_KEY_0", type=VARCHAR)
    assert query.sink.partitions == 2


@pytest.mark.parametrize(
    ("select", "expected"),
    [
        ("v.userid, b.product", "USERID VARCHAR | PRODUCT VARCHAR"),
        ("b.buyer, v.seconds, b.seconds AS s", "BUYER VARCHAR | V_SECONDS INTEGER, S INTEGER"),
        # Both can be the key: the left one is.
        ("buyer, userid", "USERID VARCHAR | BUYER VARCHAR"),
        ("AS_VALUE(userid) AS u, userid", "USERID VARCHAR | U VARCHAR"),
        ("v.*, product", "V_USERID VARCHAR | V_PAGEID VARCHAR, V_SECONDS INTEGER, PRODUCT VARCHAR"),
        ("userid, v.ROWTIME AS t", "USERID VARCHAR | T BIGINT"),
    ],
)
def test_names_and_keys_of_a_join(select: str, expected: str) -> None:
    query = plan(f"CREATE STREAM x AS SELECT {select} FROM views v LEFT JOIN buys b WITHIN 1 HOUR ON userid = buyer;")
    assert schema(query.sink) == expected


def test_a_full_join_has_a_key_of_its_own() -> None:
    query = plan("CREATE TABLE x AS SELECT * FROM users u FULL JOIN scores s ON u.id = s.id;")
    assert schema(query.sink) == (
        "ROWKEY VARCHAR | U_ID VARCHAR, U_NAME VARCHAR, U_REGION INTEGER, S_ID VARCHAR, S_SCORE INTEGER"
    )
    assert is_table(query.root)
    assert primary_key(join_of(query)) == ("KSQL_JOIN_KEY_0",)


def test_an_expression_makes_the_other_side_the_key() -> None:
    query = plan("CREATE STREAM x AS SELECT id, pageid FROM views JOIN users ON LCASE(userid) = id;")
    assert schema(query.sink) == "ID VARCHAR | PAGEID VARCHAR"
    both = plan(
        "CREATE STREAM x AS SELECT ROWKEY AS k, pageid FROM views JOIN buys WITHIN 1 DAY "
        "ON LCASE(userid) = UCASE(buyer);"
    )
    assert schema(both.sink) == "K VARCHAR | PAGEID VARCHAR"


def test_a_foreign_key_join_keeps_the_left_tables_key() -> None:
    query = plan("CREATE TABLE x AS SELECT id, title FROM users u LEFT JOIN regions r ON u.region = r.region;")
    join = join_of(query)
    assert (join.form, join.key, primary_key(join)) == ("foreign-key", None, ("U_ID",))
    assert schema(query.sink) == "ID VARCHAR | TITLE VARCHAR"


def test_joins_of_more_than_two_nest_to_the_left() -> None:
    query = plan(
        "CREATE STREAM x AS SELECT s.id, pageid, name, score "
        "FROM views v JOIN users u ON v.userid = u.id LEFT JOIN scores s ON u.id = s.id;"
    )
    outer = join_of(query)
    assert isinstance(outer.left, Join)
    assert (outer.form, outer.left.form) == ("stream-table", "stream-table")
    assert [source.name for source in query.inputs] == ["VIEWS", "USERS", "SCORES"]
    assert schema(query.sink) == "S_ID VARCHAR | PAGEID VARCHAR, NAME VARCHAR, SCORE INTEGER"


def test_windowed_sources_join_window_by_window() -> None:
    query = plan("CREATE STREAM x AS SELECT * FROM w1 JOIN w2 WITHIN 1 HOUR ON w1.id = w2.id;")
    assert join_of(query).windowed
    assert query.sink.window == Window("tumbling", 60_000, 60_000, 0)
    bounds = "{0}_WINDOWSTART BIGINT, {0}_WINDOWEND BIGINT"
    value = f"{bounds.format('W1')}, W1_V INTEGER, W2_ID INTEGER, {bounds.format('W2')}, W2_V INTEGER"
    assert schema(query.sink) == f"W1_ID INTEGER | {value}"


def test_a_windowed_source_keeps_its_window() -> None:
    query = plan("CREATE STREAM x AS SELECT id, v, WINDOWSTART AS since FROM sessions WHERE WINDOWSTART = WINDOWEND;")
    assert query.sink.window == Window("session", 0, 0, 0)
    grouped = plan("CREATE TABLE x AS SELECT v, COUNT(*) FROM sessions GROUP BY v;")
    assert grouped.sink.window is None


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT * FROM views PARTITION BY pageid", "PAGEID VARCHAR | SECONDS INTEGER, USERID VARCHAR"),
        (
            "SELECT * FROM views PARTITION BY seconds + 1",
            "KSQL_COL_0 INTEGER | PAGEID VARCHAR, SECONDS INTEGER, USERID VARCHAR",
        ),
        ("SELECT UCASE(pageid) AS p, userid FROM views PARTITION BY UCASE(pageid)", "P VARCHAR | USERID VARCHAR"),
        ("SELECT pageid, userid FROM views PARTITION BY NULL", " | PAGEID VARCHAR, USERID VARCHAR"),
    ],
)
def test_another_key(sql: str, expected: str) -> None:
    query = plan(f"CREATE STREAM x AS {sql};")
    assert schema(query.sink) == expected
    assert isinstance(query.root.input, PartitionBy)


def test_table_functions_run_side_by_side_and_inside_expressions() -> None:
    query = plan("CREATE STREAM x AS SELECT id, LEN(EXPLODE(tags)) + 1 AS n, EXPLODE(sizes) FROM tagged;")
    [flat] = [node for node in walk(query.root) if isinstance(node, FlatMap)]
    assert [named.column for named in flat.functions] == [
        Column("KSQL_SYNTH_0", VARCHAR),
        Column("KSQL_SYNTH_1", INTEGER),
    ]
    assert schema(query.sink) == "ID INTEGER | N INTEGER, KSQL_COL_0 INTEGER"


def test_the_fields_of_a_struct() -> None:
    query = plan("CREATE STREAM x AS SELECT id, place->* FROM tagged;")
    assert schema(query.sink) == "ID INTEGER | CITY VARCHAR, ZIP INTEGER"


def test_an_aggregate_over_a_table_knows_it_is_one() -> None:
    query = plan("CREATE TABLE x AS SELECT region, COUNT(*) AS people FROM users GROUP BY region;")
    [aggregate] = [node for node in walk(query.root) if isinstance(node, Aggregate)]
    assert (aggregate.over, primary_key(aggregate.input)) == ("table", ("ID",))


def test_final_results_wait_for_nobody_unless_told() -> None:
    query = plan(
        "CREATE TABLE x AS SELECT userid, COUNT(*) FROM views WINDOW SESSION (5 SECONDS) GROUP BY userid EMIT FINAL;"
    )
    assert (query.emit, query.sink.window) == ("final", Window("session", 5_000, 5_000, 0))
    query = plan("CREATE TABLE x AS SELECT userid, COUNT(*) FROM views WINDOW SESSION (5 SECONDS) GROUP BY userid;")
    assert query.sink.window == Window("session", 5_000, 5_000, 86_395_000)


def test_inserts_are_widened_to_the_sinks_columns() -> None:
    draft = Draft()
    for statement in parse("CREATE STREAM wide (k INT KEY, n BIGINT); CREATE STREAM narrow (k INT KEY, n INT);"):
        check(statement, draft)
    [statement] = parse("INSERT INTO wide SELECT * FROM narrow;")
    query = check(statement, draft)
    assert isinstance(query, PersistentQuery)
    assert query.insert
    assert query.root.value[0].column == Column("N", BIGINT)


def test_headers_are_columns_that_are_not_in_the_value() -> None:
    draft = Draft()
    [declared, selected] = parse(
        "CREATE STREAM s (k INT KEY, v INT, h BYTES HEADER('trace')); CREATE STREAM x AS SELECT * FROM s;"
    )
    source = check(declared, draft)
    assert isinstance(source, Source)
    assert (source.value, source.headers) == ((Column("V", INTEGER),), (Header("H", "trace"),))
    query = check(selected, draft)
    assert isinstance(query, PersistentQuery)
    assert query.sink.value == (Column("V", INTEGER), Column("H", BYTES))


def test_classic_sources_need_not_give_their_key() -> None:
    draft = Draft()
    declared = "CREATE STREAM enriched (userid VARCHAR, age INT) WITH (kafka_topic=enriched, KEY='userid');"
    asked = "CREATE STREAM visitors WITH (kafka_topic=visitors, value_format='delimited') AS SELECT age FROM enriched;"
    [first, second] = parse(declared + asked)
    check(first, draft)
    query = check(second, draft)
    assert isinstance(query, PersistentQuery)
    assert (query.sink.key, query.sink.topic, query.sink.value_format) == ((), "visitors", "DELIMITED")


def test_what_is_kept_is_explained() -> None:
    table = explain(plan("CREATE TABLE x AS SELECT region, COUNT(*) FROM users GROUP BY region;"))
    assert "an old value is taken out before the new one is added" in table
    query = "SELECT userid, COUNT(*) FROM views WINDOW SESSION (5 SECONDS, GRACE PERIOD 1 HOUR) GROUP BY userid"
    assert "window  SESSION (5 SECONDS, GRACE PERIOD 1 HOUR)" in explain(plan(f"CREATE TABLE x AS {query};"))


def test_a_join_is_explained_as_a_tree() -> None:
    query = plan(
        "CREATE STREAM x AS SELECT userid, name FROM views v LEFT JOIN users u ON v.userid = u.id WHERE seconds > 5;"
    )
    text = explain(query)
    assert "JOIN left stream-table" in text
    assert "on      V_USERID = U_ID" in text
    assert "state   the table's newest row per key" in text
    lines = text.splitlines()
    [left, right] = [line for line in lines if "RENAME" in line]
    assert "├─" in left
    assert "└─" in right
    # Both scans hang below the join, side by side.
    assert left.index("├") == right.index("└")

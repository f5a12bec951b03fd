"""Types, variables, settings, assertions, further columns and further writers, against a real log."""

from __future__ import annotations

import pytest

from headrace.coordinate.catalog import Catalog
from headrace.coordinate.planning import plan_definition
from headrace.coordinate.statements import StatementExecutor
from headrace.errors import Conflict, SqlError, UsageError
from headrace.log.local.open import LocalLog
from headrace.types import BIGINT, VARCHAR, Array, Column, Struct

from .conftest import Run

STREAM = "CREATE STREAM views (userid VARCHAR KEY, pageid VARCHAR) WITH (KAFKA_TOPIC='views');"


def test_a_type_has_a_name_until_it_is_dropped(run: Run, log: LocalLog, executor: StatementExecutor) -> None:
    run("CREATE TYPE place AS STRUCT<city VARCHAR>; CREATE STREAM homes (id BIGINT KEY, at ARRAY<place>);")
    place = Struct((("CITY", VARCHAR),))
    source = executor.catalog.source("HOMES")
    assert source is not None
    assert source.value == (Column("AT", Array(place)),)
    [shown] = run("SHOW TYPES;")
    assert shown.rows == (("PLACE", "STRUCT<CITY VARCHAR>"),)
    assert run("CREATE TYPE IF NOT EXISTS place AS INT;")[0].kind == "exists"
    with pytest.raises(SqlError, match="exists already"):
        run("CREATE TYPE place AS INT;")
    # Another server, or the same one later, knows it too.
    assert Catalog(log).types() == {"PLACE": place}
    run("DROP TYPE place;")
    assert executor.catalog.types() == {}
    assert executor.catalog.source("HOMES") == source
    assert run("DROP TYPE IF EXISTS place;")[0].kind == "exists"
    with pytest.raises(SqlError, match="unknown type"):
        run("CREATE STREAM more (at place);")


def test_several_queries_write_to_one_stream(run: Run, executor: StatementExecutor) -> None:
    run(STREAM)
    run("CREATE STREAM all_of_it AS SELECT * FROM views;")
    [inserted] = run("INSERT INTO all_of_it SELECT userid, UCASE(pageid) AS pageid FROM views;")
    assert inserted.query_id == "INSERTQUERY_2"
    query = executor.catalog.query("INSERTQUERY_2")
    assert query is not None
    assert (query.sink, query.sources) == ("ALL_OF_IT", ("VIEWS",))
    planned = plan_definition(query, executor.catalog)
    assert planned.insert
    assert planned.sink == executor.catalog.source("ALL_OF_IT")
    with pytest.raises(Conflict, match="is written by INSERTQUERY_2"):
        run("DROP STREAM all_of_it;")
    [explained] = run("EXPLAIN INSERTQUERY_2;")
    assert explained.text is not None
    assert "UCASE(PAGEID) AS PAGEID" in explained.text
    run("TERMINATE INSERTQUERY_2; DROP STREAM all_of_it;")
    assert executor.catalog.queries() == []


def test_columns_are_added_to_the_stream_and_its_topic(run: Run, log: LocalLog, executor: StatementExecutor) -> None:
    run(STREAM)
    [result] = run("ALTER STREAM views ADD COLUMN seconds BIGINT, ADD referrer VARCHAR;")
    assert (result.kind, result.message) == ("altered", "stream `views` has seconds, referrer too")
    source = executor.catalog.source("VIEWS")
    assert source is not None
    assert source.value[1:] == (Column("SECONDS", BIGINT), Column("REFERRER", VARCHAR))
    assert log.topic("views").spec.value == source.value
    run("INSERT INTO views VALUES ('u', '/a', 7, NULL);")
    # Its statement says what it has now.
    [again] = run(source.statement.replace("CREATE STREAM", "CREATE OR REPLACE STREAM", 1))
    assert again.kind == "exists"


def test_pausing_and_resuming(run: Run, executor: StatementExecutor) -> None:
    run(STREAM)
    run("CREATE STREAM copy AS SELECT * FROM views;")

    def wanted() -> list[str]:
        return [query.wanted for query in executor.catalog.queries()]

    assert run("PAUSE CSAS_COPY_1;")[0].kind == "paused"
    assert wanted() == ["stopped"]
    assert run("RESUME ALL;")[0].query_id == "CSAS_COPY_1"
    assert wanted() == ["running"]
    with pytest.raises(SqlError, match="does not exist"):
        run("PAUSE csas_copi_1;")


def test_variables_count_from_where_they_are_defined(run: Run) -> None:
    run("DEFINE name = 'views'; CREATE STREAM ${name} (a INT) WITH (KAFKA_TOPIC='${name}'); UNDEFINE name;")
    with pytest.raises(SqlError, match="is not defined"):
        run("DESCRIBE ${name};")
    with pytest.raises(SqlError, match="is not defined"):
        run("DEFINE name = 'views'; UNDEFINE name; DESCRIBE ${name};")


def test_a_query_that_inserts_may_have_a_name(run: Run, executor: StatementExecutor) -> None:
    run(STREAM + "CREATE STREAM all_views (userid VARCHAR KEY, pageid VARCHAR);")
    insert = "INSERT INTO all_views WITH (QUERY_ID='{}') SELECT * FROM views;"
    [made] = run(insert.format("from_views"))
    assert made.query_id == "FROM_VIEWS_1"
    with pytest.raises(SqlError, match="cannot be a query's id"):
        run(insert.format("../x"))
    with pytest.raises(SqlError, match="unknown property"):
        run("INSERT INTO all_views WITH (QUERYID='x') SELECT * FROM views;")
    with pytest.raises(SqlError) as unknown:
        run("TERMINATE from_views;")
    assert unknown.value.hint == "did you mean `FROM_VIEWS_1`?  SHOW QUERIES; lists all"
    run("TERMINATE from_views_1;")
    assert executor.catalog.queries() == []
    # Its own query is only stopped.
    run("CREATE STREAM more AS SELECT * FROM views; TERMINATE ALL;")
    assert [query.wanted for query in executor.catalog.queries()] == ["stopped"]


def test_settings_of_ksqldb_are_accepted_and_said_to_do_nothing(run: Run) -> None:
    [reset, other, unset] = run(
        "SET 'auto.offset.reset' = 'earliest'; SET 'ksql.streams.num.stream.threads' = '4'; UNSET 'auto.offset.reset';"
    )
    assert reset.message.startswith("`auto.offset.reset` is where EMIT CHANGES and PRINT begin")
    assert "no effect" in other.message
    assert unset.kind == "set"


def test_formats_can_be_set_for_what_follows(run: Run, executor: StatementExecutor) -> None:
    run(
        "SET 'ksql.persistence.default.format.value' = 'DELIMITED'; CREATE STREAM a (x INT, y INT);"
        "UNSET 'ksql.persistence.default.format.value'; SET 'ksql.persistence.wrap.single.values' = 'false';"
        "CREATE STREAM b (x INT);"
    )
    formats = {name: executor.catalog.source(name) for name in ("A", "B")}
    assert [(s.value_format, s.wrap_single_value) for s in formats.values() if s] == [
        ("DELIMITED", None),
        ("JSON", False),
    ]


def test_assertions(run: Run) -> None:
    run(STREAM)
    run("ASSERT TOPIC views WITH (PARTITIONS=1); ASSERT NOT EXISTS TOPIC other TIMEOUT 1 SECOND;")
    run("ASSERT STREAM views (userid VARCHAR KEY, pageid VARCHAR) WITH (KAFKA_TOPIC='views', VALUE_FORMAT='JSON');")
    for wrong in (
        "ASSERT TOPIC other TIMEOUT 10 MILLISECONDS;",
        "ASSERT NOT EXISTS TOPIC views;",
        "ASSERT TOPIC views WITH (PARTITIONS=3);",
        "ASSERT TABLE views (userid VARCHAR PRIMARY KEY, pageid VARCHAR);",
        "ASSERT STREAM views (userid VARCHAR KEY, pageid INT);",
        "ASSERT STREAM views (userid VARCHAR KEY, pageid VARCHAR) WITH (KAFKA_TOPIC='other');",
        "ASSERT SCHEMA SUBJECT 'x';",
    ):
        with pytest.raises(UsageError):
            run(wrong)


def test_a_source_is_only_read(run: Run, log: LocalLog) -> None:
    run("CREATE SOURCE STREAM given (a INT) WITH (KAFKA_TOPIC='given');")
    for refused in (
        "INSERT INTO given VALUES (1);",
        "ALTER STREAM given ADD COLUMN b INT;",
        "DROP STREAM given DELETE TOPIC;",
        "CREATE OR REPLACE STREAM given (a INT, b INT) WITH (KAFKA_TOPIC='given');",
    ):
        with pytest.raises(SqlError, match="SOURCE"):
            run(refused)
    run("DROP STREAM given;")
    assert log.topic("given").name == "given"


def test_scripts_are_for_where_the_files_are(run: Run) -> None:
    with pytest.raises(UsageError, match="RUN SCRIPT"):
        run("RUN SCRIPT '/etc/passwd';")


def test_a_query_without_state_is_replaced_in_place(run: Run, log: LocalLog, executor: StatementExecutor) -> None:
    run(STREAM)
    run("CREATE STREAM loud AS SELECT userid, UCASE(pageid) AS page FROM views;")
    [result] = run(
        "CREATE OR REPLACE STREAM loud AS SELECT userid, UCASE(pageid) AS page, LEN(pageid) AS n FROM views "
        "WHERE pageid <> '/';"
    )
    assert (result.kind, result.query_id) == ("replaced", "CSAS_LOUD_1")
    source, query = executor.catalog.source("LOUD"), executor.catalog.query("CSAS_LOUD_1")
    assert source is not None
    assert query is not None
    assert [column.name for column in log.topic("LOUD").spec.value] == ["PAGE", "N"]
    assert (source.query, query.version, "WHERE" in query.statement) == ("CSAS_LOUD_1", 1, True)
    assert plan_definition(query, executor.catalog).sink == source


@pytest.mark.parametrize(
    ("first", "second", "reason"),
    [
        (
            "SELECT userid, pageid FROM views",
            "SELECT userid, LEN(pageid) AS pageid FROM views",
            "`pageid` is VARCHAR, and would be INTEGER",
        ),
        ("SELECT userid, pageid FROM views", "SELECT userid, pageid AS p FROM views", "`pageid` would change"),
        ("SELECT userid, pageid FROM views", "SELECT userid AS u, pageid FROM views", "key would change"),
        ("SELECT userid, pageid FROM views", "SELECT userid, pageid FROM others", "read others instead of views"),
        (
            "SELECT v.userid, v.pageid FROM views v JOIN others o WITHIN 1 HOUR ON v.userid = o.userid",
            "SELECT v.userid, v.pageid FROM views v JOIN others o WITHIN 2 HOURS ON v.userid = o.userid",
            "what it has kept so far",
        ),
    ],
)
def test_what_cannot_go_on_is_not_replaced(run: Run, first: str, second: str, reason: str) -> None:
    run(STREAM + "CREATE STREAM others (userid VARCHAR KEY, pageid VARCHAR);")
    run(f"CREATE STREAM x AS {first};")
    with pytest.raises(Conflict, match=reason):
        run(f"CREATE OR REPLACE STREAM x AS {second};")


def test_a_declared_stream_is_replaced_by_one_with_more_columns(run: Run, log: LocalLog) -> None:
    run(STREAM)
    replaced = STREAM.replace("CREATE", "CREATE OR REPLACE", 1)
    [result] = run(replaced.replace("pageid VARCHAR", "pageid VARCHAR, seconds INT"))
    assert result.kind == "replaced"
    assert [column.name for column in log.topic("views").spec.value] == ["PAGEID", "SECONDS"]
    with pytest.raises(Conflict, match="`seconds` would change, move or go"):
        run(replaced)


def test_a_topic_keeps_records_as_long_as_it_is_told(run: Run, log: LocalLog) -> None:
    run(STREAM)
    run("CREATE STREAM shortly WITH (RETENTION_MS=60000) AS SELECT * FROM views;")
    assert log.topic("SHORTLY").spec.config.retention_ms == 60_000
    assert log.topic("views").spec.config.retention_ms == 0


def test_explaining_a_replacement_says_what_it_would_do(run: Run, executor: StatementExecutor) -> None:
    count = "CREATE {} TABLE n AS SELECT pageid, COUNT(*) AS n FROM views {} GROUP BY pageid;"
    upper = "CREATE {} STREAM u AS SELECT userid, UCASE(pageid) AS p FROM views {};"
    run(STREAM + count.format("", "") + upper.format("", ""))

    def change(sql: str) -> str:
        [explained] = run(f"EXPLAIN {sql}")
        assert explained.text is not None
        return explained.text.split("CHANGE of ")[-1]

    assert change(count.format("OR REPLACE", "")) == "table `n`: none, it is defined like this"
    rebuilt = change(count.format("OR REPLACE", "WHERE pageid <> '/'"))
    assert rebuilt.startswith("table `n`: rebuilds as version 2 beside the one that serves: 0 records, because")
    goes_on = change(upper.format("OR REPLACE", "WHERE pageid <> '/'"))
    assert goes_on == "stream `u`: continues, because what it has written stays as it is"
    run("CREATE STREAM v AS SELECT * FROM u;")
    before = executor.catalog.state
    whole = run("EXPLAIN CREATE OR REPLACE STREAM u AS SELECT userid, LEN(pageid) AS p FROM views;")[0].text or ""
    assert "CHANGE of stream `u`: rebuilds" in whole
    assert "CHANGE of stream `v`: rebuilds" in whole
    assert executor.catalog.state == before
    [extended] = run("EXPLAIN EXTENDED CTAS_N_1;")
    assert "it has not run a batch" in (extended.text or "")
    # Of a statement, it is the engine that knows.
    [statement] = run("EXPLAIN EXTENDED CREATE STREAM w AS SELECT * FROM u;")
    assert "the engine, which is not running" in (statement.text or "")
    [question] = run("EXPLAIN EXTENDED SELECT * FROM u;")
    assert "Spark has no part in it" in (question.text or "")


def test_a_stream_is_copied_into_one_with_wider_numbers(run: Run) -> None:
    """What the plan advises where a column is to have another type."""
    columns = "userid VARCHAR KEY, ms {}, price DECIMAL({}, 2), share {}"
    run(f"CREATE STREAM narrow ({columns.format('INT', 6, 'BIGINT')}) WITH (KAFKA_TOPIC='narrow');")
    run(f"CREATE STREAM wide ({columns.format('BIGINT', 12, 'DOUBLE')}) WITH (KAFKA_TOPIC='wide');")
    assert "writes to stream `wide` too" in run("INSERT INTO wide SELECT * FROM narrow;")[0].message

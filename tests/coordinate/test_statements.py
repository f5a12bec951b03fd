"""Statements against a real log: what they make, what they refuse, and that being killed in between is harmless."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from headrace.clock import ManualClock
from headrace.coordinate.catalog import Catalog
from headrace.coordinate.events import SourceCreated
from headrace.coordinate.planning import plan_definition
from headrace.coordinate.statements import StatementExecutor, StatementResult
from headrace.errors import Conflict, HeadraceError, NotFound, SqlError, UsageError
from headrace.log.base import Append, TopicSpec
from headrace.log.local.open import LocalLog
from headrace.sql.api import parse, plan_select
from headrace.sql.plan import Aggregate, Filter, PushQuery
from headrace.sql.statements import SelectStatement
from headrace.types import BIGINT, VARCHAR, Column

from .conftest import NOW_MS, Run

STREAM = """CREATE STREAM pageviews (userid VARCHAR KEY, pageid VARCHAR, viewtime TIMESTAMP)
  WITH (KAFKA_TOPIC='pageviews', TIMESTAMP='viewtime', PARTITIONS=2);"""
TABLE = "CREATE TABLE by_page AS SELECT pageid, COUNT(*) AS views FROM pageviews GROUP BY pageid;"
WINDOWED = """CREATE TABLE per_minute AS SELECT pageid, COUNT(*) AS views
  FROM pageviews WINDOW TUMBLING (SIZE 1 MINUTE) GROUP BY pageid;"""


def rows(result: StatementResult) -> list[tuple[Any, ...]]:
    assert result.rows is not None
    return list(result.rows)


# Creating


def test_a_stream_makes_its_topic(run: Run, log: LocalLog, executor: StatementExecutor) -> None:
    [result] = run(STREAM)
    assert (result.kind, result.message) == ("created", "stream `pageviews` is there")
    spec = log.topic("pageviews").spec
    assert (spec.partitions, spec.role, spec.kind) == (2, "events", "typed")
    assert spec.timestamp is not None
    assert spec.timestamp.column == "VIEWTIME"
    assert [column.name for column in spec.key] == ["USERID"]
    source = executor.catalog.source("PAGEVIEWS")
    assert source is not None
    assert source.statement == STREAM
    assert executor.catalog.views() == []


def test_a_table_over_a_topic_is_served(run: Run, executor: StatementExecutor) -> None:
    run("CREATE TABLE users (id VARCHAR PRIMARY KEY, name VARCHAR) WITH (KAFKA_TOPIC='users');")
    [view] = executor.catalog.views()
    assert (view.name, view.version, view.query_id, view.topic) == ("USERS", 1, None, "users")


def test_a_query_makes_topics_source_query_and_view(run: Run, log: LocalLog, executor: StatementExecutor) -> None:
    results = run(STREAM + TABLE + WINDOWED)
    assert [result.query_id for result in results] == [None, "CTAS_BY_PAGE_1", "CTAS_PER_MINUTE_2"]
    plain, windowed = log.topic("BY_PAGE").spec, log.topic("PER_MINUTE").spec
    assert (plain.role, plain.windowed, plain.partitions) == ("derived", None, 2)
    assert windowed.windowed == "time"
    names = [topic.name for topic in log.topics() if topic.name.startswith("_late")]
    assert names == ["_late.CTAS_PER_MINUTE_2"]
    assert [column.name for column in log.topic(names[0]).spec.value] == [
        "TOPIC", "PARTITION", "OFFSET", "STREAM_TIME", "WINDOW_START", "WINDOW_END", "LATE_BY", "ROW",
    ]  # fmt: skip
    query = executor.catalog.query("CTAS_BY_PAGE_1")
    assert query is not None
    assert (query.sink, query.sources, query.wanted, query.version) == ("BY_PAGE", ("PAGEVIEWS",), "running", 1)
    assert query.created_ms == NOW_MS
    assert [view.name for view in executor.catalog.views()] == ["BY_PAGE", "PER_MINUTE"]


def test_a_query_of_before_goes_on_with_its_empty_groups(run: Run, executor: StatementExecutor) -> None:
    """Its state has no count of rows, whatever is known by now of the table that it reads."""
    run(STREAM)
    run("CREATE TABLE latest AS SELECT userid, LATEST_BY_OFFSET(pageid) AS pageid FROM pageviews GROUP BY userid;")
    run("CREATE TABLE pages AS SELECT pageid, HISTOGRAM(userid) AS users FROM latest GROUP BY pageid;")
    catalog = executor.catalog
    [query] = [query for query in catalog.queries() if query.sink == "PAGES"]
    assert isinstance(plan_definition(query, catalog).root.input, Filter)
    for name in ("LATEST", "PAGES"):
        source = catalog.source(name)
        assert source is not None
        assert source.per_batch
        catalog.append([SourceCreated(replace(source, per_batch=False))])
    assert isinstance(plan_definition(query, catalog).root.input, Aggregate)
    # In place, in either order: its state is still the one it was.
    run("CREATE OR REPLACE TABLE pages AS SELECT pageid, HISTOGRAM(userid) AS users FROM latest l GROUP BY pageid;")
    [query] = [query for query in catalog.queries() if query.sink == "PAGES"]
    run(
        "CREATE OR REPLACE TABLE latest AS SELECT userid, UCASE(LATEST_BY_OFFSET(pageid)) AS pageid FROM pageviews "
        "GROUP BY userid;"
    )
    latest = catalog.source("LATEST")
    assert latest is not None
    assert latest.per_batch
    assert isinstance(plan_definition(query, catalog).root.input, Aggregate)


def test_names_are_taken_once(run: Run) -> None:
    run(STREAM)
    with pytest.raises(Conflict, match="stream `pageviews` exists already"):
        run(STREAM)
    with pytest.raises(Conflict, match="stream `pageviews` exists already"):
        run("CREATE TABLE pageviews (id VARCHAR PRIMARY KEY) WITH (KAFKA_TOPIC='x');")


def test_if_not_exists_and_the_same_again_do_nothing(run: Run, executor: StatementExecutor) -> None:
    run(STREAM)
    before = executor.catalog.state.events
    [same] = run("CREATE OR REPLACE STREAM PageViews (userid VARCHAR KEY, -- who\n pageid VARCHAR, viewtime TIMESTAMP)"
                 " WITH (KAFKA_TOPIC='pageviews', TIMESTAMP='viewtime', PARTITIONS=2)")  # fmt: skip
    assert (same.kind, same.message) == ("exists", "stream `pageviews` exists already")
    [other] = run("CREATE STREAM IF NOT EXISTS pageviews (userid VARCHAR) WITH (KAFKA_TOPIC='pageviews');")
    assert other.message == "stream `pageviews` exists already, defined differently"
    assert executor.catalog.state.events == before


def test_replacing_by_something_else_says_what_to_do(run: Run) -> None:
    run(STREAM + TABLE)
    with pytest.raises(Conflict, match="cannot be changed in place: its column `views` would") as refused:
        run("CREATE OR REPLACE TABLE by_page AS SELECT pageid, COUNT(*) AS n FROM pageviews GROUP BY pageid;")
    assert refused.value.hint is not None
    assert refused.value.hint.startswith("choose another name, or deploy it from a file:  headrace plan")


def test_hints_destroy_nothing(run: Run) -> None:
    """What exists is changed or kept, and what reads a source is named; no hint deletes a topic."""
    other = TABLE.replace("by_page", "others")
    run(STREAM + TABLE + other)
    hints = {}
    for statement in (STREAM, TABLE, "DROP STREAM pageviews;", "DROP STREAM by_page;"):
        with pytest.raises(HeadraceError) as refused:
            run(statement)
        hints[statement.split(";")[0][:30]] = refused.value.hint or ""
    assert list(hints.values()) == [
        "to change it:  CREATE OR REPLACE STREAM pageviews …      to keep both, choose another name",
        "to change it:  CREATE OR REPLACE TABLE by_page …      to keep both, choose another name",
        "first change what reads it, or drop that too:  DROP TABLE by_page;  DROP TABLE others;",
        "DROP TABLE by_page;",
    ]
    assert not any("DELETE TOPIC" in hint for hint in hints.values())


def test_variables_are_filled_in_before_it_is_kept(run: Run, executor: StatementExecutor) -> None:
    run("CREATE STREAM ${name} (a VARCHAR) WITH (KAFKA_TOPIC='${topic}');", {"name": "clicks", "topic": "t"})
    source = executor.catalog.source("CLICKS")
    assert source is not None
    assert (source.topic, source.statement) == ("t", "CREATE STREAM clicks (a VARCHAR) WITH (KAFKA_TOPIC='t');")
    with pytest.raises(SqlError, match="variable `nam` is not defined"):
        run("DROP STREAM ${nam};", {"name": "clicks"})


def test_a_parse_error_runs_nothing(run: Run, executor: StatementExecutor) -> None:
    with pytest.raises(SqlError) as wrong:
        run(STREAM + "\nCREATE TABEL x;")
    assert wrong.value.line == 3
    assert executor.catalog.source("PAGEVIEWS") is None


def test_statements_before_the_failing_one_have_happened(executor: StatementExecutor) -> None:
    done: list[str] = []
    with pytest.raises(SqlError, match="does not exist"):
        done.extend(result.kind for result in executor.run(STREAM + "DROP STREAM nobody;"))
    assert done == ["created"]
    assert executor.catalog.source("PAGEVIEWS") is not None


# An existing topic


def test_a_second_stream_reads_what_the_first_did_not_declare(run: Run, executor: StatementExecutor) -> None:
    run(STREAM)
    run("CREATE STREAM more (userid VARCHAR KEY, country VARCHAR) WITH (KAFKA_TOPIC='pageviews');")
    source = executor.catalog.source("MORE")
    assert source is not None
    assert (source.partitions, [column.name for column in source.value]) == (2, ["COUNTRY"])


@pytest.mark.parametrize(
    ("declaration", "message"),
    [
        ("(pageid BIGINT) WITH (KAFKA_TOPIC='pageviews')", "`pageid` is VARCHAR in topic `pageviews`, not BIGINT"),
        ("(pageid VARCHAR KEY) WITH (KAFKA_TOPIC='pageviews')", "`pageid` is not a key of topic `pageviews`"),
        ("(a VARCHAR) WITH (KAFKA_TOPIC='pageviews', PARTITIONS=3)", "has 2 partitions, not 3"),
        (
            "(at BIGINT) WITH (KAFKA_TOPIC='pageviews', TIMESTAMP='at')",
            "records of topic `pageviews` get their time from `viewtime`, not from `at`",
        ),
    ],
)
def test_a_stream_that_does_not_fit_its_topic(run: Run, declaration: str, message: str) -> None:
    run(STREAM)
    with pytest.raises((UsageError, Conflict)) as refused:
        run(f"CREATE STREAM other {declaration};")
    assert message in refused.value.message
    assert refused.value.hint


def test_a_stream_over_a_query_s_topic_has_only_its_columns(run: Run) -> None:
    run(STREAM + TABLE)
    with pytest.raises(UsageError, match="topic `BY_PAGE` has no column `country`"):
        run("CREATE STREAM changes (pageid VARCHAR KEY, country VARCHAR) WITH (KAFKA_TOPIC='BY_PAGE');")


def test_topics_of_others_cannot_be_written(run: Run, log: LocalLog) -> None:
    run(STREAM)
    select = "AS SELECT userid, pageid FROM pageviews;"
    with pytest.raises(Conflict, match="belongs to `pageviews`"):
        run(f"CREATE STREAM copy WITH (KAFKA_TOPIC='pageviews') {select}")
    log.create_topic(TopicSpec("outside", value=(Column("A", VARCHAR),)))
    with pytest.raises(Conflict, match="takes events from outside"):
        run(f"CREATE STREAM copy WITH (KAFKA_TOPIC='outside') {select}")
    with pytest.raises(UsageError, match="one of Headrace's own"):
        run(f"CREATE STREAM copy WITH (KAFKA_TOPIC='_mine') {select}")


# Killed in between


def test_a_statement_that_was_cut_short_can_be_run_again(run: Run, log: LocalLog, clock: ManualClock) -> None:
    run(STREAM)
    orphan = TopicSpec("PER_MINUTE", (Column("PAGEID", VARCHAR),), (Column("VIEWS", BIGINT),), 2, role="derived",
                       windowed="time")  # fmt: skip
    log.create_topic(orphan)
    log.create_topic(TopicSpec("BY_PAGE", value=(Column("OTHER", VARCHAR),), role="derived"))
    # A new server, as after a kill.
    again = StatementExecutor(log, Catalog(log), clock)
    again.recover()
    again.execute(WINDOWED + TABLE)
    assert [column.name for column in log.topic("BY_PAGE").spec.value] == ["VIEWS"]


def test_a_topic_with_records_is_not_taken_over(run: Run, log: LocalLog) -> None:
    import pyarrow as pa

    run(STREAM)
    log.create_topic(TopicSpec("BY_PAGE", value=(Column("N", BIGINT),), role="derived"))
    log.append([Append("BY_PAGE", pa.record_batch({"N": [1]}))]).result()
    with pytest.raises(Conflict, match="topic `BY_PAGE` holds records of an earlier query") as refused:
        run(TABLE)
    assert "headrace topic delete BY_PAGE" in str(refused.value)


def test_a_drop_that_was_cut_short_is_ended(run: Run, log: LocalLog, clock: ManualClock) -> None:
    run(STREAM + WINDOWED)

    class Killed(BaseException):
        pass

    class DyingLog:
        """The log, as seen by a server that is killed when it comes to deleting."""

        def __getattr__(self, name: str) -> Any:
            if name == "delete_topic":
                raise Killed
            return getattr(log, name)

    dying: Any = DyingLog()
    with pytest.raises(Killed):
        StatementExecutor(dying, Catalog(dying), clock).execute("DROP TABLE per_minute DELETE TOPIC;")
    assert {"PER_MINUTE", "_late.CTAS_PER_MINUTE_1"} <= {topic.name for topic in log.topics()}
    again = StatementExecutor(log, Catalog(log), clock)
    again.recover()
    assert not {"PER_MINUTE", "_late.CTAS_PER_MINUTE_1"} & {topic.name for topic in log.topics()}
    assert again.catalog.state.doomed_topics == frozenset()


# Dropping


def test_what_is_read_cannot_be_dropped(run: Run) -> None:
    run(STREAM + TABLE)
    with pytest.raises(Conflict, match=r"is read by CTAS_BY_PAGE_1 \(writes `by_page`\)") as refused:
        run("DROP STREAM pageviews;")
    assert refused.value.hint == "first change what reads it, or drop that too:  DROP TABLE by_page;"


def test_dropping_a_table_ends_its_query(run: Run, log: LocalLog, executor: StatementExecutor) -> None:
    run(STREAM + WINDOWED)
    [result] = run("DROP TABLE per_minute DELETE TOPIC;")
    assert result.message == "table `per_minute` is gone; topic `PER_MINUTE` is deleted"
    catalog = executor.catalog
    assert (catalog.queries(), catalog.views(), catalog.source("PER_MINUTE")) == ([], [], None)
    assert [topic.name for topic in log.topics()] == ["_catalog", "_dead_letters", "pageviews"]
    [result] = run(WINDOWED)
    assert result.query_id == "CTAS_PER_MINUTE_2"
    [view] = catalog.views()
    assert view.version == 2


def test_dropping_keeps_the_topic_unless_told(run: Run, log: LocalLog) -> None:
    run(STREAM)
    [result] = run("DROP STREAM pageviews;")
    assert result.message == "stream `pageviews` is gone; topic `pageviews` is kept"
    assert log.topic("pageviews")


def test_a_topic_under_two_streams_is_not_deleted(run: Run) -> None:
    run(STREAM + "CREATE STREAM other (a VARCHAR) WITH (KAFKA_TOPIC='pageviews');")
    with pytest.raises(Conflict, match="topic `pageviews` is also under `other`"):
        run("DROP STREAM pageviews DELETE TOPIC;")


def test_dropping_what_is_not_there(run: Run) -> None:
    run(STREAM)
    with pytest.raises(SqlError, match="stream `pageview` does not exist") as wrong:
        run("SHOW STREAMS;\nDROP STREAM pageview;")
    assert (wrong.value.line, wrong.value.column, wrong.value.length) == (2, 13, 8)
    assert "did you mean `pageviews`?" in str(wrong.value)
    [result] = run("DROP STREAM IF EXISTS pageview;")
    assert result.kind == "exists"
    with pytest.raises(SqlError, match="`pageviews` is a stream"):
        run("DROP TABLE pageviews;")
    with pytest.raises(SqlError, match="`dead_letters` is built in"):
        run("DROP STREAM dead_letters;")


# Queries


def test_queries_are_stopped_and_started(run: Run, executor: StatementExecutor) -> None:
    run(STREAM + TABLE)
    [result] = run("TERMINATE CTAS_BY_PAGE_1;")
    assert (result.kind, result.query_id) == ("terminated", "CTAS_BY_PAGE_1")
    query = executor.catalog.query("CTAS_BY_PAGE_1")
    assert query is not None
    assert query.wanted == "stopped"
    assert executor.set_wanted("CTAS_BY_PAGE_1", "running").wanted == "running"
    events = executor.catalog.state.events
    executor.set_wanted("CTAS_BY_PAGE_1", "running")
    assert executor.catalog.state.events == events
    with pytest.raises(NotFound, match="query `CTAS_BY_PAGE_2` does not exist"):
        executor.set_wanted("CTAS_BY_PAGE_2", "stopped")
    with pytest.raises(SqlError, match="query `NOBODY` does not exist"):
        run("TERMINATE nobody;")
    run("TERMINATE ALL;")
    assert [query.wanted for query in executor.catalog.queries()] == ["stopped"]


def push_query(executor: StatementExecutor, sql: str) -> PushQuery:
    [statement] = parse(sql)
    assert isinstance(statement, SelectStatement)
    plan = plan_select(statement, executor.catalog)
    assert isinstance(plan, PushQuery)
    return plan


def test_a_transient_query_comes_and_goes(
    run: Run, log: LocalLog, clock: ManualClock, executor: StatementExecutor
) -> None:
    run(STREAM)
    sql = "SELECT pageid, COUNT(*) AS n FROM pageviews GROUP BY pageid EMIT CHANGES LIMIT 3;"
    query = executor.start_transient(push_query(executor, sql), sql)
    assert (query.id, query.transient) == ("TRANSIENT_PAGEVIEWS_1", True)
    sink = executor.catalog.source(query.sink)
    assert sink is not None
    assert sink.topic == "_transient.TRANSIENT_PAGEVIEWS_1"
    assert [column.name for column in sink.columns] == ["PAGEID", "N"]
    assert log.topic(sink.topic).spec.role == "derived"
    assert [name for name, *_ in rows(run("SHOW STREAMS;")[0])] == ["dead_letters", "pageviews"]

    # It does not keep its stream from being dropped, nor outlives its server.
    executor.drop_transient(query.id)
    executor.drop_transient(query.id)
    assert [topic.name for topic in log.topics()] == ["_catalog", "_dead_letters", "pageviews"]
    executor.start_transient(push_query(executor, sql), sql)
    StatementExecutor(log, Catalog(log), clock).recover()
    executor.catalog.refresh()
    assert executor.catalog.queries() == []
    assert [topic.name for topic in log.topics()] == ["_catalog", "_dead_letters", "pageviews"]
    executor.start_transient(push_query(executor, sql), sql)
    run("DROP STREAM pageviews;")
    assert executor.catalog.queries() == []

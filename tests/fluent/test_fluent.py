"""Streams and tables in Python: each chain is a statement, and prints as one that parses to the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace import stream, table
from headrace.clock import SystemClock
from headrace.config import load_project
from headrace.coordinate.catalog import Catalog, create_internal_topics
from headrace.coordinate.project import apply_project
from headrace.coordinate.statements import StatementExecutor
from headrace.errors import SqlError, UsageError
from headrace.fluent import Pipeline, Stream, Table, col, expr, fn, lit, pipeline_text
from headrace.fluent.streams import Grouped, _Chain
from headrace.log.local.open import LocalLog
from headrace.sql.api import parse
from headrace.sql.plan import PersistentQuery, PushQuery
from headrace.sql.statements import SelectStatement
from headrace.sql.validate import check, validate
from tests.sql.catalog import shop

VIEWS = stream("pageviews")
ORDERS = stream("orders")
USERS = table("users")


@pytest.mark.parametrize(
    ("chain", "sql"),
    [
        (VIEWS, "SELECT * FROM pageviews"),
        (
            VIEWS.filter(col("pageid").like("/p%") & ~(col("seconds") > 3)),
            "SELECT * FROM pageviews WHERE pageid LIKE '/p%' AND NOT seconds > 3",
        ),
        (
            VIEWS.select("userid", loud=fn.ucase("pageid"), more=col("seconds") + 1).filter(col("loud") == "X"),
            "SELECT userid, UCASE(pageid) AS loud, seconds + 1 AS more FROM pageviews WHERE UCASE(pageid) = 'X'",
        ),
        (
            VIEWS.select("userid", n="seconds * 2").select("userid", m=col("n") - 1),
            "SELECT userid, seconds * 2 - 1 AS m FROM pageviews",
        ),
        (
            VIEWS.group_by("pageid").windowed_by(tumbling="1 minute", grace="10 seconds").count("views"),
            "SELECT pageid, COUNT(*) AS views FROM pageviews WINDOW TUMBLING (SIZE 1 MINUTE, GRACE PERIOD 10 SECONDS) "
            "GROUP BY pageid",
        ),
        (
            ORDERS.group_by("customer").aggregate(total=fn.sum("amount"), n=fn.count()).filter(col("n") > 2),
            "SELECT customer, SUM(amount) AS total, COUNT(*) AS n FROM orders GROUP BY customer HAVING COUNT(*) > 2",
        ),
        (
            VIEWS.select("userid", part=fn.substring("pageid", 1, 2)).group_by("part").count(),
            "SELECT SUBSTRING(pageid, 1, 2) AS part, COUNT(*) AS count FROM pageviews GROUP BY SUBSTRING(pageid, 1, 2)",
        ),
        (
            VIEWS.as_("v").left_join(USERS.as_("u"), col("v.userid") == col("u.id")).select("v.userid", "u.name"),
            "SELECT v.userid, u.name FROM pageviews v LEFT JOIN users u ON v.userid = u.id",
        ),
        (
            VIEWS.as_("v").join(ORDERS.as_("o"), "v.userid = o.customer", within="1 hour", grace="1 minute"),
            "SELECT * FROM pageviews v JOIN orders o WITHIN 1 HOUR GRACE PERIOD 1 MINUTE ON v.userid = o.customer",
        ),
        (ORDERS.flat_map("id", tag=fn.explode("tags")), "SELECT id, EXPLODE(tags) AS tag FROM orders"),
        (ORDERS.key_by("customer"), "SELECT * FROM orders PARTITION BY customer"),
        (
            ORDERS.filter(col("address").field("city").field("zip").is_in(1, 2) | (col("tags")[1] == None)),  # noqa: E711
            "SELECT * FROM orders WHERE address->city->zip IN (1, 2) OR tags[1] IS NULL",
        ),
        (
            ORDERS.group_by("customer").reduce("dearest", fn.max(col("amount").cast("DOUBLE"))).order_by("dearest"),
            "SELECT customer, MAX(CAST(amount AS DOUBLE)) AS dearest FROM orders GROUP BY customer "
            "ORDER BY MAX(CAST(amount AS DOUBLE))",
        ),
        (
            VIEWS.group_by("userid").windowed_by(session="30 minutes").count(),
            "SELECT userid, COUNT(*) AS count FROM pageviews WINDOW SESSION (30 MINUTES) GROUP BY userid",
        ),
        (
            VIEWS.group_by("userid").windowed_by(hopping=("1 hour", "5 minutes"), retention="2 days").count(),
            "SELECT userid, COUNT(*) AS count FROM pageviews WINDOW HOPPING (SIZE 1 HOUR, ADVANCE BY 5 MINUTES, "
            "RETENTION 2 DAYS) GROUP BY userid",
        ),
    ],
)
def test_a_chain_is_a_select(chain: _Chain, sql: str) -> None:
    [statement] = parse(sql)
    assert isinstance(statement, SelectStatement)
    assert chain.query == statement.query
    [printed] = parse(str(chain))
    assert printed == statement
    # And it can be planned, as text can.
    [(_, meaning)] = validate(f"{chain} EMIT CHANGES;" if not chain.query.order_by else f"{chain};", shop())
    assert meaning is not None
    assert isinstance(meaning, PushQuery) is not bool(chain.query.order_by)


def test_what_runs_on_is_collected_in_order() -> None:
    with Pipeline() as pipeline:
        shop_views = stream("views", "userid VARCHAR KEY, pageid VARCHAR", kafka_topic="v", partitions=2)
        products = shop_views.filter("pageid LIKE '/p%'").to("products")
        counted = products.group_by("pageid").windowed_by(tumbling="1 minute").count("n")
        counted.to("per_minute", emit="final", value_format="JSON")
    assert isinstance(products, Stream)
    assert isinstance(counted, Table)
    statements = parse(pipeline.sql)
    draft = shop()
    plans = [check(statement, draft) for statement in statements]
    assert isinstance(plans[2], PersistentQuery)
    assert (plans[2].sink.name, plans[2].sink.kind, plans[2].emit) == ("PER_MINUTE", "table", "final")
    assert pipeline.sql.splitlines()[0] == (
        "CREATE STREAM VIEWS (USERID VARCHAR KEY, PAGEID VARCHAR) WITH (KAFKA_TOPIC='v', PARTITIONS=2);"
    )


def test_branches_share_the_rows_out() -> None:
    cheap, dear, rest = ORDERS.branch(col("amount") < 10, col("amount") > 100)
    assert str(cheap) == "SELECT * FROM ORDERS WHERE AMOUNT < 10"
    assert str(dear) == "SELECT * FROM ORDERS WHERE (AMOUNT < 10) IS DISTINCT FROM TRUE AND AMOUNT > 100"
    for one in (cheap, dear, rest):
        validate(f"{one} EMIT CHANGES;", shop())


def test_what_one_select_cannot_do_says_so() -> None:
    counted = VIEWS.group_by("pageid").count()
    with pytest.raises(UsageError, match="needs a name") as caught:
        counted.group_by("count")
    assert ".to(" in (caught.value.hint or "")
    with pytest.raises(UsageError, match="needs a name"):
        VIEWS.filter("seconds > 1").join(USERS, "userid = id")
    with pytest.raises(UsageError, match="needs a name"):
        ORDERS.flat_map("id", tag=fn.explode("tags")).filter(col("tag") == "x")
    with pytest.raises(UsageError, match="neither true nor false"):
        bool(col("a") == 1 and col("b") == 2)
    with pytest.raises(UsageError, match="is not a column"):
        col("a + 1")
    with pytest.raises(UsageError, match="either tumbling"):
        VIEWS.group_by("pageid").windowed_by()
    with pytest.raises(SqlError, match="a unit of time"):
        VIEWS.group_by("pageid").windowed_by(tumbling="1 fortnight")
    assert isinstance(VIEWS.group_by("pageid"), Grouped)
    assert repr(lit("x") + expr("a")) == "<'x' + A>"


def write_pipeline(folder: Path, text: str) -> Path:
    (folder / "pipelines").mkdir()
    (folder / "headrace.toml").write_text("")
    file = folder / "pipelines" / "views.py"
    file.write_text(text)
    return file


PIPELINE = '''"""What is viewed."""

from headrace import stream

views = stream("views", "userid VARCHAR KEY, pageid VARCHAR")

for page in ("a", "b"):
    views.filter(f"pageid = '{page}'").to(f"views_{page}")

views.group_by("pagid").count("n").to("wrong")
'''


def test_a_pipeline_in_python_is_deployed_as_one_in_sql(tmp_path: Path) -> None:
    write_pipeline(tmp_path, PIPELINE)
    project = load_project(tmp_path)
    log = LocalLog(project.log_folder, project.settings.log, SystemClock(), serve=False)
    try:
        create_internal_topics(log)
        executor = StatementExecutor(log, Catalog(log), SystemClock())
        [applied] = apply_project(executor, project)
        assert {"VIEWS", "VIEWS_A", "VIEWS_B"} <= {source.name for source in executor.catalog.sources()}
        [problem] = applied.problems
        assert (str(problem.file), problem.line) == ("pipelines/views.py", 10)
        assert "column `pagid` does not exist" in problem.message
        [again] = apply_project(executor, project)
        assert (again.unchanged, again.created) == (3, [])
    finally:
        log.close()


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("from headrace import stream\n\n1 / 0\n", 3, "ZeroDivisionError"),
        ("def broken(:\n", 1, "SyntaxError"),
        ("import sys\nsys.exit(1)\n", 2, "SystemExit"),
        ("from headrace import stream\nstream('a').group_by('x').count().group_by('y')\n", 2, "needs a name"),
    ],
)
def test_a_file_that_cannot_be_run_says_where(tmp_path: Path, text: str, line: int, message: str) -> None:
    file = write_pipeline(tmp_path, text)
    with pytest.raises(SqlError, match=message) as caught:
        pipeline_text(file)
    assert caught.value.line == line

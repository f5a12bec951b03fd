"""A view of two layers: rows of the batch, then changes of the stream, read as one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import NotFound
from headrace.log.base import Snapshot
from headrace.sql.api import Draft, parse, plan_query, source_from
from headrace.sql.layered import LayeredQuery, NotMergeable, layered_query
from headrace.sql.statements import CreateAsSelect, CreateSource
from headrace.store.arrivals import position_at_start, read_stretch
from headrace.store.layers import Merging, changelog_decoder
from tests.store.project import Project, View, create_topic, write
from tests.support import wait_for

EVENTS = "CREATE STREAM events (k VARCHAR KEY, x INT) WITH (KAFKA_TOPIC='events', PARTITIONS=1);"
TOTALS = "CREATE TABLE totals AS SELECT k, SUM(x) + 1 AS s, AVG(x) AS a FROM events GROUP BY k HAVING COUNT(*) > 1;"


def layered(text: str, *before: str) -> LayeredQuery:
    draft = Draft()
    for declared in (EVENTS, *before):
        [statement] = parse(declared)
        assert isinstance(statement, CreateSource)
        draft.add(source_from(statement, draft))
    [statement] = parse(text)
    assert isinstance(statement, CreateAsSelect)
    return layered_query(plan_query(statement, draft))


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    made = Project(tmp_path)
    yield made
    made.close()


def parts(key: str, *values: Any, time: int = 0) -> dict[str, Any]:
    return {"K": key, "$time": time} | {f"PART_{place}": value for place, value in enumerate(values)}


def serve(project: Project, plan: LayeredQuery, ends: dict[int, int]) -> None:
    sink = plan.query.sink
    view = View(sink.name, 1, sink.topic)
    project.followers.sync([view], {sink.name: sink}.get, (), {(sink.name, 1): Merging(plan, ends)})


def rows(project: Project) -> list[tuple[Any, ...]]:
    return sorted(project.followers.view("TOTALS").select(["K", "S", "A", "ROWTIME"])[0].rows)


def test_a_change_of_the_stream_is_merged_with_the_row_of_the_batch(project: Project) -> None:
    plan = layered(TOTALS)
    partial = plan.partial.sink
    assert [column.name for column in partial.value] == [f"PART_{place}" for place in range(4)]
    create_topic(project.log, partial)
    # SUM, then COUNT and SUM for AVG, then COUNT for HAVING.
    write(project.log, partial, parts("a", 10, 2, 10, 2, time=7), parts("b", 1, 1, 1, 1, time=3))
    serve(project, plan, {0: 2})
    project.caught_up("TOTALS")
    assert rows(project) == [("a", 11, 5.0, 7)]

    write(project.log, partial, parts("b", 5, 1, 5, 1, time=5), parts("c", 4, 1, 4, 1), parts("a", 2, 1, 2, 1, time=6))
    project.caught_up("TOTALS")
    assert rows(project) == [("a", 13, 4.0, 7), ("b", 7, 3.0, 5)]

    # A feed reads the same records, and so sees the same rows.
    now = project.log.snapshot()
    assert changes(project, now) == [
        ("a", 11, False),
        ("b", None, True),
        ("b", 7, False),
        ("c", None, True),
        ("a", 13, False),
    ]


def changes(project: Project, now: Snapshot) -> list[tuple[Any, ...]]:
    view = project.followers.view("TOTALS")
    decoder = changelog_decoder(project.log, view)
    topic = view.source.topic
    stretch = read_stretch(project.log, topic, position_at_start(project.log, now, topic), now, decoder.columns)
    batches = [decoder.decode(records).batch for records in stretch.records]
    return [
        row for b in batches for row in zip(*(b.column(n).to_pylist() for n in ("K", "S", "$tombstone")), strict=True)
    ]


def test_files_that_are_lost_are_filled_again(project: Project) -> None:
    plan = layered(TOTALS)
    create_topic(project.log, plan.partial.sink)
    write(project.log, plan.partial.sink, parts("a", 10, 2, 10, 2))
    serve(project, plan, {0: 1})
    write(project.log, plan.partial.sink, parts("a", 1, 1, 1, 1))
    wait_for(lambda: rows(project) == [("a", 12, 11 / 3, 0)], 20, "the merged row")
    project.followers.version("TOTALS\0batch", 1).damaged = True
    project.followers.view("TOTALS").damaged = True
    write(project.log, plan.partial.sink, parts("a", 3, 3, 3, 3))
    wait_for(lambda: rows_or_none(project) == [("a", 14, 2.6, 0)], 30, "the merged row, again")
    assert not project.followers.view("TOTALS").damaged, "another file is in its place"


def rows_or_none(project: Project) -> list[tuple[Any, ...]] | None:
    """None while the file is changed for another."""
    try:
        return rows(project)
    except NotFound:
        return None


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("CREATE TABLE t AS SELECT k, HISTOGRAM(k) AS h FROM events GROUP BY k;", "HISTOGRAM keeps nothing"),
        ("CREATE TABLE t AS SELECT k, COUNT(*) AS n FROM events WINDOW SESSION (5 SECONDS) GROUP BY k;", "a session"),
        ("CREATE TABLE t AS SELECT n, COUNT(*) AS c FROM named GROUP BY n;", "aggregates a table"),
        ("CREATE TABLE t AS SELECT l.k AS k, l.n AS n FROM named l JOIN other r ON l.k = r.k;", "joins tables"),
        (
            "CREATE TABLE t AS SELECT k, COUNT(*) FROM events WINDOW TUMBLING (SIZE 5 SECONDS) GROUP BY k EMIT FINAL;",
            "FINAL",
        ),
    ],
)
def test_what_cannot_merge_says_why(text: str, why: str) -> None:
    table = "CREATE TABLE {} (k VARCHAR PRIMARY KEY, n VARCHAR) WITH (KAFKA_TOPIC='{}', PARTITIONS=1);"
    with pytest.raises(NotMergeable, match=why):
        layered(text, table.format("named", "named"), table.format("other", "other"))


def test_rows_of_a_table_are_kept_as_they_are() -> None:
    table = "CREATE TABLE named (k VARCHAR PRIMARY KEY, n VARCHAR) WITH (KAFKA_TOPIC='named', PARTITIONS=1);"
    plan = layered("CREATE TABLE t AS SELECT k, n FROM named WHERE n <> 'x';", table)
    assert plan.aggregate is None
    assert plan.partial is plan.query

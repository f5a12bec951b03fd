"""A project's pipelines: what is new is made, what runs is left alone, what is wrong is said with its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.clock import ManualClock
from headrace.config import Project, ProjectSettings
from headrace.coordinate.catalog import Catalog
from headrace.coordinate.project import AppliedFile, apply_project
from headrace.coordinate.statements import StatementExecutor
from headrace.log.local.open import LocalLog

CLICKS = "CREATE STREAM clicks (page VARCHAR KEY, n BIGINT) WITH (KAFKA_TOPIC='clicks');\n"
BY_PAGE = "CREATE TABLE by_page AS\n  SELECT page, COUNT(*) AS clicks FROM clicks GROUP BY page;\n"


class Pipelines:
    """A project of files given by name."""

    def __init__(self, folder: Path, log: LocalLog, clock: ManualClock) -> None:
        self.folder = folder
        self.executor = StatementExecutor(log, Catalog(log), clock)
        (folder / "pipelines").mkdir(parents=True)

    def apply(self, **files: str) -> list[AppliedFile]:
        for name, text in files.items():
            (self.folder / "pipelines" / f"{name}.sql").write_text(text)
        return apply_project(self.executor, Project(self.folder, ProjectSettings()))


@pytest.fixture
def pipelines(tmp_path: Path, log: LocalLog, clock: ManualClock) -> Pipelines:
    return Pipelines(tmp_path / "project", log, clock)


def problems(applied: list[AppliedFile]) -> list[str]:
    return [str(problem) for file in applied for problem in file.problems]


def test_a_second_time_nothing_is_new(pipelines: Pipelines) -> None:
    [first] = pipelines.apply(clicks=CLICKS + BY_PAGE)
    assert [result.kind for result in first.created] == ["created", "created"]
    assert str(first.file) == "pipelines/clicks.sql"
    [again] = pipelines.apply(
        clicks=f"-- the same, said differently\n{CLICKS.lower().replace('clicks', 'CLICKS', 1)}\n\n{BY_PAGE}"
    )
    assert (again.created, again.unchanged, again.problems) == ([], 2, [])


def test_a_stream_may_be_defined_in_a_later_file(pipelines: Pipelines) -> None:
    applied = pipelines.apply(
        a="CREATE STREAM big AS SELECT * FROM busy WHERE n > 9;",
        b="CREATE STREAM busy AS SELECT * FROM clicks WHERE n > 1;",
        c=CLICKS,
    )
    assert problems(applied) == []
    assert [query.sink for query in pipelines.executor.catalog.queries()] == ["BUSY", "BIG"]


def test_a_changed_definition_is_kept_as_it_runs(pipelines: Pipelines) -> None:
    pipelines.apply(clicks=CLICKS + BY_PAGE)
    changed = BY_PAGE.replace("COUNT(*)", "SUM(n)")
    [applied] = pipelines.apply(clicks=CLICKS + "\n" + changed)
    assert problems([applied]) == [
        "pipelines/clicks.sql:3:1: table `by_page` runs with another definition, and is kept as it runs\n"
        "  see what the change would do:  headrace plan      and do it:  headrace deploy"
    ]
    assert (len(applied.changed), applied.errors, applied.unchanged) == (1, [], 1)
    # And what it says helps.
    pipelines.executor.execute("DROP TABLE by_page DELETE TOPIC;")
    [applied] = pipelines.apply(clicks=CLICKS + "\n" + changed)
    assert (len(applied.created), applied.unchanged, applied.problems) == (1, 1, [])


def test_one_bad_file_keeps_nobody_else_from_running(pipelines: Pipelines) -> None:
    applied = pipelines.apply(
        bad="CREATE STREAM x (a VARCHAR)\n  WIHT (KAFKA_TOPIC='x');",
        good=CLICKS,
        worse="CREATE TABLE by_user AS\n  SELECT usr, COUNT(*) AS n FROM clicks GROUP BY usr;\n" + BY_PAGE,
    )
    [bad, worse] = problems(applied)
    assert bad.startswith("pipelines/bad.sql:2:3: expected ")
    assert worse.startswith("pipelines/worse.sql:2:50: column `usr` does not exist")
    assert pipelines.executor.catalog.source("BY_PAGE") is not None


def test_a_source_nobody_defines(pipelines: Pipelines) -> None:
    [problem] = problems(pipelines.apply(a="\n\nCREATE STREAM x AS SELECT * FROM nobody;"))
    assert problem.startswith("pipelines/a.sql:3:34: stream or table `nobody` does not exist")


def test_a_name_defined_twice(pipelines: Pipelines) -> None:
    applied = pipelines.apply(a=CLICKS, b="\n" + CLICKS)
    assert problems(applied) == ["pipelines/b.sql:2:1: `clicks` is defined at pipelines/a.sql:1 already"]


def test_a_pipeline_says_what_there_is_and_nothing_else(pipelines: Pipelines) -> None:
    [problem] = problems(pipelines.apply(a=CLICKS + "INSERT INTO clicks VALUES ('/a', 1);"))
    assert problem.startswith("pipelines/a.sql:2:1: a pipeline only says what there is")
    assert pipelines.executor.catalog.source("CLICKS") is not None


def test_a_file_that_is_not_text(pipelines: Pipelines) -> None:
    (pipelines.folder / "pipelines" / "a.sql").write_bytes(b"\xff\xfe")
    [problem] = problems(pipelines.apply())
    assert problem.startswith("pipelines/a.sql:1:1: cannot be read")

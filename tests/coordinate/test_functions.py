"""Python functions in the catalog: from the project's folder and from SQL, and the versions that queries keep."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.config import Project, ProjectSettings
from headrace.coordinate.catalog import Catalog
from headrace.coordinate.planning import plan_definition
from headrace.coordinate.project import AppliedFile, apply_project
from headrace.coordinate.statements import StatementExecutor
from headrace.errors import HeadraceError, SqlError, UsageError
from headrace.log.local.open import LocalLog
from headrace.sql.api import function_versions
from tests.coordinate.conftest import Run

CLICKS = "CREATE STREAM clicks (page VARCHAR KEY, n BIGINT) WITH (KAFKA_TOPIC='clicks');\n"
SHOUTED = "CREATE STREAM shouted AS SELECT page, SHOUT(page) AS loud FROM clicks;\n"
SHOUT = "from headrace import function\n@function\ndef shout(text: str) -> str:\n    return text.upper()\n"

Apply = Callable[..., list[AppliedFile]]


@pytest.fixture
def apply(tmp_path: Path, executor: StatementExecutor) -> Apply:
    """Write files of the project, by their paths, and bring it up."""
    folder = tmp_path / "project"

    def write(files: dict[str, str | None]) -> list[AppliedFile]:
        for name, text in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if text is None:
                path.unlink()
            else:
                path.write_text(text)
        return apply_project(executor, Project(folder, ProjectSettings()))

    return write


def problems(applied: list[AppliedFile]) -> list[str]:
    return [str(problem) for file in applied for problem in file.problems]


def versions(catalog: Catalog) -> dict[str, str]:
    """Of the functions that the only query runs with."""
    [query] = catalog.queries()
    return function_versions(plan_definition(query, catalog))


def test_the_folder_is_read_and_statements_call_what_is_in_it(apply: Apply, executor: StatementExecutor) -> None:
    applied = apply({"functions/loud.py": SHOUT, "pipelines/all.sql": CLICKS + SHOUTED})
    assert problems(applied) == []
    assert [result.message for file in applied for result in file.created][:1] == ["function `shout` is there"]
    catalog = executor.catalog
    assert versions(catalog) == {"SHOUT": catalog.functions()["SHOUT"].version}
    assert problems(apply({})) == []


def test_a_query_goes_on_with_the_version_it_was_made_with(apply: Apply, executor: StatementExecutor) -> None:
    apply({"functions/loud.py": SHOUT, "pipelines/all.sql": CLICKS + SHOUTED})
    before = versions(executor.catalog)
    assert problems(apply({"functions/loud.py": SHOUT + "# only a comment\n"})) == []
    [said] = problems(apply({"functions/loud.py": SHOUT.replace("upper()", "upper() + '!'")}))
    assert "stream `shouted` runs with an earlier version of `shout`, and goes on with it" in said
    assert versions(executor.catalog) == before
    [result] = executor.execute(SHOUTED.replace("CREATE", "CREATE OR REPLACE"))
    assert result.kind == "replaced"
    assert versions(executor.catalog) == {"SHOUT": executor.catalog.functions()["SHOUT"].version} != before
    assert problems(apply({})) == []


def test_a_query_survives_its_file(apply: Apply, executor: StatementExecutor, log: LocalLog) -> None:
    apply({"functions/loud.py": SHOUT, "pipelines/all.sql": CLICKS + SHOUTED})
    before = versions(executor.catalog)
    [said] = problems(apply({"functions/loud.py": None}))
    assert "runs with an earlier version of `shout`" in said
    assert "SHOUT" not in executor.catalog.functions()
    assert versions(Catalog(log)) == before


def test_what_is_wrong_is_said_with_file_and_line_and_the_last_good_version_stays(
    apply: Apply, executor: StatementExecutor
) -> None:
    apply({"functions/loud.py": SHOUT, "functions/other.py": SHOUT.replace("shout", "scream")})
    good = executor.catalog.functions()["SHOUT"].version
    said = problems(apply({"functions/loud.py": SHOUT + "def oops(:\n", "functions/third.py": SHOUT}))
    assert said == [
        "functions/loud.py:5:1: is not valid Python: invalid syntax",
        "functions/third.py:2:1: `shout` is defined in functions/loud.py already",
    ]
    assert executor.catalog.functions()["SHOUT"].version == good
    assert "SCREAM" in executor.catalog.functions()


def test_a_function_is_created_described_listed_and_dropped_in_sql(run: Run, executor: StatementExecutor) -> None:
    run(CLICKS)
    [created] = run(
        "CREATE FUNCTION shout(text VARCHAR, times INT) RETURNS VARCHAR LANGUAGE PYTHON AS $$\n"
        "    return text.upper() * times\n$$;"
    )
    assert created.kind == "created"
    [described] = run("DESCRIBE FUNCTION shout;")
    assert described.text is not None
    assert "SHOUT(VARCHAR, INTEGER) -> VARCHAR" in described.text
    [shown] = run("SHOW FUNCTIONS;")
    assert shown.rows is not None
    assert ["SHOUT", "scalar", "", "CREATE FUNCTION SHOUT"] in [list(row) for row in shown.rows]
    [explained] = run("EXPLAIN SELECT SHOUT(page, 2) FROM clicks EMIT CHANGES;")
    assert explained.text is not None
    assert "calls SHOUT  scalar, CREATE FUNCTION SHOUT, version " in explained.text
    run("CREATE STREAM shouted AS SELECT page, SHOUT(page, 2) AS loud FROM clicks;")
    [dropped] = run("DROP FUNCTION shout;")
    assert dropped.message == "function `shout` is gone; CSAS_SHOUTED_1 goes on with it"
    assert list(versions(executor.catalog)) == ["SHOUT"]
    with pytest.raises(SqlError, match="function `SHOUT` does not exist"):
        run("SELECT * FROM clicks WHERE SHOUT(page, 1) = 'A' EMIT CHANGES;".replace("SELECT *", "EXPLAIN SELECT *"))


@pytest.mark.parametrize(
    ("declared", "body", "error", "message"),
    [
        ("len(x VARCHAR)", "return 1", SqlError, "Headrace's own"),
        ("f(x INT)", "return (", SqlError, "was never closed"),
        ("f(x INT)", "\nimport nothing_like_it\ndef f(x): return x\n", UsageError, "cannot be loaded: ModuleNotFound"),
        ("f(x INT)", "\nclass F:\n  def init(self): ...\n", SqlError, "needs add, merge, result"),
        ("f(x PLACE)", "return 1", SqlError, "unknown type `PLACE`"),
    ],
)
def test_a_function_that_cannot_be(
    run: Run, declared: str, body: str, error: type[HeadraceError], message: str
) -> None:
    with pytest.raises(error, match=message):
        run(f"CREATE FUNCTION {declared} RETURNS INT LANGUAGE PYTHON AS $${body}$$;")


def test_a_name_that_is_taken(run: Run, apply: Apply) -> None:
    create = "FUNCTION f(x INT) RETURNS INT LANGUAGE PYTHON AS $$ return x $$;"
    run(f"CREATE {create}")
    with pytest.raises(SqlError, match="function `f` exists already"):
        run(f"CREATE {create}")
    assert run(f"CREATE {create.replace('f(', 'IF NOT EXISTS f(')}")[0].kind == "exists"
    assert run(f"CREATE OR REPLACE {create}")[0].kind == "created"
    apply({"functions/loud.py": SHOUT})
    with pytest.raises(SqlError, match="function `shout` is defined in functions/loud"):
        run("DROP FUNCTION shout;")
    assert run("DROP FUNCTION IF EXISTS nobody;")[0].kind == "exists"


def test_the_same_catalog_is_read_again(run: Run, log: LocalLog, executor: StatementExecutor) -> None:
    run("CREATE FUNCTION f(x INT) RETURNS INT LANGUAGE PYTHON AS $$ return x $$;")
    run(CLICKS + "CREATE STREAM g AS SELECT page, F(1) AS one FROM clicks;")
    again = Catalog(log)
    assert again.state == executor.catalog.state
    assert again.functions()["F"] == executor.catalog.functions()["F"]

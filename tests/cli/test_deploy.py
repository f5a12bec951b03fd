"""`headrace plan`, `deploy`, `history` and `view`: what they print and how they end, with everything but Spark."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import select
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.log.base import TIME, Append
from tests.cli.conftest import Headrace, Said
from tests.server.running import Running, running_server
from tests.support import wait_for

pytestmark = pytest.mark.slow

SQL = """
CREATE STREAM clicks (userid VARCHAR KEY, page VARCHAR) WITH (KAFKA_TOPIC='clicks', PARTITIONS=1);
CREATE TABLE by_page AS SELECT page, COUNT(*) AS n FROM clicks GROUP BY page;
CREATE TABLE busy AS SELECT page, n FROM by_page WHERE n > 2;
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Running]:
    with running_server(tmp_path, sql=SQL) as server:
        yield server


@pytest.fixture
def run(headrace: Headrace, server: Running) -> Headrace:
    def run(*arguments: str) -> Said:
        return headrace(*arguments, "--url", f"http://127.0.0.1:{server.port}")

    return run


def write(folder: Path, sql: str) -> None:
    (folder / "pipelines" / "all.sql").write_text(sql)


def test_a_plan_is_printed_and_its_exit_code_says_what_it_found(run: Headrace, tmp_path: Path) -> None:
    assert (run("plan").code, run("plan").out) == (0, "nothing to do: what runs is what the files say\n")
    write(tmp_path, SQL.replace("COUNT(*)", "COUNT(*) * 2"))
    changed = run("plan")
    assert changed.code == 2
    assert "~ table by_page: rebuilds as version 2, nothing to replay   pipelines/all.sql:3" in changed.out
    assert "read by busy" in changed.out
    assert json.loads(run("plan", "--json").out)["pending"] == 2
    write(tmp_path, SQL.replace("page VARCHAR)", "page INT)"))
    refused = run("plan")
    assert refused.code == 1
    assert "! stream clicks: refused" in refused.out
    assert "so are refused, because they read it: by_" in refused.out
    assert refused.out.count(": refused") == 1
    assert run("sql", "-e", "CREATE STREAM aside (page VARCHAR KEY) WITH (KAFKA_TOPIC='aside');").code == 0
    write(tmp_path, SQL + "CREATE TABLE asides AS SELECT page, COUNT(*) AS n FROM aside GROUP BY page;")
    planned = run("plan")
    assert (planned.code, "+ table asides: creates" in planned.out) == (2, True)
    lacks = "pipelines/all.sql:5:56: stream or table `aside` does not exist"
    assert f"a fresh clone of these files would not start:\n  {lacks}\n" in planned.err
    assert "instead: declare `clicks_2` like this, with a topic of its own;  INSERT INTO clicks_2 " in refused.out


def test_a_changed_function_says_what_it_touches(run: Headrace, tmp_path: Path) -> None:
    file = tmp_path / "functions" / "pages.py"
    file.parent.mkdir(exist_ok=True)
    text = "from headrace import function\n\n@function\ndef short(page: str) -> str:\n    return page[:3]\n"
    file.write_text(text)
    new = run("plan")
    assert (new.code, new.out.splitlines()[0]) == (2, "  + function short: new, called by nothing   functions/pages.py")
    attached = file.with_name("told.py")
    attached.write_text("from headrace import on_topic\n\n@on_topic('clicks')\ndef told(event):\n    pass\n")
    new = run("plan")
    assert "  + function told: new, is started on topic clicks   functions/told.py" in new.out.splitlines()
    assert new.out.endswith("do it:  headrace deploy\n")
    attached.unlink()
    write(
        tmp_path,
        SQL + "CREATE STREAM shorter AS SELECT userid, short(page) AS page FROM clicks;"
        "CREATE TABLE by_short AS SELECT page, COUNT(*) AS n FROM shorter GROUP BY page;",
    )
    assert run("deploy").code == 0
    assert run("plan").code == 0
    file.write_text(text.replace("return", "# from the front\n    return"))
    assert run("plan").code == 0, "a comment changes nothing"
    file.write_text(text.replace("[:3]", "[:2]"))
    changed = run("plan")
    assert changed.code == 2
    assert "  ~ function short: changed, called by shorter   functions/pages.py" in changed.out
    assert "~ stream shorter: rebuilds as version 2" in changed.out
    assert "`short` is another function now" in changed.out
    assert "it reads `shorter`, which is rebuilt" in changed.out
    assert run("plan").out == changed.out, "a plan changes nothing"
    file.write_text("def short(:\n")
    wrong = run("plan")
    assert wrong.code == 1
    assert "functions/pages.py:1: is not valid Python" in wrong.err
    file.unlink()
    gone = run("plan")
    assert gone.code == 1
    assert "- function short: gone, called by shorter" in gone.out
    assert "! stream shorter: refused" in gone.out
    file.write_text(text.replace("[:3]", "[:2]"))
    assert "shorter: rebuilds  version 1 → 2" in run("deploy").out
    assert run("plan").code == 0


def test_pipelines_in_python_are_planned_as_what_they_make(run: Headrace, tmp_path: Path) -> None:
    python = tmp_path / "pipelines" / "more.py"
    python.write_text("from headrace.fluent import stream\n\nstream('clicks').filter(\"page = '/'\").to('home')\n")
    planned = run("plan")
    assert planned.code == 2, planned.err
    assert "+ stream home: creates   pipelines/more.py:3" in planned.out
    python.write_text("1 / 0\n")
    assert "pipelines/more.py:1:1: the file cannot be run: ZeroDivisionError" in run("plan").err


def test_the_demos_story_changes_one_table_and_mends_it(run: Headrace, tmp_path: Path) -> None:
    demo = Path(__file__).parents[2] / "examples" / "pageviews"
    story = [line for line in (demo / "README.md").read_text().splitlines() if line.startswith("sed ")]
    file = tmp_path / "pipelines" / "pageviews.sql"
    file.write_text((demo / "pipelines" / "pageviews.sql").read_text())
    assert run("deploy").code == 0
    for command, condition in zip(story, ("NOT LIKE '/pr%'", "<> '/press'"), strict=True):
        subprocess.run(["bash", "-c", command], cwd=tmp_path, check=True)
        changes = json.loads(run("plan", "--json").out)["changes"]
        pending = [change for change in changes if change["verdict"] != "nothing"]
        assert [(change["name"], change["verdict"]) for change in pending] == [("views_by_page", "rebuilds")]
        assert f"WHERE pageid {condition}" in pending[0]["statement"]
        assert run("deploy").code == 0


def test_a_deployment_from_its_start_to_its_rollback(run: Headrace, server: Running, tmp_path: Path) -> None:
    assert run("history").out == "nothing was deployed yet\n"
    # Nothing was sent, so there is nothing to compute, and nothing differs.
    write(tmp_path, SQL.replace("COUNT(*)", "COUNT(*) * 2"))
    done = run("deploy")
    assert done.code == 0, done.err
    assert "deployment 1 is switched" in done.out
    assert "by_page: rebuilds  version 1 → 2" in done.out
    assert run("plan").code == 0
    assert run("deploy").out == "nothing to do: what runs is what the files say\n"
    assert [line.split()[:2] for line in run("view", "show", "by_page").out.splitlines()[1:3]] == [
        ["1", "retired"],
        ["2", "serving"],
    ]
    assert "0 rows the same, 0 changed" in run("view", "diff", "by_page").out
    assert "by_page rebuilds, busy rebuilds" in run("history").out
    assert "+CREATE TABLE by_page AS SELECT page, COUNT(*) * 2 AS n" in run("history", "1").out
    followed = run("deploy", "follow")
    assert (followed.code, followed.out.splitlines()[0]) == (0, "deployment 1 is switched")
    assert "these serve: by_page 1, busy 1" in run("view", "rollback", "busy").out
    assert server.services.catalog.state.serving["BY_PAGE"] == 1
    refused = run("view", "rollback", "busy")
    assert refused.code == 1
    assert "undo the rollback:  headrace deploy restore 1" in refused.err
    # What was rolled back from is kept: the files' definition serves again, and nothing is replayed.
    planned = run("plan").out
    assert "  ~ table by_page: serves version 2 again, which is kept: it is up to date   pipelines/" in planned
    assert "\n2 changes; nothing to replay\n" in planned
    undone = run("deploy", "restore", "1", "--approve")
    assert (undone.code, "by_page: serves again  version 1 → 2" in undone.out) == (0, True), undone.out
    assert "undo:  headrace deploy restore 2 --approve" in run("view", "rollback", "by_page").out
    assert run("view", "forget", "busy").out == "versions of busy there are: 1 (serving)\n"
    assert json.loads(run("deploy", "restore", "1", "--before", "--json").out) == {"deployment": None}


def test_whoever_sits_at_a_terminal_is_asked(run: Headrace, server: Running, tmp_path: Path) -> None:
    # A row that only the first version has: nothing was sent, so the second has none.
    row = {"PAGE": pa.array(["/"]), "N": pa.array([3]), TIME: pa.array([0])}
    server.services.log.append([Append("BUSY", pa.record_batch(row))]).result()
    write(tmp_path, SQL.replace("n > 2", "n > 5"))
    said, code = in_a_terminal(["deploy", "--url", f"http://127.0.0.1:{server.port}"], tmp_path, [b"show", b"y"])
    assert "busy, version 1 → 2: 0 rows the same, 0 changed, 1 only before, 0 only now" in said
    assert "n = 3" in said.partition("show] show")[2]
    assert said.endswith("deployment 1 is switched\r\nback:  headrace view rollback busy\r\n")
    assert code == 0
    # Without a terminal nobody can be asked.
    assert "these serve: busy 1" in run("view", "rollback", "busy").out
    waits = run("deploy")
    assert (waits.code, waits.out.splitlines()[-1]) == (
        2,
        "switch:  headrace deploy approve 2      or not:  headrace deploy cancel 2",
    )
    assert "switch:  headrace deploy approve 2" in run("deploy").err


def in_a_terminal(arguments: Sequence[str], folder: Path, answers: list[bytes]) -> tuple[str, int]:
    """What the command says there, and its exit code. Each question gets the next answer."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "headrace.cli.main", *arguments]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, cwd=folder) as process:
        os.close(theirs)
        said = b""
        # Linux says EIO once nobody has the other side open any more.
        with contextlib.suppress(OSError):
            while select.select([ours], [], [], 60)[0] and (text := os.read(ours, 4096)):
                said += text
                if said.endswith(b"] ") and answers:
                    os.write(ours, answers.pop(0) + b"\n")
        os.close(ours)
        process.terminate()
    return said.decode(), process.returncode


def test_a_build_is_left_to_itself_and_stopped(run: Headrace, server: Running, tmp_path: Path) -> None:
    server.send("clicks", [{"userid": "ann", "page": "/"}])
    write(tmp_path, SQL.replace("COUNT(*)", "COUNT(*) * 2"))
    assert "deployment 1 is building: by_page 0%" in run("deploy", "--detach", "--throttle", "5").out
    paused = run("deploy", "pause", "1").out
    assert paused.startswith("deployment 1 is paused: by_page 0%; busy ")
    assert paused.endswith("go on:  headrace deploy resume 1      or not:  headrace deploy cancel 1\n")
    wait_for(lambda: server.services.deployments.get(1).paused, 20, "the pause")
    assert json.loads(run("deploy", "throttle", "1", "7", "--json").out)["rows_per_second"] == 7
    assert run("deploy", "resume", "1").code == 0
    assert "deployment 1 is cancelled" in run("deploy", "cancel", "1").out
    assert run("deploy", "show", "9").code == 1
    write(tmp_path, SQL.rpartition("CREATE TABLE busy")[0])
    refused = run("deploy")
    assert refused.code == 1
    assert "headrace deploy --approve" in refused.err


def test_any_two_versions_are_compared_row_by_row_and_taken_away(
    run: Headrace, server: Running, tmp_path: Path
) -> None:
    assert "were never compared; compare them:  headrace view diff by_page --now" in run("view", "diff", "by_page").out
    write(tmp_path, SQL.replace("COUNT(*)", "COUNT(*) * 2"))
    assert run("deploy").code == 0
    first, second = (version.source.topic for version in server.services.catalog.versions("BY_PAGE"))
    for topic, by in ((first, 1), (second, 2)):
        rows = [(f"/{n}", n * by) for n in range(40)] + [(f"/only/{by}", 1)]
        columns = {"PAGE": pa.array([page for page, _ in rows]), "N": pa.array([n for _, n in rows])}
        batch = pa.record_batch({**columns, TIME: pa.array([0] * len(rows))})
        server.services.log.append([Append(topic, batch)]).result()
    found = run("view", "diff", "by_page", "--versions", "1", "2", "--limit", "2")
    assert found.code == 0, found.err
    lines = [line.rstrip() for line in found.out.splitlines()]
    assert "  by_page, version 1 → 2: 1 rows the same, 39 changed, 1 only before, 1 only now" in lines
    assert "    n: 39 rows by +780 in all, +39 at most" in lines
    assert [line.split() for line in lines[-3:-1]] == [
        ["/1", "changed", "n", "=", "1", "n", "=", "2", "n", "+1"],
        ["/10", "changed", "n", "=", "10", "n", "=", "20", "n", "+10"],
    ]
    again = lines[-1].partition("headrace ")[2].split()
    assert lines[-1].startswith("41 in all, 2 shown; more, with the same filters:  ")
    assert run(*again, "--limit", "1").out.splitlines()[-2].split()[:2] == ["/11", "changed"]
    turned = json.loads(run("view", "diff", "by_page", "--versions", "2", "1", "--prefix", "/only", "--json").out)
    assert [(row["kind"], row["key"]["page"]) for row in turned["rows"]] == [
        ("only_new", "/only/1"),
        ("only_old", "/only/2"),
    ]
    chosen = json.loads(run("view", "diff", "by_page", "page=/7", "--min-delta", "7", "--json").out)
    assert [(row["old"], row["new"]) for row in chosen["rows"]] == [({"n": 7}, {"n": 14})]
    assert (
        "no row that differs is like that" in run("view", "diff", "by_page", "--column", "n", "--min-delta", "99").out
    )
    for ending in ("csv", "parquet", "json"):
        file = tmp_path / "out" / f"diff.{ending}"
        done = run("view", "diff", "by_page", "--export", str(file), "--kind", "changed", "--kind", "only_new")
        assert done.code == 0, done.err
        assert f"{file.stat().st_size:,} bytes in {file}" in done.out
        assert [path.name for path in file.parent.glob(".*")] == []
    assert len((tmp_path / "out" / "diff.csv").read_text().splitlines()) == 41
    assert len(json.loads((tmp_path / "out" / "diff.json").read_text())) == 40
    assert pq.read_table(tmp_path / "out" / "diff.parquet").num_rows == 40


def test_what_cannot_be_compared_is_said_and_leaves_no_file(run: Headrace, tmp_path: Path) -> None:
    file = tmp_path / "diff.csv"
    alone = run("view", "diff", "by_page", "--export", str(file))
    assert (alone.code, "`by_page` has no two versions to compare" in alone.err) == (1, True)
    assert "is none of .csv, .parquet, .json" in run("view", "diff", "by_page", "--export", "x.xlsx").err
    assert "version 2 of `by_page` is not kept" in run("view", "diff", "by_page", "--versions", "1", "2").err
    write(tmp_path, SQL.replace("COUNT(*)", "COUNT(*) * 2"))
    assert run("deploy").code == 0
    assert "`nothing` is not COLUMN=VALUE" in run("view", "diff", "by_page", "nothing").err
    wrong = run("view", "diff", "by_page", "--export", str(file), "--column", "x")
    assert (wrong.code, "column `x` does not exist" in wrong.err) == (1, True)
    assert list(tmp_path.glob("*diff*")) == []

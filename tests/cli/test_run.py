"""`headrace run`: declared jobs, run by the server in processes of their own."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pyarrow.parquet as pq
import pytest

from headrace.server.models.jobs import JobDetail, RunJobsAnswer
from tests.cli.conftest import Headrace
from tests.server.running import running_server
from tests.support import wait_for

pytestmark = pytest.mark.slow

JOBS = """
[[job]]
name = "report"
run = "export"
query = "SELECT id, name FROM users ORDER BY id;"
to = "reports/users-{date}.csv"
after = ["people"]

[[job]]
name = "people"
run = "import"
topic = "users"
files = ["history/*.csv"]

[[job]]
name = "archive"
run = "export"
topic = "users"
to = "archive"

[[job]]
name = "never"
run = "repair"
view = "nothing"
retries = 1

[[job]]
name = "later"
run = "check"
view = "users"
after = ["never"]
"""


def test_jobs_run_in_order_and_say_what_became_of_them(tmp_path: Path, headrace: Headrace) -> None:
    project = tmp_path / "shop"
    with running_server(project) as server:
        (project / "history").mkdir()
        (project / "history" / "one.csv").write_text("id,name,age\na,Ann,7\nb,Bob,8\n")
        (project / "jobs").mkdir()
        (project / "jobs" / "all.toml").write_text(JOBS)
        run = ("run", "--project", str(project), "--url", f"http://127.0.0.1:{server.port}")
        said = headrace(*run, "report")
        assert said.code == 0, said.out + said.err
        assert "people                   done        2 accepted" in said.out, "what it comes after runs too"
        [report] = (project / "reports").iterdir()
        assert report.read_text().splitlines()[0] == "id,name"

        first = headrace(*run, "archive")
        assert "2 records in" in first.out, first.out + first.err
        files = sorted((project / "archive").glob("*.parquet"))
        assert sorted(name for file in files for name in pq.read_table(file).column("NAME").to_pylist()) == [
            "Ann",
            "Bob",
        ]
        for file in files:
            file.unlink()
        server.send("users", {"id": "c", "name": "Cem"})
        assert "1 record in 1 new file" in headrace(*run, "archive").out, "it goes on, though its files are gone"

        failing = headrace(*run, "later")
        assert failing.code == 1
        assert "`never` failed" in failing.out
        never = msgspec.json.decode(server.http.get("/v1/jobs/never").content, type=JobDetail)
        assert never.last is not None
        assert (never.last.state, never.last.attempts) == ("failed", 2)
        assert "`nothing` does not exist" in never.last.message
        assert "`nothing` does not exist" in never.last.log
        listed = json.loads(headrace(*run, "--list", "--json").out)
        states = {job["name"]: job["last"]["state"] for job in listed["jobs"]}
        assert states == {"people": "done", "report": "done", "never": "failed", "later": "waiting", "archive": "done"}
        assert "2" in headrace(*run, "--history", "archive").out
        assert "job `nothing` does not exist" in headrace(*run, "nothing").err


def test_a_file_that_is_wrong_is_named_and_the_other_jobs_run(tmp_path: Path, headrace: Headrace) -> None:
    project = tmp_path / "shop"
    with running_server(project) as server:
        (project / "jobs").mkdir()
        (project / "jobs" / "broken.toml").write_text('[[job]]\nname = "people"\nrun = "import"\ntopic = "users"\n')
        run = ("run", "--project", str(project), "--url", f"http://127.0.0.1:{server.port}")
        wrong = "jobs/broken.toml:1: job `people` needs `files`\n  a job that runs `import` does\n"
        alone = headrace(*run)
        assert (alone.code, alone.out, wrong in alone.err) == (1, "", True), alone.err
        asked = headrace(*run, "people")
        assert (asked.code, "job `people` does not exist" in asked.err) == (1, True)
        assert "perhaps it is in a file that is wrong" in asked.err
        (project / "jobs" / "good.toml").write_text(
            '[[job]]\nname = "all"\nrun = "export"\ntopic = "users"\nto = "all"\n'
        )
        both = headrace(*run)
        assert (both.code, "all                      done" in both.out) == (1, True), both.out + both.err
        assert wrong in both.err
        assert headrace(*run, "--list").err == both.err
        alone = headrace(*run, "all")
        assert (alone.code, wrong in alone.err) == (0, True), "who asks for one job has got it"


def test_a_job_can_be_stopped_and_one_that_is_not_there_is_said(tmp_path: Path) -> None:
    with running_server(tmp_path / "shop") as server:
        folder = tmp_path / "shop" / "jobs"
        folder.mkdir()
        (folder / "all.toml").write_text(
            '[[job]]\nname = "a"\nrun = "export"\nview = "users"\nto = "a.json"\ntimeout = "1h"\n'
        )
        asked = server.http.post("/v1/jobs/a/run")
        assert [run.job for run in msgspec.json.decode(asked.content, type=RunJobsAnswer).runs] == ["a"]
        stopped = server.http.post("/v1/jobs/a/cancel")
        assert stopped.status_code == 200, stopped.text
        wait_for(lambda: server.http.get("/v1/jobs/a").json()["last"]["state"] == "cancelled", 30, "the end of it")
        assert server.http.post("/v1/jobs/a/cancel").status_code == 409
        assert server.http.post("/v1/jobs/c/run").status_code == 404
        assert server.http.get("/v1/jobs/c").status_code == 404

"""`headrace run`: declared jobs, in order, again if they fail, and what became of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headrace.config import load_project
from headrace.coordinate.jobs import Job, JobRun, due_jobs, load_jobs, only_runner
from headrace.errors import ConfigError
from tests.cli.conftest import Headrace
from tests.server.running import running_server
from tests.support import wait_for

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
        (project / "jobs").mkdir()
        (project / "jobs" / "all.toml").write_text(JOBS)
        (project / "history").mkdir()
        (project / "history" / "one.csv").write_text("id,name,age\na,Ann,7\nb,Bob,8\n")
        run = ("run", "--project", str(project), "--url", f"http://127.0.0.1:{server.port}")
        done = headrace(*run, "people", "--json")
        assert done.code == 0, done.err
        server.services.followers.view("USERS")
        wait_for(lambda: not server.services.followers.lag("USERS"), 20, "the view")
        said = headrace(*run, "report")
        assert said.code == 0, said.out + said.err
        assert "people                   done     0 accepted" in said.out, "what it comes after runs too"
        [report] = (project / "reports").iterdir()
        assert report.read_text().splitlines() == ["id,name", "a,Ann", "b,Bob"]

        failing = headrace(*run, "later")
        assert failing.code == 1
        assert "`never` failed" in failing.out
        jobs = {job["name"]: job for job in server.http.get("/v1/jobs").json()["jobs"]}
        assert (jobs["never"]["last"]["state"], jobs["never"]["last"]["attempts"]) == ("failed", 2)
        assert (jobs["later"]["last"]["state"], jobs["report"]["last"]["state"]) == ("waiting", "done")
        listed = json.loads(headrace(*run, "--list", "--json").out)
        assert {job["name"] for job in listed["jobs"]} == {"people", "report", "never", "later"}
        with only_runner(project / ".headrace"):
            assert "another `headrace run` is running" in headrace(*run).err


def test_a_job_is_due_when_its_time_has_come() -> None:
    hourly = Job("hourly", "repair", every="1h", view="v")
    then = Job("then", "check", after=["hourly"], view="v")
    asked = Job("asked", "check", view="v")
    jobs, hour = [hourly, then, asked], 3_600_000
    ran = {"hourly": JobRun("done", 10 * hour)}
    assert due_jobs(jobs, {}, 0) == [hourly, then], "the first time, at once"
    assert due_jobs(jobs, ran, 10 * hour + 1) == []
    assert due_jobs(jobs, ran, 11 * hour) == [hourly, then]
    assert due_jobs(jobs, ran, 5 * hour) == [hourly, then], "a clock that was set back delays nothing"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[[job]]\nname = "a"\nrun = "repair"\n', "needs `view`"),
        ('[[job]]\nname = "a"\nrun = "dance"\n', "Invalid enum value"),
        ('[[job]]\nname = "a"\nrun = "check"\nview = "v"\nevery = "soon"\n', "not a time between runs"),
        ('[[job]]\nname = "a"\nrun = "check"\nview = "v"\nafter = ["b"]\n', "comes after `b`, which does not exist"),
        ('[[job]]\nname = "a"\nrun = "check"\nview = "v"\nafter = ["a"]\n', "wait for each other"),
        ('[[job]]\nname = "a"\nrun = "export"\nquery = "SELECT 1;"\nto = "x.xls"\n', "writes `x.xls`"),
    ],
)
def test_what_is_wrong_with_a_job_is_said(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "headrace.toml").write_text("")
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "one.toml").write_text(text)
    with pytest.raises(ConfigError, match=message):
        load_jobs(load_project(tmp_path))

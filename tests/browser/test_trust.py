"""What somebody sees of a view's trust and versions, and of jobs: a real server, whose queries the test runs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect
from pyspark.sql import SparkSession

from tests.support import wait_for
from tests.views.trusted import MINUTE, Trusted, trusted

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.spark]

PATIENCE_MS = 240_000
SALES = """
CREATE STREAM sales (shop VARCHAR KEY, amount INT, at BIGINT)
  WITH (KAFKA_TOPIC='sales', VALUE_FORMAT='JSON', TIMESTAMP='at', PARTITIONS=1);
CREATE TABLE per_minute AS SELECT shop, COUNT(*) AS n, SUM(amount) AS total
  FROM sales WINDOW TUMBLING (SIZE 1 MINUTE, GRACE PERIOD 0 SECONDS) GROUP BY shop;
CREATE TABLE by_shop AS SELECT shop, COUNT(*) AS n FROM sales GROUP BY shop;
"""
JOBS = """
[[job]]
name = "report"
run = "export"
view = "by_shop"
to = "by_shop.json"
after = ["check"]

[[job]]
name = "check"
run = "check"
view = "nothing"
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Iterator[Trusted]:
    folder = tmp_path_factory.mktemp("trust")
    with trusted(folder, spark, SALES, "[views]\ncheck_every_seconds = 0\n") as running:
        sales = [{"shop": "ab"[n % 2], "amount": n, "at": n * 10_000} for n in range(24)]
        late = {"shop": "a", "amount": 100, "at": 5_000}
        running.send("sales", *sales, late)
        running.compute()
        yield running


def open_view(page: Page, project: Trusted, view: str, tab: str) -> None:
    page.goto(f"http://127.0.0.1:{project.server.port}/#/views/{view}?tab={tab}")


def test_a_planted_error_is_found_shown_and_explained(page: Page, project: Trusted) -> None:
    open_view(page, project, "per_minute", "trust")
    drift = page.get_by_test_id("drift")
    drift.get_by_role("button", name="Check now").click()
    expect(drift).to_contain_text("all the same ✓", timeout=PATIENCE_MS)
    wrong = {"SHOP": "b", "N": 7, "TOTAL": 1, "$time": 5, "$tombstone": False}
    project.plant("PER_MINUTE", wrong | {"$window_start": MINUTE, "$window_end": 2 * MINUTE})

    def found() -> bool:
        drift.get_by_role("button", name="Check now").click()
        return bool(project.server.http.get("/v1/views/per_minute/check").json()["drifted"])

    wait_for(found, 60, "the planted error")
    row = drift.get_by_role("row", name="n = 7")
    expect(row).to_contain_text("n = 3", timeout=PATIENCE_MS)
    expect(page.get_by_test_id("answer")).to_have_text("No: 1 row is not what the log says.", timeout=PATIENCE_MS)
    row.get_by_role("button", name="Why?").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("status")).to_contain_text("NOT what the log says: n, total", timeout=PATIENCE_MS)
    expect(dialog).to_contain_text("Made of 3 records")
    page.keyboard.press("Escape")
    page.goto(page.url.split("#")[0] + "#/views")
    page.get_by_role("tab", name="Checks").click()
    expect(page.get_by_role("region", name="Checks", exact=True)).to_contain_text("differs", timeout=PATIENCE_MS)
    (project.folder / "alerts").mkdir()
    (project.folder / "alerts" / "drift.toml").write_text('watch = "drift"\ndescription = "see headrace view why"')
    page.get_by_role("link", name="Alerts").click()
    expect(page.get_by_test_id("answer")).to_have_text("Yes: drift fires.", timeout=PATIENCE_MS)
    expect(page.get_by_test_id("subjects")).to_contain_text("1 now, fired 1 time", timeout=PATIENCE_MS)
    expect(page.get_by_role("link", name="Alerts")).to_contain_text("1 firing", timeout=PATIENCE_MS)


def test_what_came_too_late_is_listed_and_repaired(page: Page, project: Trusted) -> None:
    open_view(page, project, "per_minute", "trust")
    late = page.get_by_test_id("late")
    expect(late).to_contain_text("1 record came too late for its window.", timeout=PATIENCE_MS)
    expect(late.get_by_role("row", name="amount = 100")).to_be_visible()
    late.get_by_role("button", name="Repair…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("1 row in 1 window would be computed again", timeout=PATIENCE_MS)
    dialog.get_by_role("button", name="Repair").click()
    expect(dialog).to_have_count(0, timeout=PATIENCE_MS)
    revised = page.get_by_test_id("revisions").get_by_role("row", name="n = 3, total = 6")
    expect(revised).to_contain_text("n = 4, total = 106", timeout=PATIENCE_MS)


def test_a_change_is_planned_built_compared_switched_and_rolled_back(page: Page, project: Trusted) -> None:
    pipeline = project.folder / "pipelines" / "all.sql"
    pipeline.write_text(SALES.replace("FROM sales GROUP BY shop", "FROM sales WHERE amount > 1 GROUP BY shop"))
    open_view(page, project, "by_shop", "versions")
    pending = page.get_by_test_id("pending")
    expect(pending).to_contain_text("WHERE amount > 1", timeout=PATIENCE_MS)
    pending.get_by_role("button", name="Deploy").click()
    page.get_by_role("dialog").get_by_role("button", name="Deploy").click()
    deployment = page.get_by_test_id("deployment")
    expect(deployment).to_contain_text("Deployment 1 is building", timeout=PATIENCE_MS)
    expect(page.get_by_test_id("time-line")).to_contain_text("v2")
    deployment.get_by_label("At most").fill("5000")
    deployment.get_by_role("button", name="Throttle").click()
    expect(deployment.get_by_placeholder("5000")).to_be_visible(timeout=PATIENCE_MS)
    deployment.get_by_role("button", name="Pause").click()
    expect(deployment).to_contain_text("Deployment 1 is paused", timeout=PATIENCE_MS)
    deployment.get_by_role("button", name="Resume").click()
    project.compute()
    expect(deployment).to_contain_text("somebody has to approve", timeout=PATIENCE_MS)
    difference = page.get_by_test_id("difference")
    expect(difference).to_contain_text("0 the same, 2 changed")
    expect(difference.get_by_role("row", name="a changed")).to_contain_text("13 → 12 (−1)")
    expect(difference.get_by_role("button", name="Only in v1")).to_be_disabled()

    deployment.get_by_role("button", name="Switch").click()
    page.get_by_role("dialog").get_by_role("button", name="Switch").click()
    expect(page.get_by_test_id("time-line")).to_contain_text("kept up to date for a roll back", timeout=PATIENCE_MS)
    deployment.get_by_role("button", name="Roll back").click()
    page.get_by_role("dialog").get_by_role("button", name="Leave it").click()
    assert project.server.http.get("/v1/views/by_shop").json()["version"] == 2
    deployment.get_by_role("button", name="Roll back").click()
    page.get_by_role("dialog").get_by_role("button", name="Roll back").click()
    expect(deployment).to_contain_text("Deployment 1 is rolled back", timeout=PATIENCE_MS)
    assert project.server.http.get("/v1/views/by_shop").json()["version"] == 1


def test_a_job_is_run_and_says_why_it_failed(page: Page, project: Trusted) -> None:
    page.goto(f"http://127.0.0.1:{project.server.port}/#/jobs")
    expect(page.get_by_role("heading", name="No job yet")).to_be_visible(timeout=PATIENCE_MS)
    (project.folder / "jobs").mkdir()
    (project.folder / "jobs" / "all.toml").write_text(JOBS)
    page.get_by_role("link", name="report", exact=True).click(timeout=PATIENCE_MS)
    page.get_by_role("button", name="Run now").click()
    expect(page.get_by_test_id("runs")).to_contain_text("`check` failed", timeout=PATIENCE_MS)
    page.get_by_role("link", name="check", exact=True).click()
    expect(page.get_by_test_id("runs")).to_contain_text("`nothing` does not exist", timeout=PATIENCE_MS)
    (project.folder / "jobs" / "all.toml").write_text(JOBS.replace('"nothing"', '"by_shop"'))
    page.get_by_role("button", name="Run now").click()
    expect(page.get_by_test_id("answer")).to_contain_text("none failed", timeout=PATIENCE_MS)
    page.goto(f"http://127.0.0.1:{project.server.port}/#/jobs/report")
    expect(page.get_by_test_id("runs")).to_contain_text("2 rows in by_shop.json", timeout=PATIENCE_MS)
    (project.folder / "jobs" / "all.toml").write_text("[[job]]\n")
    page.goto(f"http://127.0.0.1:{project.server.port}/#/jobs")
    expect(page.get_by_test_id("answer")).to_contain_text("The files are wrong", timeout=PATIENCE_MS)

"""A project that an earlier version has made: opened by the code of now, it gives the same answers and goes on."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.support import wait_for
from tests.upgrades.project import FIXTURES, PATIENCE_S, Driven, click

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("fixture", sorted(path.name for path in FIXTURES.iterdir()))
def test_a_project_of_an_earlier_version_gives_the_same_answers_and_goes_on(fixture: str, tmp_path: Path) -> None:
    with tarfile.open(FIXTURES / fixture / "project.tar.xz") as archive:
        archive.extractall(tmp_path / "project", filter="data")
    expected = json.loads((FIXTURES / fixture / "answers.json").read_text())
    project = Driven(tmp_path / "project")
    backups = str(tmp_path / "backups")
    project.run("backup", backups)
    try:
        project.up()
        wait_for(project.caught_up, PATIENCE_S, "all queries")
        assert json.loads(json.dumps(project.answers())) == expected
        go_on(project, expected["queries"])
        ahead = project.client.query("SELECT page, views FROM by_page;").through
        project.down()
        # Everything outside of the log is ahead of the backup now: checkpoints, views, files, clients.
        restored = project.json("restore", backups, "--yes")
        assert sorted(restored["rebuilt"]) == ["by_country", "by_page", "paid", "per_minute", "totals"]
        assert (restored["deployments_cancelled"], restored["left"]) == ([2], {})
        project.up()
        check_restored(project, expected, ahead["id"] if ahead else "")
    finally:
        project.down()


def check_restored(project: Driven, expected: dict[str, Any], ahead: str) -> None:
    """The project is what it was when it was backed up, and whoever was ahead of that is told so."""

    def is_back(sql: str) -> bool:
        return bool(json.loads(json.dumps(project.ask(sql))) == expected["queries"][sql])

    for sql in expected["queries"]:
        wait_for(lambda sql=sql: is_back(sql), PATIENCE_S, sql)  # type: ignore[misc]
    refused = project.get(f"/v1/views/by_page/feed?after={ahead}", any_status=True)
    assert (refused.status_code, refused.json()["error"]["code"]) == (410, "position_of_another_log")
    found = project.answers()
    for what in ("group", "cursor", "queue", "subjects", "late", "dead_letters"):
        assert json.loads(json.dumps(found[what])) == expected[what], what
    # An id that came after the backup is not known any more; what comes now is counted.
    assert project.client.produce("clicks", [click(0, "2026-11-15T12:05:40Z", 1.0)], key="of now").accepted == 1
    pages = {str(row[0]): row[1] for row in expected["queries"]["SELECT page, views FROM by_page;"]}
    pages["/0"] += 1
    wait_for(
        lambda: {row[0]: row[1] for row in project.ask("SELECT page, views FROM by_page;")} == pages,
        PATIENCE_S,
        "the rebuilt view",
    )
    wait_for(lambda: project.get("/readyz", any_status=True).status_code == 200, PATIENCE_S, "a ready project")


def go_on(project: Driven, before: dict[str, list[list[object]]]) -> None:
    client = project.client
    # An event id of the earlier version is known: the first is a duplicate, in its own words and under its own key.
    again = client.produce("clicks", [click(20, "2026-11-15T12:05:00Z")], key="later")
    assert (again.accepted, again.duplicates) == (0, 1)
    sent = client.produce("clicks", [click(n, "2026-11-15T12:05:40Z", 1.0) for n in (0, 1, 2)], key="of now")
    assert sent.accepted == 3
    with client.consumer("readers", "clicks") as consumer:
        read: list[float] = []
        while len(read) < 4:
            read += [record.fields["amount"] for record in consumer.poll(wait=20)]
        consumer.commit()
    assert sorted(read) == [1.0, 1.0, 1.0, 22.0]
    [message] = client.receive("mails", limit=1, wait=30)
    assert message.record.fields["recipient"] in {"r1", "r2", "r3"}
    project.put_delivery("visits", '{"visit":2}')
    wait_for(lambda: project.delivered() == ['{"visit":1}', '{"visit":2}'], PATIENCE_S, "the delivery stream's file")

    def counted(sql: str, column: int = 1) -> dict[str, float]:
        return {str(row[0]): float(str(row[column])) for row in before[sql]}

    def grown(sql: str, by: dict[str, float], column: int = 1, factor: float = 1.0) -> bool:
        wanted = {key: (value + by.get(key, 0)) * factor for key, value in counted(sql, column).items()}
        return {str(row[0]): float(row[column]) for row in project.ask(sql)} == wanted

    pages = {"/0": 1.0, "/1": 1.0, "/2": 1.0}
    by_page = "SELECT page, views FROM by_page;"
    wait_for(lambda: grown(by_page, pages), PATIENCE_S, "the view")
    wait_for(lambda: grown("SELECT page, views, mean FROM totals;", pages), PATIENCE_S, "the Lambda view")
    countries = {"CH": 2.0, "DE": 1.0}
    by_country = "SELECT country, views, amount FROM by_country;"
    wait_for(lambda: grown(by_country, countries), PATIENCE_S, "the joined view")
    wait_for(lambda: grown(by_country, countries, column=2), PATIENCE_S, "the joined view's sum")
    per_minute = sum(float(str(row[2])) for row in before["SELECT page, windowstart, views FROM per_minute;"])
    minutes = "SELECT page, windowstart, views FROM per_minute;"
    wait_for(lambda: sum(row[2] for row in project.ask(minutes)) == per_minute + 3, PATIENCE_S, "the windows")
    paid = len(before["SELECT userid, total FROM paid;"])
    wait_for(lambda: len(project.ask("SELECT userid, total FROM paid;")) == paid + 3, PATIENCE_S, "the stream")
    # What waited for approval still does, and can be approved.
    project.run("deploy", "approve")
    wait_for(lambda: grown(by_page, pages, factor=10.0), PATIENCE_S, "the version that was approved")

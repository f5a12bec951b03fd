"""`headrace backup` and `headrace restore` on a project that is stopped, with consumers that are ahead."""

from __future__ import annotations

import json
from pathlib import Path

from headrace.clock import SystemClock
from headrace.config import load_project
from headrace.coordinate.catalog import Catalog
from headrace.coordinate.deployments import Deployments
from headrace.coordinate.local import UpLock
from headrace.coordinate.statements import StatementExecutor
from headrace.log.base import BatchIdentity, TopicPartition
from headrace.log.local.moments import iso_moment
from headrace.log.open import open_log
from tests.cli.conftest import Headrace

SQL = """
CREATE STREAM clicks (page VARCHAR KEY, n BIGINT) WITH (KAFKA_TOPIC='clicks');
CREATE TABLE counted AS SELECT page, COUNT(*) AS n FROM clicks GROUP BY page;
CREATE TABLE busy AS SELECT page, n FROM counted WHERE n > 1;
CREATE STREAM others (page VARCHAR KEY, n BIGINT) WITH (KAFKA_TOPIC='others');
INSERT INTO others SELECT page, n FROM clicks;
"""


def defined(folder: Path) -> None:
    """As if the queries had run: each has a batch in the log, and a checkpoint."""
    project, clock = load_project(folder), SystemClock()
    log = open_log(project, clock)
    executor = StatementExecutor(log, Catalog(log), clock)
    executor.execute(SQL)
    for query in executor.catalog.queries():
        log.commit("t", [], BatchIdentity(query.id, query.version, "0123", 0, "{}"))
        (project.checkpoints_folder / f"{query.id}-v{query.version}" / "offsets").mkdir(parents=True)
    deployments = Deployments(executor, log, executor.catalog, clock)
    deployments.rebuild(["BUSY"])
    log.close()


def execute(folder: Path, sql: str) -> None:
    clock = SystemClock()
    log = open_log(load_project(folder), clock)
    StatementExecutor(log, Catalog(log), clock).execute(sql)
    log.close()


def test_a_project_is_restored_and_says_what_becomes_of_it(headrace: Headrace, tmp_path: Path) -> None:
    (tmp_path / "headrace.toml").touch()
    defined(tmp_path)
    assert headrace("topic", "put", "clicks", '{"page":"/","n":1}').code == 0
    said = headrace("backup", "backups", "--json")
    made = json.loads(said.out)
    assert (said.code, made["removed_moments"]) == (0, 0)
    assert made["copied_bytes"] > 0
    for _ in range(3):
        assert headrace("topic", "put", "clicks", '{"page":"/lost","n":1}').code == 0
    (tmp_path / ".headrace" / "imports.json").write_text("{}")
    assert headrace("restore", "backups", "--json").code == 1  # nobody said yes
    said = headrace("restore", "backups", "--yes", "--json")
    restored = json.loads(said.out)
    assert said.code == 0
    assert restored["records"] == made["records"]
    assert restored["deployments_cancelled"] == [1]
    assert restored["rebuilt"] == ["counted", "busy"]
    [insert] = restored["left"]
    assert insert.startswith("INSERTQUERY")
    assert not (tmp_path / ".headrace" / "imports.json").exists()
    assert (tmp_path / "backups").stat().st_mode & 0o077 == 0
    assert Path(restored["log_before"]).is_dir()
    assert Path(restored["checkpoints_before"]).is_dir()
    log = open_log(load_project(tmp_path), SystemClock())
    assert log.snapshot().ends["clicks"][0].end == 1
    # Versions that were built before are not taken up again; those of the rebuild begin with the log.
    catalog = Catalog(log)
    catalog.refresh()
    assert {(version.name, version.state) for version in catalog.beside()} >= {("COUNTED", "building")}
    log.close()


def test_a_project_that_is_up_is_not_restored(headrace: Headrace, tmp_path: Path) -> None:
    (tmp_path / "headrace.toml").touch()
    headrace("topic", "create", "clicks", "--columns", "n BIGINT")
    assert headrace("backup", "backups").code == 0
    lock = UpLock.acquire(load_project(tmp_path).data)
    said = headrace("restore", "backups", "--yes")
    assert (said.code, "stop it first:  headrace down" in said.err) == (1, True)
    lock.release()
    said = headrace("restore", "nowhere", "--yes")
    assert (said.code, "holds no backups" in said.err) == (1, True)
    said = headrace("restore", "backups", "--yes", "--to", "1999-01-01")
    assert (said.code, "no backup is as old as that" in said.err) == (1, True)


def test_a_groups_offsets_are_restored_with_the_log(headrace: Headrace, tmp_path: Path) -> None:
    (tmp_path / "headrace.toml").touch()
    headrace("topic", "create", "clicks", "--columns", "n BIGINT")
    at = TopicPartition("clicks", 0)

    def consume(count: int) -> None:
        headrace("topic", "put", "clicks", *['{"n":1}'] * count)
        log = open_log(load_project(tmp_path), SystemClock())
        log.reset_group("readers", {at: log.snapshot().ends["clicks"][0].end})
        log.close()

    consume(2)
    headrace("backup", "backups")
    consume(5)
    assert headrace("restore", "backups", "--yes").code == 0
    headrace("topic", "put", "clicks", *['{"n":2}'] * 9)
    log = open_log(load_project(tmp_path), SystemClock())
    [offset] = log.group("readers").offsets
    assert (offset.committed, offset.end) == (2, 11)
    log.close()


def test_a_project_is_restored_to_a_moment_between_two_backups(headrace: Headrace, tmp_path: Path) -> None:
    (tmp_path / "headrace.toml").touch()
    defined(tmp_path)
    before = json.loads(headrace("backup", "backups", "--json").out)["records"]
    headrace("topic", "put", "clicks", '{"n":1}', '{"n":2}')
    moment = iso_moment(SystemClock().now_ms())
    headrace("topic", "put", "clicks", '{"n":3}')
    said = headrace("restore", "backups", "--yes", "--to", moment)
    assert (said.code, "before the moment asked for" in said.out) == (0, True)  # no backup has it yet
    assert f"restored {before} records" in said.out
    headrace("topic", "put", "clicks", '{"n":4}', '{"n":5}')
    moment = iso_moment(SystemClock().now_ms())
    headrace("topic", "put", "clicks", '{"n":6}')
    execute(tmp_path, "CREATE TABLE late AS SELECT page, COUNT(*) AS n FROM clicks GROUP BY page;")
    assert headrace("backup", "backups").code == 0
    listed = json.loads(headrace("restore", "backups", "--list", "--json").out)
    assert [one["records"] for one in listed[:1]] == [before]
    assert listed[1]["from"] < moment < listed[1]["backup"]
    assert "also any moment from" in headrace("restore", "backups", "--list").out
    said = headrace("restore", "backups", "--to", moment, "--to-arrival", "1", "--yes")
    assert (said.code, "name two moments" in said.err) == (1, True)
    said = headrace("restore", "backups", "--yes", "--json", "--to", moment.replace("T", " ").removesuffix("+00:00"))
    restored = json.loads(said.out)
    assert (said.code, restored["moment"], restored["exact"], restored["losses"]) == (0, moment, True, [])
    data = tmp_path / ".headrace"
    assert not [file for file in (data, *(data / "log").rglob("marks/*")) if file.stat().st_mode & 0o077]
    # Queries that were defined later are not; the others are computed again.
    assert "late" not in restored["rebuilt"]
    log = open_log(load_project(tmp_path), SystemClock())
    assert [n for found in log.read("clicks", 0, 0) for n in found.batch.column("N").to_pylist()] == [4, 5]
    assert "LATE" not in {topic.name.upper() for topic in log.topics()}
    log.close()
    said = headrace("restore", "backups", "--yes", "--to-arrival", str(restored["arrival"] - 1))
    assert (said.code, f"the last mark not after {restored['arrival'] - 1}" in said.out) == (0, True)


def test_a_moment_of_which_no_backup_has_everything_is_restored_on_request_only(
    headrace: Headrace, tmp_path: Path
) -> None:
    (tmp_path / "headrace.toml").touch()
    headrace("topic", "create", "clicks", "--columns", "n BIGINT")
    headrace("topic", "put", "clicks", '{"n":1}')
    moment = iso_moment(SystemClock().now_ms())
    assert headrace("topic", "delete", "clicks", "--yes").code == 0
    assert headrace("backup", "backups").code == 0
    said = headrace("restore", "backups", "--yes", "--to", moment)
    assert (said.code, "the topic was deleted before the backup" in said.err) == (1, True)
    assert not list((tmp_path / ".headrace").glob("log.before-restore-*"))
    said = headrace("restore", "backups", "--yes", "--to", moment, "--accept-loss")
    assert (said.code, "not restored: topic `clicks`, partition 0: up to 1" in said.out) == (0, True)

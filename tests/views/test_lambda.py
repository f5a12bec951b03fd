"""Lambda: a batch over what came before a cut, a stream from exactly there, and reads that show both as one."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.sql import SparkSession

from headrace.coordinate.subjects import view_subject
from headrace.errors import UsageError
from headrace.process.base import QueryStatus
from headrace.process.stretches import ACCOUNT, Account
from headrace.views.why import why
from tests.support import wait_for
from tests.views.live import Live, live

pytestmark = pytest.mark.spark

EVENTS = """CREATE STREAM events (k VARCHAR KEY, x INT, big BIGINT, d DOUBLE, m DECIMAL(9,2), s VARCHAR)
WITH (KAFKA_TOPIC='events', PARTITIONS=2);"""
EVERYTHING = """CREATE TABLE everything AS SELECT k, COUNT(*) AS n, COUNT(x) AS nx, SUM(x) AS sx, SUM(m) AS sm,
  SUM(big) AS sb, AVG(x) AS ax, AVG(big) AS ab, AVG(m) AS am, AVG(d) AS ad, MIN(d) AS lo, MAX(s) AS hi,
  COUNT_DISTINCT(s) AS ds, APPROX_COUNT_DISTINCT(s) AS ads, APPROX_QUANTILE(d, 0.5) AS med,
  EARLIEST_BY_OFFSET(s) AS first_s, LATEST_BY_OFFSET(x) AS last_x,
  LATEST_BY_OFFSET(x, FALSE) AS last_any, EARLIEST_BY_OFFSET(x, 3) AS firsts, LATEST_BY_OFFSET(s, 2) AS lasts,
  COLLECT_LIST(x) AS xs, COLLECT_SET(s) AS ss, TOPK(x, 3) AS t3, TOPKDISTINCT(x, 2) AS td, TOPK(x, s, 2) AS tss,
  STDDEV_SAMP(d) AS sd, ATTR(s) AS at, SUM(x) * 2 + COUNT(*) AS made
  FROM events GROUP BY k HAVING COUNT(*) > 1;"""


def events(seed: int, count: int) -> list[dict[str, Any]]:
    chance = random.Random(seed)

    def maybe(value: Any) -> Any:
        return None if chance.random() < 0.2 else value

    return [
        {
            "k": chance.choice("abcde"),
            "x": maybe(chance.randint(-5, 5)),
            "big": maybe(chance.choice([2**62, -(2**40), 7])),
            "d": maybe(chance.randint(0, 100) / 4),
            "m": maybe(str(chance.randint(-99, 99) / 100)),
            "s": maybe(chance.choice(["red", "green", "blue"])),
        }
        for _ in range(count)
    ]


@pytest.fixture
def project(tmp_path: Path, spark: SparkSession) -> Iterator[Live]:
    kappa = EVERYTHING.replace("everything", "kappa")
    with live(tmp_path, spark, f"{EVENTS}\n{kappa}", "[views]\ncheck_every_seconds = 0\n") as running:
        yield running


def rounded(rows: list[list[Any]]) -> list[list[Any]]:
    """The last digits of a double depend on the order of addition."""
    return sorted([[round(v, 9) if isinstance(v, float) else v for v in row] for row in rows], key=str)


def test_every_aggregate_that_merges_is_what_a_replay_gives(project: Live) -> None:
    project.send("events", *events(1, 60))
    project.write(f"{project.files['pipelines/all.sql']}\n{EVERYTHING}")
    deployment = project.reaches(project.deploy(strategy="lambda"), "switched")
    assert deployment.strategy == "lambda"
    version = project.services.catalog.versions("EVERYTHING")[0]
    assert version.layers is not None
    assert version.layers.ends is not None
    assert sum(version.layers.ends.values()) == 5

    agree(project)
    project.send("events", *events(2, 60))
    agree(project)


def agree(project: Live, merged: str = "everything", replayed: str = "kappa") -> None:
    """Both views, at the same records."""

    def differing() -> list[Any]:
        one, other = (rounded(project.rows(f"SELECT * FROM {view};")) for view in (merged, replayed))
        if len(one) != len(other) or not one:
            return [len(one), len(other)]
        cells = [cell for x, y in zip(one, other, strict=True) for cell in zip(itertools.count(), x, y, strict=False)]
        return [cell for cell in cells if cell[1] != cell[2]]

    try:
        wait_for(lambda: not differing(), 60, "the views to agree")
    except TimeoutError:
        assert not differing()
        raise


TIMED = EVENTS.replace("s VARCHAR)", "s VARCHAR, ts BIGINT)").replace("PARTITIONS=2", "PARTITIONS=2, TIMESTAMP='ts'")
PER_MINUTE = """CREATE TABLE per_minute AS SELECT k, COUNT(*) AS n, SUM(x) AS total FROM events
  WINDOW TUMBLING (SIZE 1 MINUTE, GRACE PERIOD 30 SECONDS) GROUP BY k;"""
NAMES = "CREATE TABLE names (k VARCHAR PRIMARY KEY, name VARCHAR) WITH (KAFKA_TOPIC='names', PARTITIONS=1);"
SHORT = "CREATE TABLE short AS SELECT k, name FROM names WHERE LEN(name) < 4;"
NAMED = """CREATE TABLE named AS SELECT n.name AS name, COUNT(*) AS n FROM events e JOIN names n ON e.k = n.k
  GROUP BY n.name;"""


def test_a_refresh_moves_the_cut_while_events_arrive(tmp_path: Path, spark: SparkSession) -> None:
    tables = (PER_MINUTE, SHORT, NAMED)
    replayed = [text.replace("CREATE TABLE ", "CREATE TABLE kappa_", 1) for text in tables]
    with live(tmp_path, spark, "\n".join((TIMED, NAMES, *replayed)), "[views]\ncheck_every_seconds = 0\n") as project:
        at = 1_700_000_000_000

        def send(seed: int, count: int = 20) -> None:
            """Some late, some out of order."""
            nonlocal at
            chance = random.Random(seed)
            for event in events(seed, count):
                at += 7_000
                project.send("events", event | {"ts": at - chance.choice((0, 0, 9_000, 70_000, 200_000))})

        project.send("names", {"k": "a", "name": "ann"}, {"k": "b", "name": "bob"}, {"k": "c", "name": "cecilia"})
        send(1)
        project.write("\n".join((project.files["pipelines/all.sql"], *tables)))
        project.reaches(project.deploy(strategy="lambda"), "switched")
        # Names that change, and go, on the other side of the cut.
        project.send("names", {"k": "c", "name": "cy"}, {"k": "a", "name": "anneliese"}, {"k": "d", "name": "dan"})
        send(2)
        pairs = [(name, f"kappa_{name}") for name in ("per_minute", "short", "named")]
        for merged, other in pairs:
            agree(project, merged, other)
        before = project.services.catalog.versions("PER_MINUTE")[0].layers
        started, seed = project.services.deployments.refresh("PER_MINUTE", "ann"), 3
        while project.services.deployments.get(started.id).stage not in ("switched", "failed"):
            send(seed, 2)
            seed += 1
        done = project.reaches(started, "switched")
        assert [(item.verdict, item.before, item.number) for item in done.items] == [("refreshes", 1, 2)]
        for merged, other in pairs:
            agree(project, merged, other)
        after = project.services.catalog.versions("PER_MINUTE")[-1].layers
        assert before is not None
        assert after is not None
        assert isinstance(before.cut, int)
        assert isinstance(after.cut, int)
        assert before.cut < after.cut
        assert project.serving("PER_MINUTE") == 2
        assert not project.services.deployments.plan(project.files).pending
        with pytest.raises(UsageError, match="Lambda view"):
            project.services.statements.execute("CREATE TABLE more AS SELECT k, n FROM per_minute;")
        named = project.services.catalog.view("NAMED")
        assert named is not None
        checked = project.services.care.check(named, rows=100)
        assert not checked


HEALING = """CREATE TABLE healing WITH (BATCH_COUNTS_LATE=TRUE) AS SELECT k, COUNT(*) AS n FROM events
  WINDOW TUMBLING (SIZE 1 MINUTE, GRACE PERIOD 30 SECONDS) GROUP BY k;"""


def test_a_batch_layer_counts_what_came_too_late_if_it_is_asked_to(tmp_path: Path, spark: SparkSession) -> None:
    with live(tmp_path, spark, TIMED, "[views]\ncheck_every_seconds = 0\n") as project:
        minute = 1_700_000_040_000

        def send(*moments: int) -> None:
            project.send("events", *({"k": "a", "ts": minute + 1000 * moment} for moment in moments))

        def first() -> list[Any]:
            [row] = project.rows(f"SELECT n FROM healing WHERE windowstart = {minute};")
            return row

        def instead() -> str:
            view = project.services.catalog.view("HEALING")
            assert view is not None
            with pytest.raises(UsageError, match="cannot be revised") as refused:
                project.services.care.repair(view)
            return refused.value.hint or ""

        def explained() -> tuple[bool, int, list[int]]:
            services = project.services
            view = services.catalog.view("HEALING")
            assert view is not None
            subject, store = view_subject(services.catalog, view), services.followers.view("HEALING")
            found = why(services.log, subject, store, {"K": "a"}, minute, revisions=services.care.revisions)
            return not found.differs, found.records, [entry.time_ms - minute for entry in found.late]

        # The third comes when its window is closed; as a history would that is imported.
        send(0, 300, 10)
        project.write("\n".join((TIMED, HEALING.replace(" WITH (BATCH_COUNTS_LATE=TRUE)", ""))))
        project.reaches(project.deploy(strategy="lambda"), "switched")
        assert first() == [1]
        assert "add WITH (BATCH_COUNTS_LATE=TRUE) to its statement" in instead()
        project.write("\n".join((TIMED, HEALING)))
        project.reaches(project.deploy(strategy="lambda", approve=True), "switched")
        assert first() == [2]
        send(20, 600)
        project.eventually("SELECT n FROM healing;", [[2], [1], [1]])
        assert first() == [2], "the stream does not count what comes too late for it"
        assert explained() == (True, 2, [20_000])
        assert instead().endswith("headrace view refresh healing")
        project.reaches(project.services.deployments.refresh("HEALING", "ann"), "switched")
        assert first() == [3], "the next batch layer does"
        assert explained() == (True, 3, [])
        view = project.services.catalog.view("HEALING")
        assert view is not None
        assert project.services.care.check(view, rows=100) == []


def test_a_batch_layer_is_throttled_paused_and_goes_on_where_it_was(project: Live) -> None:
    project.send("events", *events(5, 300))
    project.write(f"{project.files['pipelines/all.sql']}\n{EVERYTHING}")
    # A stretch has the rows of some seconds, and the next one waits until they are over.
    deployment = project.deploy(strategy="lambda", rows_per_second=12)
    [batch] = [query for query in project.services.deployments.queries(deployment) if query.layer == "batch"]
    account = project.services.project.checkpoints_folder / f"{batch.id}-v1" / ACCOUNT

    def told() -> QueryStatus:
        found = project.services.engine.status(batch.id)
        assert found is not None
        return found

    wait_for(lambda: account.is_file() and bool(kept(account)), 120, "a stretch")
    first = kept(account)
    project.services.deployments.pause(deployment.id, True)
    wait_for(lambda: told().state == "stopped", 60, "it to rest")
    rested = kept(account)
    assert rested[: len(first)] == first
    status = told()
    assert 60 <= status.rows < 300
    assert (status.batch, status.lag) == (-1, 300 - status.rows)
    # Nobody goes on with it, and another engine knows as much.
    assert kept(account) == rested
    project.services.deployments.throttle(deployment.id, 30)
    project.services.deployments.pause(deployment.id, False)
    wait_for(lambda: len(kept(account)) > len(rested), 120, "another stretch")
    assert kept(account)[: len(rested)] == rested
    project.services.deployments.throttle(deployment.id, 0)
    project.reaches(deployment, "switched")
    agree(project)
    wait_for(lambda: not account.parent.exists(), 60, "what was kept to be removed")


def kept(account: Path) -> list[str]:
    return msgspec.json.decode(account.read_bytes(), type=Account).kept

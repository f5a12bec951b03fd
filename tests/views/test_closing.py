"""Results that wait for time are compared once all is out that the same records have closed, while events arrive."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace.views.versions import Deployment
from tests.support import wait_for
from tests.views.live import PATIENCE, Live, live

pytestmark = pytest.mark.spark

INPUTS = """
CREATE STREAM clicks (userid VARCHAR KEY, page VARCHAR, at BIGINT) WITH (KAFKA_TOPIC='clicks', TIMESTAMP='at');
CREATE STREAM orders (userid VARCHAR KEY, total INT, at BIGINT) WITH (KAFKA_TOPIC='orders', TIMESTAMP='at');
"""
WINDOWS = """
CREATE TABLE per_second AS SELECT userid, COUNT(*) AS n FROM clicks
  WINDOW TUMBLING (SIZE 1 SECOND, GRACE PERIOD 1 SECOND) WHERE page <> '/none' GROUP BY userid EMIT FINAL;
CREATE TABLE visits AS SELECT userid, COUNT(*) AS n FROM clicks WINDOW SESSION (1 SECOND)
  WHERE page <> '/none' GROUP BY userid EMIT FINAL;
"""
JOINED = """
CREATE STREAM seen AS SELECT c.userid AS userid, total FROM clicks c
  LEFT JOIN orders o WITHIN 1 SECOND GRACE PERIOD 0 SECONDS ON c.userid = o.userid WHERE page <> '/none';
CREATE TABLE counted AS SELECT userid, COUNT(*) AS n, COUNT(total) AS bought FROM seen GROUP BY userid;
"""
JOINED_AT_ONCE = """
CREATE TABLE counted AS SELECT c.userid AS userid, COUNT(*) AS n, COUNT(total) AS bought FROM clicks c
  LEFT JOIN orders o WITHIN 1 SECOND GRACE PERIOD 0 SECONDS ON c.userid = o.userid
  WHERE page <> '/none' GROUP BY c.userid;
"""


@contextmanager
def events(project: Live) -> Iterator[None]:
    """Without a pause, and with each of them time goes on: there is always something to close."""
    over = threading.Event()

    def send() -> None:
        for number in count():
            user, at = f"user{number % 7}", 1_700_000_000_000 + number * 250
            page = "/rare" if number % 11 == 0 else "/home"
            project.send("clicks", {"userid": user, "page": page, "at": at})
            if number % 3 == 0:
                project.send("orders", {"userid": f"user{number % 5}", "total": number, "at": at})
            if over.wait(0.01):
                return

    thread = threading.Thread(target=send, name="clicks-under-test")
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def differences(deployment: Deployment) -> dict[str, tuple[int, int, int]]:
    return {one["view"]: (one["changed"], one["only_old"], one["only_new"]) for one in deployment.comparisons}


@pytest.mark.parametrize("views", [WINDOWS, JOINED, JOINED_AT_ONCE], ids=["windows", "chain", "join"])
def test_versions_do_not_differ_by_what_is_about_to_close(tmp_path: Path, spark: SparkSession, views: str) -> None:
    tables = [name for name in ("per_second", "visits", "counted") if f"TABLE {name} " in views]
    with live(tmp_path, spark, INPUTS + views) as project, events(project):
        wait_for(lambda: all(project.rows(f"SELECT * FROM {name};") for name in tables), PATIENCE, "rows of each view")
        project.write(INPUTS + views.replace("page <> '/none'", "NOT (page = '/none')"))
        same = project.reaches(project.deploy(max_changed=0.0), "switched", "waiting")
        assert differences(same) == dict.fromkeys(tables, (0, 0, 0)), same.detail
        assert same.stage == "switched"
        assert all(one["same"] > 0 for one in same.comparisons)

        project.write(INPUTS + views.replace("page <> '/none'", "page <> '/rare'"))
        other = project.reaches(project.deploy(max_changed=0.0), "switched", "waiting")
        assert other.stage == "waiting"
        assert all(sum(counts) > 0 for counts in differences(other).values()), other.detail

"""Followers: what the log says is in the rows, exactly once, whatever happens to the process, the files or the log."""

from __future__ import annotations

import datetime
import logging
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.clock import SystemClock
from headrace.config import LogSettings
from headrace.errors import NotFound
from headrace.log.base import Append, TopicSpec
from headrace.log.local.open import LocalLog
from headrace.sql.source import Source
from headrace.store.sqlite import SqliteStore, SqliteView
from headrace.types import BIGINT, DATE, DOUBLE, TIMESTAMP, VARCHAR, Column
from tests.store.changelog import COUNTS, PER_MINUTE, everything
from tests.store.project import Project, batch_of, create_topic, write
from tests.support import wait_for


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    made = Project(tmp_path)
    yield made
    made.close()


def served(project: Project, name: str) -> list[tuple[Any, ...]]:
    project.caught_up(name)
    return everything(project.followers.view(name))


def test_a_view_follows_its_topic(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.store.follower.RATE_SECONDS", 600.0)  # however long it takes to ask
    create_topic(project.log, COUNTS, partitions=3)
    create_topic(project.log, PER_MINUTE)
    project.serve(COUNTS, PER_MINUTE)
    write(project.log, COUNTS, {"PAGE": "/a", "VIEWS": 1}, {"PAGE": "/b", "VIEWS": 1}, {"PAGE": "/c", "VIEWS": 1})
    write(project.log, COUNTS, {"PAGE": "/a", "VIEWS": 2}, {"PAGE": "/b", "$tombstone": True})
    write(project.log, PER_MINUTE, {"PAGE": "/a", "VIEWS": 9, "$window_start": 0, "$window_end": 60_000})
    assert served(project, "COUNTS") == [("/a", 2), ("/c", 1)]
    assert served(project, "PER_MINUTE") == [("/a", 0, 60_000, 9)]
    assert project.followers.names() == ["COUNTS", "PER_MINUTE"]
    assert project.followers.error("COUNTS") is None
    assert project.followers.rate("COUNTS") > 0
    position = project.followers.view("COUNTS").position()
    assert sum(position.offsets.values()) == 5


def test_what_is_committed_is_applied_in_milliseconds(project: Project) -> None:
    create_topic(project.log, COUNTS)
    project.serve(COUNTS)
    view = project.followers.view("COUNTS")
    took, pause = [], threading.Event()
    for number in range(1, 51):
        write(project.log, COUNTS, {"PAGE": "/a", "VIEWS": number})
        started = time.monotonic()
        while view.position().offsets.get(0, 0) < number:
            assert time.monotonic() < started + 60
            pause.wait(0.0005)
        took.append(time.monotonic() - started)
    # Looked for now and then, none would be: each is written right after a look. A busy machine delays some.
    assert sorted(took)[len(took) // 4] < 0.05


def test_a_replay_in_many_turns(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.store.follower.ROWS_PER_TURN", 100)
    create_topic(project.log, COUNTS, partitions=2)
    for start in range(0, 3_000, 300):
        write(project.log, COUNTS, *({"PAGE": f"/{n % 70}", "VIEWS": n} for n in range(start, start + 300)))
    project.serve(COUNTS)
    expected = {f"/{n % 70}": n for n in range(3_000)}
    assert dict(served(project, "COUNTS")) == expected


def test_it_goes_on_where_it_was(tmp_path: Path) -> None:
    project = Project(tmp_path)
    create_topic(project.log, COUNTS)
    project.serve(COUNTS)
    write(project.log, COUNTS, {"PAGE": "/a", "VIEWS": 1})
    project.caught_up("COUNTS")
    project.close()
    # Had it begun anew, this row would be gone.
    connection = sqlite3.connect(tmp_path / "views" / "COUNTS" / "v1.sqlite")
    connection.execute("INSERT INTO rows (PAGE, VIEWS) VALUES ('/marker', 0)")
    connection.commit()
    connection.close()
    project = Project(tmp_path)
    write(project.log, COUNTS, {"PAGE": "/b", "VIEWS": 1})
    project.serve(COUNTS)
    assert served(project, "COUNTS") == [("/a", 1), ("/b", 1), ("/marker", 0)]
    project.close()


def test_a_view_that_is_ahead_of_the_log_is_filled_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    project = Project(tmp_path)
    create_topic(project.log, COUNTS)
    project.serve(COUNTS)
    write(project.log, COUNTS, *({"PAGE": f"/{n}", "VIEWS": 1} for n in range(10)))
    project.caught_up("COUNTS")
    project.close()
    shutil.rmtree(tmp_path / "log")
    with caplog.at_level(logging.WARNING, "headrace.store"):
        project = Project(tmp_path)
        create_topic(project.log, COUNTS)
        write(project.log, COUNTS, {"PAGE": "/new", "VIEWS": 1})
        project.serve(COUNTS)
        assert served(project, "COUNTS") == [("/new", 1)]
    assert "is filled again from the log: its position is not one of this log" in caplog.text
    project.close()


def test_a_log_that_was_copied_back_and_has_overtaken_its_view_fills_it_again(tmp_path: Path) -> None:
    project = Project(tmp_path)
    create_topic(project.log, COUNTS)
    project.serve(COUNTS)
    write(project.log, COUNTS, {"PAGE": "/a", "VIEWS": 1})
    project.caught_up("COUNTS")
    project.close()
    shutil.copytree(tmp_path / "log", tmp_path / "copy")
    project = Project(tmp_path)
    project.serve(COUNTS)
    write(project.log, COUNTS, {"PAGE": "/lost", "VIEWS": 1}, {"PAGE": "/lost too", "VIEWS": 1})
    project.caught_up("COUNTS")
    project.close()
    shutil.rmtree(tmp_path / "log")
    shutil.move(tmp_path / "copy", tmp_path / "log")
    # Nothing follows the log at first, as with commands while the project is stopped: by offsets alone all is well.
    project = Project(tmp_path)
    write(project.log, COUNTS, *({"PAGE": f"/{n}", "VIEWS": 1} for n in range(5)))
    project.close()
    project = Project(tmp_path)
    project.serve(COUNTS)
    assert served(project, "COUNTS") == [*((f"/{n}", 1) for n in range(5)), ("/a", 1)]
    project.close()


def test_a_topic_that_was_made_anew_fills_its_view_anew(tmp_path: Path) -> None:
    project = Project(tmp_path)
    create_topic(project.log, COUNTS)
    project.serve(COUNTS)
    write(project.log, COUNTS, *({"PAGE": f"/{n}", "VIEWS": 1} for n in range(10)))
    project.caught_up("COUNTS")
    project.followers.close()
    project.store.close()
    project.log.delete_topic("counts")
    create_topic(project.log, COUNTS)
    # As many as before, so the old offset is one the new topic has.
    write(project.log, COUNTS, *({"PAGE": f"/new/{n}", "VIEWS": 2} for n in range(12)))
    project.log.close()
    project = Project(tmp_path)
    project.serve(COUNTS)
    assert [views for _, views in served(project, "COUNTS")] == [2] * 12
    project.close()


def test_a_damaged_file_is_noticed_by_readers_and_filled_again(project: Project) -> None:
    create_topic(project.log, COUNTS)
    project.serve(COUNTS)
    write(project.log, COUNTS, {"PAGE": "/a", "VIEWS": 1})
    project.caught_up("COUNTS")
    broken = project.followers.view("COUNTS")
    broken.damaged = True
    write(project.log, COUNTS, {"PAGE": "/b", "VIEWS": 1})
    wait_for(lambda: project.followers.view("COUNTS") is not broken, 10, "another file")
    assert served(project, "COUNTS") == [("/a", 1), ("/b", 1)]


def test_the_catalog_decides_what_is_followed(project: Project) -> None:
    create_topic(project.log, COUNTS)
    create_topic(project.log, PER_MINUTE)
    project.serve(COUNTS, PER_MINUTE)
    kept = project.followers.view("COUNTS")
    write(project.log, COUNTS, {"PAGE": "/a", "VIEWS": 1})
    project.serve(COUNTS)
    assert project.followers.view("COUNTS") is kept
    with pytest.raises(NotFound, match="table `per_minute` is not served"):
        project.followers.view("PER_MINUTE")
    assert not project.store.path("PER_MINUTE", 1).exists()
    project.serve(COUNTS, version=2)
    assert project.followers.view("COUNTS").version == 2
    assert served(project, "COUNTS") == [("/a", 1)]
    assert not project.store.path("COUNTS", 1).exists()
    project.serve()
    assert project.followers.names() == []
    assert list((project.folder / "views").iterdir()) == []


def test_what_another_process_left_is_removed(project: Project) -> None:
    left = SqliteStore(project.folder / "views")
    left.open_view(PER_MINUTE, 7).close()
    create_topic(project.log, COUNTS)
    project.serve(COUNTS)
    assert [path.name for path in (project.folder / "views").iterdir()] == ["COUNTS"]


def test_one_that_fails_does_not_hold_up_others(project: Project) -> None:
    create_topic(project.log, COUNTS)
    project.serve(PER_MINUTE, COUNTS)
    write(project.log, COUNTS, {"PAGE": "/a", "VIEWS": 1})
    assert served(project, "COUNTS") == [("/a", 1)]
    wait_for(
        lambda: project.followers.error("PER_MINUTE") == "topic `per_minute` does not exist",
        10,
        "the error to be shown",
    )
    create_topic(project.log, PER_MINUTE)
    write(project.log, PER_MINUTE, {"PAGE": "/a", "VIEWS": 1, "$window_start": 0, "$window_end": 1})
    wait_for(lambda: project.followers.error("PER_MINUTE") is None, 10, "it to recover")
    assert served(project, "PER_MINUTE") == [("/a", 0, 1, 1)]


def test_a_view_without_a_definition_says_so(project: Project) -> None:
    create_topic(project.log, COUNTS)
    project.serve(COUNTS, Source("NO_KEY", "table", "counts", (), COUNTS.value))
    assert project.followers.names() == ["COUNTS"]
    assert "has no key" in (project.followers.error("NO_KEY") or "")
    with pytest.raises(NotFound, match="not served"):
        project.followers.view("NO_KEY")


def test_a_table_over_a_topic_of_events(project: Project) -> None:
    """Columns are found by name, in another case, in another type, or among the fields nobody had declared."""
    stored = (Column("NAME", VARCHAR), Column("AGE", BIGINT))
    project.log.create_topic(TopicSpec("users", (Column("ID", VARCHAR),), stored))
    declared = (Column("name", VARCHAR), Column("AGE", DOUBLE), Column("CITY", VARCHAR), Column("SEEN", TIMESTAMP))
    users = Source("USERS", "table", "users", (Column("ID", VARCHAR),), declared, timestamp="SEEN")
    batch = pa.record_batch(
        {
            "ID": ["u1", "u2", "u3"],
            "NAME": ["Ann", None, "Cy"],
            "AGE": pa.array([30, 40, None], pa.int64()),
            "$time": pa.array([5, 6, 7], pa.int64()),
            "$rest": ['{"city": "Graz", "seen": "1970-01-01T00:00:01Z"}', '{"city": 7}', None],
        }
    )
    project.log.append([Append("users", batch)]).result()
    project.serve(users)
    assert served(project, "USERS") == [
        ("u1", "Ann", 30.0, "Graz", 1_000),
        ("u2", None, 40.0, None, None),
        ("u3", "Cy", None, None, None),
    ]
    rows, _ = project.followers.view("USERS").select(["ID", "ROWTIME"], order=[("ID", False)])
    assert rows.rows == [("u1", 1_000), ("u2", 6), ("u3", 7)]


def test_a_table_over_raw_bytes(project: Project) -> None:
    project.log.create_topic(TopicSpec("raw", kind="raw"))
    source = Source("RAW", "table", "raw", (Column("ID", BIGINT),), (Column("NAME", VARCHAR),))
    keys = [number.to_bytes(8, "big") for number in (1, 2, 3, 1)]
    values = [b'{"name": "Ann"}', b"not json", b'{"NAME": "Cy"}', None]
    project.log.append([Append("raw", pa.record_batch({"KEY": keys, "VALUE": pa.array(values, pa.binary())}))]).result()
    project.serve(source)
    assert served(project, "RAW") == [(2, None), (3, "Cy")]


def test_columns_added_to_a_topic_are_seen(project: Project) -> None:
    create_topic(project.log, COUNTS)
    wide = Source("COUNTS", "table", "counts", COUNTS.key, (*COUNTS.value, Column("USERS", BIGINT)))
    project.serve(wide)
    write(project.log, COUNTS, {"PAGE": "/a", "VIEWS": 1})
    assert served(project, "COUNTS") == [("/a", 1, None)]
    project.log.alter_topic(TopicSpec("counts", wide.key, wide.value, role="derived"))
    write(project.log, wide, {"PAGE": "/b", "VIEWS": 1, "USERS": 3})
    assert served(project, "COUNTS") == [("/a", 1, None), ("/b", 1, 3)]


def test_a_full_disk_loses_nothing(project: Project) -> None:
    create_topic(project.log, COUNTS)
    project.serve(COUNTS)
    write(project.log, COUNTS, {"PAGE": "/a", "VIEWS": 1})
    project.caught_up("COUNTS")
    view = project.followers.view("COUNTS")
    assert isinstance(view, SqliteView)
    [pages] = view._writer.execute("PRAGMA page_count").fetchone()
    view._writer.execute(f"PRAGMA max_page_count = {pages + 1}")
    write(project.log, COUNTS, *({"PAGE": f"/{n}" * 50, "VIEWS": n} for n in range(1_000)))
    wait_for(lambda: "disk is full" in (project.followers.error("COUNTS") or ""), 10, "it to say so")
    assert everything(view) == [("/a", 1)]
    view._writer.execute("PRAGMA max_page_count = 1000000")
    assert len(served(project, "COUNTS")) == 1_001
    assert project.followers.view("COUNTS") is view


def test_a_view_that_could_not_be_opened_is_tried_again(
    project: Project, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("headrace.store.follow.OPEN_AGAIN_SECONDS", 0.0)
    create_topic(project.log, COUNTS)
    in_the_way = tmp_path / "views" / "COUNTS" / "v1.sqlite"
    in_the_way.mkdir(parents=True)
    project.serve(COUNTS)
    assert project.followers.error("COUNTS") is not None
    in_the_way.rmdir()
    write(project.log, COUNTS, {"PAGE": "/a", "VIEWS": 1})
    wait_for(lambda: project.followers.names() == ["COUNTS"], 10, "it to be opened")
    assert served(project, "COUNTS") == [("/a", 1)]


def test_a_value_python_cannot_hold_does_not_stop_a_view(project: Project) -> None:
    source = Source("ODD", "table", "odd", (Column("K", BIGINT),), (Column("T", VARCHAR), Column("D", DATE)))
    create_topic(project.log, source)
    batch = pa.record_batch(
        {
            "K": pa.array([1, 2], pa.int64()),
            "T": pa.array([b"a\xff", b"b"], pa.binary()).view(pa.utf8()),
            "D": pa.array([10_000_000, 0], pa.int32()).view(pa.date32()),
        }
    )
    project.log.append([Append("odd", batch)]).result()
    project.serve(source)
    assert served(project, "ODD") == [(1, "a\ufffd", None), (2, "b", datetime.date(1970, 1, 1))]


@pytest.mark.slow
def test_killed_again_and_again_the_rows_equal_a_replay(tmp_path: Path) -> None:
    log = LocalLog(tmp_path / "log", LogSettings(linger_ms=0), SystemClock(), serve=True)
    create_topic(log, COUNTS, partitions=2)
    chance = random.Random(11)
    expected: dict[str, int] = {}
    for round_ in range(5):
        child = subprocess.Popen(
            [sys.executable, "-m", "tests.store.follow_forever", str(tmp_path / "log"), str(tmp_path / "views")],
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )
        assert child.stdout is not None
        assert child.stdout.readline() == "following\n"
        # Killed while it is writing: at some moment within a few hundred batches.
        for batch in range(chance.randrange(5, 120)):
            number = round_ * 1_000 + batch
            pages = [f"/{chance.randrange(300)}" for _ in range(50)]
            rows = [{"PAGE": page, "VIEWS": number} for page in pages]
            gone = f"/{chance.randrange(300)}"
            log.append([Append("counts", batch_of(COUNTS, [*rows, {"PAGE": gone, "$tombstone": True}]))]).result()
            expected |= dict.fromkeys(pages, number)
            expected.pop(gone, None)
        if round_ == 0:
            # On a busy machine it may not have come to write anything.
            file = SqliteStore(tmp_path / "views").path("COUNTS", 1)
            wait_for(lambda: _arrival(file) > 0, 30, "the first rows")  # noqa: B023
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
    log.close()
    survived = Project(tmp_path)
    started_at = SqliteStore(tmp_path / "views").open_view(COUNTS, 1)
    assert started_at.position().arrival > 0
    started_at.close()
    survived.serve(COUNTS)
    assert dict(served(survived, "COUNTS")) == expected
    survived.close()


def _arrival(file: Path) -> int:
    """As whoever reads the file sees it."""
    with closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)) as connection:
        [arrival] = connection.execute("SELECT arrival FROM meta").fetchone()
        return int(arrival)

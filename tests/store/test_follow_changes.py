"""Another declaration of a table that is served: whoever reads it sees its rows all the while."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.log.base import Append, TopicSpec
from headrace.sql.source import Source
from headrace.types import BIGINT, VARCHAR, Column
from tests.store.changelog import COUNTS, everything
from tests.store.project import Project, create_topic, write
from tests.support import wait_for

USERS = Source("USERS", "table", "users", (Column("ID", VARCHAR),), (Column("NAME", VARCHAR),))
WITH_CITY = replace(USERS, value=(*USERS.value, Column("CITY", VARCHAR)), statement="with a city")


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    made = Project(tmp_path)
    yield made
    made.close()


@pytest.fixture
def slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    """In so many turns that somebody who reads in between would see it."""
    monkeypatch.setattr("headrace.store.follower.ROWS_PER_TURN", 50)


def users(project: Project, *rows: tuple[str, str]) -> None:
    ids, cities = zip(*rows, strict=True)
    rest = [f'{{"city": "{city}"}}' for city in cities]
    batch = pa.record_batch({"ID": ids, "NAME": ids, "$rest": rest})
    project.log.append([Append("users", batch)]).result()


def fewest_rows(project: Project, name: str, until: Any) -> int:
    """The fewest that somebody saw who read again and again."""
    fewest = 2**31

    def look() -> bool:
        nonlocal fewest
        view = project.followers.view(name)
        fewest = min(fewest, len(view.select(["ID" if name == "USERS" else "PAGE"])[0].rows))
        return bool(until())

    wait_for(look, 20, "the end of it")
    return fewest


def test_another_text_keeps_the_rows(project: Project) -> None:
    create_topic(project.log, COUNTS)
    project.serve(COUNTS)
    write(project.log, COUNTS, {"PAGE": "/a", "VIEWS": 1})
    project.caught_up("COUNTS")
    view = project.followers.view("COUNTS")
    project.serve(replace(COUNTS, statement="the same in other words", query="CTAS_COUNTS_2", per_batch=True))
    assert project.followers.view("COUNTS") is view
    assert everything(view) == [("/a", 1)]
    assert view.source.statement == "the same in other words"
    write(project.log, COUNTS, {"PAGE": "/a", "VIEWS": 2})
    project.caught_up("COUNTS")
    assert everything(view) == [("/a", 2)]


def test_a_further_column_is_filled_beside_the_rows_that_serve(project: Project, slowly: None) -> None:
    project.log.create_topic(TopicSpec("users", USERS.key, USERS.value))
    users(project, *((f"u{n}", "Graz") for n in range(1_000)))
    project.serve(USERS)
    project.caught_up("USERS")
    before = project.followers.view("USERS")
    project.serve(WITH_CITY)
    # It can be asked for at once; what came before has it as soon as it is filled.
    assert len(project.followers.view("USERS").select(["ID", "NAME", "CITY"])[0].rows) == 1_000
    assert fewest_rows(project, "USERS", lambda: project.followers.view("USERS") is not before) == 1_000
    rows = everything(project.followers.view("USERS"))
    assert (len(rows), rows[0]) == (1_000, ("u0", "u0", "Graz"))
    users(project, ("u0", "Wien"))
    project.caught_up("USERS")
    assert everything(project.followers.view("USERS"))[0] == ("u0", "u0", "Wien")
    # Who asked just before goes on with what there was.
    assert len(before.select(["ID"])[0].rows) == 1_000


def test_what_was_filled_beside_is_there_after_a_restart(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.log.create_topic(TopicSpec("users", USERS.key, USERS.value))
    users(project, ("u1", "Graz"))
    for source in (USERS, WITH_CITY, replace(WITH_CITY, row_ttl_ms=3_600_000)):
        before = project.followers.view("USERS") if project.sources else None
        project.serve(source)
        wait_for(lambda: project.followers.view("USERS") is not before, 20, "the other rows")  # noqa: B023
        project.caught_up("USERS")
    position = project.followers.view("USERS").position()
    project.close()
    project = Project(tmp_path)
    project.serve(replace(WITH_CITY, row_ttl_ms=3_600_000))
    assert project.followers.view("USERS").position() == position
    assert everything(project.followers.view("USERS")) == [("u1", "u1", "Graz")]
    assert len(list((tmp_path / "views" / "USERS").glob("v*.sqlite"))) == 1
    project.serve()
    assert list((tmp_path / "views").iterdir()) == []
    project.close()


def test_who_changes_their_mind_gets_what_they_said_last(project: Project, slowly: None) -> None:
    project.log.create_topic(TopicSpec("users", USERS.key, USERS.value))
    users(project, *((f"u{n}", "Graz") for n in range(500)))
    project.serve(USERS)
    project.caught_up("USERS")
    for kept_ms in (1_000, 2_000, None):
        project.serve(replace(WITH_CITY, row_ttl_ms=kept_ms))
    assert fewest_rows(project, "USERS", lambda: everything(project.followers.view("USERS"))[0][2] == "Graz") == 500
    assert project.followers.view("USERS").source.row_ttl_ms is None
    assert project.followers.error("USERS") is None


def test_a_further_column_that_is_taken_back(project: Project) -> None:
    project.log.create_topic(TopicSpec("users", USERS.key, USERS.value))
    users(project, ("u1", "Graz"))
    project.serve(USERS)
    project.caught_up("USERS")
    for source in (WITH_CITY, USERS, WITH_CITY, USERS):
        project.serve(source)
    users(project, ("u2", "Wien"))
    project.caught_up("USERS")
    assert everything(project.followers.view("USERS")) == [("u1", "u1"), ("u2", "u2")]
    assert project.followers.error("USERS") is None


def test_columns_of_another_type_begin_anew(project: Project) -> None:
    create_topic(project.log, COUNTS)
    project.serve(COUNTS)
    write(project.log, COUNTS, {"PAGE": "/a", "VIEWS": 1})
    project.caught_up("COUNTS")
    project.serve(replace(COUNTS, value=(Column("VIEWS", VARCHAR), Column("USERS", BIGINT))))
    project.caught_up("COUNTS")
    assert everything(project.followers.view("COUNTS")) == [("/a", "1", None)]

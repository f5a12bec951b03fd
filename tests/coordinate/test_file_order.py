"""The same definitions start a project from an empty folder, whatever their files are called."""

from __future__ import annotations

import itertools
import random
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headrace.clock import ManualClock
from headrace.config import LogSettings, Project, ProjectSettings
from headrace.coordinate.catalog import Catalog
from headrace.coordinate.deployments import Deployments, Options
from headrace.coordinate.project import apply_project
from headrace.coordinate.statements import StatementExecutor
from headrace.log.local.open import LocalLog
from headrace.sql.api import parse
from headrace.sql.order import Definition, order_definitions

READINGS = "CREATE STREAM readings (device VARCHAR KEY, celsius DOUBLE) WITH (KAFKA_TOPIC='readings', PARTITIONS=2);"
AGAIN = "CREATE STREAM a_copy (celsius DOUBLE, site VARCHAR) WITH (KAFKA_TOPIC='readings');"
ROLLING = """CREATE TABLE rolling AS SELECT device, AVG(celsius) AS avg_c FROM readings
  WINDOW HOPPING (SIZE 10 MINUTES, ADVANCE BY 1 MINUTE) GROUP BY device;"""
EVENTS = """CREATE STREAM rolling_events (device VARCHAR KEY, avg_c DOUBLE)
  WITH (KAFKA_TOPIC='ROLLING', WINDOW_TYPE='HOPPING', WINDOW_SIZE='10 MINUTES');"""
HOT = "CREATE TABLE hot AS SELECT device, MAX(avg_c) AS most FROM rolling_events GROUP BY device;"
STATEMENTS = [READINGS, AGAIN, ROLLING, EVENTS, HOT]


def start(folder: Path, files: dict[str, str]) -> tuple[list[str], dict[str, Any]]:
    """Start a project from nothing; what was wrong, and what there is then."""
    pipelines = folder / "pipelines"
    pipelines.mkdir(parents=True)
    for name, text in files.items():
        (pipelines / name).write_text(text)
    clock = ManualClock(1_700_000_000_000)
    with closing(LocalLog(folder / "log", LogSettings(linger_ms=0, min_free_bytes=0), clock)) as log:
        executor = StatementExecutor(log, Catalog(log), clock)
        applied = apply_project(executor, Project(folder, ProjectSettings()))
        catalog = executor.catalog
        found = {
            "sources": {one.name: replace(one, query=one.query and "…") for one in catalog.sources()},
            "queries": {one.sink: (one.sources, sorted(one.reads.values())) for one in catalog.queries()},
            "views": {(one.name, one.version, one.topic) for one in catalog.views()},
            "topics": {one.name: one.spec for one in log.topics() if not one.name.startswith("_late.")},
        }
        return [str(problem) for file in applied for problem in file.problems], found


def test_file_names_do_not_matter(tmp_path: Path) -> None:
    """A stream over the topic of a query comes after the query, and the fullest declaration makes a shared topic."""
    wanted = start(tmp_path / "one", {"all.sql": "\n".join(STATEMENTS)})
    assert wanted[0] == []
    assert wanted[1]["sources"].keys() >= {"READINGS", "A_COPY", "ROLLING", "ROLLING_EVENTS", "HOT"}
    assert wanted[1]["topics"]["readings"].partitions == 2
    orders = [STATEMENTS[::-1], *random.Random(17).sample(list(itertools.permutations(STATEMENTS)), 9)]
    for number, order in enumerate(orders):
        files = {f"{letter}.sql": text for letter, text in zip("abcde", order, strict=True)}
        assert start(tmp_path / str(number), files) == wanted, list(files.values())


def test_any_graph_is_created_inputs_first() -> None:
    """Random definitions in random orders: inputs come first, nothing is left out, ties keep the given order."""
    chance = random.Random(17)
    for _ in range(200):
        definitions = random_definitions(chance)
        chance.shuffle(definitions)
        order = order_definitions(definitions)
        assert order.cycles == ()
        assert sorted(order.sequence) == list(range(len(definitions)))
        place = {index: at for at, index in enumerate(order.sequence)}
        for index, needs in enumerate(order.needs):
            assert all(place[need] < place[index] for need in needs)
        for earlier, later in itertools.pairwise(order.sequence):
            assert (
                earlier < later
                or earlier in order.needs[later]
                or any(place[need] >= place[earlier] for need in order.needs[later])
            )


def random_definitions(chance: random.Random) -> list[Definition]:
    texts = ["CREATE STREAM s0 (k VARCHAR KEY, v BIGINT);"]
    for number in range(1, chance.randint(2, 12)):
        below = f"s{chance.randrange(number)}"
        texts.append(
            chance.choice(
                [
                    f"CREATE STREAM s{number} AS SELECT * FROM {below};",
                    f"CREATE STREAM s{number} (k VARCHAR KEY, v BIGINT) WITH (KAFKA_TOPIC='{below.upper()}');",
                    f"CREATE STREAM s{number} AS SELECT a.k, a.v FROM {below} a JOIN s0 b WITHIN 1 HOUR ON a.k = b.k;",
                ]
            )
        )
    found = [one for text in texts for one in parse(text)]
    return [one for one in found if isinstance(one, Definition)]


@pytest.mark.parametrize(
    ("files", "problems"),
    [
        pytest.param(
            {"a.sql": "CREATE STREAM x AS SELECT * FROM y;", "b.sql": "\nCREATE STREAM y AS SELECT * FROM x;"},
            [
                "pipelines/a.sql:1:1: `x` needs itself: `x` reads `y` reads `x`",
                "pipelines/b.sql:2:1: `y` needs itself: `y` reads `x` reads `y`",
            ],
            id="cycle of names",
        ),
        pytest.param(
            {
                "a.sql": "CREATE STREAM s (k VARCHAR KEY) WITH (KAFKA_TOPIC='T');",
                "b.sql": "CREATE STREAM t AS SELECT * FROM s;",
                "c.sql": "CREATE STREAM u AS SELECT * FROM t;",
            },
            [
                "pipelines/a.sql:1:1: `s` needs itself: `s` reads `t` reads `s`",
                "pipelines/b.sql:1:1: `t` needs itself: `t` reads `s` reads `t`",
                "pipelines/c.sql:1:1: not created, because `t` failed at pipelines/b.sql:1:1",
            ],
            id="cycle through a topic",
        ),
        pytest.param(
            {"a.sql": EVENTS + HOT, "b.sql": READINGS, "c.sql": ROLLING.replace("AVG(celsius)", "AVG(kelvin)")},
            [
                "pipelines/a.sql:1:1: not created, because `rolling` failed at pipelines/c.sql:1:44",
                "pipelines/a.sql:2:81: not created, because `rolling_events` failed at pipelines/a.sql:1:1",
                "pipelines/c.sql:1:44: column `kelvin` does not exist",
            ],
            id="what reads something that failed",
        ),
        pytest.param(
            {"a.sql": EVENTS, "b.sql": READINGS + "CREATE TABLE rolling AS SELEKT 1;"},
            [
                "pipelines/a.sql:1:1: not created, because `rolling` failed at pipelines/b.sql:1:129",
                "pipelines/b.sql:1:129: expected `SELECT`, got `SELEKT`",
            ],
            id="what reads a file that cannot be parsed",
        ),
    ],
)
def test_what_cannot_be_created(tmp_path: Path, files: dict[str, str], problems: list[str]) -> None:
    found, state = start(tmp_path, files)
    assert [one.splitlines()[0] for one in found] == problems
    # The topic is not made either: the query that is to write it would be refused for good.
    assert not state["topics"].keys() & {"ROLLING", "T"}


def test_a_long_chain_is_ordered() -> None:
    texts = [f"CREATE STREAM s{number} AS SELECT * FROM s{number + 1};" for number in range(3000)]
    definitions = [one for text in texts for one in parse(text) if isinstance(one, Definition)]
    assert order_definitions(definitions).sequence == tuple(range(2999, -1, -1))


def test_a_plan_says_what_a_fresh_clone_lacks(executor: StatementExecutor, deployments: Deployments) -> None:
    """Here the stream was made by a statement, so the table can be created; where only the files are, it cannot."""
    executor.execute(READINGS)
    options = Options(from_scratch=True)
    plan = deployments.plan({"pipelines/a.sql": HOT, "pipelines/b.sql": ROLLING + EVENTS}, options)
    assert plan.refused == ()
    assert [one.splitlines()[0] for one in plan.from_scratch] == [
        "pipelines/a.sql:1:1: not created, because `rolling_events` failed at pipelines/b.sql:2:73",
        "pipelines/b.sql:1:67: stream or table `readings` does not exist",
        "pipelines/b.sql:2:73: not created, because `rolling` failed at pipelines/b.sql:1:67",
    ]
    files = {"pipelines/a.sql": HOT + EVENTS, "pipelines/b.sql": ROLLING, "pipelines/c.sql": READINGS}
    plan = deployments.plan(files, options)
    assert (plan.refused, plan.from_scratch) == ((), ())

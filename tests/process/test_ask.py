"""Questions on Spark: the same answers as the server's, on the same log."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace.deliver.pull import pull_rows
from headrace.process.ask.frame import ask_frame
from headrace.sql.api import parse
from headrace.sql.planner import plan_as_question
from headrace.sql.statements import SelectStatement
from tests.deliver.serving import Serving, _Sources
from tests.deliver.test_ask import CLICKS, REGIONS, USERS
from tests.store.project import write

pytestmark = pytest.mark.spark


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Serving]:
    serving = Serving(tmp_path)
    serving.add(USERS, REGIONS)
    serving.add(CLICKS, partitions=2)
    chance = random.Random(3)
    for number in range(40):
        region = chance.choice(["n", "s", "w", None])
        user: dict[str, Any] = {
            "ID": f"u{number % 25}",
            "NAME": chance.choice("abc"),
            "REGION": region,
            "AGE": number % 7 or None,
        }
        write(serving.log, USERS, user if number % 9 else {"ID": f"u{number % 25}", "$tombstone": True})
    write(serving.log, REGIONS, {"ID": "n", "TITLE": "North"}, {"ID": "s", "TITLE": "South"}, {"ID": "x"})
    for number in range(120):
        time = number * 500 - chance.choice([0, 0, 0, 4_000])
        page = chance.choice(["/a", "/b", "/c"])
        row: dict[str, Any] = {"USERID": f"u{chance.randrange(30)}", "PAGE": page, "MS": number, "SCORE": number / 4}
        row |= {"TAGS": ["x", "y"][: number % 3], "$time": max(0, time)}
        write(serving.log, CLICKS, row, partition=number % 2)
    for source in (USERS, REGIONS):
        serving.caught_up(source.name)
    yield serving
    serving.close()


QUESTIONS = [
    "SELECT ms, COUNT(*) OVER (PARTITION BY page ORDER BY ms RANGE BETWEEN 5 PRECEDING AND 2 FOLLOWING) AS n "
    "FROM clicks",
    "SELECT id, SUM(age) OVER (ORDER BY age DESC RANGE BETWEEN 1 PRECEDING AND CURRENT ROW) AS s FROM users",
    "SELECT id FROM users WHERE region IN (SELECT id FROM regions WHERE title IS NOT NULL) AND id NOT IN "
    "(SELECT userid FROM clicks WHERE page = '/a')",
    "SELECT page, COUNT(*) AS n FROM clicks WINDOW TUMBLING (SIZE 10 SECONDS) WHERE userid IN (SELECT id FROM users) "
    "GROUP BY page",
    "SELECT id, name FROM users WHERE age > 2",
    "SELECT region, COUNT(*) AS n, SUM(age) AS s, AVG(age) AS m, COUNT(DISTINCT name) AS d FROM users GROUP BY region",
    "SELECT COUNT(*) AS n, MAX(ms) AS most FROM clicks BETWEEN 5000 AND 20000",
    "SELECT ms FROM clicks OFFSETS (0 BETWEEN 3 AND 9, 1 BETWEEN 0 AND 2)",
    "SELECT u.name, r.title, COUNT(*) AS n FROM users u FULL JOIN regions r ON u.region = r.id "
    "GROUP BY u.name, r.title",
    "SELECT c.page, u.name FROM clicks c LEFT JOIN users u ON c.userid = u.id AND u.age > 3 WHERE c.ms < 40",
    "SELECT a.id, b.id AS other FROM users a JOIN users b ON a.age < b.age",
    "SELECT page, WINDOWSTART, WINDOWEND, COUNT(*) AS n FROM clicks "
    "WINDOW HOPPING (SIZE 4 SECONDS, ADVANCE BY 2 SECONDS, GRACE PERIOD 1 SECOND) GROUP BY page",
    "SELECT userid, WINDOWSTART, WINDOWEND, COUNT(*) AS n, MIN(ms) AS f FROM clicks "
    "WINDOW SESSION (2 SECONDS, GRACE PERIOD 1 SECOND) GROUP BY userid",
    "SELECT ms, ROW_NUMBER() OVER (PARTITION BY page ORDER BY ms) AS n, LAG(ms, 2, -1) OVER (ORDER BY ms) AS b, "
    "SUM(ms) OVER (PARTITION BY page ORDER BY ms ROWS BETWEEN 3 PRECEDING AND CURRENT ROW) AS s, "
    "LAST_VALUE(ms) OVER (PARTITION BY page) AS l, NTILE(4) OVER (ORDER BY ms DESC) AS t FROM clicks",
    "SELECT tag, COUNT(*) AS n FROM (SELECT EXPLODE(tags) AS tag FROM clicks) t GROUP BY tag",
    "SELECT DISTINCT page, userid FROM clicks WHERE score > 10E0",
    "WITH best AS (SELECT page, MAX(ms) AS most FROM clicks GROUP BY page) "
    "SELECT c.userid, b.page FROM best b JOIN clicks c ON c.ms = b.most ORDER BY b.page LIMIT 2 OFFSET 1",
]


def test_the_same_answers_as_the_server(shop: Serving, spark: SparkSession) -> None:
    for text in QUESTIONS:
        [statement] = parse(text)
        assert isinstance(statement, SelectStatement)
        query = plan_as_question(statement, _Sources(shop.known))
        frame = ask_frame(spark, shop.folder / "log", shop.log, query)
        expected = pull_rows(shop.delivery, query, 60.0, 100_000)
        assert frame.columns == [column.name.lower() for column in expected.columns]
        theirs = [tuple(row) for row in frame.collect()]
        assert Counter(map(_plain, theirs)) == Counter(map(_plain, expected.rows)), text
        assert theirs


def _plain(row: Any) -> tuple[Any, ...]:
    return tuple(round(value, 9) if isinstance(value, float) else value for value in row)

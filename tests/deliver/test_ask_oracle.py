"""Random questions over random tables: the same rows as DuckDB gives.

Where the two mean different things by rule, the query says what both mean: groups have no null key here, and `SUM` of
nothing is 0.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import duckdb
import pytest

from headrace.sql.source import Source
from headrace.types import BIGINT, VARCHAR, Column
from tests.deliver.serving import Serving
from tests.store.project import write

QUERIES = int(os.environ.get("HEADRACE_QUESTIONS", "150"))
"""2,000 take a minute."""
COLUMNS = (Column("A", BIGINT), Column("B", BIGINT), Column("S", VARCHAR))
TABLES = [Source(name, "table", name.lower(), (Column("K", VARCHAR),), COLUMNS) for name in ("T", "U")]
EVENTS = Source("E", "stream", "e", (Column("K", VARCHAR),), COLUMNS, partitions=2)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Serving, duckdb.DuckDBPyConnection]]:
    serving = Serving(tmp_path_factory.mktemp("oracle"))
    oracle = duckdb.connect()
    oracle.execute("SET default_null_order = 'nulls_first_on_asc_last_on_desc'")
    chance = random.Random(11)
    serving.add(*TABLES)
    serving.add(EVENTS, partitions=2)
    for source, count in ((TABLES[0], 60), (TABLES[1], 40), (EVENTS, 80)):
        rows = [_row(chance, number % 35 if source is EVENTS else number) for number in range(count)]
        for start in range(0, count, 20):
            write(serving.log, source, *rows[start : start + 20], partition=None if source is EVENTS else 0)
        oracle.execute(f"CREATE TABLE {source.name} (K VARCHAR, A BIGINT, B BIGINT, S VARCHAR)")
        oracle.executemany(f"INSERT INTO {source.name} VALUES (?, ?, ?, ?)", [list(row.values()) for row in rows])
    for source in TABLES:
        serving.caught_up(source.name)
    yield serving, oracle
    oracle.close()
    serving.close()


def _row(chance: random.Random, number: int) -> dict[str, Any]:
    def value(most: int) -> int | None:
        return None if chance.random() < 0.15 else chance.randrange(most)

    text = value(5)
    return {"K": f"k{number}", "A": value(6), "B": value(20), "S": None if text is None else "xyzxy"[text:] + "!"}


class Maker:
    """Writes one query. `names` are what its columns can be called."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance

    def pick(self, *options: str) -> str:
        return self.chance.choice(options)

    def number(self, alias: str) -> str:
        return self.pick(
            f"{alias}.A", f"{alias}.B", f"{alias}.A + {alias}.B", f"COALESCE({alias}.A, 3)", f"{alias}.B * 2"
        )

    def predicate(self, *aliases: str) -> str:
        alias, other = self.pick(*aliases), self.pick(*aliases)
        simple = self.pick(
            f"{self.number(alias)} {self.pick('<', '>=', '=', '<>')} {self.number(other)}",
            f"{alias}.A {self.pick('IS NULL', 'IS NOT NULL', '> 2', 'BETWEEN 1 AND 4', 'IN (1, 3, 5)')}",
            f"{alias}.S LIKE '{self.pick('x%', '%y!', '%z%')}'",
            f"{alias}.K IN ('k1', 'k5', 'k7', 'k30')",
        )
        if self.chance.random() < 0.4:
            return f"{simple} {self.pick('AND', 'OR')} ({self.predicate(*aliases)})"
        return simple

    def source(self, alias: str) -> str:
        table = self.pick("T", "U", "E")
        if self.chance.random() < 0.25:
            inner = f"SELECT K, A, B, S FROM {table} i WHERE {self.predicate('i')}"
            return f"({inner}) {alias}"
        return f"{table} {alias}"

    def relation(self) -> tuple[str, tuple[str, ...]]:
        kind = self.pick("", "", "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN")
        if not kind:
            return self.source("p"), ("p",)
        # DuckDB's FULL JOIN needs an equality.
        on = self.pick("p.K = q.K", "p.A = q.A", "p.A = q.A AND p.B < q.B")
        if kind in ("JOIN", "LEFT JOIN") and self.chance.random() < 0.3:
            on = self.predicate("p", "q")
        return f"{self.source('p')} {kind} {self.source('q')} ON {on}", ("p", "q")

    def query(self) -> str:
        relation, aliases = self.relation()
        where = f" WHERE {self.predicate(*aliases)}" if self.chance.random() < 0.6 else ""
        shape = self.pick("plain", "group", "total", "over", "range", "distinct", "top")
        one, two = self.pick(*aliases), self.pick(*aliases)
        if self.chance.random() < 0.2:
            chosen = f"{two}.A IN (SELECT z.B FROM U z WHERE z.A > 1)"
            where = f"{where[:7]}({where[7:]}) AND {chosen}" if where else f" WHERE {chosen}"
        match shape:
            case "group":
                kept = f" WHERE {one}.A IS NOT NULL" + (f" AND ({where[7:]})" if where else "")
                having = f" HAVING COUNT(*) > {self.chance.randrange(3)}" if self.chance.random() < 0.4 else ""
                items = f"{one}.A AS g, {self.aggregates(two)}"
                return f"SELECT {items} FROM {relation}{kept} GROUP BY {one}.A{having}"
            case "total":
                return f"SELECT {self.aggregates(one)} FROM {relation}{where}"
            case "over":
                # By all columns: rows that are equal in this order are equal.
                window = f"PARTITION BY {one}.A ORDER BY {', '.join(f'{a}.{c}' for a in aliases for c in 'BKAS')}"
                function = self.pick("RANK()", "DENSE_RANK()", f"LAG({two}.B, 2)", f"COUNT({two}.A)", f"MAX({two}.B)")
                frame = (
                    self.pick("", " ROWS BETWEEN 2 PRECEDING AND 1 FOLLOWING")
                    if "(p" in function or "(q" in function
                    else ""
                )
                frame = "" if function.startswith("LAG") else frame
                return f"SELECT {one}.K AS k, {function} OVER ({window}{frame}) AS f FROM {relation}{where}"
            case "range":
                window = f"PARTITION BY {one}.A ORDER BY {two}.B{self.pick('', ' DESC')}"
                start = self.pick("UNBOUNDED PRECEDING", "3 PRECEDING", "CURRENT ROW")
                end = self.pick("CURRENT ROW", "2 FOLLOWING", "UNBOUNDED FOLLOWING")
                function = self.pick(f"COUNT({two}.B)", f"MAX({two}.B)", "COUNT(*)")
                frame = f"RANGE BETWEEN {start} AND {end}"
                return f"SELECT {one}.K AS k, {function} OVER ({window} {frame}) AS f FROM {relation}{where}"
            case "distinct":
                return f"SELECT DISTINCT {one}.A AS x, {two}.S AS y FROM {relation}{where}"
            case "top":
                order = ", ".join(f"{alias}.K" for alias in aliases)
                inner = f"SELECT {one}.K AS k, {two}.B AS b FROM {relation}{where} ORDER BY {order}, {one}.B, {two}.B"
                return f"SELECT z.b, COUNT(*) AS n FROM ({inner} LIMIT 100000) z WHERE z.b IS NOT NULL GROUP BY z.b"
            case _:
                return f"SELECT {one}.K AS k, {two}.K AS l, {self.number(one)} AS n FROM {relation}{where}"

    def aggregates(self, alias: str) -> str:
        return (
            f"COUNT(*) AS c, COUNT(DISTINCT {alias}.S) AS d, MIN({alias}.B) AS low, MAX({alias}.S) AS high, "
            f"COUNT({alias}.B) AS b, IFNULL(AVG({alias}.A), CAST(0 AS DOUBLE)) AS mean"
        )


def test_random_questions_agree_with_duckdb(both: tuple[Serving, duckdb.DuckDBPyConnection]) -> None:
    serving, oracle = both
    answered = 0
    for seed in range(QUERIES):
        sql = Maker(random.Random(seed)).query()
        ours = Counter(map(_plain, serving.query(f"{sql};", max_rows=100_000).rows))
        theirs = Counter(map(_plain, oracle.execute(sql).fetchall()))
        assert ours == theirs, f"seed {seed}: {sql}\nmissing {theirs - ours}\nunexpected {ours - theirs}"
        answered += sum(ours.values())
    assert answered > QUERIES * 5


def _plain(row: Any) -> tuple[Any, ...]:
    return tuple(round(float(value), 9) if isinstance(value, float) else value for value in row)

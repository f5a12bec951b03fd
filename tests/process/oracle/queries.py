"""Whole queries at random: what is selected, filtered, grouped and windowed, in our SQL and by its definition."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import duckdb
import pyarrow as pa

from tests.process.oracle.relations import DAY, Relation, derived, filtered, random_relation

Answer = list[tuple[Any, ...]]
Admit = Callable[[duckdb.DuckDBPyConnection], None]
"""Makes the table `admitted` of the rows that take part."""
Windowing = Callable[[random.Random, "Rows"], tuple[str, list[str], Admit]]
"""Of the rows to group: WINDOW …, the names of its bounds, and how rows are admitted."""
SIZE, GAP = 10_000, 4_000


@dataclass(frozen=True)
class RandomQuery:
    sql: str
    """With `{0}` for its name."""
    table: bool
    names: tuple[str, ...]
    """The result's columns, in the answer's order; `$window_start`, `$window_end` and `$time` among them."""
    expected: Callable[[duckdb.DuckDBPyConnection], Answer]
    again: str
    """The same in other words, with what is below it."""
    below: str = ""
    """The statement of a table that it reads and nobody else does."""

    @property
    def whole(self) -> str:
        return self.below + self.sql


@dataclass(frozen=True)
class Rows:
    """What is grouped, by `grp`; and the time that closes windows, if it is not these rows' own."""

    duck: str
    clock: str


@dataclass(frozen=True)
class Item:
    ours: str
    duck: str


@dataclass(frozen=True)
class Statement:
    """A query's text, and another that means the same: columns the other way round, conditions denied twice."""

    relation: Relation
    key: str
    items: list[Item]
    predicate: Item | None
    window: str = ""
    grouping: str = ""
    having: Item | None = None
    final: bool = False

    @property
    def sql(self) -> str:
        where = f" WHERE {self.predicate.ours}" if self.predicate else ""
        having = f" HAVING {self.having.ours}" if self.having else ""
        return self._text(self._values, self.relation.sql, where, having)

    @property
    def again(self) -> str:
        sides = re.sub(r"ON (\S+) = (\S+)$", r"ON \2 = \1", self.relation.sql)
        text = self.relation.texts[0]
        always = f"({text} IS NULL OR {text} IS NOT NULL)"
        where = f" WHERE NOT (NOT ({self.predicate.ours}))" if self.predicate else f" WHERE {always}"
        having = f" HAVING NOT (NOT ({self.having.ours}))" if self.having else ""
        return self.relation.below_again + self._text(self._values[::-1], sides, where, having)

    @property
    def _values(self) -> list[str]:
        return [f"{item.ours} AS a{place}" for place, item in enumerate(self.items)]

    def _text(self, values: list[str], relation: str, where: str, having: str) -> str:
        kind = "TABLE" if self.relation.table or self.grouping else "STREAM"
        read = f"{relation}{self.window}{where}{self.grouping}{having}"
        return f"CREATE {kind} {{0}} AS SELECT {', '.join([self.key, *values])} FROM {read}" + (
            " EMIT FINAL;" if self.final else ";"
        )


def random_query(chance: random.Random) -> RandomQuery:
    relation = random_relation(chance)
    if chance.random() < (0.7 if relation.table else 0.35):
        return (
            projection(chance, relation) if not relation.table or chance.random() < 0.6 else regroup(chance, relation)
        )
    return regroup(chance, relation) if relation.table else aggregation(chance, relation)


def random_chain(chance: random.Random) -> RandomQuery:
    """As `random_query`, or one over a table that another query makes for it."""
    if chance.random() < 0.85:
        return random_query(chance)
    return (regroup if chance.random() < 0.7 else projection)(chance, derived(chance))


def projection(chance: random.Random, relation: Relation) -> RandomQuery:
    # A stream's record without a value passes a query without a condition: another test's matter.
    predicate = random_predicate(chance, relation) if not relation.table or chance.random() < 0.5 else None
    rows = filtered(relation, predicate.duck if predicate else None)
    items = [random_item(chance, relation) for _ in range(chance.randint(1, 3))]
    time = ["tm"] if relation.timed else []
    duck = f"SELECT {', '.join([relation.key[1], *(item.duck for item in items), *time])} FROM ({rows.duck})"
    key = "" if relation.key[0] == "ROWKEY" else " AS key0"
    statement = Statement(relation, f"{relation.key[0]}{key}", items, predicate)
    return RandomQuery(
        statement.sql,
        relation.table,
        ("KEY0" if key else "ROWKEY", *(f"A{place}" for place in range(len(items))), *(["$time"] if time else [])),
        lambda connection: connection.execute(duck).fetchall(),
        statement.again,
        relation.below,
    )


def aggregation(chance: random.Random, relation: Relation, window: Windowing | None = None) -> RandomQuery:
    """GROUP BY of a stream, perhaps in windows."""
    predicate = random_predicate(chance, relation) if chance.random() < 0.4 else None
    rows = filtered(relation, predicate.duck if predicate else None)
    group = random_group(chance, relation)
    aggregates = [random_aggregate(chance, relation) for _ in range(chance.randint(1, 3))]
    window = window or chance.choice((no_window, tumbling, hopping, session))
    grouped = f"SELECT *, {group.duck} AS grp FROM ({rows.duck}) WHERE grp IS NOT NULL"
    text, bounds, admit = window(chance, Rows(grouped, relation.clock))
    final = bool(text) and chance.random() < 0.4
    having = random_having(chance, relation) if chance.random() < 0.4 else None
    grouping = f" GROUP BY {group.ours}"
    statement = Statement(relation, f"{group.ours} AS key0", aggregates, predicate, text, grouping, having, final)
    columns = ["grp", *bounds, *(one.duck for one in aggregates), "max(tm)"]
    asked = f"SELECT {', '.join(columns)} FROM admitted" + (" WHERE closed" if final else "")
    asked += f" GROUP BY {', '.join(['grp', *bounds])}"
    asked += f" HAVING {having.duck}" if having else ""

    def expected(connection: duckdb.DuckDBPyConnection) -> Answer:
        admit(connection)
        found: Answer = connection.execute(asked).fetchall()
        return found

    names = ("KEY0", *(["$window_start", "$window_end"] if bounds else []), *_names(aggregates), "$time")
    return RandomQuery(statement.sql, True, names, expected, statement.again)


def _names(items: list[Item]) -> tuple[str, ...]:
    return tuple(f"A{place}" for place in range(len(items)))


def no_window(chance: random.Random, rows: Rows) -> tuple[str, list[str], Admit]:
    return "", [], lambda connection: _admit(connection, rows.duck)


def tumbling(chance: random.Random, rows: Rows) -> tuple[str, list[str], Admit]:
    grace = random_grace(chance)
    text = f" WINDOW TUMBLING (SIZE {SIZE // 1000} SECONDS, GRACE PERIOD {grace // 1000} SECONDS)"
    return text, ["ws", "we"], lambda connection: _admit_windows(connection, rows, SIZE, grace)


def hopping(chance: random.Random, rows: Rows) -> tuple[str, list[str], Admit]:
    grace, advance = random_grace(chance), chance.choice((4_000, 5_000))
    text = f""" WINDOW HOPPING (SIZE {SIZE // 1000} SECONDS, ADVANCE BY {advance // 1000} SECONDS,
      GRACE PERIOD {grace // 1000} SECONDS)"""
    return text, ["ws", "we"], lambda connection: _admit_windows(connection, rows, advance, grace)


def session(chance: random.Random, rows: Rows) -> tuple[str, list[str], Admit]:
    # Of one record's pairs nobody says which comes first, and with less grace a session may hang on that.
    chosen = random_grace(chance)
    grace = DAY if rows.clock else chosen
    text = f" WINDOW SESSION ({GAP // 1000} SECONDS, GRACE PERIOD {grace // 1000} SECONDS)"
    return text, ["ws", "we"], lambda connection: _admit_sessions(connection, rows, grace)


def random_grace(chance: random.Random) -> int:
    return chance.choice((0, 4_000, 4_000, DAY))


def _admit(connection: duckdb.DuckDBPyConnection, rows: str) -> None:
    connection.execute(f"CREATE OR REPLACE TEMP TABLE admitted AS SELECT * FROM ({rows})")


def _admit_windows(connection: duckdb.DuckDBPyConnection, rows: Rows, advance: int, grace: int) -> None:
    first = f"CASE WHEN tm < {SIZE} THEN 0 ELSE ((tm - {SIZE}) // {advance} + 1) * {advance} END"
    _admit(
        connection,
        f"""SELECT *, ws + {SIZE} AS we, we + {grace} <= {rows.clock or "max(tm) OVER ()"} AS closed
        FROM (SELECT *, unnest(range({first}, tm + 1, {advance})) AS ws FROM ({rows.duck})) WHERE we + {grace} > st""",
    )


def _admit_sessions(connection: duckdb.DuckDBPyConnection, rows: Rows, grace: int) -> None:
    """Row by row: a row joins the open sessions of its key that it is within the gap of."""
    _admit(connection, f"SELECT *, row_number() OVER (ORDER BY ar) AS number FROM ({rows.duck})")
    last = connection.execute(f"SELECT {rows.clock or 'max(greatest(tm, st))'} FROM admitted").fetchone()
    sessions: dict[Any, list[tuple[int, int, list[int]]]] = {}
    for number, key, time, stream_time in connection.execute(
        "SELECT number, grp, tm, st FROM admitted ORDER BY number"
    ).fetchall():
        closed = max(time, stream_time) - GAP - grace
        kept = sessions.setdefault(key, [])
        near = [one for one in kept if one[1] >= max(time - GAP, closed) and one[0] <= time + GAP]
        start, end = min([time, *(one[0] for one in near)]), max([time, *(one[1] for one in near)])
        if end >= closed:
            merged = [number, *(member for one in near for member in one[2])]
            sessions[key] = [one for one in kept if one not in near] + [(start, end, merged)]
    members = [(number, start, end) for kept in sessions.values() for start, end, held in kept for number in held]
    columns = [pa.array([member[place] for member in members], pa.int64()) for place in range(3)]
    connection.register("found", pa.table(columns, names=["number", "ws", "we"]))
    connection.execute("CREATE OR REPLACE TEMP TABLE members AS SELECT * FROM found")
    connection.unregister("found")
    until = (last[0] if last and last[0] is not None else 0) - GAP - grace
    _admit(connection, f"SELECT *, we < {until} AS closed FROM (SELECT * FROM admitted) JOIN members USING (number)")


def regroup(chance: random.Random, relation: Relation) -> RandomQuery:
    """GROUP BY of a table: sums over its rows as they are. A group that becomes empty stays, which only the table's own
    history can tell; of joined tables, empty groups are left out. Over a table that is aggregated itself it goes."""
    predicate = random_predicate(chance, relation) if chance.random() < 0.4 else None
    rows = filtered(relation, predicate.duck if predicate else None)
    group = random_group(chance, relation)
    aggregates = [Item("COUNT(*)", "count(*)"), *(random_sum(chance, relation) for _ in range(chance.randint(0, 2)))]
    whole = relation.history is not None and chance.random() < 0.6
    having = None if whole or relation.below else Item("COUNT(*) > 0", "count(*) > 0")
    grouping = f" GROUP BY {group.ours}"
    statement = Statement(relation, f"{group.ours} AS key0", aggregates, predicate, "", grouping, having)
    grouped = f"""SELECT grp, {", ".join(f"{one.duck} AS a{place}" for place, one in enumerate(aggregates))}
      FROM (SELECT *, {group.duck} AS grp FROM ({rows.duck})) WHERE grp IS NOT NULL GROUP BY grp"""
    if not whole:
        names, again = ("KEY0", *_names(aggregates)), statement.again
        return RandomQuery(statement.sql, True, names, lambda c: c.execute(grouped).fetchall(), again, relation.below)
    zeros = ", ".join(f"coalesce(a{place}, 0)" for place in range(len(aggregates)))
    duck = f"""WITH log AS (SELECT *, CASE WHEN tomb THEN NULL ELSE {group.duck} END AS came,
        lag(came) OVER (PARTITION BY {relation.key[1]} ORDER BY ar) AS went FROM {rows.history}),
      seen AS (SELECT grp, max(tm) AS tm FROM (SELECT came AS grp, tm FROM log UNION ALL SELECT went, tm FROM log)
        WHERE grp IS NOT NULL GROUP BY grp)
      SELECT grp, {zeros}, tm FROM seen LEFT JOIN ({grouped}) USING (grp)"""
    names = ("KEY0", *_names(aggregates), "$time")
    return RandomQuery(
        statement.sql, True, names, lambda connection: connection.execute(duck).fetchall(), statement.again
    )


def random_sum(chance: random.Random, relation: Relation) -> Item:
    number = chance.choice(relation.numbers)
    return chance.choice(
        (
            Item(f"COUNT({number})", f"count({number})"),
            Item(f"SUM({number})", f"coalesce(sum({number}), 0)::BIGINT"),
            Item(f"AVG({number})", f"coalesce(avg({number}), 0)"),
        )
    )


def random_aggregate(chance: random.Random, relation: Relation) -> Item:
    number, text = chance.choice(relation.numbers), chance.choice(relation.texts)
    by_order = (
        Item(f"COLLECT_LIST({number})", f"list({number} ORDER BY ar)"),
        Item(f"LATEST_BY_OFFSET({number})", f"arg_max({number}, ar)"),
        Item(f"EARLIEST_BY_OFFSET({text})", f"arg_min({text}, ar)"),
    )
    any_order = (
        Item("COUNT(*)", "count(*)"),
        random_sum(chance, relation),
        random_sum(chance, relation),
        Item(f"MIN({number})", f"min({number})"),
        Item(f"MAX({text})", f"max({text})"),
        Item(f"COUNT_DISTINCT({text})", f"count(DISTINCT {text})"),
    )
    return chance.choice(any_order + by_order if relation.ordered else any_order)


def random_having(chance: random.Random, relation: Relation) -> Item:
    number, least = chance.choice(relation.numbers), chance.randint(1, 3)
    return chance.choice(
        (
            Item(f"COUNT(*) > {least}", f"count(*) > {least}"),
            Item(f"SUM({number}) > {least}", f"coalesce(sum({number}), 0) > {least}"),
            Item(f"MAX({number}) < 30", f"max({number}) < 30"),
        )
    )


def random_group(chance: random.Random, relation: Relation) -> Item:
    text, number = chance.choice(relation.texts), chance.choice(relation.numbers)
    return chance.choice((Item(text, text), Item(text, text), Item(f"({number} % 3)", f"({number} % 3)")))


def random_item(chance: random.Random, relation: Relation) -> Item:
    text, number = chance.choice(relation.texts), chance.choice(relation.numbers)
    predicate = random_predicate(chance, relation)
    return chance.choice(
        (
            Item(f"{number} + 1", f"{number} + 1"),
            Item(f"IFNULL({number}, -1)", f"ifnull({number}, -1)"),
            Item(f"UCASE({text})", f"upper({text})"),
            Item(
                f"(CASE WHEN {predicate.ours} THEN {number} ELSE 0 END)",
                f"CASE WHEN {predicate.duck} THEN {number} ELSE 0 END",
            ),
        )
    )


def random_predicate(chance: random.Random, relation: Relation) -> Item:
    """A comparison with null is false, and its opposite true, as in KSQL."""
    text, number = chance.choice(relation.texts), chance.choice(relation.numbers)
    simple = (
        f"{number} > {chance.randint(-2, 12)}",
        f"{number} % 2 = 0",
        f"{number} BETWEEN 0 AND {chance.randint(4, 40)}",
        f"{text} <> 'x'",
        f"{text} IN ('x', 'a', 'b')",
        f"{text} IS NOT NULL",
    )
    one, other = (Item(plain, f"coalesce({plain}, FALSE)") for plain in (chance.choice(simple), chance.choice(simple)))
    return chance.choice(
        (
            one,
            one,
            Item(f"({one.ours} OR {other.ours})", f"({one.duck} OR {other.duck})"),
            Item(f"({one.ours} AND NOT {other.ours})", f"({one.duck} AND NOT {other.duck})"),
        )
    )

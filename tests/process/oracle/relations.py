"""What a query reads, at random: FROM … in our SQL, and the same by its definition in DuckDB's.

DuckDB has every record of the log: its columns, `ar` (arrival number), `st` (stream time), `tm` (event time) and
`tomb`. A relation of streams is a SELECT of its columns and `ar`, `st`, `tm`; a relation of tables, of its rows as they
are in the end.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

SOURCES = """
CREATE STREAM s (k VARCHAR KEY, g VARCHAR, n INTEGER) WITH (KAFKA_TOPIC='s', PARTITIONS=2);
CREATE STREAM r (rk VARCHAR KEY, h VARCHAR, m INTEGER) WITH (KAFKA_TOPIC='r', PARTITIONS=2);
CREATE TABLE t (id VARCHAR PRIMARY KEY, w VARCHAR, v INTEGER) WITH (KAFKA_TOPIC='t', PARTITIONS=2);
CREATE TABLE e (eid VARCHAR PRIMARY KEY, y VARCHAR, z INTEGER) WITH (KAFKA_TOPIC='e', PARTITIONS=2);
CREATE TABLE f (fid VARCHAR PRIMARY KEY, ref VARCHAR, u INTEGER) WITH (KAFKA_TOPIC='f', PARTITIONS=2);
"""
DAY = 86_400_000


@dataclass(frozen=True)
class Relation:
    sql: str
    duck: str
    key: tuple[str, str]
    """The key of its rows, in our SQL and in DuckDB's."""
    texts: tuple[str, ...]
    numbers: tuple[str, ...]
    table: bool = False
    history: str | None = None
    """Of a plain table: the name of its changelog."""
    ordered: bool = True
    """Has every row an arrival number of its own? If not, nothing says which of two is the earlier."""
    clock: str = ""
    """The time that closes windows over it, if it is not that of its own rows."""
    timed: bool = True
    """Is `tm` what the result's time must be?"""
    below: str = ""
    """The statement of a table that it reads, if that is made for it; with `{0}` for the query's name."""
    below_again: str = ""
    """The same in other words."""


STREAM = Relation("s", "SELECT * FROM s WHERE NOT tomb", ("k", "k"), ("k", "g"), ("n",))
TABLE = Relation("t", "", ("id", "id"), ("id", "w"), ("v",), table=True, history="t")


def random_relation(chance: random.Random) -> Relation:
    make = chance.choice(
        (
            lambda _: STREAM,
            lambda _: STREAM,
            stream_table,
            stream_table,
            stream_stream,
            stream_stream,
            stream_stream,
            lambda _: TABLE,
            table_table,
            foreign_key,
        )
    )
    return make(chance)


def stream_table(chance: random.Random) -> Relation:
    """What the table held for the key when the row arrived."""
    outer = chance.random() < 0.5
    return Relation(
        f"s {'LEFT ' if outer else ''}JOIN t ON s.k = t.id",
        f"""SELECT k, g, n, s.ar, s.st, s.tm, CASE WHEN t.tomb THEN NULL ELSE id END AS id,
          CASE WHEN t.tomb THEN NULL ELSE w END AS w, CASE WHEN t.tomb THEN NULL ELSE v END AS v
        FROM s ASOF LEFT JOIN t ON s.k = t.id AND s.ar > t.ar
        WHERE NOT s.tomb AND ({outer} OR (t.id IS NOT NULL AND NOT t.tomb))""",
        ("s.k", "k"),
        ("k", "g", "w"),
        ("n", "v"),
    )


def stream_stream(chance: random.Random) -> Relation:
    """Every pair within the time, made by the row that came later, unless one of the two was late; and on a side that
    is kept the rows that are alone: late ones, and those that nothing matched, at once or in time."""
    kind = chance.choice(("", "LEFT ", "RIGHT ", "FULL OUTER "))
    before, after = chance.choice(((10_000, 10_000), (10_000, 10_000), (0, 15_000), (20_000, 3_000)))
    grace = chance.choice((None, 0, 3_000, 30_000))
    within = f"WITHIN ({before // 1000} SECONDS, {after // 1000} SECONDS)"
    if grace is not None:
        within += f" GRACE PERIOD {grace // 1000} SECONDS"
    wait = DAY if grace is None else grace
    key = {"RIGHT ": ("rk", "rk"), "FULL OUTER ": ("ROWKEY", "coalesce(k, rk)")}.get(kind, ("k", "k"))
    parts = ["SELECT k, g, n, rk, h, m, ar, st, tm FROM pairs"]
    if kind in ("LEFT ", "FULL OUTER "):
        parts.append(_alone("l", "lar", grace, "k, g, n, NULL, NULL, NULL"))
    if kind in ("RIGHT ", "FULL OUTER "):
        parts.append(_alone("q", "rar", grace, "NULL, NULL, NULL, rk, h, m"))
    return Relation(
        f"s {kind}JOIN r {within} ON s.k = r.rk",
        f"""WITH both_ AS (SELECT ar, tm FROM s UNION ALL SELECT ar, tm FROM r),
        clock AS (SELECT ar, coalesce(max(tm) OVER (ORDER BY ar ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), -1)
          AS now FROM both_),
        last AS (SELECT max(tm) AS time FROM both_),
        l AS (SELECT s.*, now, tm + {after + wait} AS closes, tm + {after + wait} < now AS late
          FROM s JOIN clock USING (ar) WHERE NOT tomb AND k IS NOT NULL),
        q AS (SELECT r.*, now, tm + {before + wait} AS closes, tm + {before + wait} < now AS late
          FROM r JOIN clock USING (ar) WHERE NOT tomb AND rk IS NOT NULL),
        pairs AS (SELECT k, g, n, rk, h, m, l.ar AS lar, q.ar AS rar, greatest(l.ar, q.ar) AS ar,
          CASE WHEN l.ar > q.ar THEN l.now ELSE q.now END AS st, greatest(l.tm, q.tm) AS tm,
          CASE WHEN l.ar > q.ar THEN greatest(l.now, l.tm) ELSE greatest(q.now, q.tm) END AS seen
          FROM l JOIN q ON k = rk AND q.tm BETWEEN l.tm - {before} AND l.tm + {after}
          WHERE NOT l.late AND NOT q.late)
        {" UNION ALL ".join(parts)}""",
        key,
        ("k", "g", "rk", "h"),
        ("n", "m"),
        ordered=False,
        clock="(SELECT max(tm) FROM (SELECT tm FROM s UNION ALL SELECT tm FROM r))",
    )


def _alone(side: str, own: str, grace: int | None, columns: str) -> str:
    late = f"SELECT {columns}, ar, now, tm FROM {side} WHERE late"
    if grace is None:
        matched = f"SELECT 1 FROM pairs WHERE pairs.{own} = {side}.ar AND pairs.ar = {side}.ar"
        return f"{late} UNION ALL SELECT {columns}, ar, now, tm FROM {side} WHERE NOT late AND NOT EXISTS ({matched})"
    matched = f"SELECT 1 FROM pairs WHERE pairs.{own} = {side}.ar AND (pairs.ar = {side}.ar OR seen <= closes)"
    return f"""{late} UNION ALL SELECT {columns}, ar, closes + 1, tm FROM {side}, last
      WHERE NOT late AND closes < last.time AND NOT EXISTS ({matched})"""


def current(history: str, key: str) -> str:
    """A table's rows now."""
    return f"""(SELECT * FROM {history} WHERE {key} IS NOT NULL
      QUALIFY row_number() OVER (PARTITION BY {key} ORDER BY ar DESC) = 1)"""


def table_table(chance: random.Random) -> Relation:
    kind = chance.choice(("", "LEFT ", "RIGHT ", "FULL OUTER "))
    key = {"RIGHT ": ("eid", "eid"), "FULL OUTER ": ("ROWKEY", "coalesce(id, eid)")}.get(kind, ("id", "id"))
    return Relation(
        f"t {kind}JOIN e ON t.id = e.eid",
        f"""WITH lt AS (SELECT * FROM {current("t", "id")} WHERE NOT tomb),
        le AS (SELECT * FROM {current("e", "eid")} WHERE NOT tomb),
        last AS (SELECT key, arg_max(tm, ar) AS tm FROM (SELECT id AS key, tm, ar FROM t UNION ALL
          SELECT eid, tm, ar FROM e) GROUP BY key)
        SELECT id, w, v, eid, y, z, greatest(last.tm, lt.tm, le.tm) AS tm
        FROM lt {kind}JOIN le ON id = eid JOIN last ON last.key = coalesce(id, eid)""",
        key,
        ("id", "w", "eid", "y"),
        ("v", "z"),
        table=True,
    )


def foreign_key(chance: random.Random) -> Relation:
    outer = "LEFT " if chance.random() < 0.5 else ""
    return Relation(
        f"f {outer}JOIN t ON f.ref = t.id",
        f"""WITH lf AS (SELECT * FROM {current("f", "fid")} WHERE NOT tomb),
        lt AS (SELECT * FROM {current("t", "id")} WHERE NOT tomb)
        SELECT fid, ref, u, id, w, v, 0 AS tm FROM lf {outer}JOIN lt ON ref = id""",
        ("fid", "fid"),
        ("fid", "ref", "w"),
        ("u", "v"),
        table=True,
        timed=False,
    )


def derived(chance: random.Random) -> Relation:
    """A table that is itself aggregated: what it held between two batches is in no record."""
    having = chance.choice((None, None, "SUM(n) > 2", "COUNT(*) < 3"))
    duck = f" HAVING {having.replace('SUM(n)', 'coalesce(sum(n), 0)')}" if having else ""
    below = "CREATE TABLE {0}_below AS SELECT k AS id, LATEST_BY_OFFSET(g) AS w, SUM(n) AS v FROM s"
    return Relation(
        "{0}_below",
        f"""SELECT k AS id, arg_max(g, ar) AS w, coalesce(sum(n), 0)::BIGINT AS v, max(tm) AS tm
        FROM s WHERE NOT tomb AND k IS NOT NULL GROUP BY k{duck}""",
        ("id", "id"),
        ("id", "w"),
        ("v",),
        table=True,
        below=f"{below} GROUP BY k{f' HAVING {having}' if having else ''};",
        below_again=f"{below} WHERE k IS NOT NULL GROUP BY k{f' HAVING NOT (NOT ({having}))' if having else ''};",
    )


def filtered(relation: Relation, predicate: str | None) -> Relation:
    """WHERE. Of a table, a row that does not pass is as good as deleted."""
    if relation.history is not None:
        name, key = relation.history, relation.key[1]
        passes = f"coalesce({predicate}, false)" if predicate else "true"
        changes = f"(SELECT * REPLACE (tomb OR NOT {passes} AS tomb) FROM {name} WHERE {key} IS NOT NULL)"
        return replace(relation, duck=f"SELECT * FROM {current(changes, key)} WHERE NOT tomb", history=changes)
    if predicate is None:
        return relation
    return replace(relation, duck=f"SELECT * FROM ({relation.duck}) WHERE {predicate}")

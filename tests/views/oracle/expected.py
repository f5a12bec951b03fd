"""How two queries differ over the same records, by DuckDB: what a comparison of two versions has to say."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import duckdb

from tests.process.oracle.queries import RandomQuery

BOUNDS = ("$window_start", "$window_end")
Key = tuple[Any, ...]


def counts_between(connection: duckdb.DuckDBPyConnection, old: RandomQuery, new: RandomQuery) -> Counter[str]:
    """Rows that are the same, changed, only in one of them."""
    before, now = (_rows(connection, query) for query in (old, new))
    if _layout(old) != _layout(new):
        return Counter(only_old=len(before), only_new=len(now))
    common = [name for name in _values(old) if name in _values(new)]

    def told(key: Key) -> str:
        if key not in now:
            return "only_old"
        if key not in before:
            return "only_new"
        return "same" if all(_same(before[key][name], now[key][name]) for name in common) else "changed"

    return Counter(told(key) for key in before.keys() | now.keys())


def _rows(connection: duckdb.DuckDBPyConnection, query: RandomQuery) -> dict[Key, dict[str, Any]]:
    keys = [place for place, name in enumerate(query.names) if not place or name in BOUNDS]
    found = query.expected(connection)
    rows = {tuple(row[place] for place in keys): dict(zip(query.names, row, strict=True)) for row in found}
    assert len(rows) == len(found), "a table has one row for a key"
    return rows


def _layout(query: RandomQuery) -> tuple[str, bool]:
    return query.names[0], BOUNDS[0] in query.names


def _values(query: RandomQuery) -> list[str]:
    return [name for name in query.names[1:] if not name.startswith("$")]


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, int | float):
        return math.isclose(one, other, rel_tol=1e-9)
    return bool(one == other)

"""Expected rows against those that are there, shown so that a person sees at once which cell differs."""

from __future__ import annotations

import decimal
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, date, datetime
from datetime import time as time_of_day
from typing import Any

import msgspec

from headrace.testing.cases import Row

MOST_SHOWN = 20
"""Rows of a difference; the rest is only counted."""
Values = tuple[Any, ...]


def differences(title: str, expected: Sequence[Row], names: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[str]:
    """Lines that say what is missing and what should not be there; none if all is as expected. `names` and `rows` are
    what was found; of its columns those that an expected row names are looked at."""
    wanted = list(dict.fromkeys(key for row in expected for key in row)) or list(names)
    places = {name.lower(): place for place, name in enumerate(names)}
    if unknown := [key for key in wanted if key.lower() not in places]:
        return [f"{title}: there is no column `{unknown[0]}`; there are {', '.join(names)}"]
    want = [frozen([row.get(key) for key in wanted]) for row in expected]
    have = [frozen([row[places[key.lower()]] for key in wanted]) for row in rows]
    missing = list((Counter(want) - Counter(have)).elements())
    unexpected = list((Counter(have) - Counter(want)).elements())
    if not missing and not unexpected:
        return []
    pairs = _paired([msgspec.json.decode(row) for row in missing], [msgspec.json.decode(row) for row in unexpected])
    count = max(len(missing), len(unexpected))
    head = f"{title}: {count} of {max(len(want), len(have))} rows {'differs' if count == 1 else 'differ'}"
    return [head, *_table(wanted, pairs)]


def frozen(values: Sequence[Any]) -> bytes:
    """Something that can be counted, equal for equal JSON: 1 and 1.0 are, and so are sums in another order."""
    return msgspec.json.encode([_plain(value) for value in values], order="deterministic")


def _plain(value: Any) -> Any:
    """As the API shows it.

    >>> _plain([0.1 + 0.2, 2.0, decimal.Decimal("1.50"), datetime(2026, 11, 15, 12)])
    [0.3, 2, 1.5, '2026-11-15T12:00:00.000Z']
    """
    match value:
        case bool():
            return value
        case float() | decimal.Decimal():
            rounded = float(f"{value:.12g}")
            return int(rounded) if rounded.is_integer() and abs(rounded) < 2**53 else rounded
        case datetime():
            moment = value if value.tzinfo else value.replace(tzinfo=UTC)
            return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        case date() | time_of_day():
            return value.isoformat()
        case list() | tuple():
            return [_plain(inner) for inner in value]
        case dict():
            return {str(name): _plain(inner) for name, inner in value.items()}
        case _:
            return value


def _paired(missing: list[Any], unexpected: list[Any]) -> list[tuple[Any, Any]]:
    """Each missing row with the found one that is most like it: usually it is the same one, computed differently."""
    left, pairs = list(unexpected), list[tuple[Any, Any]]()
    for row in missing:
        likeness = [sum(a == b for a, b in zip(row, other, strict=True)) for other in left]
        best = max(likeness, default=0)
        pairs.append((row, left.pop(likeness.index(best)) if best else None))
    return pairs + [(None, row) for row in left]


def _table(names: Sequence[str], pairs: Sequence[tuple[Any, Any]]) -> list[str]:
    signed = [(sign, row) for pair in pairs for sign, row in zip("-+", pair, strict=True) if row is not None]
    shown = [(sign, [_cell(value) for value in row]) for sign, row in signed[: 2 * MOST_SHOWN]]
    widths = [max(len(name), *(len(cells[n]) for _, cells in shown)) for n, name in enumerate(names)]

    def line(sign: str, cells: Sequence[str]) -> str:
        padded = "  ".join(f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True))
        return f"  {sign} {padded}".rstrip()

    lines = [line(" ", names), *(line(sign, cells) for sign, cells in shown)]
    more = len(signed) - len(shown)
    return [*lines, f"    … and {more} more"] if more else lines


def _cell(value: Any) -> str:
    return value if isinstance(value, str) and value else msgspec.json.encode(value).decode()

"""Does a topic hold what a case expects? A table by its last value per key, a stream by its records per key."""

from __future__ import annotations

import json
from collections.abc import Iterable
from decimal import Decimal, InvalidOperation

from tests.conformance.case import CaseData, Json

TOLERANCE = Decimal("0.000001")
Record = dict[str, Json]


def compare_topics(case: CaseData, actual: list[Record]) -> list[str]:
    """What differs, one line each; nothing if all is as expected."""
    found: list[str] = []
    for topic, how in case["compare"].items():
        expected = [record for record in case["outputs"] if record["topic"] == topic]
        got = [record for record in actual if record["topic"] == topic]
        if how["mode"].startswith("final"):
            found += _compare_table(topic, expected, got, once=how["mode"] == "final-once-per-key")
        else:
            optional = {id(expected[place]) for place in how.get("optional") or ()}
            in_order = how["mode"] == "sequence-per-key" and not optional
            found += _compare_stream(topic, expected, got, in_order, optional)
    return found


def _compare_table(topic: str, expected: list[Record], actual: list[Record], once: bool) -> list[str]:
    wanted, got = _by_key(expected), _by_key(actual)
    found = []
    for key in {**wanted, **got}:
        last_wanted, last_got = wanted.get(key, [None])[-1], got.get(key, [None])[-1]
        if not _same_row(last_wanted, last_got):
            found.append(_difference(topic, last_wanted, last_got))
        if once and len(got.get(key, ())) > 1:
            found.append(f"{topic}: key {key} was emitted {len(got[key])} times, not once")
    return found


def _same_row(wanted: Record | None, got: Record | None) -> bool:
    """A deleted row and one that never was are the same."""
    there = [record for record in (wanted, got) if record is not None and record["value"] is not None]
    return not there or (len(there) == 2 and same_record(*there))


def _compare_stream(
    topic: str, expected: list[Record], actual: list[Record], in_order: bool, optional: set[int]
) -> list[str]:
    wanted, got = _by_key(expected), _by_key(actual)
    found = []
    for key in {**wanted, **got}:
        theirs, ours = wanted.get(key, []), got.get(key, [])
        if in_order:
            longer = max(len(theirs), len(ours))
            pairs = [(_at(theirs, place), _at(ours, place)) for place in range(longer)]
            found += [_difference(topic, a, b) for a, b in pairs if a is None or b is None or not same_record(a, b)]
        else:
            missing, extra = _match_any(theirs, ours)
            found += [_difference(topic, record, None) for record in missing if id(record) not in optional]
            found += [_difference(topic, None, record) for record in extra]
    return found


def _match_any(theirs: list[Record], ours: list[Record]) -> tuple[list[Record], list[Record]]:
    missing, extra = [], list(ours)
    for record in theirs:
        place = next((place for place, other in enumerate(extra) if same_record(record, other)), None)
        if place is None:
            missing.append(record)
        else:
            del extra[place]
    return missing, extra


def _at(records: list[Record], place: int) -> Record | None:
    return records[place] if place < len(records) else None


def _by_key(records: Iterable[Record]) -> dict[str, list[Record]]:
    found: dict[str, list[Record]] = {}
    for record in records:
        name = json.dumps([_normal(_key(record)), record.get("window")], sort_keys=True)
        found.setdefault(name, []).append(record)
    return found


def _normal(value: Json) -> Json:
    """The same for equal keys: 1 and 1.0, a field in any case."""
    match value:
        case bool() | None | str():
            return value
        case int() | float() | Decimal():
            return f"number {Decimal(str(value)).normalize():f}"
        case list():
            return [_normal(item) for item in value]
        case dict():
            return {name.upper(): _normal(item) for name, item in value.items()}
        case _:
            return str(value)


def _key(record: Record) -> Json:
    """A topic keeps a key as columns: one whose columns are all null and no key at all are the same."""
    key = record["key"]
    return None if isinstance(key, dict) and not any(part is not None for part in key.values()) else key


def same_record(wanted: Record, got: Record) -> bool:
    """A time that the case does not say is not compared."""
    return (
        same_value(_key(wanted), _key(got))
        and same_value(wanted["value"], got["value"])
        and wanted.get("window") == got.get("window")
        and wanted.get("timestamp") in (None, got["timestamp"])
        and _headers(wanted) == _headers(got)
    )


def _headers(record: Record) -> list[tuple[Json, Json]]:
    return [(header["KEY"], header["VALUE"]) for header in record.get("headers") or ()]


def same_value(wanted: Json, got: Json) -> bool:
    match wanted:
        case None:
            return got is None
        case bool():
            return isinstance(got, bool) and got == wanted
        case int() | float() | Decimal():
            return _same_number(wanted, got)
        case str() if isinstance(got, Decimal):
            # Decimals may be written as text; their value and their scale count.
            return _same_decimal(wanted, got)
        case str():
            return bool(got == wanted)
        case list():
            return isinstance(got, list) and len(got) == len(wanted) and all(map(same_value, wanted, got))
        case dict():
            return isinstance(got, dict) and len(got) == len(wanted) and _same_fields(wanted, got)
        case _:
            return False


def _same_decimal(wanted: str, got: Decimal) -> bool:
    try:
        number = Decimal(wanted)
    except InvalidOperation:
        return False
    return number == got and number.as_tuple().exponent == got.as_tuple().exponent


def _same_number(wanted: Json, got: Json) -> bool:
    if isinstance(got, bool) or not isinstance(got, int | float | Decimal):
        return False
    if isinstance(wanted, int) and isinstance(got, int):
        return wanted == got
    a, b = Decimal(str(wanted)), Decimal(str(got))
    if not (a.is_finite() and b.is_finite()):
        return str(a) == str(b)
    return abs(a - b) <= TOLERANCE * max(Decimal(1), abs(a))


def _same_fields(wanted: dict[str, Json], got: dict[str, Json]) -> bool:
    """By name, or by the name in upper case, as unquoted names are written."""
    for name, value in wanted.items():
        spelled = name if name in got else name.upper()
        if spelled not in got or not same_value(value, got[spelled]):
            return False
    return True


def _difference(topic: str, wanted: Record | None, got: Record | None) -> str:
    return f"{topic}\n      expected {_shown(wanted)}\n      got      {_shown(got)}"


def _shown(record: Record | None) -> str:
    if record is None:
        return "nothing"
    return json.dumps({name: value for name, value in record.items() if name != "topic"}, default=str)

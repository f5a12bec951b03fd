"""Times as text: Java's patterns, both ways, and ISO 8601."""

from __future__ import annotations

import datetime

import pytest

from headrace.sql.datetimes import format_moment, parse_moment, parse_with
from tests.sql.catalog import value

PATTERNS = [
    ("yyyy-MM-dd HH:mm:ss.SSS", "2026-11-05 14:02:03.045"),
    ("dd.MM.yy", "05.11.26"),
    ("EEE, d MMM yyyy", "Thu, 5 Nov 2026"),
    ("EEEE d MMMM", "Thursday 5 November"),
    ("hh:mm a", "02:02 PM"),
    ("K k H", "2 14 14"),
    ("D", "309"),
    ("Q", "4"),
    ("yyyy-MM-dd'T'HH:mm:ssX", "2026-11-05T14:02:03Z"),
    ("XXX xxx Z", "Z +00:00 +0000"),
    ("SSSSSS", "045000"),
    ("A", "50523045"),
    ("'it''s' yyyy", "it's 2026"),
    ("VV", "UTC"),
    ("yyyy''MM", "2026'11"),
    ("n", "45000000"),
    ("G", "AD"),
    ("z", "UTC"),
]


@pytest.mark.parametrize(("pattern", "expected"), PATTERNS)
def test_patterns(pattern: str, expected: str) -> None:
    assert format_moment(1793887323045, pattern) == expected


@pytest.mark.parametrize(
    ("text", "pattern", "expected"),
    [
        ("2026-11-05 14:02:03.045", "yyyy-MM-dd HH:mm:ss.SSS", 1793887323045),
        ("5 nov 2026", "d MMM yyyy", 1793836800000),
        ("05.11.26", "dd.MM.yy", 1793836800000),
        ("20261105", "yyyyMMdd", 1793836800000),
        ("2026-11-05T15:02+01:00", "yyyy-MM-dd'T'HH:mmXXX", 1793887320000),
        ("2026-11-05T14:02z", "yyyy-MM-dd'T'HH:mmX", 1793887320000),
        ("02:02 PM", "hh:mm a", 50_520_000),
        ("12:02 AM", "hh:mm a", 120_000),
        ("2026-309", "yyyy-DDD", 1793836800000),
        ("2026", "yyyy[-MM]", 1767225600000),
        ("2026-11", "yyyy[-MM]", 1793491200000),
        ("2026-11-05 Europe/Vienna", "yyyy-MM-dd VV", 1793833200000),
    ],
)
def test_parsing_by_pattern(text: str, pattern: str, expected: int) -> None:
    assert parse_with(text, pattern) == expected


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        ("2026", "yyyy-MM"),
        ("1" * 300, "y"),
        ("1" * 30, "[H]" * 20),
        ("2026-13", "yyyy-MM"),
        ("x", "b"),
        ("2026", "yyyy["),
        ("2026", "'yyyy"),
        ("1", "H VV"),
        ("25", "H"),
    ],
)
def test_what_does_not_fit_the_pattern_is_refused(text: str, pattern: str) -> None:
    with pytest.raises(ValueError):
        parse_with(text, pattern)


def test_moments_in_iso() -> None:
    assert parse_moment("2026") == 1767225600000
    assert parse_moment("2026-11-15 14:00:00,5 +0100") == 1794747600500
    assert parse_moment("1969-12-31T23:59:59.999Z") == -1
    for wrong in ("", "soon", "2026-13", "2026-1-1T25", "2026-11-15T14:00:00+1"):
        with pytest.raises(ValueError):
            parse_moment(wrong)
    assert value("CAST('0001-01-01' AS DATE)") == datetime.date(1, 1, 1)
    assert value("CAST('0001-01-01T00:00+01:00' AS TIMESTAMP)") is not None

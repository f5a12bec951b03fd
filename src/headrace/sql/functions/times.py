"""Functions over moments and dates. Patterns are Java's, such as `yyyy-MM-dd HH:mm:ss.SSS`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, timedelta

from headrace.sql.datetimes import (
    DATE_FIELDS,
    DAY_MS,
    TIME_FIELDS,
    date_moment,
    format_moment,
    moment,
    moment_date,
    parse_with,
    refuse_fields,
    require_fields,
    zone_of,
)
from headrace.sql.functions.function import scalar
from headrace.sql.numeric import divide_integers

EPOCH = date(1970, 1, 1)
UNITS_MS = {
    "MILLISECONDS": 1,
    "SECONDS": 1_000,
    "MINUTES": 60_000,
    "HOURS": 3_600_000,
    "DAYS": 86_400_000,
}


def _format_date(value: date, pattern: str) -> str:
    refuse_fields(pattern, TIME_FIELDS)
    return format_moment(date_moment(value), pattern)


def _format_time(value: int, pattern: str) -> str:
    refuse_fields(pattern, DATE_FIELDS)
    return format_moment(value, pattern)


def _parse_date(text: str, pattern: str) -> date:
    """What follows the date does not count; a time of day is no part of one."""
    found = parse_with(text, pattern, whole=False, lenient=True)
    if found % DAY_MS:
        raise ValueError("a date has no time of day")
    return moment_date(found)


def _parse_days(text: str, pattern: str) -> int:
    require_fields(pattern, ("yu", "ML", "d"), ("yu", "D"))
    return (moment_date(parse_with(text, pattern)) - EPOCH).days


def _parse_time(text: str, pattern: str) -> int:
    refuse_fields(pattern, DATE_FIELDS)
    require_fields(pattern, ("Hk",), ("hK", "a"), ("A",))
    return parse_with(text, pattern) % DAY_MS


def _add_days(sign: int) -> Callable[[str, int, date], date]:
    """What is not a whole day at the end is cut off, towards 1970."""

    def apply(unit: str, amount: int, value: date) -> date:
        moved = date_moment(value) + sign * UNITS_MS[unit] * amount
        return EPOCH + timedelta(days=divide_integers(moved, DAY_MS))

    return apply


def _add_time(sign: int) -> Callable[[str, int, int], int]:
    """Round the clock."""
    return lambda unit, amount, value: (value + sign * UNITS_MS[unit] * amount) % DAY_MS


def _convert_zone(value: int, source: str, target: str) -> int:
    """What a clock in `target` shows when one in `source` shows the given time. The clocks differ by what they do at
    that time in UTC."""
    apart = moment(value, zone_of(target)).utcoffset(), moment(value, zone_of(source)).utcoffset()
    there, here = (offset or timedelta() for offset in apart)
    return value + (there - here) // timedelta(milliseconds=1)


def _unix_date(now: int, value: date | None = None) -> int:
    return ((value or moment_date(now)) - EPOCH).days


def _from_days(days: int) -> date:
    return EPOCH + timedelta(days=days)


FUNCTIONS = (
    scalar(
        "DATEADD",
        "(UNIT, INTEGER, DATE) -> DATE",
        _add_days(1),
        "A date moved forward; of the result only the day is kept.",
        "DATEADD(DAYS, 10, FROM_DAYS(0))",
    ),
    scalar(
        "DATESUB",
        "(UNIT, INTEGER, DATE) -> DATE",
        _add_days(-1),
        "A date moved back.",
        "DATESUB(DAYS, 1, FROM_DAYS(0))",
    ),
    scalar(
        "TIMEADD",
        "(UNIT, INTEGER, TIME) -> TIME",
        _add_time(1),
        "A time of day moved forward, round the clock.",
        "TIMEADD(HOURS, 2, PARSE_TIME('23:00', 'HH:mm'))",
    ),
    scalar(
        "TIMESUB",
        "(UNIT, INTEGER, TIME) -> TIME",
        _add_time(-1),
        "A time of day moved back, round the clock.",
        "TIMESUB(MINUTES, 90, PARSE_TIME('01:00', 'HH:mm'))",
    ),
    scalar(
        "CONVERT_TZ",
        "(TIMESTAMP, VARCHAR, VARCHAR) -> TIMESTAMP",
        _convert_zone,
        "A timestamp read in one time zone, as it is in another.",
        "CONVERT_TZ(FROM_UNIXTIME(0), 'America/Los_Angeles', 'America/New_York')",
    ),
    scalar(
        "FORMAT_TIME",
        "(TIME, VARCHAR) -> VARCHAR",
        _format_time,
        "A time of day as text by a pattern.",
        "FORMAT_TIME(PARSE_TIME('1402', 'HHmm'), 'HH:mm:ss')",
    ),
    scalar(
        "PARSE_TIME",
        "(VARCHAR, VARCHAR) -> TIME",
        _parse_time,
        "Text by a pattern as a time of day.",
        "PARSE_TIME('14.02', 'HH.mm')",
    ),
    scalar("FROM_DAYS", "(INTEGER) -> DATE", _from_days, "The date so many days after 1970-01-01.", "FROM_DAYS(20000)"),
    scalar(
        "UNIX_DATE",
        ("() -> INTEGER", "(DATE) -> INTEGER"),
        _unix_date,
        "A date as days since 1970-01-01; without one, today.",
        "UNIX_DATE(FROM_DAYS(20000))",
        clock=True,
    ),
    scalar(
        "DATETOSTRING",
        "(INTEGER, VARCHAR) -> VARCHAR",
        lambda days, pattern: _format_date(_from_days(days), pattern),
        "Days since 1970-01-01 as text by a pattern.",
        "DATETOSTRING(20000, 'yyyy-MM-dd')",
    ),
    scalar(
        "STRINGTODATE",
        "(VARCHAR, VARCHAR) -> INTEGER",
        _parse_days,
        "Text by a pattern as days since 1970-01-01.",
        "STRINGTODATE('2026-11-15', 'yyyy-MM-dd')",
    ),
    scalar(
        "TIMESTAMPTOSTRING",
        ("(BIGINT, VARCHAR) -> VARCHAR", "(BIGINT, VARCHAR, VARCHAR) -> VARCHAR"),
        format_moment,
        "Milliseconds since 1970 as text by a pattern, in UTC or a given time zone.",
        "TIMESTAMPTOSTRING(0, 'yyyy-MM-dd HH:mm:ss.SSS')",
    ),
    scalar(
        "STRINGTOTIMESTAMP",
        ("(VARCHAR, VARCHAR) -> BIGINT", "(VARCHAR, VARCHAR, VARCHAR) -> BIGINT"),
        parse_with,
        "Text by a pattern as milliseconds since 1970.",
        "STRINGTOTIMESTAMP('2026-11-15', 'yyyy-MM-dd')",
    ),
    scalar(
        "FORMAT_TIMESTAMP",
        ("(TIMESTAMP, VARCHAR) -> VARCHAR", "(TIMESTAMP, VARCHAR, VARCHAR) -> VARCHAR"),
        format_moment,
        "A timestamp as text by a pattern, in UTC or a given time zone.",
        "FORMAT_TIMESTAMP(FROM_UNIXTIME(0), 'HH:mm', 'Europe/Vienna')",
    ),
    scalar(
        "PARSE_TIMESTAMP",
        ("(VARCHAR, VARCHAR) -> TIMESTAMP", "(VARCHAR, VARCHAR, VARCHAR) -> TIMESTAMP"),
        parse_with,
        "Text by a pattern as a timestamp.",
        "PARSE_TIMESTAMP('15.11.2026 14:02', 'dd.MM.yyyy HH:mm')",
    ),
    scalar(
        "FORMAT_DATE",
        "(DATE, VARCHAR) -> VARCHAR",
        _format_date,
        "A date as text by a pattern.",
        "FORMAT_DATE(PARSE_DATE('2026-11-15', 'yyyy-MM-dd'), 'EEEE')",
    ),
    scalar(
        "PARSE_DATE",
        "(VARCHAR, VARCHAR) -> DATE",
        _parse_date,
        "Text by a pattern as a date.",
        "PARSE_DATE('2026-11-15', 'yyyy-MM-dd')",
    ),
    scalar(
        "FROM_UNIXTIME",
        "(BIGINT) -> TIMESTAMP",
        lambda value: value,
        "Milliseconds since 1970 as a timestamp.",
        "FROM_UNIXTIME(1794751200000)",
    ),
    scalar(
        "UNIX_TIMESTAMP",
        ("() -> BIGINT", "(TIMESTAMP) -> BIGINT"),
        lambda now, value=None: now if value is None else value,
        "A timestamp as milliseconds since 1970; without one, the time now.",
        "UNIX_TIMESTAMP(PARSE_TIMESTAMP('2026', 'yyyy'))",
        clock=True,
    ),
    scalar(
        "TIMESTAMPADD",
        "(UNIT, INTEGER, TIMESTAMP) -> TIMESTAMP",
        lambda unit, amount, value: value + UNITS_MS[unit] * amount,
        "A timestamp moved forward.",
        "TIMESTAMPADD(MINUTES, 5, FROM_UNIXTIME(0))",
    ),
    scalar(
        "TIMESTAMPSUB",
        "(UNIT, INTEGER, TIMESTAMP) -> TIMESTAMP",
        lambda unit, amount, value: value - UNITS_MS[unit] * amount,
        "A timestamp moved back.",
        "TIMESTAMPSUB(DAYS, 1, FROM_UNIXTIME(0))",
    ),
)

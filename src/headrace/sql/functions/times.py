"""Functions over moments and dates. Patterns are Java's, such as `yyyy-MM-dd HH:mm:ss.SSS`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, timedelta

from headrace.sql.datetimes import (
    DAY_MS,
    date_moment,
    format_moment,
    milliseconds,
    moment,
    moment_date,
    parse_with,
    zone_of,
)
from headrace.sql.functions.function import scalar

EPOCH = date(1970, 1, 1)
UNITS_MS = {
    "MILLISECONDS": 1,
    "SECONDS": 1_000,
    "MINUTES": 60_000,
    "HOURS": 3_600_000,
    "DAYS": 86_400_000,
}


def _format_date(value: date, pattern: str) -> str:
    return format_moment(date_moment(value), pattern)


def _parse_date(text: str, pattern: str) -> date:
    return moment_date(parse_with(text, pattern, whole=False))


def _add_days(sign: int) -> Callable[[str, int, date], date]:
    """Units shorter than a day count only in whole days."""

    def apply(unit: str, amount: int, value: date) -> date:
        milliseconds = UNITS_MS[unit] * amount
        days = abs(milliseconds) // DAY_MS
        return value + timedelta(days=sign * (days if milliseconds >= 0 else -days))

    return apply


def _add_time(sign: int) -> Callable[[str, int, int], int]:
    """Round the clock."""
    return lambda unit, amount, value: (value + sign * UNITS_MS[unit] * amount) % DAY_MS


def _convert_zone(value: int, source: str, target: str) -> int:
    """What a clock in `target` shows when one in `source` shows the given time."""
    local = moment(value).replace(tzinfo=zone_of(source))
    return milliseconds(local.astimezone(zone_of(target)).replace(tzinfo=UTC))


def _unix_date(now: int, value: date | None = None) -> int:
    return ((value or moment_date(now)) - EPOCH).days


def _from_days(days: int) -> date:
    return EPOCH + timedelta(days=days)


FUNCTIONS = (
    scalar(
        "DATEADD",
        "(UNIT, INTEGER, DATE) -> DATE",
        _add_days(1),
        "A date moved forward; units shorter than a day count in whole days.",
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
        lambda value, pattern: format_moment(value, pattern),
        "A time of day as text by a pattern.",
        "FORMAT_TIME(PARSE_TIME('1402', 'HHmm'), 'HH:mm:ss')",
    ),
    scalar(
        "PARSE_TIME",
        "(VARCHAR, VARCHAR) -> TIME",
        lambda text, pattern: parse_with(text, pattern) % DAY_MS,
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
        lambda text, pattern: (_parse_date(text, pattern) - EPOCH).days,
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

"""Functions over moments and dates. Patterns are Java's, such as `yyyy-MM-dd HH:mm:ss.SSS`."""

from __future__ import annotations

from datetime import date

from headrace.sql.datetimes import date_moment, format_moment, moment_date, parse_with
from headrace.sql.functions.function import scalar

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
    return moment_date(parse_with(text, pattern))


FUNCTIONS = (
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

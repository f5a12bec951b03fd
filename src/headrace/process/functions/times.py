"""Functions over moments and dates. Patterns made of the usual fields mean the same in Spark; others run in Python."""

from __future__ import annotations

import re

from pyspark.sql import Column
from pyspark.sql import functions as F

from headrace.process.functions.arguments import Arguments, Lowering
from headrace.sql.functions.times import UNITS_MS

# Fields that are complete and of fixed width, text in quotes, and what separates them.
USUAL = re.compile(r"(?:yyyy|MM|dd|HH|mm|ss|SSS|'[^']*'|[-: ./,_])+")
DATES = re.compile(r"(?:yyyy|MM|dd|'[^']*'|[-: ./,_])+")
# What Python's dates hold. Spark's go further, but then no reader of the log could show them.
FIRST_MS, LAST_MS = -62_135_596_800_000, 253_402_300_799_999


def _usual(of: Arguments) -> str | None:
    """The pattern, if it is written in the statement, is a usual one, and no time zone is given."""
    pattern = of.literal(1)
    return pattern if len(of) == 2 and isinstance(pattern, str) and USUAL.fullmatch(pattern) else None


def _format_milliseconds(of: Arguments) -> Column | None:
    pattern = _usual(of)
    return None if pattern is None else F.date_format(moment(of[0]), pattern)


def _format_timestamp(of: Arguments) -> Column | None:
    pattern = _usual(of)
    return None if pattern is None else F.date_format(of[0], pattern)


def _format_date(of: Arguments) -> Column | None:
    """A date has no time of day, which Spark would show as midnight."""
    pattern = _usual(of)
    return F.date_format(of[0], pattern) if pattern is not None and DATES.fullmatch(pattern) else None


def moment(milliseconds: Column) -> Column:
    """A number of milliseconds beyond all calendars is null instead of an error."""
    return F.when(milliseconds.between(FIRST_MS, LAST_MS), F.timestamp_millis(milliseconds))


def _move(sign: int) -> Lowering:
    def lower(of: Arguments) -> Column | None:
        unit = UNITS_MS.get(str(of.literal(0)))
        if unit is None:
            return None
        return moment(F.unix_millis(of[2]) + of[1].cast("long") * F.lit(sign * unit))

    return lower


def _unix_timestamp(of: Arguments) -> Column:
    return F.unix_millis(of[0] if len(of) else F.current_timestamp())


LOWERINGS: dict[str, Lowering] = {
    "TIMESTAMPTOSTRING": _format_milliseconds,
    "FORMAT_TIMESTAMP": _format_timestamp,
    "FORMAT_DATE": _format_date,
    "FROM_UNIXTIME": lambda of: moment(of[0]),
    "UNIX_TIMESTAMP": _unix_timestamp,
    "TIMESTAMPADD": _move(1),
    "TIMESTAMPSUB": _move(-1),
}

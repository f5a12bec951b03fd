"""Text → moments: ISO 8601, and the patterns of Java's DateTimeFormatter that KSQL's TIMESTAMP_FORMAT uses."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable
from functools import lru_cache

from headrace.errors import UsageError

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
MICROSECOND = datetime.timedelta(microseconds=1)

# What Arrow's own parser takes, and fractions of up to nine digits, of which six are kept.
_ISO = re.compile(
    r"(?P<year>\d{4})-(?P<month>\d\d)-(?P<day>\d\d)"
    r"(?:[ T](?P<hour>\d\d)(?::(?P<minute>\d\d)(?::(?P<second>\d\d)(?:\.(?P<fraction>\d{1,9}))?)?)?"
    r"(?P<zone>Z|[+-]\d\d(?::?\d\d)?)?)?",
    re.ASCII,
)

# Letters of DateTimeFormatter: how often → what matches. Numbers that may run together have a fixed width.
_LETTERS: dict[str, Callable[[int], str]] = {
    "y": lambda count: r"(?P<year>\d{4})" if count != 2 else r"(?P<short_year>\d{2})",
    "u": lambda count: r"(?P<year>\d{4})" if count != 2 else r"(?P<short_year>\d{2})",
    "M": lambda count: {1: r"(?P<month>\d{1,2})", 2: r"(?P<month>\d{2})", 3: r"(?P<month_name>[A-Za-z]{3})"}.get(
        count, r"(?P<month_name>[A-Za-z]{3,9})"
    ),
    "d": lambda count: _number("day", count),
    "H": lambda count: _number("hour", count),
    "h": lambda count: _number("half_hour", count),
    "a": lambda count: r"(?P<half>[AaPp][Mm])",
    "m": lambda count: _number("minute", count),
    "s": lambda count: _number("second", count),
    "S": lambda count: rf"(?P<fraction>\d{{{count}}})",
    "X": lambda count: r"(?P<zone>Z|[+-]\d\d(?::?\d\d)?)",
    "x": lambda count: r"(?P<zone>[+-]\d\d(?::?\d\d)?)",
    "Z": lambda count: r"(?P<zone>[+-]\d\d:?\d\d)",
    "E": lambda count: r"[A-Za-z]{3,9}",
}
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_PIECE = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|(.)", re.DOTALL)


def _number(name: str, count: int) -> str:
    return rf"(?P<{name}>\d{{1,2}})" if count == 1 else rf"(?P<{name}>\d{{{count}}})"


def parse_iso(text: str) -> int | None:
    """Microseconds since the epoch, or None. Without a zone it is UTC.

    >>> parse_iso("1970-01-01T00:00:01Z"), parse_iso("1970-01-01"), parse_iso("yesterday")
    (1000000, 0, None)
    """
    return _moment(_ISO.fullmatch(text))


def parse_date(text: str) -> datetime.date | None:
    """
    >>> parse_date("2026-11-15")
    datetime.date(2026, 11, 15)
    """
    try:
        return datetime.date.fromisoformat(text) if len(text) == 10 else None
    except ValueError:
        return None


def parse_time_of_day(text: str) -> int | None:
    """Milliseconds of the day, or None.

    >>> parse_time_of_day("00:01:02.5")
    62500
    """
    found = re.fullmatch(r"(\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?", text, re.ASCII)
    if found is None:
        return None
    hour, minute, second = int(found[1]), int(found[2]), int(found[3] or 0)
    if hour > 23 or minute > 59 or second > 59:
        return None
    return ((hour * 60 + minute) * 60 + second) * 1000 + int((found[4] or "0").ljust(3, "0")[:3])


@lru_cache(maxsize=256)
def compile_pattern(pattern: str) -> Callable[[str], int | None]:
    """A parser for a DateTimeFormatter pattern: text → microseconds since the epoch, or None.

    >>> compile_pattern("yyyy-MM-dd'T'HH:mm:ss")("1970-01-01T00:00:01")
    1000000
    """
    pieces: list[str] = []
    for found in _PIECE.finditer(pattern):
        quoted, letter, other = found.groups()
        if quoted is not None:
            pieces.append(re.escape(quoted.replace("''", "'") or "'"))
        elif letter is not None:
            pieces.append(_letters(letter, len(found[0]), pattern))
        else:
            pieces.append(re.escape(other))
    try:
        compiled = re.compile("".join(pieces), re.ASCII)
    except re.error:
        raise _bad_pattern(pattern, "names a part twice") from None
    return lambda text: _moment(compiled.fullmatch(text))


def _letters(letter: str, count: int, pattern: str) -> str:
    if letter not in _LETTERS:
        raise _bad_pattern(pattern, f"`{letter}` is not supported")
    return _LETTERS[letter](count)


def _bad_pattern(pattern: str, why: str) -> UsageError:
    return UsageError(
        f"timestamp format `{pattern}` cannot be used: {why}",
        hint="letters are those of Java's DateTimeFormatter: yyyy MM dd HH mm ss SSS X; text in 'quotes'",
    )


def _moment(found: re.Match[str] | None) -> int | None:
    if found is None:
        return None
    parts = {name: value for name, value in found.groupdict().items() if value is not None}
    try:
        moment = datetime.datetime(
            _year(parts),
            _month(parts),
            int(parts.get("day", 1)),
            _hour(parts),
            int(parts.get("minute", 0)),
            int(parts.get("second", 0)),
            int(parts.get("fraction", "0").ljust(6, "0")[:6]),
            datetime.UTC,
        )
        return (moment - EPOCH) // MICROSECOND - _offset_seconds(parts.get("zone", "Z")) * 1_000_000
    except (ValueError, OverflowError):
        return None


def _year(parts: dict[str, str]) -> int:
    return int(parts["year"]) if "year" in parts else 2000 + int(parts["short_year"]) if "short_year" in parts else 1970


def _month(parts: dict[str, str]) -> int:
    if "month_name" in parts:
        return _MONTHS.index(parts["month_name"][:3].lower()) + 1
    return int(parts.get("month", 1))


def _hour(parts: dict[str, str]) -> int:
    if "half_hour" not in parts:
        return int(parts.get("hour", 0))
    hour = int(parts["half_hour"])
    if not 1 <= hour <= 12:
        raise ValueError(hour)
    return hour % 12 + (12 if parts.get("half", "am").lower() == "pm" else 0)


def _offset_seconds(zone: str) -> int:
    if zone == "Z":
        return 0
    hours, minutes = int(zone[1:3]), int(zone[-2:] if len(zone) > 3 else 0)
    if hours > 23 or minutes > 59:
        raise ValueError(zone)
    return (hours * 60 + minutes) * (60 if zone[0] == "+" else -60)


def moment(text: str, name: str) -> int:
    """Milliseconds since the epoch, of such a number or an ISO time."""
    if text.isascii() and text.isdecimal() and len(text) < 16:
        return int(text)
    # In an address, the plus of a time's zone is a space.
    found = parse_iso(text[:10] + text[10:].replace(" ", "+")) or parse_iso(text)
    if found is None:
        raise UsageError(f"`{name}` must be an ISO time or milliseconds, got `{text[:40]}`")
    return max(0, found // 1000)

"""Moments, dates and times of day: as ISO text, and by patterns such as `yyyy-MM-dd HH:mm:ss.SSS`, which are those of
Java's DateTimeFormatter, as in KSQL and Spark. Moments are milliseconds since 1970, times milliseconds of the day."""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo

from headrace.patterns import Regex, compile_pattern

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DAY_MS = 86_400_000
MILLISECOND = timedelta(milliseconds=1)
_MONTHS = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
]
_DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]

# ---- ISO -------------------------------------------------------------------------------------------------------------

_ISO = re.compile(
    r"(?P<y>\d{1,4})(?:-(?P<M>\d{1,2})(?:-(?P<d>\d{1,2}))?)?"
    r"(?:[T ](?:(?P<H>\d{1,2})(?::(?P<m>\d{1,2})(?::(?P<s>\d{1,2})(?:[.,](?P<f>\d{1,9}))?)?)?)?)?"
    r"\s*(?P<zone>Z|[+-]\d{2}(?::?\d{2})?)?",
    re.IGNORECASE,
)
_TIME = re.compile(r"(\d{1,2})(?::(\d{1,2})(?::(\d{1,2})(?:[.,](\d{1,9}))?)?)?")


def parse_moment(text: str) -> int:
    """ISO text, or its beginning: `2026-11-15`, `2026-11-15T13:59:00.5+01:00`. UTC unless it says otherwise.

    >>> parse_moment("1970-01-01T00:00:01.5Z")
    1500
    """
    found = _ISO.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"`{text}` is not a timestamp")
    year, month, day = int(found["y"]), int(found["M"] or 1), int(found["d"] or 1)
    hour, minute, second = int(found["H"] or 0), int(found["m"] or 0), int(found["s"] or 0)
    moment = datetime(year, month, day, hour, minute, second, tzinfo=_offset(found["zone"] or "Z"))
    return milliseconds(moment) + _fraction_ms(found["f"])


def parse_date(text: str) -> date:
    """`2026-11-15`; a moment counts as its day."""
    return moment_date(parse_moment(text))


def parse_time(text: str) -> int:
    """`13:59:00.5`."""
    found = _TIME.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"`{text}` is not a time")
    hour, minute, second = (int(found[index] or 0) for index in (1, 2, 3))
    if hour > 23 or minute > 59 or second > 59:
        raise ValueError(f"`{text}` is not a time")
    return ((hour * 60 + minute) * 60 + second) * 1000 + _fraction_ms(found[4])


def moment_text(value: int) -> str:
    """
    >>> moment_text(1500)
    '1970-01-01T00:00:01.500'
    """
    return moment(value).replace(tzinfo=None).isoformat(timespec="milliseconds")


def time_text(value: int) -> str:
    """Hours and minutes; seconds and milliseconds only if there are any."""
    text = moment_text(value % DAY_MS)[11:]
    return text.removesuffix(".000").removesuffix(":00") if text.endswith(".000") else text


def moment(value: int, zone: tzinfo = UTC) -> datetime:
    return (EPOCH + value * MILLISECOND).astimezone(zone)


def milliseconds(moment: datetime) -> int:
    return (moment - EPOCH) // MILLISECOND


def moment_date(value: int) -> date:
    return moment(value).date()


def date_moment(value: date) -> int:
    return milliseconds(datetime(value.year, value.month, value.day, tzinfo=UTC))


def _fraction_ms(digits: str | None) -> int:
    return int((digits or "0").ljust(3, "0")[:3])


def _offset(text: str) -> timezone:
    if text in ("Z", "z"):
        return UTC
    digits = text[1:].replace(":", "").ljust(4, "0")
    delta = timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
    return timezone(-delta if text[0] == "-" else delta)


# ---- patterns --------------------------------------------------------------------------------------------------------

_LONGEST_TEXT, _MOST_OPTIONAL = 200, 8
_PIECE = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|(.)", re.DOTALL)


@lru_cache(maxsize=256)
def _pieces(pattern: str) -> tuple[tuple[str, str, int], ...]:
    """(letter, "", count) for fields, ("", text, 0) for text; "[" and "]" of optional parts as fields."""
    found: list[tuple[str, str, int]] = []
    for piece in _PIECE.finditer(pattern):
        quoted, letter, other = piece[1], piece[2], piece[3]
        if letter:
            if letter not in _FORMATTERS:
                raise ValueError(f"unknown pattern letter `{letter}`")
            found.append((letter, "", len(piece[0])))
        elif other is not None and other in "[]":
            found.append((other, "", 1))
        elif other == "'":
            raise ValueError("a quote in the pattern is not closed")
        else:
            found.append(("", other if quoted is None else quoted.replace("''", "'") or "'", 0))
    return tuple(found)


def zone_of(name: str) -> tzinfo:
    """`Europe/Vienna`, `UTC`, `+01:00`."""
    if re.fullmatch(r"Z|[+-]\d{2}(:?\d{2})?", name, re.IGNORECASE):
        return _offset(name)
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, KeyError) as error:
        raise ValueError(f"unknown time zone `{name}`") from error


def format_moment(value: int, pattern: str, zone: str = "UTC") -> str:
    """
    >>> format_moment(1500, "yyyy-MM-dd HH:mm:ss.SSS")
    '1970-01-01 00:00:01.500'
    """
    at = moment(value, zone_of(zone))
    return "".join(
        text or (_FORMATTERS[letter](at, count) if letter not in "[]" else "")
        for letter, text, count in _pieces(pattern)
    )


def _number(read: Callable[[datetime], int]) -> Callable[[datetime, int], str]:
    return lambda at, count: str(read(at)).zfill(count)


def _named(names: list[str], read: Callable[[datetime], int]) -> Callable[[datetime, int], str]:
    return lambda at, count: names[read(at)] if count == 4 else names[read(at)][:3]


def _format_month(at: datetime, count: int) -> str:
    return str(at.month).zfill(count) if count < 3 else _named(_MONTHS, lambda m: m.month - 1)(at, count)


def _format_year(at: datetime, count: int) -> str:
    return f"{at.year % 100:02d}" if count == 2 else str(at.year).zfill(count)


def _format_offset(at: datetime, count: int, zero: str) -> str:
    minutes = int((at.utcoffset() or timedelta()).total_seconds() // 60)
    if minutes == 0 and zero:
        return zero
    sign, (hours, rest) = "-" if minutes < 0 else "+", divmod(abs(minutes), 60)
    if count == 1:
        return f"{sign}{hours:02d}" + (f"{rest:02d}" if rest else "")
    return f"{sign}{hours:02d}{':' if count in (3, 5) else ''}{rest:02d}"


def _format_zone_offset(at: datetime, count: int) -> str:
    return _format_offset(at, 5, "Z") if count == 5 else _format_offset(at, 2, "")


def _zone_name(at: datetime) -> str:
    return getattr(at.tzinfo, "key", None) or at.tzname() or ""


_FORMATTERS: dict[str, Callable[[datetime, int], str]] = {
    "y": _format_year,
    "u": _format_year,
    "M": _format_month,
    "L": _format_month,
    "d": _number(lambda at: at.day),
    "D": _number(lambda at: at.timetuple().tm_yday),
    "H": _number(lambda at: at.hour),
    "k": _number(lambda at: at.hour or 24),
    "h": _number(lambda at: at.hour % 12 or 12),
    "K": _number(lambda at: at.hour % 12),
    "m": _number(lambda at: at.minute),
    "s": _number(lambda at: at.second),
    "S": lambda at, count: f"{at.microsecond:06d}".ljust(count, "0")[:count],
    "n": _number(lambda at: at.microsecond * 1000),
    "A": _number(lambda at: ((at.hour * 60 + at.minute) * 60 + at.second) * 1000 + at.microsecond // 1000),
    "a": lambda at, count: "AM" if at.hour < 12 else "PM",
    "E": _named(_DAYS, lambda at: at.weekday()),
    "Q": _number(lambda at: (at.month + 2) // 3),
    "G": lambda at, count: "AD",
    "X": lambda at, count: _format_offset(at, count, "Z"),
    "x": lambda at, count: _format_offset(at, count, ""),
    "Z": _format_zone_offset,
    "z": lambda at, count: at.tzname() or "",
    "V": lambda at, count: _zone_name(at),
}


DATE_FIELDS, TIME_FIELDS = "GyuDMLdQE", "ahKkHmsSAnVzXxZ"


def refuse_fields(pattern: str, letters: str) -> None:
    for letter, _, _ in _pieces(pattern):
        if letter and letter in letters:
            raise ValueError(f"there is no `{letter}` of what is written as `{pattern}`")


def require_fields(pattern: str, *choices: tuple[str, ...]) -> None:
    """One of the `choices`: one letter of each of its texts."""
    there = {letter for letter, _, _ in _pieces(pattern)}
    if not any(all(there & set(letters) for letters in choice) for choice in choices):
        raise ValueError(f"`{pattern}` does not say all that is needed")


def parse_with(text: str, pattern: str, zone: str = "UTC", *, whole: bool = True, lenient: bool = False) -> int:
    """Unless `whole`, what follows does not count. A day that the month does not have is its last one; `lenient`: it is
    one of the next month, as a month beyond December is one of the next year.

    >>> parse_with("1970-01-01T00:00:01Z", "yyyy-MM-dd'T'HH:mm:ssX")
    1000
    """
    parser = _parser(pattern)
    found = (parser.fullmatch if whole else parser.match)(text) if len(text) <= _LONGEST_TEXT else None
    if found is None:
        raise ValueError(f"`{text}` does not look like `{pattern}`")
    return _assemble(found.named(), zone, lenient)


def check_pattern(pattern: str) -> None:
    """`ValueError` if nothing could be read with it."""
    _parser(pattern)


@lru_cache(maxsize=256)
def _parser(pattern: str) -> Regex:
    if pattern.count("[") > _MOST_OPTIONAL:
        raise ValueError(f"a pattern has at most {_MOST_OPTIONAL} optional parts")
    source, seen = "", set[str]()
    pieces = _pieces(pattern)
    for index, (letter, text, count) in enumerate(pieces):
        if text:
            source += re.escape(text)
        elif letter in "[]":
            source += "(?:" if letter == "[" else ")?"
        else:
            following = pieces[index + 1][0] if index + 1 < len(pieces) else ""
            body = _digits(letter, count, bool(following) and following not in "[]")
            source += body if letter in seen else f"(?P<{letter}>{body})"
            seen.add(letter)
    if source.count("(?:") != source.count(")?"):
        raise ValueError("optional parts of a pattern are written in pairs of brackets")
    return compile_pattern(f"(?i){source}")


def _digits(letter: str, count: int, adjacent: bool) -> str:
    if letter in "ML" and count >= 3:
        return "|".join(name if count == 4 else name[:3] for name in _MONTHS)
    if letter == "E":
        return "|".join(name if count == 4 else name[:3] for name in _DAYS)
    special = {"a": "AM|PM", "G": "AD", "X": _OFFSET, "x": _OFFSET, "Z": _OFFSET, "z": _REGION, "V": _REGION}
    if letter in special:
        return special[letter]
    if letter == "S" or adjacent:
        return rf"\d{{{count}}}"
    if letter in "yu":
        return r"\d{2}" if count == 2 else rf"\d{{{count},9}}"
    return rf"\d{{{count},}}" if count > 1 else r"\d{1,9}"


_OFFSET = r"Z|[+-]\d{2}(?::?\d{2})?"
_REGION = r"[A-Za-z][A-Za-z0-9_/+-]*"


def _assemble(fields: dict[str, str], zone: str, lenient: bool) -> int:
    year = fields.get("y") or fields.get("u") or "1970"
    full_year = int(year) + 2000 if len(year) == 2 else int(year)
    offset = next((fields[letter] for letter in "XxZzV" if letter in fields), None)
    day = _day(full_year, _month(fields), int(fields.get("d", 1)), lenient)
    clock = time(_hour(fields), int(fields.get("m", 0)), int(fields.get("s", 0)))
    at = datetime.combine(day, clock, tzinfo=zone_of(offset or zone))
    if "D" in fields:
        at = at.replace(month=1, day=1) + timedelta(days=int(fields["D"]) - 1)
    return milliseconds(at) + _fraction_ms(fields.get("S")) + int(fields.get("A", 0))


def _day(year: int, month: int, day: int, lenient: bool) -> date:
    if lenient:
        years, month = divmod(month - 1, 12)
        return date(year + years, month + 1, 1) + timedelta(days=day - 1)
    if day > 31:
        raise ValueError(f"there is no day {day}")
    return date(year, month, min(day, monthrange(year, month)[1]))


def _month(fields: dict[str, str]) -> int:
    text = fields.get("M") or fields.get("L") or "1"
    if text.isdigit():
        return int(text)
    return next(index for index, name in enumerate(_MONTHS, 1) if name.lower().startswith(text.lower()))


def _hour(fields: dict[str, str]) -> int:
    if "H" in fields:
        return int(fields["H"])
    if "k" in fields:
        return int(fields["k"]) % 24
    if "h" in fields or "K" in fields:
        afternoon = 12 if fields.get("a", "AM").upper() == "PM" else 0
        return int(fields.get("h") or fields["K"]) % 12 + afternoon
    return 0

"""When a job runs by itself: every so often, or at times as in cron. Only arithmetic: the clock is passed in.

In cron's words a day matches if the day of the month or the day of the week does, where both are given. In a zone
where clocks change, a time that does not exist is taken an hour later, and one that comes twice is taken once.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from headrace.errors import ConfigError
from headrace.toml_files import seconds_of

_FIELDS = (("minute", 0, 59), ("hour", 0, 23), ("day of the month", 1, 31), ("month", 1, 12), ("day of the week", 0, 7))
_MONTHS = {"jan": 1, "feb": 2, "mar": 3, "apr": 4, "may": 5, "jun": 6, "jul": 7, "aug": 8, "sep": 9}
_MONTHS |= {"oct": 10, "nov": 11, "dec": 12}
_DAYS = {"sun": 0, "mon": 1, "tue": 2, "wed": 3, "thu": 4, "fri": 5, "sat": 6}
_HORIZON_DAYS = 366 * 9
"""The next 29 February that falls on a given weekday may be further away, but nobody waits for that."""


@dataclass(frozen=True, slots=True)
class Every:
    seconds: int

    def after(self, moment_ms: int) -> int:
        return moment_ms + self.seconds * 1000


@dataclass(frozen=True, slots=True)
class Cron:
    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    either_day: bool
    """Both kinds of days were given: one of them is enough."""
    zone: ZoneInfo

    def after(self, moment_ms: int) -> int | None:
        """The first time after a moment; None if there is none."""
        today = datetime.fromtimestamp(moment_ms / 1000, self.zone).date()
        for ahead in range(-1, _HORIZON_DAYS):
            day = today + timedelta(days=ahead)
            if self._has(day):
                found = [ms for ms in self._times(day) if ms > moment_ms]
                if found:
                    return min(found)
        return None

    def _has(self, day: date) -> bool:
        of_month, of_week = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return day.month in self.months and (of_month or of_week if self.either_day else of_month and of_week)

    def _times(self, day: date) -> list[int]:
        times = [time(hour, minute) for hour in self.hours for minute in self.minutes]
        return [round(datetime.combine(day, one, self.zone).timestamp() * 1000) for one in times]


Schedule = Every | Cron


def parse_schedule(every: str, cron: str, zone: str, where: str) -> Schedule | None:
    if every:
        return Every(seconds_of(every, where))
    if not cron:
        return None
    try:
        place = ZoneInfo(zone)
    except (OSError, ValueError, LookupError):
        raise ConfigError(f"{where}: there is no time zone `{zone[:40]}`", hint="such as Europe/Berlin") from None
    texts = cron.split()
    if len(texts) != len(_FIELDS):
        raise ConfigError(
            f"{where}: `{cron}` is not a schedule", hint="five fields as in cron, such as 0 3 * * mon-fri"
        )
    minutes, hours, days, months, weekdays = (_field(text, at, where) for at, text in enumerate(texts))
    both = not texts[2].startswith("*") and not texts[4].startswith("*")
    found = Cron(minutes, hours, days, months, frozenset(day % 7 for day in weekdays), both, place)
    if found.after(0) is None:
        raise ConfigError(f"{where}: `{cron}` never comes")
    return found


def _field(text: str, at: int, where: str) -> frozenset[int]:
    name, low, high = _FIELDS[at]
    names = {3: _MONTHS, 4: _DAYS}.get(at, {})
    values: set[int] = set()
    for part in text.lower().split(","):
        found = re.fullmatch(r"(?:(\*)|(\w+)(?:-(\w+))?)(?:/([1-9]\d?))?", part)
        if found is None:
            raise ConfigError(f"{where}: `{part[:40]}` is no {name}", hint="such as 5, 1-5, */15 or 0,30")
        star, first, last, step = found.groups()
        begin = low if star else _number(first, names, name, low, high, where)
        end = high if star or (step and not last) else begin
        end = _number(last, names, name, low, high, where) if last else end
        if end < begin:
            raise ConfigError(f"{where}: `{part}` ends before it begins")
        values.update(range(begin, end + 1, int(step or 1)))
    return frozenset(values)


def _number(text: str, names: dict[str, int], name: str, low: int, high: int, where: str) -> int:
    value = names.get(text, int(text) if text.isdecimal() else -1)
    if not low <= value <= high:
        raise ConfigError(f"{where}: `{text[:40]}` is no {name}", hint=f"{low} to {high}")
    return value

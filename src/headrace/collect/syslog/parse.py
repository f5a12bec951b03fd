"""Syslog messages → events: RFC 5424 and RFC 3164, told apart message by message.

Thousands of messages are read with one regular expression over all of them; only where that does not fit, because they
are of both kinds or some are broken, is each looked at by itself. Both ways give the same, which a test checks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, tzinfo
from typing import Any

import msgspec

from headrace.collect.columns import Columns
from headrace.collect.syslog import cisco
from headrace.collect.syslog.priority import HIGHEST, priorities
from headrace.collect.syslog.times import BsdTimes, read_times

FIELDS = ("facility", "severity", "time", "host", "app", "procid", "msgid", "structured_data", "message", "raw")

_PRIORITY = r"<(0|[1-9][0-9]{0,2})>"
_ELEMENTS = r'(?:\[(?:[^\n"\]\\]|\\.|"(?:[^\n"\\]++|\\.)*+")*+\])+'
_RFC5424 = rf"{_PRIORITY}1 ([^ \n]+) ([^ \n]+) ([^ \n]+) ([^ \n]+) ([^ \n]+) (-|{_ELEMENTS})(?: \ufeff?(.*))?"
_STAMP = r"[A-Z][a-z]{2} [ 0-9][0-9] [0-9]{2}:[0-9]{2}:[0-9]{2}"
_ISO = r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.,]+(?:Z|[+-][0-9]{2}:?[0-9]{2})?"
# A host never ends with a colon: that is a tag, of a program that left the host out.
_RFC3164 = (
    rf"{_PRIORITY}(?![0-9] )(?:({_STAMP}|{_ISO}) (?:([^ \n]*[^ \n:]) (?=[^ \n]))?)?"
    r"(?:([^ \n\[\]:<>]{1,64})(?:\[([^\]\n]{0,128})\])?: ?)?(.*)"
)
_MANY_5424, _MANY_3164 = (re.compile(f"^{one}$", re.MULTILINE) for one in (_RFC5424, _RFC3164))
_ONE_5424, _ONE_3164 = (re.compile(one, re.DOTALL) for one in (_RFC5424, _RFC3164))
_ELEMENT = re.compile(r'\[([^ \]="]+)((?: [^ \]="]+="(?:[^"\\]|\\.)*")*) ?\]', re.DOTALL)
_PARAMETER = re.compile(r' ([^ \]="]+)="((?:[^"\\]|\\.)*)"', re.DOTALL)
_ESCAPED = re.compile(r'\\(["\\\]])')
_SHOWN = 40


@dataclass(frozen=True, slots=True)
class Reading:
    """How messages are read that do not say everything themselves."""

    now_ms: int
    """When they arrived."""
    sender: str = ""
    """The host of those that name none."""
    zone: tzinfo = UTC
    """Of the times of RFC 3164."""
    numeric: bool = False
    """Facility and severity as numbers."""
    raw: bool = False
    """The message as it came, too."""
    text: bool = False
    """Structured data as JSON text, for a column of text, rather than as an object."""


def read_text(text: str, reading: Reading) -> Columns | None:
    """Messages of one kind, one a line, each ended; None if `read_messages` must look at each."""
    # The kind of the first line is that of all, or each must be looked at.
    whole, read = (_MANY_5424, _columns_5424) if _ONE_5424.match(text) else (_MANY_3164, _columns_3164)
    if whole is _MANY_3164 and cisco.may_be(text):
        return None
    # In one list: before the first line, its fields, between the lines, the fields of the next …
    parts, step = whole.split(text[:-1]), whole.groups + 1
    if len(parts) != text.count("\n") * step + 1:
        return None
    return read([parts[at::step] for at in range(1, step)], _Lines(text), reading)


def read_messages(messages: Sequence[bytes], reading: Reading) -> Columns:
    """Each message by itself."""
    rows: list[tuple[Any, ...]] = []
    unreadable: dict[int, str] = {}
    times: list[int | None] = []
    bsd = BsdTimes(reading.zone, reading.now_ms)
    for row, message in enumerate(messages):
        try:
            fields, time = _read_one(message, reading, bsd)
        except ValueError as error:
            unreadable[row] = str(error)
            fields, time = (None,) * len(FIELDS), None
        rows.append(fields)
        times.append(time)
    columns = zip(*rows, strict=True) if rows else [()] * len(FIELDS)
    named = dict(zip(FIELDS, columns, strict=True))
    return Columns(len(messages), _kept(named, reading), messages.__getitem__, times, None, unreadable)


def _kept(named: Mapping[str, Sequence[Any]], reading: Reading) -> dict[str, Sequence[Any]]:
    """A column that no message has is none."""
    return {
        name: values
        for name, values in named.items()
        if (name != "raw" or reading.raw) and values.count(None) < len(values)
    }


# Many at once


class _Lines:
    """The messages as they came, told apart only if somebody asks."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._found: list[str] | None = None

    def all(self) -> list[str]:
        if self._found is None:
            self._found = self._text[:-1].split("\n")
        return self._found

    def __call__(self, row: int) -> bytes:
        return self.all()[row].encode()


def _columns_5424(found: list[list[Any]], raw: _Lines, reading: Reading) -> Columns | None:
    priority, time, host, app, procid, msgid, elements, message = found
    levels, times = priorities(priority, reading.numeric), read_times(time)
    if levels is None or times is None:
        return None
    try:
        structured = [None if one == "-" else _structured(one, reading) for one in elements]
    except ValueError:
        return None
    sender = reading.sender or None
    values = (
        *levels,
        times,
        _given(host, sender),
        _given(app),
        _given(procid),
        _given(msgid),
        structured,
        [text or None for text in message] if "" in message else message,
    )
    return _columns(values, times, raw, reading)


def _columns_3164(found: list[list[Any]], raw: _Lines, reading: Reading) -> Columns | None:
    priority, stamps, host, app, procid, message = found
    levels = priorities(priority, reading.numeric)
    if levels is None:
        return None
    bsd = BsdTimes(reading.zone, reading.now_ms)
    # What has no time, or none that can be, has the time of its arrival (RFC 3164, 4.3.2).
    times = [_bsd_time(stamp, bsd) for stamp in stamps]
    sender = reading.sender or None
    nothing = [None] * len(times)
    values = (
        *levels,
        times,
        [name or sender for name in host],
        [name or None for name in app],
        [name or None for name in procid],
        nothing,
        nothing,
        [text.rstrip("\0") or None for text in message],
    )
    return _columns(values, times, raw, reading)


def _columns(values: tuple[Sequence[Any], ...], times: list[int | None], raw: _Lines, reading: Reading) -> Columns:
    named: dict[str, Sequence[Any]] = dict(zip(FIELDS, values, strict=False))
    if reading.raw:
        named["raw"] = raw.all()
    return Columns(len(times), _kept(named, reading), raw, times)


def _given(texts: list[Any], otherwise: str | None = None) -> Sequence[str | None]:
    """`-` is nothing."""
    return [otherwise if text == "-" else text for text in texts] if "-" in texts else texts


# One


def _read_one(message: bytes, reading: Reading, bsd: BsdTimes) -> tuple[tuple[Any, ...], int | None]:
    """Its fields and its time; `ValueError` says why there are none."""
    try:
        text = message.decode()
    except UnicodeDecodeError:
        raise ValueError("is not UTF-8") from None
    found = _ONE_5424.fullmatch(text)
    if found is not None:
        return _fields_5424(found, text, reading)
    special = cisco.read(text, bsd, reading.now_ms) if cisco.may_be(text) else None
    if special is not None:
        level, moment, name, program, said = special
        known = (moment, name or reading.sender or None, program, None, None, None, said, text)
        return (*_levels(level, reading), *known), moment
    found = _ONE_3164.fullmatch(text)
    if found is None:
        raise ValueError(_why_not(text))
    priority, stamp, host, app, procid, body = found.groups()
    time = _bsd_time(stamp or "", bsd)
    body = (body or "").rstrip("\0")
    fields = (time, host or reading.sender or None, app or None, procid or None, None, None, body or None, text)
    return (*_levels(priority, reading), *fields), time


def _fields_5424(found: re.Match[str], text: str, reading: Reading) -> tuple[tuple[Any, ...], int | None]:
    priority, stamp, host, app, procid, msgid, elements, body = found.groups()
    times = read_times([stamp])
    if times is None:
        raise ValueError(f"has a time that is none: `{stamp[:_SHOWN]}`")
    structured = None if elements == "-" else _structured(elements, reading)
    given = [None if part == "-" else part for part in (host, app, procid, msgid)]
    fields = (times[0], given[0] or reading.sender or None, *given[1:], structured, body or None, text)
    return (*_levels(priority, reading), *fields), times[0]


def _levels(priority: str, reading: Reading) -> tuple[str | int, str | int]:
    levels = priorities([priority], reading.numeric)
    if levels is None:
        raise ValueError(f"has the priority {priority}: the highest is {HIGHEST}")
    [facility], [severity] = levels
    return facility, severity


def _bsd_time(stamp: str, bsd: BsdTimes) -> int | None:
    if not stamp:
        return None
    if not stamp[0].isdigit():
        return bsd.read(stamp)
    times = read_times([stamp.replace(",", ".")])
    return times[0] if times else None


def _why_not(text: str) -> str:
    if not text.startswith("<"):
        return "does not begin with a priority, as in `<34>`"
    if re.match(_PRIORITY + "[0-9] ", text):
        return "looks like RFC 5424, but is not: after `<34>1 ` come time, host, app, procid, msgid, structured data"
    return f"begins with a priority that is none: `{text[:8]}`"


def _structured(elements: str, reading: Reading) -> dict[str, dict[str, str]] | str:
    """`[id name="value" …]…` as an object of objects. `ValueError` if an element is no such."""
    found: dict[str, dict[str, str]] = {}
    at = 0
    while at < len(elements):
        element = _ELEMENT.match(elements, at)
        if element is None:
            raise ValueError(f"has structured data that is none: `{elements[at : at + _SHOWN]}`")
        parameters = found.setdefault(element[1], {})
        for name, value in _PARAMETER.findall(element[2]):
            parameters[name] = _ESCAPED.sub(r"\1", value)
        at = element.end()
    return msgspec.json.encode(found).decode() if reading.text else found

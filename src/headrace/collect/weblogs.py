"""Lines of web servers' logs → events: common, combined (with or without a host before it), W3C extended.

For requests with lines in them, and for files that grow: whoever reads a file keeps one `WebLog` for it, because a W3C
log says at its beginning, and again when it changes, which fields its lines have.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Literal

from headrace.collect.base import Sent
from headrace.collect.definitions import CollectorSettings
from headrace.collect.translate import event_of, moment_ms, sent
from headrace.errors import ConfigError
from headrace.log.codecs.json_codec import Event, Unreadable

Format = Literal["auto", "common", "combined", "w3c"]

_QUOTED = r'"((?:[^"\\]|\\.)*+)"'
_LINE = re.compile(
    r"(?:(?P<vhost>\S+:\d+) )?(?P<host>\S+) (?P<ident>\S+) (?P<user>.+?) \[(?P<time>[^\]]{1,40})\] "
    rf"{_QUOTED.replace('(', '(?P<request>', 1)} (?P<status>\d{{3}}|-) (?P<bytes>\d{{1,18}}|-)"
    rf"(?: {_QUOTED.replace('(', '(?P<referrer>', 1)} {_QUOTED.replace('(', '(?P<agent>', 1)}(?P<more> .*)?)?"
)
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|.)")
_PLAIN = {"n": "\n", "r": "\r", "t": "\t"}
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_W3C_VALUE = re.compile(r'"(?:[^"]|"")*"|\S+')
_W3C_NUMBERS = {"sc-status", "sc-substatus", "sc-win32-status", "sc-bytes", "cs-bytes", "s-port", "c-port"}
_W3C_DECIMALS = {"time-taken"}
MAX_LINE = 64 * 1024


class WebLogSettings(CollectorSettings, frozen=True, kw_only=True):
    format: Format = "auto"
    """`common`, `combined`, `w3c`, or `auto`: each line as what it looks like."""
    fields: str = ""
    """Fields of W3C lines that come without their `#Fields:` line, as that would say them."""

    def check(self) -> None:
        CollectorSettings.check(self)
        if self.format == "w3c" and self.fields and "-" not in self.fields:
            raise ConfigError(
                "these are no fields of a W3C log", hint='fields = "date time c-ip cs-method cs-uri-stem"'
            )


class WebLog:
    """Reads the lines of one log, in order. `fields` and `date` are what a W3C log has said last; who resumes in the
    middle of one gives them back."""

    def __init__(self, format_: Format = "auto", fields: str = "", date: str = "") -> None:
        self._format = format_
        self.fields, self.date = fields, date

    def read(self, lines: Iterable[bytes]) -> Sent:
        """The events of lines; directives and empty lines are none."""
        events: list[Event | Unreadable] = []
        originals: list[bytes] = []
        for line in lines:
            event = self._line(line.rstrip(b"\r\n"))
            if event is not None:
                events.append(event)
                originals.append(line)
        return sent(events, originals)

    def _line(self, raw: bytes) -> Event | Unreadable | None:
        if not raw or raw.isspace():
            return None
        if len(raw) > MAX_LINE:
            return Unreadable(f"is a line of {len(raw)} bytes; {MAX_LINE} are read")
        try:
            line = raw.decode()
        except UnicodeDecodeError:
            line = raw.decode("latin-1")
        if line.startswith("#") and self._format in ("auto", "w3c"):
            self._directive(line)
            return None
        if self._format == "w3c" or (self._format == "auto" and self.fields):
            return self._extended(line)
        return _classic(line, self._format)

    def _directive(self, line: str) -> None:
        name, _, value = line[1:].partition(":")
        if name.strip().lower() == "fields":
            self.fields = value.strip()
        elif name.strip().lower() == "date":
            self.date = value.strip()[:10]

    def _extended(self, line: str) -> Event | Unreadable:
        names = self.fields.split()
        if not names:
            return Unreadable("comes before any `#Fields:` line, so nobody knows what its fields are")
        values = _W3C_VALUE.findall(line)
        if len(values) != len(names):
            return Unreadable(f"has {len(values)} fields where `#Fields:` says {len(names)}")
        found: dict[str, Any] = {}
        for name, value in zip(names, values, strict=True):
            try:
                found[_column(name)] = _w3c_value(name, value)
            except ValueError:
                return Unreadable(f"has `{name}` = `{value[:60]}`, which is no number")
        return event_of(found, None, self._w3c_time(found))

    def _w3c_time(self, found: dict[str, Any]) -> int | None:
        """W3C logs are in UTC."""
        date, time = found.get("date") or self.date, found.get("time")
        return moment_ms(f"{date}T{time}Z") if date and time else None


def _column(name: str) -> str:
    """
    >>> _column("cs(User-Agent)"), _column("c-ip")
    ('cs_user_agent', 'c_ip')
    """
    return re.sub(r"[^0-9a-z]+", "_", name.lower()).strip("_")


def _w3c_value(name: str, value: str) -> Any:
    if value == "-":
        return None
    if name in _W3C_NUMBERS:
        return int(value)
    if name in _W3C_DECIMALS:
        return float(value)
    if value.startswith('"'):
        return value[1:-1].replace('""', '"')
    # IIS writes a space inside of a value as a plus; only there it can be told from a real one.
    return value.replace("+", " ") if name.lower() == "cs(user-agent)" else value


def _classic(line: str, format_: Format) -> Event | Unreadable:
    found = _LINE.fullmatch(line)
    if found is None:
        return Unreadable("is no line of a web server's log (common, combined)")
    vhost, host, ident, user, time, request, status, size, referrer, agent, more = found.groups()
    if format_ == "combined" and agent is None:
        return Unreadable("has no referrer and no user agent, which the combined format has")
    time_ms = _moment(time)
    if time_ms is None:
        return Unreadable(f"has a time that is none: `{time}`")
    asked = _text(request)
    fields: dict[str, Any] = {
        "remote_host": host,
        "ident": _given(ident),
        "remote_user": _given(user),
        "request": asked,
        "status": None if status == "-" else int(status),
        "bytes": None if size == "-" else int(size),
    }
    parts = asked.split(" ") if asked else []
    if len(parts) in (2, 3):
        path, _, query = parts[1].partition("?")
        protocol = parts[2] if len(parts) == 3 else None
        fields |= {"method": parts[0], "path": path, "query": query or None, "protocol": protocol}
    if agent is not None:
        fields |= {"referrer": _text(referrer), "user_agent": _text(agent)}
    if vhost is not None:
        fields["vhost"] = vhost
    if more:
        fields["more"] = more.strip()
    return event_of(fields, None, time_ms)


def _given(value: str) -> str | None:
    return None if value == "-" else value


def _text(value: str) -> str | None:
    """A quoted value, as Apache and nginx escape them."""
    if value == "-":
        return None
    return _ESCAPE.sub(_unescaped, value) if "\\" in value else value


def _unescaped(match: re.Match[str]) -> str:
    code = match[1]
    return chr(int(code[1:], 16)) if len(code) == 3 else _PLAIN.get(code, code)


@lru_cache(maxsize=64)
def _moment(text: str) -> int | None:
    """
    >>> _moment("10/Oct/2000:13:55:36 -0700")
    971211336000
    """
    try:
        day, month, year = int(text[0:2]), _MONTHS.index(text[3:6]) + 1, int(text[7:11])
        hour, minute, second = int(text[12:14]), int(text[15:17]), int(text[18:20])
        offset = datetime.timedelta(hours=int(text[21:24]), minutes=int(text[21] + text[24:26]))
        moment = datetime.datetime(year, month, day, hour, minute, second, tzinfo=datetime.timezone(offset))
        return int(moment.timestamp() * 1000)
    except (ValueError, IndexError, OverflowError):
        return None

"""Interceptors: what happens to events between a source and its channels."""

from __future__ import annotations

import logging
import re
import socket
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TypeAlias

from headrace.clock import Clock
from headrace.collect.agents.base import Event
from headrace.collect.agents.options import Option, Options
from headrace.collect.agents.texts import from_bytes, readable
from headrace.errors import ConfigError, UsageError
from headrace.patterns import Match, Regex, compile_pattern

logger = logging.getLogger("headrace.agent")

Intercept: TypeAlias = Callable[[Sequence[Event]], Sequence[Event]]
"""Events → events; it may leave some out."""


@dataclass(frozen=True, slots=True)
class InterceptorKind:
    names: tuple[str, ...]
    summary: str
    make: Callable[[Options, Clock], Intercept]
    options: tuple[Option, ...] = ()
    check: Callable[[Options], Iterable[tuple[str, str, str | None]]] = field(default=lambda options: ())

    @property
    def name(self) -> str:
        return self.names[0]


def chain(intercepts: Sequence[Intercept]) -> Intercept:
    def all_of_them(events: Sequence[Event]) -> Sequence[Event]:
        for intercept in intercepts:
            events = intercept(events)
        return events

    return all_of_them


def _add(name: str, value: Callable[[], str], preserve: bool) -> Intercept:
    def add(events: Sequence[Event]) -> Sequence[Event]:
        more = {name: value()}
        # Events of one source mostly share their headers: those are made once.
        made: dict[int, dict[str, str]] = {}
        found = []
        for event in events:
            if preserve and name in event.headers:
                found.append(event)
                continue
            headers = made.get(id(event.headers))
            if headers is None:
                headers = made[id(event.headers)] = event.headers | more
            found.append(Event(event.body, headers, event.id, event.origin))
        return found

    return add


def _timestamp(options: Options, clock: Clock) -> Intercept:
    return _add(options.text("headerName"), lambda: str(clock.now_ms()), options.flag("preserveExisting"))


def _host(options: Options, clock: Clock) -> Intercept:
    name = socket.gethostname()
    if options.flag("useIP"):
        try:
            name = socket.gethostbyname(name)
        except OSError:
            logger.warning("the address of `%s` is not known: the host header has the name", name)
    return _add(options.text("hostHeader"), lambda: name, options.flag("preserveExisting"))


def _static(options: Options, clock: Clock) -> Intercept:
    return _add(options.text("key"), lambda: options.text("value"), options.flag("preserveExisting"))


def _uuid(options: Options, clock: Clock) -> Intercept:
    name, prefix, preserve = options.text("headerName"), options.text("prefix"), options.flag("preserveExisting")

    def add(events: Sequence[Event]) -> Sequence[Event]:
        found = []
        for event in events:
            if not (preserve and name in event.headers):
                event = event.with_headers({name: f"{prefix}{uuid.uuid4()}"})
            # It names the event: so it names it in the log, too, unless its source knows a better name.
            id_ = event.id or readable(event.headers[name]) or None
            found.append(Event(event.body, event.headers, id_, event.origin))
        return found

    return add


def _only(event: Event, gone: Callable[[str], bool]) -> Event:
    headers = {name: value for name, value in event.headers.items() if not gone(name)}
    return Event(event.body, headers, event.id, event.origin)


def _remove_header(options: Options, clock: Clock) -> Intercept:
    separator = java_regex(options.text("fromListSeparator"))
    names = {options.text("withName"), *separator.split(options.text("fromList"))} - {""}
    pattern = java_regex(options.text("matching")) if options.text("matching") else None

    def gone(name: str) -> bool:
        return name in names or (pattern is not None and pattern.fullmatch(name) is not None)

    def remove(events: Sequence[Event]) -> Sequence[Event]:
        return [_only(event, gone) if any(map(gone, event.headers)) else event for event in events]

    return remove


_REFERENCE = re.compile(r"\\.?|\$(\d+)|\$\{(\w+)\}", re.DOTALL)


def _search_replace(options: Options, clock: Clock) -> Intercept:
    pattern, charset = java_regex(options.text("searchPattern")), options.text("charset")
    replacement = _java_replacement(options.text("replaceString"), pattern)

    def replace(events: Sequence[Event]) -> Sequence[Event]:
        found = []
        for event in events:
            try:
                text = event.body.decode(charset, "surrogateescape")
                body = pattern.replace(text, replacement).encode(charset, "surrogateescape")
            except UnicodeError:
                # As Java: what the charset cannot say is a sign for that. It must not stop what comes after it.
                text = event.body.decode(charset, "replace")
                body = pattern.replace(text, replacement).encode(charset, "replace")
            found.append(Event(body, event.headers, event.id, event.origin))
        return found

    return replace


def _java_replacement(text: str, pattern: Regex) -> Callable[[Match], str]:
    r"""Compile a replacement as Java writes it: `$1` and `${name}` are groups, a backslash makes the next sign plain.
    `LookupError` if the pattern has no such group.

    >>> pattern = java_regex("(?<name>[a-z])=([0-9])")
    >>> pattern.replace("a=1 b=2", _java_replacement(r"$2 \$5 ${name} \\d", pattern))
    '1 $5 a \\d 2 $5 b \\d'
    """
    parts: list[str | int] = []
    start = 0
    for found in _REFERENCE.finditer(text):
        parts.append(text[start : found.start()])
        start = found.end()
        if found[0].startswith("\\"):
            parts.append(found[0][1:])
        elif found[2]:
            if found[2] not in pattern.names:
                raise LookupError(f"the pattern has no group `{found[2]}`")
            parts.append(pattern.names[found[2]])
        else:
            if int(found[1]) > pattern.groups:
                raise LookupError(f"the pattern has no group {found[1]}")
            parts.append(int(found[1]))
    parts.append(text[start:])
    return lambda match: "".join(part if isinstance(part, str) else match[part] or "" for part in parts)


def _check_search(options: Options) -> Iterable[tuple[str, str, str | None]]:
    try:
        pattern = java_regex(options.text("searchPattern"))
        _java_replacement(options.text("replaceString"), pattern)
    except ConfigError as error:
        yield "searchPattern", error.message, error.hint
    except LookupError as error:
        yield "replaceString", f"`{options.text('replaceString')}` cannot stand there: {error.args[0]}", None
    try:
        "".encode(options.text("charset"))
    except LookupError:
        yield "charset", f"there is no charset `{options.text('charset')}`", "UTF-8 is one"


def _regex_filter(options: Options, clock: Clock) -> Intercept:
    pattern, exclude = java_regex(options.text("regex")), options.flag("excludeEvents")

    def keep(events: Sequence[Event]) -> Sequence[Event]:
        return [event for event in events if (pattern.search(_text(event)) is not None) != exclude]

    return keep


def _regex_extractor(options: Options, clock: Clock) -> Intercept:
    pattern = java_regex(options.text("regex"))
    serializers = [_serializer(name, options.below("serializers.*")) for name in options.words("serializers")]

    def extract(events: Sequence[Event]) -> Sequence[Event]:
        found = []
        for event in events:
            match = pattern.search(_text(event))
            if match is not None:
                groups = zip(serializers, match.groups(), strict=False)
                event = event.with_headers({name: read(text) for (name, read), text in groups if text is not None})
            found.append(event)
        return found

    return extract


def _serializer(name: str, given: Mapping[str, str]) -> tuple[str, Callable[[str], str]]:
    """The header's name, and how its value is made of what was found."""
    header, type_ = given.get(f"{name}.name", name), given.get(f"{name}.type", "default")
    if not type_.lower().endswith("millisserializer") and type_ != "millis":
        return header, str
    pattern = _java_date(given.get(f"{name}.pattern", "yyyy-MM-dd'T'HH:mm:ss"))

    def milliseconds(text: str) -> str:
        try:
            moment = datetime.strptime(text, pattern)
        except ValueError:
            return text
        return str(int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000))

    return header, milliseconds


_DATE_PARTS = {
    "yyyy": "%Y",
    "yy": "%y",
    "MMM": "%b",
    "MM": "%m",
    "dd": "%d",
    "HH": "%H",
    "mm": "%M",
    "ss": "%S",
    "SSS": "%f",
    "Z": "%z",
    "EEE": "%a",
}


def _java_date(pattern: str) -> str:
    """
    >>> _java_date("yyyy-MM-dd'T'HH:mm:ss.SSS")
    '%Y-%m-%dT%H:%M:%S.%f'
    """
    parts = re.split(r"'([^']*)'|(yyyy|yy|MMM|MM|dd|HH|mm|ss|SSS|EEE|Z)", pattern)
    return "".join(_DATE_PARTS.get(part, part.replace("%", "%%")) for part in parts if part)


def _text(event: Event) -> str:
    return from_bytes(event.body)


def java_regex(pattern: str) -> Regex:
    """Compile a pattern of a Flume file. `ConfigError` for what RE2 does not have."""
    try:
        return compile_pattern(pattern)
    except UsageError as error:
        raise ConfigError(error.message, detail=error.detail, hint=error.hint) from None


def check_regex(name: str) -> Callable[[Options], Iterable[tuple[str, str, str | None]]]:
    def check(options: Options) -> Iterable[tuple[str, str, str | None]]:
        try:
            java_regex(options.text(name))
        except ConfigError as error:
            yield name, error.message, error.hint

    return check


_PRESERVE = Option("preserveExisting", "flag", False, "Leave a header that is there already.")
_KEEP = Option("preserveExisting", "flag", True, "Leave a header that is there already.")
_OLD = "org.apache.flume.interceptor."

INTERCEPTORS = (
    InterceptorKind(
        ("timestamp", f"{_OLD}TimestampInterceptor$Builder"),
        "A header with the time in milliseconds; the log takes it as the event's time.",
        _timestamp,
        (Option("headerName", "text", "timestamp", "The header.", also=("header",)), _PRESERVE),
    ),
    InterceptorKind(
        ("host", f"{_OLD}HostInterceptor$Builder"),
        "A header with this machine's address or name.",
        _host,
        (
            Option("hostHeader", "text", "host", "The header."),
            Option("useIP", "flag", True, "The address rather than the name."),
            _PRESERVE,
        ),
    ),
    InterceptorKind(
        ("static", f"{_OLD}StaticInterceptor$Builder"),
        "A header that is always the same.",
        _static,
        (Option("key", "text", "key", "The header."), Option("value", "text", "value", "Its value."), _KEEP),
    ),
    InterceptorKind(
        ("uuid", "org.apache.flume.sink.solr.morphline.UUIDInterceptor$Builder"),
        "A header with a new UUID, which is also the event's id in the log.",
        _uuid,
        (Option("headerName", "text", "id", "The header."), Option("prefix", "text", "", "Put before it."), _KEEP),
    ),
    InterceptorKind(
        ("remove_header", f"{_OLD}RemoveHeaderInterceptor$Builder"),
        "Takes headers away.",
        _remove_header,
        (
            Option("withName", "text", "", "The header of this name."),
            Option("fromList", "text", "", "Headers of these names."),
            Option("fromListSeparator", "text", r"\s*,\s*", "What stands between them: a regular expression."),
            Option("matching", "text", "", "Headers whose whole name matches."),
        ),
    ),
    InterceptorKind(
        ("search_replace", f"{_OLD}SearchAndReplaceInterceptor$Builder"),
        "Replaces in the body whatever a regular expression finds.",
        _search_replace,
        (
            Option("searchPattern", "text", None, "A regular expression.", required=True),
            Option("replaceString", "text", "", "What stands there instead; `$1` is the first group."),
            Option("charset", "text", "UTF-8", "How the body is written."),
        ),
        _check_search,
    ),
    InterceptorKind(
        ("regex_filter", f"{_OLD}RegexFilteringInterceptor$Builder"),
        "Keeps events in whose body a regular expression is found, or those in which it is not.",
        _regex_filter,
        (
            Option("regex", "text", ".*", "The regular expression."),
            Option("excludeEvents", "flag", False, "Leave out those in which it is found."),
        ),
        check_regex("regex"),
    ),
    InterceptorKind(
        ("regex_extractor", f"{_OLD}RegexExtractorInterceptor$Builder"),
        "Headers out of a regular expression's groups.",
        _regex_extractor,
        (
            Option("regex", "text", None, "The regular expression, with groups.", required=True),
            Option("serializers", "words", None, "One for each group, in order.", required=True),
            Option("serializers.*", "text", None, "`NAME.name` is the header, `NAME.type` may be a millis serializer."),
        ),
        check_regex("regex"),
    ),
)
BY_NAME = {name.lower(): kind for kind in INTERCEPTORS for name in kind.names}

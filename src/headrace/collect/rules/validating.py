"""`[validate]`: what an event must be besides fitting the topic's columns, which the codec looks after."""

from __future__ import annotations

import decimal
from collections.abc import Collection, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.collect.rules.coercing import coercion, field_type
from headrace.collect.rules.fields import Change, Event, Path, Spellings, is_within
from headrace.collect.rules.settings import FieldRule, FieldType, ValidateSettings
from headrace.log.base import Topic
from headrace.log.codecs.json_codec import RESERVED
from headrace.log.codecs.json_values import shown
from headrace.log.codecs.times import parse_iso

_WORDS: dict[FieldType, str] = {
    "string": "a string",
    "integer": "an integer",
    "number": "a number",
    "boolean": "true or false",
    "timestamp": "a timestamp (ISO 8601 or milliseconds)",
    "object": "an object",
    "array": "an array",
}


class Validating:
    """Made for one topic as it is now. `hidden` are fields whose values no message may show, `ours` those that the
    collector itself adds."""

    def __init__(
        self,
        settings: ValidateSettings,
        topic: Topic,
        hidden: Collection[str],
        ours: Collection[str],
        spellings: Spellings,
    ) -> None:
        columns = {column.name.casefold(): column.type for column in topic.spec.key + topic.spec.value}
        self._required = [Path(name, spellings) for name in settings.required]
        self._rules = [(Path(name, spellings), rule) for name, rule in settings.fields.items()]
        self._patterns = [(path, rule.pattern) for path, rule in self._rules if rule.pattern]
        self._hidden = hidden
        self._coercions: list[tuple[Path, Change]] = []
        for name in settings.coerce:
            rule, column = settings.fields.get(name), columns.get(name.casefold())
            wanted = rule.type if rule is not None and rule.type else field_type(column) if column else None
            if wanted is not None:
                self._coercions.append((Path(name, spellings), coercion(wanted)))
        self._unknown = settings.unknown
        self._spellings = spellings
        self._known = set(columns) | set(RESERVED) | {name.casefold().partition(".")[0] for name in ours}

    def coerced(self, event: Event) -> Event:
        for path, change in self._coercions:
            event = path.edited(event, change)
        if self._unknown == "drop":
            others = self._spellings.of(event).keys() - self._known
            if others:
                event = {name: value for name, value in event.items() if name.casefold() not in others}
        return event

    def misfits(self, events: Sequence[Any]) -> dict[int, str]:
        """Event number → what is wrong with it, of those that are objects."""
        found: dict[int, str] = {}
        for row, event in enumerate(events):
            if type(event) is dict and (reason := self._misfit(event)) is not None:
                found[row] = reason
        for path, pattern in self._patterns:
            for row in self._unlike(path, pattern, events):
                found.setdefault(row, f"`{path.name}` does not match `{pattern}`")
        return found

    def _misfit(self, event: Event) -> str | None:
        spelled = self._spellings.of(event)
        for path in self._required:
            if all(value is None for value in path.found(event, spelled)):
                return f"`{path.name}` is required"
        if self._unknown == "refuse":
            for folded, names in spelled.items():
                if folded not in self._known:
                    return f"the topic has no column for {shown(names[0])}"
        for path, rule in self._rules:
            for value in path.found(event, spelled):
                if value is not None and (words := _wanted(value, rule)) is not None:
                    told = "" if is_within(path.name, self._hidden) else f", got {shown(value)}"
                    return f"`{path.name}` must {words}{told}"
        return None

    @staticmethod
    def _unlike(path: Path, pattern: str, events: Sequence[Any]) -> list[int]:
        """All texts at once, by an engine that takes no longer than they are, whatever a client sends."""
        rows: list[int] = []
        texts: list[str] = []
        for row, event in enumerate(events):
            for value in path.found(event):
                if type(value) is str:
                    rows.append(row)
                    texts.append(value)
        # A lone half of a surrogate pair is no character, so it is no reason to match.
        array = pa.array([text.encode("utf-8", "replace") for text in texts], pa.binary()).cast(pa.string())
        fits = pc.match_substring_regex(array, pattern).to_pylist()
        return [row for row, fit in zip(rows, fits, strict=True) if not fit]


def _wanted(value: Any, rule: FieldRule) -> str | None:
    """What the value must be, if it is not."""
    if rule.type is not None and not _is(value, rule.type):
        return f"be {_WORDS[rule.type]}"
    if rule.min is not None or rule.max is not None:
        if type(value) not in (int, float, decimal.Decimal):
            return "be a number"
        if rule.min is not None and not value >= rule.min:
            return f"be at least {rule.min:g}"
        if rule.max is not None and not value <= rule.max:
            return f"be at most {rule.max:g}"
    if rule.min_length is not None or rule.max_length is not None:
        if type(value) not in (str, list):
            return "be a string or an array"
        if rule.min_length is not None and len(value) < rule.min_length:
            return f"be at least {rule.min_length} long"
        if rule.max_length is not None and len(value) > rule.max_length:
            return f"be at most {rule.max_length} long"
    if rule.pattern and type(value) is not str:
        return "be a string"
    if rule.one_of and not any(type(value) is type(one) and value == one for one in rule.one_of):
        return f"be one of {', '.join(shown(one) for one in rule.one_of)}"
    return None


def _is(value: Any, type_: FieldType) -> bool:
    match type_:
        case "string":
            return type(value) is str
        case "integer":
            return type(value) is int
        case "number":
            return type(value) in (int, float, decimal.Decimal)
        case "boolean":
            return type(value) is bool
        case "timestamp":
            return type(value) is int or (type(value) is str and parse_iso(value) is not None)
        case "object":
            return type(value) is dict
        case "array":
            return type(value) is list

"""Is everything that one JSON Schema accepts accepted by another? Rules and names of differences as Confluent's.

An object's *content model* decides what adding or removing a property means: open (anything else is accepted too),
closed (`additionalProperties: false`), or partially open (others must fit a schema).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.log.registry.base import Problem
from headrace.log.registry.json_schema import TYPES, Document

_MOST = 50
_MOST_COMPARISONS = 20_000
# Keyword → the names of its differences: limits that only loosen when they grow, and those when they shrink.
_UPPER = {"maxLength": "MAX_LENGTH", "maximum": "MAXIMUM", "maxItems": "MAX_ITEMS", "maxProperties": "MAX_PROPERTIES"}
_LOWER = {"minLength": "MIN_LENGTH", "minimum": "MINIMUM", "minItems": "MIN_ITEMS", "minProperties": "MIN_PROPERTIES"}
_UPPER_EXCLUSIVE, _LOWER_EXCLUSIVE = "exclusiveMaximum", "exclusiveMinimum"


def json_problems(reader: Document, writer: Document) -> list[Problem]:
    """Why something that `writer` accepts may not be accepted by `reader`; empty if all of it is."""
    try:
        return _Diff(reader, writer).schemas(reader.tree, writer.tree, "#")[:_MOST]
    except (_TooComplex, RecursionError):
        return [Problem("TOO_COMPLEX", "#", f"comparing takes more than {_MOST_COMPARISONS:,} steps")]


class _TooComplex(Exception):
    pass


class _Diff:
    def __init__(self, reader: Document, writer: Document) -> None:
        self._reader, self._writer = reader, writer
        self._known: dict[tuple[int, int], list[Problem]] = {}
        # Schemas put together of others are kept: they are known by their identity, and must be found again.
        self._merged: dict[tuple[int, int, str], Any] = {}

    def schemas(self, reader: Any, writer: Any, path: str) -> list[Problem]:
        reader, writer = self._reader.resolve(reader), self._writer.resolve(writer)
        if reader is True or reader == {} or writer is False or (reader == writer and not _refers(reader)):
            return []
        pair = (id(reader), id(writer))
        if pair not in self._known:
            # Recursive schemas: where a pair meets itself, it holds whatever is found above.
            self._known[pair] = []
            if len(self._known) > _MOST_COMPARISONS:
                raise _TooComplex
            found = self._compare(_as_object(reader), _as_object(writer))[:_MOST]
            self._known[pair] = found
        return [replace(problem, path=path + problem.path) for problem in self._known[pair]]

    def _compare(self, reader: dict[str, Any], writer: dict[str, Any]) -> list[Problem]:
        combined = self._combined(reader, writer)
        if combined is not None:
            return combined
        problems = _enum(reader, writer)
        if problems is None:
            return []
        lost = _types(writer) - _types(reader)
        if lost:
            problems.append(_type_problem(reader, writer, lost))
            return problems
        problems += _limits(reader, writer)
        shared = _types(writer)
        if "object" in shared:
            problems += self._objects(reader, writer)
        if "array" in shared:
            problems += self._arrays(reader, writer)
        if "not" in reader:
            problems += self._not(reader, writer)
        return problems

    # allOf, anyOf, oneOf

    def _combined(self, reader: dict[str, Any], writer: dict[str, Any]) -> list[Problem] | None:
        """None if neither combines schemas."""
        for keyword in ("anyOf", "oneOf"):
            if keyword in writer:
                return self._each(writer, keyword, lambda branch: self.schemas(reader, branch, ""), "SUM_TYPE_NARROWED")
        if "allOf" in reader:
            return self._each_required(reader, writer)
        for keyword in ("anyOf", "oneOf"):
            if keyword in reader:
                return self._some(reader, writer, keyword)
        if "allOf" in writer:
            tries = [self.schemas(reader, self._with(writer, part, "allOf"), "") for part in writer["allOf"]]
            if any(not problems for problems in tries):
                return []
            return tries[0]
        return None

    def _each(
        self, tree: dict[str, Any], keyword: str, check: Callable[[Any], list[Problem]], kind: str
    ) -> list[Problem]:
        problems: list[Problem] = []
        for place, branch in enumerate(tree[keyword]):
            inner = check(self._with(tree, branch, keyword))
            if inner:
                message = f"what matched alternative {place} before is not accepted any more ({inner[0]})"
                problems.append(Problem(kind, f"/{keyword}/{place}", message))
        return problems

    def _each_required(self, reader: dict[str, Any], writer: dict[str, Any]) -> list[Problem]:
        rest = _without(reader, "allOf")
        problems = self._compare(rest, _without(writer, "allOf")) if _constrains(rest) else []
        parts = writer.get("allOf", [writer])
        for place, wanted in enumerate(reader["allOf"]):
            if all(self.schemas(wanted, part, "") for part in parts):
                message = "this part is new or stricter than before"
                problems.append(Problem("PRODUCT_TYPE_EXTENDED", f"/allOf/{place}", message))
        return problems

    def _some(self, reader: dict[str, Any], writer: dict[str, Any], keyword: str) -> list[Problem]:
        tries = [self.schemas(self._with(reader, branch, keyword), writer, "") for branch in reader[keyword]]
        if any(not problems for problems in tries):
            return []
        # A type with several alternatives may be spread over several branches.
        if len(_types(writer)) > 1 and all(
            any(not self.schemas(branch, self._with(writer, {"type": type_}, type_), "") for branch in reader[keyword])
            for type_ in _types(writer)
        ):
            return []
        return [Problem("COMBINED_TYPE_SUBSCHEMAS_CHANGED", f"/{keyword}", "no alternative accepts what was accepted")]

    def _with(self, tree: dict[str, Any], part: Any, keyword: str) -> Any:
        """Both at once, as far as that can be said by putting them together."""
        place = (id(tree), id(part) if keyword not in TYPES else 0, keyword)
        if place not in self._merged:
            rest = {name: value for name, value in tree.items() if name not in ("allOf", "anyOf", "oneOf")}
            merge = isinstance(part, dict) and _constrains(rest)
            self._merged[place] = (rest | part if merge else part, tree, part)
        return self._merged[place][0]

    def _not(self, reader: dict[str, Any], writer: dict[str, Any]) -> list[Problem]:
        if "not" in writer and not self.schemas(writer["not"], reader["not"], ""):
            return []
        return [Problem("NOT_TYPE_EXTENDED", "/not", "more is excluded than before")]

    # Objects

    def _objects(self, reader: dict[str, Any], writer: dict[str, Any]) -> list[Problem]:
        problems: list[Problem] = []
        ours, theirs = _mapping(reader, "properties"), _mapping(writer, "properties")
        for name, schema in theirs.items():
            where = f"/properties/{_pointer(name)}"
            if name in ours:
                problems += self.schemas(ours[name], schema, where)
            else:
                problems += self._removed(reader, name, schema, where)
        for name, schema in ours.items():
            if name not in theirs:
                problems += self._added(writer, name, schema, f"/properties/{_pointer(name)}")
        problems += self._required(reader, writer, ours)
        problems += self._additional(reader, writer)
        return problems

    def _removed(self, reader: dict[str, Any], name: str, schema: Any, where: str) -> list[Problem]:
        """A property that only the writer names: what the reader thinks of properties it does not name decides."""
        others = self._unnamed(reader, name)
        if others is True or others == {} or schema is False:
            return []
        if others is False:
            message = f"the property `{name}` is gone and no others are allowed"
            return [Problem("PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL", where, message)]
        if not self.schemas(others, schema, ""):
            return []
        message = f"the property `{name}` is gone and does not fit what others must be"
        return [Problem("PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", where, message)]

    def _added(self, writer: dict[str, Any], name: str, schema: Any, where: str) -> list[Problem]:
        others = self._unnamed(writer, name)
        if others is False or schema is True or schema == {}:
            return []
        if others is True or others == {}:
            message = f"the property `{name}` is new, but the older schema allowed anything under that name"
            return [Problem("PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL", where, message)]
        if not self.schemas(schema, others, ""):
            return []
        message = f"the property `{name}` is new and stricter than what others had to be"
        return [Problem("PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", where, message)]

    def _unnamed(self, tree: dict[str, Any], name: str) -> Any:
        for pattern, schema in _mapping(tree, "patternProperties").items():
            if _matches(pattern, name):
                return schema
        return tree.get("additionalProperties", True)

    def _required(self, reader: dict[str, Any], writer: dict[str, Any], ours: dict[str, Any]) -> list[Problem]:
        problems: list[Problem] = []
        before = set(_names(writer))
        theirs = _mapping(writer, "properties")
        for name in _names(reader):
            if name in before or _default_of(self._reader.resolve(ours.get(name))):
                continue
            new = name not in theirs and name in ours
            kind = "REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL" if new else "REQUIRED_ATTRIBUTE_ADDED"
            message = f"`{name}` is required now and was not, and has no default"
            problems.append(Problem(kind, f"/required/{_pointer(name)}", message))
        return problems

    def _additional(self, reader: dict[str, Any], writer: dict[str, Any]) -> list[Problem]:
        ours, theirs = reader.get("additionalProperties", True), writer.get("additionalProperties", True)
        if theirs is False or ours is True:
            return []
        if ours is False:
            message = "properties that are not named were allowed and are not any more"
            return [Problem("ADDITIONAL_PROPERTIES_REMOVED", "/additionalProperties", message)]
        return self.schemas(ours, theirs, "/additionalProperties")

    # Arrays

    def _arrays(self, reader: dict[str, Any], writer: dict[str, Any]) -> list[Problem]:
        ours, our_rest = _tuple(reader)
        theirs, their_rest = _tuple(writer)
        problems: list[Problem] = []
        for place in range(max(len(ours), len(theirs))):
            mine = ours[place] if place < len(ours) else our_rest
            other = theirs[place] if place < len(theirs) else their_rest
            if mine is False and other is not False:
                message = f"item {place} was allowed and is not any more"
                problems.append(Problem("ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL", f"/items/{place}", message))
            else:
                problems += self.schemas(mine, other, f"/items/{place}")
        if our_rest is False and their_rest is not False:
            problems.append(Problem("ADDITIONAL_ITEMS_REMOVED", "/items", "further items were allowed"))
        elif their_rest is not False:
            problems += self.schemas(our_rest, their_rest, "/items")
        return problems


def _matches(pattern: str, name: str) -> bool:
    """With Arrow's regular expressions: a hostile one costs no more than its length."""
    try:
        return bool(pc.match_substring_regex(pa.array([name]), pattern)[0].as_py())
    except pa.ArrowInvalid:
        return False


def _refers(tree: Any) -> bool:
    """Does equal text possibly mean something else, because it refers to other places?"""
    if isinstance(tree, dict):
        return "$ref" in tree or any(map(_refers, tree.values()))
    return isinstance(tree, list) and any(map(_refers, tree))


def _as_object(tree: Any) -> dict[str, Any]:
    if isinstance(tree, dict):
        return tree
    return {} if tree is True else {"not": {}}


def _without(tree: dict[str, Any], keyword: str) -> dict[str, Any]:
    return {name: value for name, value in tree.items() if name != keyword}


def _constrains(tree: dict[str, Any]) -> bool:
    notes = ("title", "description", "$id", "$schema", "$comment", "default", "examples", "definitions", "$defs")
    return any(name not in notes for name in tree)


def _types(tree: dict[str, Any]) -> set[str]:
    """What a value may be. An integer is a number too; so `number` counts for both."""
    given = tree.get("type")
    if given is None:
        return _types_of_values(tree) or set(TYPES)
    found = set(given) if isinstance(given, list) else {given}
    return found | ({"integer"} if "number" in found else set())


def _types_of_values(tree: dict[str, Any]) -> set[str]:
    values: Iterable[Any] = [tree["const"]] if "const" in tree else tree.get("enum", [])
    names: dict[type, str] = {
        bool: "boolean",
        int: "integer",
        float: "number",
        str: "string",
        list: "array",
        dict: "object",
    }
    return {names.get(type(value), "null") for value in values}


def _type_problem(reader: dict[str, Any], writer: dict[str, Any], lost: set[str]) -> Problem:
    before, now = _types(writer), _types(reader)
    kind = "TYPE_NARROWED" if before & now else "TYPE_CHANGED"
    return Problem(kind, "/type", f"{_listed(lost)} was accepted before; now it is {_listed(now)}")


def _listed(names: set[str]) -> str:
    return " or ".join(f"`{name}`" for name in sorted(names))


def _enum(reader: dict[str, Any], writer: dict[str, Any]) -> list[Problem] | None:
    """None if the writer's values are all listed and all accepted: nothing more needs to be said."""
    ours, theirs = _values(reader), _values(writer)
    if ours is None:
        return []
    if theirs is None:
        return [Problem("ENUM_ARRAY_ADDED", "/enum", "any value was accepted before, now only those listed")]
    lost = [value for value in theirs if value not in ours]
    if lost:
        return [Problem("ENUM_ARRAY_NARROWED", "/enum", f"`{lost[0]}` was accepted before")]
    return None


def _values(tree: dict[str, Any]) -> list[Any] | None:
    if "const" in tree:
        return [tree["const"]]
    found: list[Any] | None = tree.get("enum")
    return found


def _limits(reader: dict[str, Any], writer: dict[str, Any]) -> list[Problem]:
    problems: list[Problem] = []
    for keyword, name in _UPPER.items():
        problems += _limit(reader, writer, keyword, name, "DECREASED", lambda ours, theirs: ours >= theirs)
    for keyword, name in _LOWER.items():
        problems += _limit(reader, writer, keyword, name, "INCREASED", lambda ours, theirs: ours <= theirs)
    problems += _limit(
        reader, writer, _UPPER_EXCLUSIVE, "EXCLUSIVE_MAXIMUM", "DECREASED", lambda ours, theirs: ours >= theirs
    )
    problems += _limit(
        reader, writer, _LOWER_EXCLUSIVE, "EXCLUSIVE_MINIMUM", "INCREASED", lambda ours, theirs: ours <= theirs
    )
    problems += _limit(
        reader,
        writer,
        "multipleOf",
        "MULTIPLE_OF",
        "CHANGED",
        lambda ours, theirs: bool(ours) and abs(theirs / ours - round(theirs / ours)) < 1e-9,
    )
    if "pattern" in reader and reader["pattern"] != writer.get("pattern"):
        problems.append(Problem("PATTERN_CHANGED", "/pattern", f"it must match `{reader['pattern']}` now"))
    if reader.get("uniqueItems") is True and writer.get("uniqueItems") is not True:
        problems.append(Problem("UNIQUE_ITEMS_ADDED", "/uniqueItems", "items must differ now"))
    return problems


def _limit(
    reader: dict[str, Any],
    writer: dict[str, Any],
    keyword: str,
    name: str,
    change: str,
    looser: Callable[[float, float], bool],
) -> list[Problem]:
    ours, theirs = _number(reader.get(keyword)), _number(writer.get(keyword))
    if ours is None:
        return []
    if theirs is None:
        return [Problem(f"{name}_ADDED", f"/{keyword}", f"`{keyword}` is {ours} now, there was none")]
    if looser(ours, theirs):
        return []
    return [Problem(f"{name}_{change}", f"/{keyword}", f"`{keyword}` was {theirs} and is {ours}")]


def _number(value: Any) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _mapping(tree: dict[str, Any], name: str) -> dict[str, Any]:
    found = tree.get(name)
    return found if isinstance(found, dict) else {}


def _names(tree: dict[str, Any]) -> list[str]:
    found = tree.get("required")
    return found if isinstance(found, list) else []


def _default_of(tree: Any) -> bool:
    return isinstance(tree, dict) and "default" in tree


def _tuple(tree: dict[str, Any]) -> tuple[list[Any], Any]:
    """The schemas of the first items, and that of all further ones."""
    if isinstance(tree.get("prefixItems"), list):
        return tree["prefixItems"], tree.get("items", True)
    items = tree.get("items", True)
    if isinstance(items, list):
        return items, tree.get("additionalItems", True)
    return [], items


def _pointer(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")

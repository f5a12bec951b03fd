"""Fields by their path, found and changed without touching the event that came: what is changed is copied.

Names are compared as the codecs do, without regard to case, and every spelling counts: otherwise a rule about `email`
would say nothing about `Email`, which is stored in the same column. `user.email` also finds a field of that whole name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

Event = dict[str, Any]
Change = Callable[[Any], Any]
Spelled = dict[str, tuple[str, ...]]
"""A field's name in lower case → how it is spelled."""

GONE = object()
"""What a change answers to remove a field."""
MOST_LISTS = 32
"""Arrays within arrays that are looked into. What lies deeper is not looked at, so it is taken away where it counts."""
_MOST_SHAPES = 1024


class Spellings:
    """How the fields of an object are spelled, by their names in lower case; remembered by shape."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, ...], Spelled] = {}

    def of(self, value: Event) -> Spelled:
        shape = tuple(value)
        found = self._known.get(shape)
        if found is None:
            found = {}
            for name in shape:
                folded = name.casefold()
                found[folded] = (*found.get(folded, ()), name)
            # Somebody may send a new shape with every event: remembering must not become a leak.
            if len(self._known) < _MOST_SHAPES:
                self._known[shape] = found
        return found


class Path:
    """One field, however deep."""

    def __init__(self, name: str, spellings: Spellings) -> None:
        self.name = name
        self._spellings = spellings
        self._parts = tuple(name.casefold().split("."))
        self.is_plain = len(self._parts) == 1
        """A field of the event itself."""

    def found(self, event: Any, spelled: Spelled | None = None) -> list[Any]:
        """The values there are at this path; null is one. What is no object has none. `spelled` is of the event, where
        somebody has it already."""
        if type(event) is not dict:
            return []
        if spelled is None:
            spelled = self._spellings.of(event)
        if self.is_plain:
            return [event[name] for name in spelled.get(self._parts[0], ())]
        return list(self._find(event, self._parts, 0))

    def edited(self, event: Event, change: Change) -> Event:
        """The event with each value at this path changed; the same object if none was."""
        if self.is_plain and self._parts[0] not in self._spellings.of(event):
            return event
        made: Event = self._edit(event, self._parts, change, 0)
        return made

    def put(self, event: Event, value: Any) -> Event:
        """The event with this value, instead of whatever it says there in any spelling."""
        if not self.is_plain:
            event = self.edited(event, lambda old: GONE)
        return self._put(event, self.name.split("."), value)

    def _find(self, value: Any, parts: Sequence[str], lists: int) -> Iterator[Any]:
        if type(value) is list and lists < MOST_LISTS:
            for inner in value:
                yield from self._find(inner, parts, lists + 1)
        if type(value) is not dict:
            return
        spellings = self._spellings.of(value)
        for depth in range(1, len(parts) + 1):
            for name in spellings.get(".".join(parts[:depth]), ()):
                if depth == len(parts):
                    yield value[name]
                else:
                    yield from self._find(value[name], parts[depth:], lists)

    def _edit(self, value: Any, parts: Sequence[str], change: Change, lists: int) -> Any:
        if type(value) is list:
            if lists == MOST_LISTS:
                return None
            elements = [self._edit(inner, parts, change, lists + 1) for inner in value]
            return value if all(new is old for new, old in zip(elements, value, strict=True)) else elements
        if type(value) is not dict:
            return value
        made, spellings = value, self._spellings.of(value)
        for depth in range(1, len(parts) + 1):
            for name in spellings.get(".".join(parts[:depth]), ()):
                old = value[name]
                new = change(old) if depth == len(parts) else self._edit(old, parts[depth:], change, lists)
                if new is not old:
                    made = dict(value) if made is value else made
                    made[name] = new
                    if new is GONE:
                        del made[name]
        return made

    def _put(self, value: Any, parts: Sequence[str], new: Any) -> Event:
        if type(value) is not dict:
            value = {}
        [first, *rest] = parts
        before = self._spellings.of(value).get(first.casefold(), ())
        made = {name: inner for name, inner in value.items() if name not in before}
        made[first] = self._put(value[before[0]] if before else None, rest, new) if rest else new
        return made

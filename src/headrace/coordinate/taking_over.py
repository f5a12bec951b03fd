"""Which version of a name served when, by arrival numbers: the order of the log, in which no clock has a part."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from headrace.coordinate.events import Event, SourceCreated, SourceDropped, VersionsSwitched
from headrace.coordinate.fold import CatalogState
from headrace.views.versions import NONE

History = tuple[tuple[int, int], ...]
"""Arrival numbers from which on versions served, by their numbers, the first ones first; 0 is for none."""


class Terms:
    """Noted while the catalog is read. Only names that more than one version has served have a history."""

    def __init__(self, histories: Mapping[str, History] | None = None) -> None:
        self._histories: dict[str, History] = dict(histories or {})

    def all(self) -> dict[str, History]:
        return dict(self._histories)

    def of(self, name: str) -> History:
        return self._histories.get(name, ())

    def note(self, before: CatalogState, event: Event, after: CatalogState, arrival: int) -> None:
        match event:
            case SourceDropped(name):
                # What is made under the name later has nothing to do with it.
                self._histories.pop(name, None)
            case VersionsSwitched(versions):
                for name in versions:
                    self._begin(name, before, after, arrival)
            case SourceCreated(source) if source.name in self._histories:
                self._begin(source.name, before, after, arrival)

    def _begin(self, name: str, before: CatalogState, after: CatalogState, arrival: int) -> None:
        old, new = before.serving.get(name, NONE), after.serving.get(name, NONE)
        if old == new:
            return
        known = self._histories.get(name) or (((0, old),) if old else ())
        if known:
            self._histories[name] = _shortened((*known, (arrival, new)), after.versions.get(name, {}).keys())


def _shortened(history: History, kept: Collection[int]) -> History:
    """Of versions in a row that are not kept any more the first stands for all: there may be one every minute."""
    pairs = zip(((0, NONE), *history[:-1]), history, strict=True)
    later = [one for before, one in pairs if one[1] in kept or before[1] in kept or one is history[0]]
    return tuple(later)


def served_at(history: History, arrival: int) -> int:
    """The version that served when the log had given all numbers below this one.

    >>> [served_at(((0, 1), (70, 2), (90, 1)), arrival) for arrival in (0, 69, 70, 90, 200)]
    [1, 1, 2, 1, 1]
    """
    return next((number for begun, number in reversed(history) if begun <= arrival), NONE)

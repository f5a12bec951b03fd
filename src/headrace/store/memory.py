"""Views in memory: for tests, and for whoever wants rows that go with the process."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from headrace.errors import Conflict, NotFound
from headrace.log.base import Records
from headrace.sql.expressions import Expression
from headrace.sql.source import Source
from headrace.store.arrivals import BEGINNING, merge
from headrace.store.base import Key, Position, Scan, Store, ViewStore
from headrace.store.changes import net_changes
from headrace.store.columns import source_rows
from headrace.store.expiry import NEVER, expiry_of, newest_time
from headrace.store.readers import too_late
from headrace.store.rows import names_of, over_rows
from headrace.store.sqlite_sql import Layout
from headrace.store.sqlite_values import encoder


class MemoryStore(Store):
    def __init__(self) -> None:
        self._views: dict[tuple[str, int], MemoryView] = {}

    def open_view(self, source: Source, version: int) -> MemoryView:
        known = self._views.get((source.name, version))
        if known is not None and not known.closed:
            raise Conflict(f"view `{source.name}` version {version} is open already")
        view = MemoryView(source, version)
        if known is not None and known.made_of == source:
            view.take_over(known)
        self._views[source.name, version] = view
        return view

    def open_beside(self, source: Source, version: int) -> MemoryView:
        return MemoryView(source, version)

    def take_over(self, view: ViewStore) -> None:
        assert isinstance(view, MemoryView)
        self._views[view.source.name, view.version] = view

    def discard(self, view: ViewStore) -> None:
        view.close()

    def drop_view(self, name: str, version: int) -> None:
        view = self._views.pop((name, version), None)
        if view is not None:
            view.close()

    def keep_only(self, views: Collection[tuple[str, int]]) -> None:
        for name, version in set(self._views) - set(views):
            self.drop_view(name, version)

    def close(self) -> None:
        for view in self._views.values():
            view.close()


class MemoryView(ViewStore):
    """Rows and position are replaced together, so a reader that took both has one moment of the view."""

    def __init__(self, source: Source, version: int) -> None:
        self.source, self.version, self.closed = source, version, False
        self.made_of = source
        layout = Layout(source)
        self._key = [layout.columns[name] for name in layout.key]
        self._columns = list(layout.columns.values())
        self._state: tuple[dict[Key, tuple[Any, ...]], Position] = ({}, BEGINNING)
        self._expiry, self._newest = expiry_of(source), NEVER

    def take_over(self, other: MemoryView) -> None:
        self._state, self._newest = other._state, other._newest

    def widen(self, source: Source) -> bool:
        places = {column.name: place for place, column in enumerate(self._columns)}
        self._columns = list(Layout(source).columns.values())
        order = [places.get(column.name) for column in self._columns]
        rows, position = self._state
        self._state = (
            {key: tuple(None if at is None else row[at] for at in order) for key, row in rows.items()},
            position,
        )
        self.source = source
        return True

    def horizon(self) -> int | None:
        return None if self._expiry is None else self._expiry.horizon(self._newest)

    def position(self) -> Position:
        return self._state[1]

    def apply(self, changes: Sequence[Records], position: Position) -> int:
        rows, own = self._state
        if position.arrival <= own.arrival:
            return 0
        batch = merge(changes, own)
        if batch is None:
            self._state = (rows, position)
            return 0
        net = net_changes(batch, self.source, self._key)
        gone = set(net.deleted)
        kept = {key: row for key, row in rows.items() if key not in gone} if gone else dict(rows)
        kept.update(zip(net.keys, source_rows(net.batch, self.source, self._columns), strict=True))
        self._newest = newest_time(batch, self._newest)
        if self._expiry is not None and (horizon := self._expiry.horizon(self._newest)) != NEVER:
            place = [column.name for column in self._columns].index(self._expiry.column)
            kept = {key: row for key, row in kept.items() if row[place] > horizon}
        self._state = (kept, position)
        return net.count

    def fill(self, rows: Iterable[Mapping[str, Any]], position: Position) -> None:
        """Hold these rows, by column name, and no others."""
        encoders = [encoder(column.type) for column in self._key]
        held: dict[Key, tuple[Any, ...]] = {}
        for row in rows:
            parts = [row.get(column.name) for column in self._key]
            key = tuple(
                part if encode is None or part is None else encode(part)
                for part, encode in zip(parts, encoders, strict=True)
            )
            held[key] = tuple(row.get(column.name) for column in self._columns)
        self._state = (held, position)

    def rebase(self, position: Position) -> None:
        self._state = (self._state[0], position)

    @contextmanager
    def scan(
        self,
        columns: Sequence[str],
        predicate: Expression | None = None,
        order: Sequence[tuple[str, bool]] = (),
        limit: int | None = None,
        deadline: float = 10.0,
    ) -> Iterator[Scan]:
        if self.closed:
            raise NotFound("this view is closed: it was dropped or replaced")
        held, position = self._state
        rows: Iterator[tuple[Any, ...]] = self._in_time(held, deadline)
        if predicate is not None:
            matches = over_rows(predicate, names_of(self._columns))
            rows = (row for row in rows if matches(row) is True)
        place = {column.name: number for number, column in enumerate(self._columns)}
        if order:
            found = list(rows)
            for name, descending in reversed(order):
                found.sort(key=lambda row, at=place[name]: sortable(row[at]), reverse=descending)  # type: ignore[misc]
            rows = iter(found)
        wanted = [place[name] for name in columns]
        picked = (tuple(row[at] for at in wanted) for row in rows)
        yield Scan(position, picked if limit is None else (row for row, _ in zip(picked, range(limit), strict=False)))

    def find(self, keys: Sequence[Key], columns: Sequence[str]) -> dict[Key, tuple[Any, ...]]:
        held, _ = self._state
        names = [column.name for column in self._columns]
        places = [names.index(name) for name in columns]
        return {key: tuple(held[key][place] for place in places) for key in keys if key in held and None not in key}

    def _in_time(self, rows: dict[Key, tuple[Any, ...]], seconds: float) -> Iterator[tuple[Any, ...]]:
        end = time.monotonic() + seconds
        for number, row in enumerate(rows.values()):
            if number % 256 == 0 and time.monotonic() > end:
                raise too_late(seconds)
            yield row

    def count(self) -> int:
        return len(self._state[0])

    def close(self) -> None:
        self.closed = True


def sortable(value: Any) -> tuple[int, Any]:
    """Nulls first, then values, NaN last."""
    if value is None:
        return (0, 0)
    return (2, 0) if value != value else (1, value)

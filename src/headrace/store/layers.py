"""A view of two layers: its topic first has what the batch computed, then what the stream computes from the cut on.

Both are parts of aggregates (`sql.layered`). A record of the stream's is merged with the batch's row of its key as it
is read, and becomes the view's row. Whoever reads a changelog does so through a decoder, so rows in a store, feeds and
answers about the past all show the same. The batch layer does not change any more, so neither does what a record means.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import pyarrow as pa

from headrace.errors import Overloaded
from headrace.log.base import TIME, TOMBSTONE, Log, Records, Topic
from headrace.log.codecs.base import Schemas
from headrace.sql.layered import LayeredQuery
from headrace.sql.source import WINDOW_COLUMNS, Source
from headrace.store.base import Decoder, ViewStore
from headrace.store.changes import keys_of
from headrace.store.columns import source_rows
from headrace.store.decode import SourceDecoder, to_arrow
from headrace.store.rows import over_rows, project_rows
from headrace.store.sqlite_sql import Layout
from headrace.types import display_name

Row: TypeAlias = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Merging:
    """How a version's two layers become its rows."""

    plan: LayeredQuery = field(compare=False)
    ends: Mapping[int, int]
    """By partition of its topic: where the batch layer ends."""

    @property
    def batch(self) -> Source:
        """The batch layer as a table of its own. No statement can name it."""
        partial = self.plan.partial.sink
        return replace(partial, name=f"{partial.name}\0batch", statement="")

    def filled(self, batch: ViewStore) -> bool:
        offsets = batch.position().offsets
        return all(offsets.get(partition, 0) >= end for partition, end in self.ends.items())


def changelog_decoder(log: Log, view: ViewStore) -> Decoder:
    """What reads the changelog of a view, whether it has layers or not."""
    if view.layers is not None:
        return view.layers(log, view.source)
    return SourceDecoder(log.topic(view.source.topic), view.source, log.schemas)


def merging_decoder(merging: Merging, batch: Callable[[], ViewStore]) -> Callable[[Log, Source], Decoder]:
    return lambda log, source: MergingDecoder(log.topic(source.topic), source, merging, batch, log.schemas)


class MergingDecoder:
    """`batch` is the batch layer's own rows."""

    def __init__(
        self,
        topic: Topic,
        source: Source,
        merging: Merging,
        batch: Callable[[], ViewStore],
        schemas: Schemas | None = None,
    ) -> None:
        self.topic, self.source = topic, source
        self._partial = SourceDecoder(topic, merging.batch, schemas)
        self.columns = self._partial.columns
        self._merging, self._batch = merging, batch
        layout = Layout(merging.batch)
        self._key = [layout.columns[name] for name in layout.key]
        self._finish = finisher(merging.plan)
        self._merge = merger(merging.plan)

    def decode(self, records: Records) -> Records:
        batch = self._partial.decode(records).batch
        partial = self._partial.source
        bounds = WINDOW_COLUMNS if partial.window else ()
        groups = source_rows(batch, partial, (*partial.key, *bounds))
        parts = source_rows(batch, partial, partial.value)
        times = batch.column(TIME).to_pylist()
        for place, (earlier, time_ms) in self._earlier(records, batch).items():
            parts[place], times[place] = self._merge(earlier, parts[place]), max(time_ms, times[place])
        rows = [self._finish(group + own) for group, own in zip(groups, parts, strict=True)]
        return replace(records, batch=self._finished(batch, rows, times))

    def _earlier(self, records: Records, batch: pa.RecordBatch) -> dict[int, tuple[Row, int]]:
        """By place: what the batch layer has for the records that are not of it, and its time."""
        end = self._merging.ends.get(records.partition, 0)
        places = [place for place, offset in enumerate(_offsets(records)) if offset >= end]
        if not places:
            return {}
        layer = self._batch()
        if not self._merging.filled(layer):
            name = display_name(self.source.name)
            raise Overloaded(f"the batch layer of `{name}` is being filled", retry_after=1.0)
        keys = keys_of(batch.take(pa.array(places)), self._partial.source, self._key)
        names = [column.name for column in self._partial.source.value]
        found = layer.find(list(dict.fromkeys(keys)), [*names, "ROWTIME"])
        return {
            place: (found[key][:-1], found[key][-1]) for place, key in zip(places, keys, strict=True) if key in found
        }

    def _finished(self, batch: pa.RecordBatch, rows: Sequence[Row | None], times: list[int]) -> pa.RecordBatch:
        """A group that HAVING does not admit is not there."""
        own = {name: batch.column(name) for name in batch.schema.names if name.startswith("$")}
        own[TIME] = pa.array(times, batch.column(TIME).type)
        own[TOMBSTONE] = pa.array([row is None for row in rows], pa.bool_())
        for column, stored in zip(self.source.key, self._partial.source.key, strict=True):
            own[column.name] = batch.column(stored.name)
        for place, column in enumerate(self.source.value):
            own[column.name] = to_arrow([None if row is None else row[place] for row in rows], column.type)
        return pa.record_batch(own)


def _offsets(records: Records) -> Iterator[int]:
    if records.offsets is not None:
        return iter(records.offsets)
    return iter(range(records.first_offset, records.first_offset + records.batch.num_rows))


def merger(plan: LayeredQuery) -> Callable[[Row, Row], Row]:
    """Of a group's parts in the earlier layer and in the later one, those of all."""
    stretches = list(_stretches(plan))

    def merge(earlier: Row, later: Row) -> Row:
        merged = (split.merge(earlier[part], later[part]) for split, part in stretches)
        return tuple(value for values in merged for value in values)

    return merge


def finisher(plan: LayeredQuery) -> Callable[[Row], Row | None]:
    """A group's key, window and parts → the view's values; None if HAVING does not admit it."""
    aggregate = plan.aggregate
    assert aggregate is not None
    names = [column.name for column in aggregate.columns]
    project = project_rows([named.expression for named in plan.query.root.value], names)
    admits = [over_rows(predicate, names) for predicate in plan.having]
    stored = [getattr(named.expression, "name", None) for named in plan.query.root.key]
    places = [stored.index(key.name) for key in aggregate.keys]
    before = len(stored) + (len(WINDOW_COLUMNS) if aggregate.window else 0)
    bounds = slice(len(stored), before)
    stretches = [(split.result, slice(part.start + before, part.stop + before)) for split, part in _stretches(plan)]

    def finish(row: Row) -> Row | None:
        values = [result(*row[part]) for result, part in stretches]
        group = (*(row[place] for place in places), *row[bounds], *values)
        return project(group) if all(admit(group) is True for admit in admits) else None

    return finish


def _stretches(plan: LayeredQuery) -> Iterator[tuple[Any, slice]]:
    """Each aggregate with its place among the parts."""
    start = 0
    for split in plan.splits:
        yield split, slice(start, start + len(split.parts))
        start += len(split.parts)

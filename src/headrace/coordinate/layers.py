"""Lambda versions in the catalog: a job computes the batch layer up to a cut, then a query goes on from exactly there.

Both write the version's own topic, one after the other, so the place where the job's rows end is known for good, and
the view is read as one (`store.layers`). The version begins to be followed only then.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace

import msgspec

from headrace.coordinate.base import QueryDefinition
from headrace.coordinate.catalog import Catalog
from headrace.coordinate.events import Event, QueryCreated, QueryDropped, VersionCreated
from headrace.coordinate.planning import cut_offsets, plan_definition
from headrace.errors import Conflict, HeadraceError, UsageError
from headrace.log.base import Log
from headrace.sql.api import parse
from headrace.sql.layered import LayeredQuery, layered_query
from headrace.sql.plan import PersistentQuery
from headrace.sql.source import Source
from headrace.sql.statements import CreateAsSelect
from headrace.store.arrivals import has_arrivals
from headrace.store.cuts import cut_now
from headrace.store.follow import Address
from headrace.store.layers import Merging
from headrace.types import display_name
from headrace.views.versions import Layers, Version

logger = logging.getLogger("headrace.deploy")


def batch_events(log: Log, version: Version, speed: QueryDefinition, batch_id: str) -> list[Event]:
    """The version, and the job that computes its batch layer over all that is there now. `speed` is the query that will
    go on from there, as it would be if it read everything."""
    now = log.snapshot()
    begins = {topic: [end.start for end in now.ends.get(topic, ())] for topic in speed.reads.values()}
    cut = cut_now(log, now, speed.reads.values())
    named = cut if isinstance(cut, int) else {topic: dict(places) for topic, places in cut.items()}
    layers = Layers(named, batch_id, speed.id, begins)
    batch = replace(speed, id=batch_id, layer="batch", cut=named, starts={})
    return [VersionCreated(replace(version, layers=layers)), QueryCreated(batch)]


def speed_events(log: Log, catalog: Catalog, version: Version, now_ms: int, rows_per_second: int) -> list[Event] | None:
    """Once the batch layer is there: where it ends, and the query that goes on. None as long as it is not."""
    layers = version.layers
    assert layers is not None
    batch = catalog.query(layers.batch)
    if batch is None or log.last_identity(layers.batch, 1) is None or not log.at_rest([version.source.topic]):
        return None
    plan = layered_query(plan_definition(batch, catalog))
    read = [topic for topic in batch.reads.values() if topic not in plan.from_beginning]
    speed = replace(
        batch,
        id=layers.speed,
        layer="speed",
        starts={topic: cut_offsets(log, topic, layers.cut) for topic in read},
        rows_per_second=rows_per_second,
    )
    # Nobody else writes there: the stream begins only now.
    ends = {number: end.end for number, end in enumerate(log.snapshot().ends[version.source.topic])}
    whole = replace(version, layers=msgspec.structs.replace(layers, ends=ends, made_ms=now_ms))
    return [QueryDropped(layers.batch), VersionCreated(whole), QueryCreated(speed)]


def check_lambda(start: str) -> None:
    if start != "beginning":
        raise UsageError("a batch layer is computed from the beginning", hint="leave out --from, or --strategy kappa")


def partitions_apart(log: Log) -> dict[str, int]:
    """By topic, where partitions are in no order that one number could cut; nothing where they are."""
    return {} if has_arrivals(log) else {topic.name: topic.spec.partitions for topic in log.topics()}


def check_whole(log: Log, version: Version, query: QueryDefinition) -> None:
    """A batch layer that is computed again must have all the records that the one before had."""
    begins = version.layers.begins if version.layers is not None else {}
    ends = log.snapshot().ends
    for topic in query.reads.values():
        then = begins.get(topic, [])
        for number, end in enumerate(ends.get(topic, ())):
            gone = end.start - (then[number] if number < len(then) else 0)
            if gone > 0:
                raise Conflict(
                    f"topic `{topic}` no longer has {gone:,} records that `{display_name(version.name)}` includes",
                    hint="keep more of the topic, or archive it:  docs/howto/look-after-the-log.md",
                )


def merging_of(catalog: Catalog) -> tuple[dict[Address, Merging], set[Address]]:
    """How versions with layers are merged; and those that cannot be read: still being computed, or not understood any
    more."""
    found: dict[Address, Merging] = {}
    unready: set[Address] = set()
    for versions in catalog.state.versions.values():
        for version in versions.values():
            if version.layers is not None:
                at, plan = (version.name, version.number), _plan(catalog, version.layers)
                if plan is None or version.layers.ends is None:
                    unready.add(at)
                elif plan.aggregate is not None:
                    found[at] = Merging(plan, version.layers.ends)
    return found, unready


def _plan(catalog: Catalog, layers: Layers) -> LayeredQuery | None:
    query = catalog.query(layers.speed)
    try:
        return layered_query(plan_definition(query, catalog)) if query is not None else None
    except HeadraceError as error:
        logger.error("the layers that `%s` writes cannot be merged: %s", layers.speed, error)
        return None


def is_layered(catalog: Catalog, source: Source) -> bool:
    """Whether a version's topic has layers instead of rows, or will have with its first refresh."""
    versions = catalog.versions(source.name)
    layered = any(v.layers is not None and v.source.topic == source.topic for v in versions)
    return layered or refresh_ms(source.statement) is not None


def refresh_ms(text: str) -> int | None:
    if "REFRESH" not in text.upper():
        return None
    [statement] = parse(text)
    query = statement.query if isinstance(statement, CreateAsSelect) else None
    return None if query is None or query.refresh is None else query.refresh.milliseconds


def refuse_layered(catalog: Catalog, inputs: Iterable[Source]) -> None:
    """A query of the engine reads topics, where there are only parts."""
    for source in inputs:
        if is_layered(catalog, source):
            name = display_name(source.name)
            raise UsageError(
                f"`{name}` is a Lambda view: its layers are merged when it is read, and a query cannot follow that",
                hint=f"read what `{name}` reads, or deploy it with --strategy kappa",
            )


def partial_sink(query: PersistentQuery) -> Source:
    return layered_query(query).partial.sink

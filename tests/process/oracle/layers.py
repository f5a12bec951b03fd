"""The same queries as Lambda views: a batch up to a cut, a stream from there, merged as the view is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql import SparkSession

from headrace.config import SparkSettings
from headrace.coordinate.planning import cut_offsets
from headrace.coordinate.topics import sink_spec
from headrace.process.base import LayerSpec, QuerySpec
from headrace.process.layer import write_layer
from headrace.process.session import query_session
from headrace.process.streaming import start_query
from headrace.process.stretches import count
from headrace.sql.layered import LayeredQuery, NotMergeable, layered_query
from headrace.sql.plan import PersistentQuery
from headrace.store.arrivals import position_at_start, read_stretch
from headrace.store.decode import SourceDecoder
from headrace.store.layers import Merging, MergingDecoder
from headrace.store.memory import MemoryView
from headrace.store.positions import bounded
from tests.process.pipeline import Pipeline

NAMES = {"$window_start": "WINDOWSTART", "$window_end": "WINDOWEND", "$time": "ROWTIME"}


def layered_rows(
    spark: SparkSession, pipeline: Pipeline, sink: str, names: Sequence[str], cut: int, max_rows: int
) -> list[tuple[Any, ...]] | None:
    """The view's rows; None if it cannot be made of layers."""
    plan = _moved(pipeline.spec(sink).plan, f"LAYERS_{sink}")
    if plan is None:
        return None
    partial, log = plan.partial, pipeline.log
    topic = partial.sink.topic
    log.create_topic(sink_spec(partial.sink))
    read = {source.topic for source in partial.inputs}
    offsets = {name: cut_offsets(log, name, cut) for name in read}
    folder = pipeline.folder / "checkpoints" / f"BATCH_{sink}"
    batch = LayerSpec(f"BATCH_{sink}", partial, offsets, cut, from_beginning=plan.from_beginning, folder=folder)
    for _ in range(2):
        # In stretches of a third; again, as after a kill: it is there once.
        write_layer(spark, pipeline.log_folder, pipeline.topic, batch, count({}, offsets) // 3)
    ends = {number: end.end for number, end in enumerate(log.snapshot().ends[topic])}
    starts = {name: offsets[name] for name in read - plan.from_beginning}
    spec = QuerySpec(f"SPEED_{sink}", 1, partial, pipeline.folder / "checkpoints" / f"SPEED_{sink}", starts=starts)
    settings = SparkSettings(max_rows_per_batch=max_rows)
    start_query(
        query_session(spark), pipeline.log_folder, pipeline.topic, settings, spec, available_now=True
    ).awaitTermination()
    view = _merged(pipeline, plan, ends)
    found, _ = view.select([NAMES.get(name, name) for name in names])
    return found.rows


def _moved(query: PersistentQuery, topic: str) -> LayeredQuery | None:
    try:
        return layered_query(replace(query, sink=replace(query.sink, topic=topic)))
    except NotMergeable:
        return None


def _merged(pipeline: Pipeline, plan: LayeredQuery, ends: dict[int, int]) -> MemoryView:
    log, now, source = pipeline.log, pipeline.log.snapshot(), plan.query.sink
    start = position_at_start(log, now, source.topic)
    view = MemoryView(source, 1)
    topic = log.topic(source.topic)
    decoder: SourceDecoder | MergingDecoder = SourceDecoder(topic, source, log.schemas)
    if plan.aggregate is not None:
        merging = Merging(plan, ends)
        batch, plain = MemoryView(merging.batch, 1), SourceDecoder(topic, merging.batch, log.schemas)
        until = bounded(now, source.topic, ends)
        stretch = read_stretch(log, source.topic, start, until, plain.columns, 1_000_000)
        batch.apply([plain.decode(records) for records in stretch.records], stretch.position)
        decoder = MergingDecoder(topic, source, merging, lambda: batch, log.schemas)
    stretch = read_stretch(log, source.topic, start, now, decoder.columns, 1_000_000)
    view.apply([decoder.decode(records) for records in stretch.records], stretch.position)
    return view

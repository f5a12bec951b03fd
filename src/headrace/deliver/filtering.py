"""Records of a topic that a SQL condition holds for. No stream need be declared: the topic's own columns are known,
what else an event carried is `REST` (its JSON), and ROWTIME, ROWPARTITION and ROWOFFSET are there as ever."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import pyarrow as pa

from headrace.errors import SqlError, UsageError
from headrace.log.base import REST, Records, Topic
from headrace.sql.alone import resolve_condition
from headrace.sql.source import Source
from headrace.store.arrivals import addressed
from headrace.store.columns import source_rows
from headrace.store.rows import over_rows
from headrace.types import VARCHAR, Column

Where: TypeAlias = Callable[[Records], list[bool]]
"""For each record, whether it is wanted."""

EXAMPLE = "such as  total > 10 AND name LIKE 'A%'"


def compile_where(topic: Topic, condition: str) -> Where:
    """`UsageError` if that is no condition over the topic's columns."""
    source = _source(topic)
    columns = source.all_columns
    try:
        holds = resolve_condition(condition, {column.name: column.type for column in columns}, {})
    except SqlError as error:
        raise UsageError(
            f"the condition does not fit: {error.message}", detail=error.detail, hint=error.hint or EXAMPLE
        ) from None
    evaluate = over_rows(holds, [column.name for column in columns])
    with_rest = source.value[-1:] == (Column("REST", VARCHAR),) and REST != "REST"

    def where(records: Records) -> list[bool]:
        batch = addressed(records)
        if with_rest:
            rest = batch.column(REST) if REST in batch.schema.names else pa.nulls(batch.num_rows, pa.string())
            batch = batch.append_column("REST", rest)
        return [evaluate(row) is True for row in source_rows(batch, source, columns)]

    return where


def _source(topic: Topic) -> Source:
    spec = topic.spec
    names = {column.name.upper() for column in spec.key + spec.value}
    keeps_rest = spec.kind == "typed" and spec.role == "events" and "REST" not in names
    value = (*spec.value, Column("REST", VARCHAR)) if keeps_rest else spec.value
    return Source(topic.name, "stream", topic.name, spec.key, value)

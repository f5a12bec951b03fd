"""Records of a topic that a SQL condition holds for. No stream need be declared: the topic's own columns are known,
what else an event carried is `REST` (its JSON), and ROWTIME, ROWPARTITION and ROWOFFSET are there as ever."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

import pyarrow as pa

from headrace.deliver.push import compile_plan
from headrace.errors import SqlError, UsageError
from headrace.log.base import REST, Records, Topic
from headrace.sql.api import parse, plan_select
from headrace.sql.functions.function import Function
from headrace.sql.plan import Filter, Project, PushQuery, Scan
from headrace.sql.source import Source
from headrace.sql.statements import SelectStatement
from headrace.store.arrivals import addressed
from headrace.store.columns import source_rows
from headrace.types import VARCHAR, Column, DataType

Where: TypeAlias = Callable[[Records], list[bool]]
"""For each record, whether it is wanted."""

NAME = "T"
EXAMPLE = "such as  total > 10 AND name LIKE 'A%'"


def compile_where(topic: Topic, condition: str) -> Where:
    """`SqlError` or `UsageError` if that is no condition over the topic's columns."""
    source = _source(topic)
    evaluate = compile_plan(_plan(condition, source).root)
    with_rest = source.value[-1:] == (Column("REST", VARCHAR),) and REST != "REST"

    def where(records: Records) -> list[bool]:
        batch = addressed(records)
        if with_rest:
            rest = batch.column(REST) if REST in batch.schema.names else pa.nulls(batch.num_rows, pa.string())
            batch = batch.append_column("REST", rest)
        return [evaluate(row) is not None for row in source_rows(batch, source, source.all_columns)]

    return where


def _source(topic: Topic) -> Source:
    spec = topic.spec
    names = {column.name.upper() for column in spec.key + spec.value}
    keeps_rest = spec.kind == "typed" and spec.role == "events" and "REST" not in names
    value = (*spec.value, Column("REST", VARCHAR)) if keeps_rest else spec.value
    return Source(NAME, "stream", topic.name, spec.key, value)


def _plan(condition: str, source: Source) -> PushQuery:
    try:
        [statement] = parse(f"SELECT * FROM {NAME} WHERE\n{condition}\nEMIT CHANGES;")
        if not isinstance(statement, SelectStatement):
            raise ValueError
        plan = plan_select(statement, _Only(source))
    except ValueError:
        raise UsageError(
            f"`{condition[:100]}` is not a condition", hint="such as  total > 10 AND name LIKE 'A%'"
        ) from None
    except SqlError as error:
        raise UsageError(f"the condition does not fit: {error.message}", detail=error.detail, hint=error.hint) from None
    match plan:
        case PushQuery(root=Project(Filter(Scan(), _), _, _), limit=None):
            return plan
    raise UsageError(f"`{condition[:100]}` is more than a condition", hint=EXAMPLE)


class _Only:
    """A catalog of one."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def source(self, name: str) -> Source | None:
        return self._source if name == self._source.name else None

    def sources(self) -> Iterable[Source]:
        return [self._source]

    def functions(self) -> Mapping[str, Function]:
        return {}

    def types(self) -> Mapping[str, DataType]:
        return {}

"""A pull query's answer as the HTTP API has it."""

from __future__ import annotations

from headrace.deliver.base import Answer, AsOfNote
from headrace.deliver.ids import id_after
from headrace.server.models.base import ColumnModel
from headrace.server.models.sql import AsOfModel, QueryAnswer, ReadModel, Through
from headrace.server.services import Services
from headrace.store.base import Position
from headrace.types import display_name


def answer_model(answer: Answer, services: Services) -> QueryAnswer:
    return QueryAnswer(
        columns=[ColumnModel(display_name(column.name), str(column.type)) for column in answer.columns],
        rows=answer.rows,
        view=None if answer.view is None else display_name(answer.view),
        version=answer.version,
        through=None if answer.position is None else through_model(answer.position, answer.version, services),
        truncated=answer.truncated,
        took_ms=round(answer.took_ms, 3),
        reads=[
            ReadModel(
                display_name(read.name),
                read.version,
                through_model(read.position, read.version, services),
                as_of_model(read.as_of),
            )
            for read in answer.reads
        ],
    )


def as_of_model(note: AsOfNote | None) -> AsOfModel | None:
    """The moment that rows AS OF TIMESTAMP are of."""
    return None if note is None else AsOfModel(note.asked_ms, note.represents_ms, note.exact, note.hint)


def through_model(position: Position, version: int | None, services: Services) -> Through:
    offsets = {str(partition): offset for partition, offset in position.offsets.items()}
    return Through(position.arrival, offsets, None if version is None else id_after(services.log, version, position))

"""How a query is, as the server knows it: what the engine reports, and its lag by the log itself."""

from __future__ import annotations

import msgspec

from headrace.coordinate.base import QueryDefinition, is_question
from headrace.coordinate.how_far import lag_of, read_by
from headrace.coordinate.status import EngineStatus
from headrace.log.base import Log
from headrace.process.base import QueryStatus
from headrace.process.progress import lag


def status_of(query: QueryDefinition, engine: EngineStatus, log: Log) -> QueryStatus:
    """Return the query's status. Its lag is the distance between the log's ends, now, and the positions that the query
    has read: those of the engine's last report or, while the engine does not report, those of the query's last commit.
    An engine that is silent does not make a query look as if it had nothing to do."""
    status = engine.status(query.id)
    if status is not None:
        return msgspec.structs.replace(status, lag=_lag(status, log)) if status.read else status
    unknown = QueryStatus(query.id, "starting" if query.wanted == "running" else "stopped")
    if query.layer == "batch" or is_question(query.id):
        return unknown
    return msgspec.structs.replace(unknown, lag=lag_of(log, query), rows=read_by(log, query))


def _lag(status: QueryStatus, log: Log) -> int:
    snapshot = log.snapshot()
    return sum(lag(snapshot, topic, dict(enumerate(offsets))) for topic, offsets in status.read.items())

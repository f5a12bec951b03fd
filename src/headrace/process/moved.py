"""A query whose log was copied from another: how far its results go that are there already."""

from __future__ import annotations

from dataclasses import replace

from headrace.errors import UsageError
from headrace.log.base import Log
from headrace.log.copy.moves import Moves
from headrace.process.base import QuerySpec


def with_known_results(log: Log, spec: QuerySpec) -> QuerySpec:
    """For a log with arrival numbers; on Kafka the place is an offset (`process.kafka`)."""
    if "arrival" not in log.capabilities:
        return spec
    moves, key = Moves(log), (spec.id, spec.version)
    if key not in moves.known:
        return spec
    until = moves.known[key]
    if until is None:
        raise UsageError(
            f"query `{spec.id}` had not read all that was copied, so it cannot go on here",
            hint="start the old log again, wait until its lag is 0, stop it, and copy once more",
        )
    return replace(spec, known_until=until, known_closed=moves.closed.get(key))

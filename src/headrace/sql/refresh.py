"""REFRESH EVERY …: a table whose batch layer is computed again, that often."""

from __future__ import annotations

from dataclasses import replace

from headrace.sql.clauses import Query
from headrace.sql.layered import NotMergeable, layered_query
from headrace.sql.plan import PersistentQuery
from headrace.sql.scope import Scope
from headrace.sql.script import Script

SHORTEST_MS = 10_000


def with_refresh(planned: PersistentQuery, query: Query, scope: Scope) -> PersistentQuery:
    """What cannot have layers is refused here, where it is written."""
    if query.refresh is None:
        return planned
    if query.refresh.milliseconds < SHORTEST_MS:
        raise scope.error("REFRESH EVERY takes at least 10 SECONDS", query.span)
    try:
        layered_query(planned)
    except NotMergeable as error:
        hint = "leave out REFRESH EVERY: it is then kept up to date by a stream alone"
        raise scope.error(f"REFRESH needs what can be merged: {error.message}", query.span, hint) from None
    return replace(planned, refresh_ms=query.refresh.milliseconds)


def refuse_refresh(query: Query, script: Script) -> None:
    if query.refresh is not None:
        raise script.error("REFRESH EVERY is for CREATE TABLE … AS SELECT", query.span, "leave it out here")

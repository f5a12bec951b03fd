"""What only a SELECT without EMIT can have: refused elsewhere, with what to do instead."""

from __future__ import annotations

from headrace.sql.clauses import AsOf, JoinClause, Query, Relation
from headrace.sql.script import Script


def refuse_pull_only(query: Query, script: Script) -> None:
    """`SqlError` if a query that runs on has what only a question about now can have."""
    first = "CREATE STREAM or TABLE … AS SELECT it first, then select from that"
    if query.common:
        raise script.error("WITH … AS (SELECT …) is for a SELECT without EMIT", query.common[0].name.span, first)
    reads: list[Relation | JoinClause] = [query.relation, *query.relation.joins]
    for read in reads:
        _refuse_read(read, script, first)
    if query.distinct:
        raise script.error("SELECT DISTINCT is for a SELECT without EMIT", query.span, "GROUP BY the columns instead")
    if query.offset is not None:
        raise script.error("OFFSET is for a SELECT without EMIT", query.span, "leave it out")


def _refuse_read(read: Relation | JoinClause, script: Script, hint: str) -> None:
    if read.query is not None:
        raise script.error("a subquery is for a SELECT without EMIT", read.source.span, hint)
    if isinstance(read.range, AsOf):
        raise script.error("AS OF is for a SELECT without EMIT", read.range.span, "what runs on reads what is new")
    if read.range is not None:
        message = "a range is for a SELECT without EMIT: what runs on has no end"
        raise script.error(message, read.range.span, "WHERE ROWTIME >= … leaves out what is older")

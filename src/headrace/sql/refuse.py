"""What a query that runs on cannot have, with what to do instead."""

from __future__ import annotations

from headrace.sql.clauses import AsOf, JoinClause, Query, Relation
from headrace.sql.relation import Input
from headrace.sql.script import Script
from headrace.types import display_name


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


def check_bare_values(query: Query, source: Input) -> None:
    """KSQL's rule for the format KAFKA, kept so that what runs here runs there: it is for keys; its values can be read,
    filtered and copied, but neither joined nor grouped."""
    what = "JOIN" if source.scope.joined else "GROUP BY" if query.group_by else None
    bare = next((one for one in source.sources if one.value_format == "KAFKA"), None)
    if what is not None and bare is not None:
        name = display_name(bare.name)
        hint = f"CREATE STREAM … WITH (VALUE_FORMAT='JSON') AS SELECT * FROM {name}; and take that"
        message = f"`{name}` has values in the format KAFKA, which {what} does not take"
        raise source.scope.error(message, query.group_span or query.span, hint)

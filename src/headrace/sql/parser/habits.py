"""What people write who know another SQL, or are in a hurry, and how it is written here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headrace.sql.tokens import Token

STATEMENTS: Mapping[str, str] = {
    "UPDATE": "a table changes with what arrives: INSERT INTO it again, and the row of that key is replaced",
    "DELETE": 'a record with the key and no value deletes: headrace topic put, with "$tombstone": true',
    "MERGE": "a table changes with what arrives: INSERT INTO it again, and the row of that key is replaced",
    "TRUNCATE": "headrace topic forget deletes records",
    "ANALYZE": "EXPLAIN shows a plan",
    "USE": "there is one catalog; nothing need be chosen",
    "BEGIN": "every statement is done or not done; there are no transactions around several",
    "GRANT": "keys in headrace.toml say who may do what: docs/howto/let-others-in.md",
    "HELP": "SHOW STREAMS; SHOW TABLES; DESCRIBE name; and docs/reference/sql.md",
}
CREATED: Mapping[str, str] = {
    "VIEW": "CREATE TABLE … AS SELECT … is kept up to date, and can be asked at any time",
    "MATERIALIZED": "CREATE TABLE … AS SELECT … is kept up to date, and can be asked at any time",
    "TOPIC": "CREATE STREAM makes its topic, and so does headrace topic create",
    "INDEX": "tables are found by their key; other predicates are pushed into the store",
    "DATABASE": "a project has one catalog; headrace init makes another project",
}
TIME_WINDOWS = ("TUMBLING", "HOPPING")
WINDOWS = (*TIME_WINDOWS, "SESSION")


def usual_mistake(tokens: Sequence[Token], index: int) -> str | None:
    """What to do instead, if the token at `index`, which cannot stand there, is there for a well-known reason."""
    token, before = tokens[index], tokens[index - 1] if index else None
    if before is None or before.text == ";":
        return STATEMENTS.get(str(token.value)) if token.kind == "word" else None
    earlier = tokens[index - 2] if index > 1 else None
    if token.text == "=" and before.text == "=" and token.start == before.end:
        return "equality is written `=`"
    if before.text == "," and token.kind != "string":
        return "is there a comma too many?"
    if token.kind == "string" and before.value in ("FROM", "JOIN", "INTO"):
        return "names stand without quotes, or in backticks"
    if before.value == "TOP":
        return "LIMIT n stands at the end"
    if token.value in ("SELECT", "ALL") and before.value in ("UNION", "EXCEPT", "INTERSECT"):
        return "one SELECT at a time; INSERT INTO a stream from several"
    if before.value == "INTERVAL":
        return "time is added with DATEADD(DAYS, 1, …) or TIMESTAMPADD(HOURS, 1, …)"
    if token.text == "(" and earlier is not None and earlier.text == "->":
        return "a lambda is written x => …; `->` takes a field of a STRUCT"
    return _of_clauses(token, before, earlier)


def _of_clauses(token: Token, before: Token, earlier: Token | None) -> str | None:
    if before.value == "CREATE" and token.kind == "word":
        return CREATED.get(str(token.value))
    if before.value == "DROP" and token.kind in ("word", "quoted"):
        return f"DROP STREAM {token.text}; or DROP TABLE {token.text};"
    if token.value == "WINDOW":
        return "WINDOW stands after FROM and JOIN, before WHERE and GROUP BY"
    if before.text == "(" and earlier is not None and earlier.value in TIME_WINDOWS:
        return f"WINDOW {earlier.value} (SIZE 1 MINUTE…"
    return None

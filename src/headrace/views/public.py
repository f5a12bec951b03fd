"""The topic name that users know a stream or table by, whichever version serves.

A statement names it: by KAFKA_TOPIC, or by the name of what it makes. Version 1 writes that topic, a later version has
an internal topic of its own (`versions.version_topic`). docs/decisions/0160 says what the public name means.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from headrace.errors import HeadraceError
from headrace.sql.api import parse
from headrace.sql.order import topic_name
from headrace.sql.source import Source
from headrace.sql.statements import CreateAsSelect, CreateSource
from headrace.types import display_name


def public_topic(source: Source) -> str:
    """Return the topic that the statement of a stream or table names. A source without a statement has its own."""
    return _named_by(source.statement) or source.topic


@lru_cache(maxsize=4096)
def _named_by(text: str) -> str | None:
    try:
        [statement] = parse(text)
    except (HeadraceError, ValueError):
        return None
    return topic_name(statement) if isinstance(statement, CreateSource | CreateAsSelect) else None


def place_over(source: Source, owner: Source) -> Source:
    """Return a declared stream or table over the version that serves of the stream or table whose topic it names."""
    return replace(source, topic=owner.topic, per_batch=source.kind == "table" and owner.per_batch)


def publishing_problem(old: Source, new: Source, layered: bool) -> str | None:
    """Return why a new version's changes cannot go on in the public topic; None if they can."""
    if layered:
        return "its layers are merged when it is read, and its own topic has only parts of rows"
    if old.key != new.key or (old.window is None) != (new.window is None):
        return "its key is another one"
    types = {column.name: column.type for column in old.value}
    changed = [column for column in new.value if types.get(column.name, column.type) != column.type]
    if changed:
        name = display_name(changed[0].name)
        return f"its column `{name}` is {types[changed[0].name]} there, and would be {changed[0].type}"
    return None

"""What a plan says of a change: why it is so, and what to do instead."""

from __future__ import annotations

from headrace.sql.api import function_versions
from headrace.sql.plan import Aggregate, PersistentQuery, is_per_batch, walk
from headrace.sql.source import Source
from headrace.types import display_name
from headrace.views.change import Runs


def keeps_empty(query: PersistentQuery) -> bool:
    return any(
        isinstance(node, Aggregate) and node.over == "table" and not is_per_batch(node.input)
        for node in walk(query.root)
    )


def other_functions(old: PersistentQuery, new: PersistentQuery) -> str:
    before, now = function_versions(old), function_versions(new)
    changed = [f"`{name.lower()}`" for name in now if now[name] != before.get(name)]
    if not changed:
        return ""
    return f"{', '.join(changed)} {'is another function' if len(changed) == 1 else 'are other functions'} now"


def instead_of_change(runs: Runs, new: Source) -> str:
    """What is in the log stays as it is, and so does what was made of it."""
    old, name = runs.source, display_name(runs.source.name)
    retyped = [column.name for column in old.value] == [column.name for column in new.value[: len(old.value)]]
    if old.kind == "table" or not retyped or old.key != new.key:
        dropped = f"DROP {old.kind.upper()} {name}; and create it again"
        return f"declare it under another name, or first take away what reads it and {dropped}"
    return (
        f"declare `{name}_2` like this, with a topic of its own;  INSERT INTO {name}_2 SELECT * FROM {name};  "
        "copies what there is; then let queries and senders use it: docs/howto/evolve-a-schema.md#another-type"
    )


def made_anew(runs: Runs) -> str:
    dropped = f"DROP {runs.source.kind.upper()} {display_name(runs.source.name)}; and create it again"
    return f"give it another name, or {dropped}"

"""WINDOW … → a Window, checked."""

from __future__ import annotations

from typing import Literal

from headrace.sql.clauses import WindowClause
from headrace.sql.script import Script
from headrace.sql.source import Window

DAY_MS = 86_400_000
# A century: nobody means more, and milliseconds beyond it would not fit.
LONGEST_MS = 100 * 366 * DAY_MS


def window_from(clause: WindowClause, script: Script, emit: Literal["changes", "final"]) -> Window:
    """Without GRACE PERIOD a window waits for what is left of a day after its end, as in KSQL; with EMIT FINAL not at
    all."""
    size = clause.size.milliseconds
    advance = clause.advance.milliseconds if clause.advance else size
    waits = max(DAY_MS - size, 0) if emit == "changes" else 0
    grace = clause.grace.milliseconds if clause.grace else waits
    retention = clause.retention.milliseconds if clause.retention else None
    problem = None
    if not 0 < size <= LONGEST_MS or grace > LONGEST_MS or (retention or 0) > LONGEST_MS:
        problem = "a window's size must be more than 0, and nothing about it longer than a century"
    elif not 0 < advance <= size:
        problem = "ADVANCE BY must be more than 0 and at most SIZE"
    elif retention is not None and retention < size + grace:
        problem = f"RETENTION must be at least SIZE and GRACE PERIOD together: {size + grace} MILLISECONDS"
    if problem:
        raise script.error(problem, clause.span)
    return Window(clause.kind, size, advance, grace, retention)

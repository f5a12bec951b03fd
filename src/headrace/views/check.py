"""Stream equals batch, continually: some rows of a view at a time are computed again from the log and compared.

A round costs little: a few rows, one reading of what they are made of, and a deadline. Rounds go through the view from
end to end, and in between look at what closed last. What differs is drift; there should be none.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headrace.errors import DeadlineExceeded, UsageError
from headrace.log.base import Log
from headrace.sql.functions.arrays import hashable
from headrace.store.base import ViewStore
from headrace.store.cuts import Cut
from headrace.store.expiry import has_expired
from headrace.store.revisions import Revisions, row_text
from headrace.views.compare import differences
from headrace.views.drift import Drift, RowId, key_values
from headrace.views.evaluate import Evaluation, Question, answer
from headrace.views.late import admitted_late, margins, row_reader, row_revision
from headrace.views.sampling import newest_rows, next_rows
from headrace.views.subject import Served, Subject, row_predicate, served_rows
from headrace.views.traced import Bounds, Traced

MOST_IN_WINDOW = 2000
KAFKA_ROWS_PER_SECOND = 100_000
"""About as many can be looked at."""


@dataclass(slots=True)
class Checked:
    """How a view has done so far. `cursor` is where the next round goes on."""

    rounds: int = 0
    rows: int = 0
    skipped: int = 0
    """Rounds that were given up: too much to read, or retention has taken it away."""
    drift: dict[RowId, Drift] = field(default_factory=dict)
    """What differs now."""
    last_ms: int = 0
    cursor: tuple[Any, ...] | None = None
    passes: int = 0
    """How often all rows have been looked at."""
    effort: int = 0
    """How often the rounds were made smaller and longer, because one was given up."""


def check_round(
    log: Log,
    subject: Subject,
    store: ViewStore,
    revisions: Revisions,
    known: Checked,
    now_ms: int,
    rows: int,
    deadline: float,
) -> list[Drift]:
    """One round. Returns what is new: drift that was found, and rows that are right again."""
    newest = known.rounds % 2 == 1
    known.rounds, known.last_ms = known.rounds + 1, now_ms
    news = _check_known(log, subject, store, revisions, known, now_ms, rows, deadline)
    served = _sample(log, subject, store, known, rows, newest)
    by_window: dict[Bounds | None, list[dict[str, Any]]] = {}
    for row in served.rows:
        window = (row["WINDOWSTART"], row["WINDOWEND"]) if subject.source.window else None
        by_window.setdefault(window, []).append(row)
    for window, some in by_window.items():
        if time.monotonic() > deadline:
            known.skipped += 1
            break
        whole = newest and window is not None and subject.query.emit == "changes"
        if whole and window is not None:
            # All of its rows: one that is missing would otherwise never be looked at.
            served = served_rows(log, subject, store, row_predicate(subject.source, {}, window), (), MOST_IN_WINDOW)
            some = served.rows
        try:
            again = _recomputed(log, subject, revisions, served, some, window, deadline, whole)
        except (DeadlineExceeded, UsageError):
            again = None
        if again is None:
            known.skipped += 1
            continue
        for row in some:
            known.rows += 1
            news += _compare(subject, row, again.pop(_key(subject, row), None), window, known, now_ms)
        if whole and len(some) < MOST_IN_WINDOW:
            for missing in again.values():
                news += _compare(subject, None, missing, window, known, now_ms)
        if whole:
            break
    return news


def _check_known(
    log: Log,
    subject: Subject,
    store: ViewStore,
    revisions: Revisions,
    known: Checked,
    now_ms: int,
    most: int,
    deadline: float,
) -> list[Drift]:
    """What is known to differ is looked at first: that it is right again should not wait for its turn."""
    news: list[Drift] = []
    for drift in list(known.drift.values())[:most]:
        key = key_values(subject.source, drift.key)
        if key is None or time.monotonic() > deadline:
            continue
        # Behind the others for the next round, whatever comes of it.
        known.drift[drift.row] = known.drift.pop(drift.row)
        served = served_rows(log, subject, store, row_predicate(subject.source, key, drift.window))
        try:
            again = _recomputed(log, subject, revisions, served, served.rows, drift.window, deadline, False, key)
        except (DeadlineExceeded, UsageError):
            again = None
        if again is None:
            known.skipped += 1
            continue
        row = served.rows[0] if served.rows else None
        found = again.get(_key(subject, key))
        if row is None and found and has_expired(subject.source, store.horizon(), found.time, found.window):
            found = None
        news += _compare(subject, row, found, drift.window, known, now_ms, drift.key)
    return news


def _sample(log: Log, subject: Subject, store: ViewStore, known: Checked, rows: int, newest: bool) -> Served:
    """The next rows from where the last round ended, or those that changed last."""
    if newest:
        return newest_rows(log, subject, store, rows)
    begun = known.cursor
    served, known.cursor = next_rows(log, subject, store, begun, rows)
    known.passes += known.cursor is None
    if begun is not None and known.cursor is None and not served.rows:
        # The last round had ended with the last row: a round that looks at nothing says nothing.
        served, known.cursor = next_rows(log, subject, store, None, rows)
    return served


def _recomputed(
    log: Log,
    subject: Subject,
    revisions: Revisions,
    served: Served,
    rows: list[dict[str, Any]],
    window: Bounds | None,
    deadline: float,
    whole: bool,
    key: Mapping[str, Any] | None = None,
) -> dict[tuple[Any, ...], Traced] | None:
    """The rows again, and that of the key, by key; None if the log no longer holds what they are made of."""
    wanted: list[Mapping[str, Any]] = [*rows, *([] if key is None else [key])]
    admitted = admitted_late(log, subject, window, [row_revision(revisions, subject, row, window) for row in wanted])
    keys = frozenset(_key(subject, row) for row in wanted)
    if _is_too_much(subject, served.cut, deadline):
        return None
    question = Question(subject.query, window=window, keys=None if whole else keys)
    found: dict[tuple[Any, ...], Traced] = {}
    for margin in margins(log, subject):
        reader = row_reader(log, subject, served.cut, window, admitted, deadline, margin)
        found = {_key(subject, row.values): row for row in answer(Evaluation(reader), question)}
        if reader.missing:
            return None
        if not (whole and found.keys() - keys) and not any(_differs(subject, row, found) for row in rows):
            break
    return found


def _is_too_much(subject: Subject, cut: Cut, deadline: float) -> bool:
    """On Kafka only a window's records are found without reading all: what would be given up is not begun."""
    window = subject.source.window
    if isinstance(cut, int) or (window is not None and window.kind != "session"):
        return False
    read = sum(offset for places in cut.values() for offset in places.values())
    begun = sum(offset for places in subject.starts.values() for offset in places.values())
    return read - begun > KAFKA_ROWS_PER_SECOND * (deadline - time.monotonic())


def _differs(subject: Subject, row: dict[str, Any], found: dict[tuple[Any, ...], Traced]) -> bool:
    again = found.get(_key(subject, row))
    return bool(differences(subject.query, row, None if again is None else again.values))


def _key(subject: Subject, row: Any) -> tuple[Any, ...]:
    return tuple(hashable(row[column.name]) for column in subject.source.key)


def _compare(
    subject: Subject,
    row: dict[str, Any] | None,
    again: Traced | None,
    window: Bounds | None,
    known: Checked,
    now_ms: int,
    key: str | None = None,
) -> list[Drift]:
    """What is new. The key is given where neither row may be there."""
    source = subject.source
    values = again.values if again is not None else None
    key = row_text(source.key, row or values or {}) if key is None else key
    before = known.drift.get((key, window))
    served_text = None if row is None else row_text(source.value, row)
    if not differences(subject.query, row, values):
        if before is None:
            return []
        del known.drift[key, window]
        return [Drift(source.name, subject.version, key, window, served_text, served_text, now_ms, right=True)]
    text = None if values is None else row_text(source.value, values)
    found = Drift(source.name, subject.version, key, window, served_text, text, now_ms)
    known.drift[found.row] = found
    return [] if before is not None and (before.served, before.recomputed) == (served_text, text) else [found]

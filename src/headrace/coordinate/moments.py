"""Rows of a table at a moment of the past, computed again from the records that its query reads.

`AS OF TIMESTAMP t` is the table before it held anything newer than t. In terms of its query's input that is every
record that arrived before the first one with a later event time: a cut, and rows at a cut are what `why` computes.
"""

from __future__ import annotations

import time
from typing import Any

from headrace.coordinate.catalog import Catalog
from headrace.coordinate.layers import is_layered
from headrace.coordinate.subjects import view_subject
from headrace.deliver.base import Inexact
from headrace.errors import DeadlineExceeded, NotFound, UsageError
from headrace.log.base import Log, Snapshot
from headrace.sql.plan import scanned
from headrace.store.arrivals import first_arrival_at, has_arrivals, topic_ends
from headrace.store.base import ViewStore
from headrace.store.expiry import expiry_of
from headrace.store.revisions import Revisions
from headrace.types import display_name
from headrace.views.evaluate import Evaluation, Question, answer
from headrace.views.late import row_reader
from headrace.views.subject import Subject

MOST_RECORDS = 200_000
"""Records from which all rows of a table are computed again; rows by key may be made of more."""


class Moments:
    """See `deliver.base.RowsAtMoment`."""

    def __init__(self, log: Log, catalog: Catalog, revisions: Revisions) -> None:
        self._log, self._catalog, self._revisions = log, catalog, revisions

    def __call__(
        self, view: ViewStore, moment_ms: int, keys: frozenset[tuple[Any, ...]] | None, seconds: float
    ) -> list[dict[str, Any]]:
        subject = self._subject(view)
        now = self._log.snapshot()
        cut = min(
            first_arrival_at(self._log, now, topic, self._newer(now, topic, moment_ms))
            for topic in (source.topic for source in scanned(subject.query.root))
        )
        if keys is None and self._records(subject, now, cut) > MOST_RECORDS:
            raise Inexact(
                "the table is made of too many records to compute all rows again",
                hint=f"rows by key are computed exactly: WHERE {display_name(view.source.key[0].name)} = …",
            )
        reader = row_reader(self._log, subject, cut, None, deadline=time.monotonic() + seconds)
        try:
            rows = answer(Evaluation(reader), Question(subject.query, keys=keys))
        except (DeadlineExceeded, UsageError) as error:
            raise Inexact(f"the rows could not be computed again: {error.message}") from None
        if reader.missing:
            raise Inexact(f"retention has removed records of {', '.join(sorted(reader.missing))}")
        return [
            {**row.values, "ROWTIME": row.time}
            | ({} if row.window is None else {"WINDOWSTART": row.window[0], "WINDOWEND": row.window[1]})
            for row in rows
        ]

    def _subject(self, view: ViewStore) -> Subject:
        """The version, if its rows depend on nothing but records of streams and of tables over topics."""
        name = display_name(view.source.name)
        definition = next((one for one in self._catalog.views() if one.name == view.source.name), None)
        try:
            subject = None if definition is None else view_subject(self._catalog, definition, view.version)
        except (NotFound, UsageError):
            subject = None
        if subject is None:
            raise Inexact(f"the query that made `{name}` is gone")
        if not has_arrivals(self._log):
            raise Inexact("this log has no order over its topics")
        if is_layered(self._catalog, subject.source):
            raise Inexact(f"`{name}` has a batch layer")
        if subject.query.emit == "final":
            raise Inexact("EMIT FINAL writes a window some time after it closed")
        if expiry_of(subject.source) is not None:
            raise Inexact(f"rows of `{name}` expire")
        derived = [source for source in scanned(subject.query.root) if source.kind == "table" and source.query]
        if derived:
            raise Inexact(
                f"`{name}` reads the table `{display_name(derived[0].name)}`, which has no states between its batches"
            )
        if self._revisions.changed(view.source.name, view.version, 1)[1]:
            raise Inexact(f"rows of `{name}` were repaired")
        return subject

    def _newer(self, now: Snapshot, topic: str, moment_ms: int) -> list[int]:
        count = len(topic_ends(now, topic))
        return [self._log.offset_at_time(topic, number, moment_ms + 1) for number in range(count)]

    def _records(self, subject: Subject, now: Snapshot, cut: int) -> int:
        found = 0
        for source in scanned(subject.query.root):
            for number, end in enumerate(topic_ends(now, source.topic)):
                found += max(0, self._log.offset_at_arrival(source.topic, number, cut) - end.start)
        return found

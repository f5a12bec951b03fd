"""What of the log a view does not show yet: records that its query, or one that writes what it reads, has yet to read.
Whoever is told of a row has to know whether that is the last word."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.log.base import Log
from headrace.sql.plan import scanned
from headrace.store.cuts import offsets_at
from headrace.views.subject import Subject, SubjectOf, reading_of


def unread_records(log: Log, subject: Subject, subject_of: SubjectOf) -> dict[str, int]:
    """How many, by topic; those of which there is none are not named."""
    found: dict[str, int] = {}
    todo, seen = [subject], {subject.source.topic}
    while todo:
        one = todo.pop()
        for topic, left in _left(log, one).items():
            found[topic] = max(left, found.get(topic, 0))
        for source in scanned(one.query.root):
            below = subject_of(source.name, source.topic) if source.topic not in seen else None
            seen.add(source.topic)
            todo += [] if below is None else [below]
    return found


def unread_text(records: Mapping[str, int]) -> str:
    """
    >>> unread_text({"clicks": 1200, "people": 1})
    '1,200 records of `clicks`, 1 of `people` have yet to be read'
    """
    named = [f"{count:,} {'records ' * (not at)}of `{topic}`" for at, (topic, count) in enumerate(records.items())]
    return f"{', '.join(named)} have yet to be read"


def _left(log: Log, subject: Subject) -> dict[str, int]:
    reading = reading_of(log, subject)
    cut = None if reading is None else reading.cut()
    if cut is None:
        return {}  # only the outside writes it, or an older Headrace did, and did not say
    now, left = log.snapshot(), {}
    for topic in {source.topic for source in scanned(subject.query.root)}:
        read, starts = offsets_at(log, now, topic, cut), subject.starts.get(topic, {})
        ends = enumerate(now.ends.get(topic, ()))
        left[topic] = sum(max(0, end.end - max(end.start, read[n], starts.get(n, 0))) for n, end in ends)
    return {topic: count for topic, count in left.items() if count}

"""Whether a query can change a window any more."""

from __future__ import annotations

from headrace.log.base import NO_STREAM_TIME, Log
from headrace.sql.plan import scanned
from headrace.store.cuts import Cut
from headrace.views.stamping import Stamping
from headrace.views.subject import Subject, reading_of


def is_closed(log: Log, subject: Subject, cut: Cut, moment: int) -> bool:
    """Whether every record that its query has yet to read will be stamped with `moment` or more.

    Where stream time belongs to a partition, each must have passed it; or the query's floor has, which is what a record
    of any partition is judged by at least: it passes over those that are idle, or have never had a record."""
    topic = scanned(subject.query.root)[0].topic
    now = log.snapshot()
    if isinstance(cut, int):
        return moment <= now.stream_times.get(topic, NO_STREAM_TIME)
    reading = reading_of(log, subject)
    if reading is not None and moment <= reading.floor():
        return True
    stamping = Stamping(log, lambda records: None)
    places = cut.get(topic, {})
    numbers = range(len(now.ends.get(topic, ())))
    return all(stamping.has_passed(topic, number, places.get(number, 0), moment) for number in numbers)

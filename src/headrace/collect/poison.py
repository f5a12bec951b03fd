"""Events that break what should take or read them: found by halving, so that only they become dead letters.

Nobody expects these: every known misfit has a reason of its own. They must not stop the others all the same, and not be
tried for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TypeVar

from headrace.collect.base import Destination, RawEvents, Sent
from headrace.collect.shedding import only
from headrace.errors import HeadraceError, as_text
from headrace.log.base import Acks, Append, Appended, Topic
from headrace.log.codecs.json_codec import Unreadable

T = TypeVar("T")


def is_poison(error: Exception) -> bool:
    """Whether the events may be what is wrong, and not the machine or the log."""
    return not isinstance(error, HeadraceError | MemoryError | OSError)


def find_poison(count: int, attempt: Callable[[Sequence[int]], object]) -> dict[int, str]:
    """The rows, of so many, that `attempt` breaks at, and how.

    >>> find_poison(4, lambda rows: [1 / (row - 2) for row in rows])
    {2: 'ZeroDivisionError: division by zero'}
    """
    found: dict[int, str] = {}
    waiting: list[Sequence[int]] = [range(count)] if count else []
    while waiting:
        rows = waiting.pop()
        try:
            attempt(rows)
        except Exception as error:
            if not is_poison(error):
                continue
            middle = len(rows) // 2
            if middle:
                waiting += [rows[middle:], rows[:middle]]
            else:
                found[rows[0]] = described(error)
    return found


def described(error: Exception) -> str:
    return as_text(f"{type(error).__name__}: {error}"[:300])


def only_rows(sent: Sent, rows: Sequence[int]) -> Sent:
    found = only(RawEvents(topic="", sent=sent), rows).sent
    assert found is not None
    return found


def replaced(sent: Sent, poison: dict[int, str]) -> Sent:
    """The same, with what is poison as what cannot be read."""
    texts = {row: text_of(sent, row) for row in poison}
    events = [
        Unreadable(f"breaks the collector: {poison[row]}") if row in poison else event
        for row, event in enumerate(sent.events)
    ]
    refused = {row: reason for row, reason in sent.refused.items() if row not in poison}
    return Sent(events, lambda row: texts[row] if row in texts else sent.slices(row), refused)


def text_of(sent: Sent, row: int) -> bytes:
    """What an event was sent as; where that breaks, too, as it is seen here."""
    try:
        return sent.slices(row)
    except Exception:
        return repr(sent.events[row]).encode(errors="backslashreplace")


def guarded(read: Callable[[], T]) -> T | Unreadable:
    """What is read out of one message, or why that broke."""
    try:
        return read()
    except Exception as error:
        if not is_poison(error):
            raise
        return Unreadable(f"breaks the collector: {described(error)}")


class Nowhere:
    """Takes all that a log would take, and keeps nothing: for attempts."""

    def __init__(self, like: Destination) -> None:
        self._like, self.schemas = like, like.schemas

    def topic(self, name: str) -> Topic:
        return self._like.topic(name)

    def append(self, appends: Sequence[Append], acks: Acks = "all") -> Future[list[Appended]]:
        done: Future[list[Appended]] = Future()
        done.set_result([Appended(()) for _ in appends])
        return done

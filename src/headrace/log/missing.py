"""What is said of a topic that is not there, and of all of them while one is deleted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import TypeVar

from headrace.errors import NotFound
from headrace.log.base import Topic
from headrace.nearest import nearest

T = TypeVar("T")


def no_topic(name: str, known: Iterable[str]) -> NotFound:
    near = nearest(name, known)
    hint = f"did you mean `{near}`?" if near else "`headrace topic list` lists what there is"
    return NotFound(f"topic `{name}` does not exist", hint=hint, topic=name)


def of_each(topics: Iterable[Topic], look: Callable[[Topic], T]) -> Iterator[T]:
    """What there is to say of each topic; of one that was deleted since they were listed, nothing."""
    for topic in topics:
        with suppress(NotFound):
            yield look(topic)

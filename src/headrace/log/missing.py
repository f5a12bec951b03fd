"""What is said of a topic that is not there."""

from __future__ import annotations

from collections.abc import Iterable

from headrace.errors import NotFound
from headrace.nearest import nearest


def no_topic(name: str, known: Iterable[str]) -> NotFound:
    near = nearest(name, known)
    hint = f"did you mean `{near}`?" if near else "`headrace topic list` lists what there is"
    return NotFound(f"topic `{name}` does not exist", hint=hint, topic=name)

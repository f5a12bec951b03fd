"""What is said of a topic that is not there."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from headrace.errors import NotFound


def no_topic(name: str, known: Iterable[str]) -> NotFound:
    near = difflib.get_close_matches(name, known, 1)
    hint = f"did you mean `{near[0]}`?" if near else "`headrace topic list` lists what there is"
    return NotFound(f"topic `{name}` does not exist", hint=hint, topic=name)

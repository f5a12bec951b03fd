"""Which MQTT topics are subscribed to, and which fields their levels become.

sensors/{device}/{metric}      subscribes to sensors/+/+ and gives `device` and `metric`
plant/{line}/{path#}           subscribes to plant/+/# and gives `line` and what is left, `path`
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from headrace.errors import ConfigError

_NAMED = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)(#?)\}")


@dataclass(frozen=True, slots=True)
class Pattern:
    filter: str
    """As the broker wants it."""
    names: tuple[str | None, ...]
    """Of each level, where it has one."""
    rest: bool
    """The last one stands for any number of levels."""

    def fields(self, topic: str) -> dict[str, str] | None:
        """What a topic says; None if it is not one of these."""
        levels = topic.split("/")
        wanted = self.filter.split("/")
        if self.rest:
            if len(levels) < len(wanted) - 1:
                return None
            head = len(wanted) - 1
            levels = [*levels[:head], "/".join(levels[head:])]
            if len(levels) < len(wanted):
                levels.append("")
        if len(levels) != len(wanted):
            return None
        if any(one not in ("+", "#") and one != level for one, level in zip(wanted, levels, strict=True)):
            return None
        return {name: level for name, level in zip(self.names, levels, strict=True) if name is not None}


def read_pattern(text: str) -> Pattern:
    """
    >>> read_pattern("sensors/{device}/#").fields("sensors/d1/temperature/inside")
    {'device': 'd1'}
    """
    filters: list[str] = []
    names: list[str | None] = []
    for level in text.split("/"):
        named = _NAMED.fullmatch(level)
        filters.append(("#" if named[2] else "+") if named else level)
        names.append(named[1] if named else None)
    for place, level in enumerate(filters):
        last = place == len(filters) - 1
        if (level == "#" and not last) or (level not in ("+", "#") and re.search(r"[+#{}\0]", level)):
            raise ConfigError(
                f"`{text}` is no pattern of MQTT topics",
                hint="levels between `/`: a word, `+` or `{name}` for any; `#` or `{name#}` at the end for the rest",
                path=("topics",),
            )
    if not text or len(text.encode()) > 65_535:
        raise ConfigError("a pattern of MQTT topics cannot be empty", path=("topics",))
    return Pattern("/".join(filters), tuple(names), filters[-1] == "#")

"""Which topics a consumer wants: names, wildcards, a regular expression. The same for every log."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from re import ASCII, DOTALL, IGNORECASE, MULTILINE, VERBOSE, Pattern

from headrace.errors import UsageError
from headrace.log.base import Subscription
from headrace.log.schema import is_topic_name
from headrace.patterns import Regex, compile_pattern, translate_wildcard

# RE2's classes are those of ASCII in any case.
_FLAGS = {"i": IGNORECASE, "m": MULTILINE, "s": DOTALL, "x": VERBOSE, "": ASCII}


@dataclass(frozen=True)
class Wanted:
    """Topics by name, and by patterns that take in topics made later and never internal ones."""

    names: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()
    """Regular expressions over whole names, for RE2."""

    @cached_property
    def _compiled(self) -> list[Regex]:
        return [compile_pattern(pattern) for pattern in self.patterns]

    def matches(self, name: str) -> bool:
        if name in self.names:
            return True
        return not name.startswith("_") and any(pattern.fullmatch(name) for pattern in self._compiled)

    def among(self, names: Iterable[str]) -> frozenset[str]:
        return frozenset(name for name in names if self.matches(name))


def wanted(topics: Subscription) -> Wanted:
    """
    >>> wanted(["orders", "*-eu"])
    Wanted(names=('orders',), patterns=('.*\\\\-eu',))
    """
    if isinstance(topics, Pattern | Regex):
        return Wanted(patterns=(_expression(topics),))
    given: Sequence[str] = [topics] if isinstance(topics, str) else list(topics)
    if not given:
        raise UsageError("a consumer needs a topic", hint="a name, several, a wildcard or a regular expression")
    for one in given:
        if not is_topic_name(one.replace("*", "x").replace("?", "x")):
            raise UsageError(
                f"`{one}` is neither a topic's name nor a wildcard",
                hint="`*` stands for any characters, `?` for one; pass `re.compile(…)` for a regular expression",
            )
    wild = [one for one in given if "*" in one or "?" in one]
    return Wanted(tuple(dict.fromkeys(one for one in given if one not in wild)), tuple(map(translate_wildcard, wild)))


def _expression(topics: Pattern[str] | Regex) -> str:
    """Return the expression with its flags written in it. `UsageError` if RE2 cannot run it."""
    letters = ""
    if isinstance(topics, Pattern):
        letters = "".join(letter for letter, flag in _FLAGS.items() if topics.flags & flag)
    return compile_pattern(f"(?{letters}){topics.pattern}" if letters else topics.pattern).pattern

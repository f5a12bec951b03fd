"""The text being parsed, and errors that point into it."""

from __future__ import annotations

import difflib
from bisect import bisect_right
from collections.abc import Callable, Iterable
from typing import Any

from headrace.errors import SqlError
from headrace.sql.expressions import Span


class Script:
    """One text of SQL. Lines end with a newline and nothing else, so that columns agree with what editors show."""

    __slots__ = ("_starts", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self._starts = [0]
        position = text.find("\n")
        while position >= 0:
            self._starts.append(position + 1)
            position = text.find("\n", position + 1)

    def span(self, start: int, end: int) -> Span:
        """The span of a range of characters; one of several lines is cut at the end of the first."""
        line = bisect_right(self._starts, start)
        column = start - self._starts[line - 1] + 1
        line_end = self.text.find("\n", start)
        end = end if line_end < 0 else min(end, line_end)
        return Span(line, column, max(1, end - start))

    def offset(self, span: Span) -> int:
        """Where the span begins: the inverse of `span`."""
        return self._starts[span.line - 1] + span.column - 1

    def line(self, number: int) -> str:
        start = self._starts[number - 1]
        end = self.text.find("\n", start)
        return (self.text[start:] if end < 0 else self.text[start:end]).rstrip("\r")

    def error(self, message: str, span: Span | None, hint: str | None = None, **data: Any) -> SqlError:
        """An error pointing at `span`; without one it points nowhere."""
        if span is None or not 1 <= span.line <= len(self._starts):
            return SqlError(message, hint=hint, **data)
        return SqlError(
            message,
            line=span.line,
            column=span.column,
            length=span.length,
            source_line=self.line(span.line),
            hint=hint,
            **data,
        )


def nearest(name: str, candidates: Iterable[str]) -> str | None:
    """The candidate a person probably meant, if one is near.

    >>> nearest("PAGEVIEW", ["USERS", "PAGEVIEWS"])
    'PAGEVIEWS'
    """
    by_upper = {candidate.upper(): candidate for candidate in sorted(candidates)}
    # Difflib is quadratic; nobody mistypes a name this long.
    if len(name) > 200:
        return None
    found = difflib.get_close_matches(name.upper(), by_upper, n=1, cutoff=0.6)
    return by_upper[found[0]] if found else None


def did_you_mean(
    name: str, candidates: Iterable[str], otherwise: str | None = None, show: Callable[[str], str] = str
) -> str | None:
    """A hint naming the nearest candidate as `show` has it, followed by `otherwise`."""
    found = nearest(name, candidates)
    guess = f"did you mean `{show(found)}`?" if found else None
    if found and found != name and found.casefold() == name.casefold():
        # Both look the same as they are shown.
        guess = f"in backticks case counts; it is called `{found}`"
    return "  ".join(part for part in (guess, otherwise) if part) or None

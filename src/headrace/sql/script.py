"""The text being parsed, and errors that point into it."""

from __future__ import annotations

from bisect import bisect_right
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

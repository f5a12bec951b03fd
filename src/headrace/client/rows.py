"""A streamed answer, line by line. No I/O here."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Any

from headrace.errors import Disconnected, error_from_json


class LineSplitter:
    """Pieces of bytes → whole lines. Only a newline ends one: text may have other separators in it (U+2028)."""

    def __init__(self) -> None:
        self._left = b""

    def split(self, piece: bytes) -> list[bytes]:
        """Return the lines that end in this piece.

        >>> lines = LineSplitter()
        >>> lines.split(b"a\\nb"), lines.split(b"c\\n")
        ([b'a'], [b'bc'])
        """
        if b"\n" not in piece:
            self._left += piece
            return []
        *lines, left = (self._left + piece).split(b"\n")
        self._left = left
        return lines


class RowReading:
    """What has come of a streamed answer. `finish` raises if the end did not come: then rows are missing."""

    def __init__(self, exact: bool = False) -> None:
        self.header: dict[str, Any] | None = None
        self.read = 0
        """How many rows the server has looked at, as far as it said."""
        self.rows = 0
        self.end: dict[str, Any] | None = None
        self._numbers = Decimal if exact else None

    def take(self, line: bytes) -> list[list[Any]] | None:
        """Return the rows of a line; None if it has none. Raises the error that ended the query."""
        if not line:
            return None
        event = json.loads(line, parse_float=self._numbers)
        kind, data = event["event"], event["data"]
        if kind == "rows":
            rows: list[list[Any]] = data["rows"]
            self.rows += len(rows)
            return rows
        if kind == "error":
            raise error_from_json(data["error"])
        if kind == "header":
            self.header = data
        elif kind == "progress":
            self.read = data["read"]
        elif kind == "end":
            self.end = data
        return None

    def named(self, rows: list[list[Any]]) -> Iterator[dict[str, Any]]:
        """Yield rows by the names of their columns."""
        names = [column["name"] for column in (self.header or {}).get("columns", ())]
        return (dict(zip(names, row, strict=True)) for row in rows)

    def finish(self) -> dict[str, Any]:
        """Return what the end said."""
        if self.header is None or self.end is None:
            raise Disconnected(f"the answer broke off after {self.rows:,} rows", hint="ask again")
        return self.end

    def read_all(self, lines: Iterable[bytes]) -> Iterator[list[list[Any]]]:
        """Yield the rows of all lines, some at a time."""
        for line in lines:
            rows = self.take(line)
            if rows is not None:
                yield rows
        self.finish()

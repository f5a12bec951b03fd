"""A query's answer as a table, row by row below each other, JSON, CSV, or Arrow; at once or as rows come."""

from __future__ import annotations

import csv
import shutil
import sys
from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

from headrace.cli.output import MOMENT_COLUMNS, data_text, json_text, local_time, print_rows
from headrace.errors import UsageError

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.types import Column

ColumnObject = dict[str, str]
Row = Sequence[Any]
NUMBERS = ("INTEGER", "BIGINT", "DOUBLE", "DECIMAL")


class Format(StrEnum):
    table = "table"
    vertical = "vertical"
    json = "json"
    csv = "csv"
    arrow = "arrow"


class Writer(Protocol):
    """Takes rows in pieces; `live` ones are shown at once."""

    def write(self, rows: Sequence[Row]) -> None: ...
    def close(self) -> None: ...


def open_writer(format_: Format, columns: Sequence[ColumnObject], live: bool) -> Writer:
    match format_:
        case Format.table:
            if not live:
                return Table(columns)
            return LiveTable(columns) if sys.stdout.isatty() else Tabs(columns)
        case Format.vertical:
            return Vertical(columns)
        case Format.json:
            return Lines(columns)
        case Format.csv:
            return Csv(columns)
        case Format.arrow:
            return Arrow(columns)


class Table:
    def __init__(self, columns: Sequence[ColumnObject]) -> None:
        self._columns = columns
        self._rows: list[Row] = []

    def write(self, rows: Sequence[Row]) -> None:
        self._rows += rows

    def close(self) -> None:
        print_rows(self._columns, self._rows)


class LiveTable:
    """Rows as they come, in columns: their widths are guessed from their types, and grow when a value needs more."""

    def __init__(self, columns: Sequence[ColumnObject], width: int | None = None) -> None:
        self._names = [column["name"] for column in columns]
        self._moments = {place for place, name in enumerate(self._names) if name.lower() in MOMENT_COLUMNS}
        self._numbers = [column["type"].partition("(")[0] in NUMBERS for column in columns]
        most = (width or shutil.get_terminal_size().columns) // max(1, len(columns)) - 2
        self._most = max(8, most)
        self._widths = [min(self._most, max(len(name), 10)) for name in self._names]
        self._print(self._names, bold=True)

    def write(self, rows: Sequence[Row]) -> None:
        for row in rows:
            cells = [
                local_time(value) if place in self._moments and isinstance(value, int) else data_text(value)
                for place, value in enumerate(row)
            ]
            self._widths = [max(old, min(self._most, len(text))) for old, text in zip(self._widths, cells, strict=True)]
            self._print(cells)

    def _print(self, cells: Sequence[str], bold: bool = False) -> None:
        fitted = [
            self._fit(text.replace("\n", "⏎"), width, right and not bold)
            for text, width, right in zip(cells, self._widths, self._numbers, strict=True)
        ]
        line = "  ".join(fitted).rstrip()
        print(f"\x1b[1m{line}\x1b[0m" if bold else line, flush=True)

    @staticmethod
    def _fit(text: str, width: int, right: bool) -> str:
        short = text if len(text) <= width else text[: width - 1] + "…"
        return short.rjust(width) if right else short.ljust(width)

    def close(self) -> None:
        """Every row is out already."""


class Tabs:
    """For programs: what is not complete yet cannot be aligned."""

    def __init__(self, columns: Sequence[ColumnObject]) -> None:
        print("\t".join(column["name"] for column in columns), flush=True)

    def write(self, rows: Sequence[Row]) -> None:
        for row in rows:
            print("\t".join(map(data_text, row)), flush=True)

    def close(self) -> None:
        """Every row is out already."""


class Vertical:
    """For rows wider than the terminal."""

    def __init__(self, columns: Sequence[ColumnObject]) -> None:
        self._names = [column["name"] for column in columns]
        self._width = max(map(len, self._names), default=0)
        self._count = 0

    def write(self, rows: Sequence[Row]) -> None:
        for row in rows:
            self._count += 1
            print(f"── {self._count} " + "─" * max(3, 40 - len(str(self._count))))
            for name, value in zip(self._names, row, strict=True):
                print(f"{name:<{self._width}}  {data_text(value)}".rstrip())
            sys.stdout.flush()

    def close(self) -> None:
        if not self._count:
            print("no rows")


class Lines:
    """One object a line."""

    def __init__(self, columns: Sequence[ColumnObject]) -> None:
        self._names = [column["name"] for column in columns]

    def write(self, rows: Sequence[Row]) -> None:
        for row in rows:
            print(json_text(dict(zip(self._names, row, strict=True))))
        sys.stdout.flush()

    def close(self) -> None:
        """Every row is out already."""


class JsonDocument:
    """The whole answer as one JSON document, written while rows come. It is complete only if `end` was set."""

    def __init__(self) -> None:
        self.end: dict[str, Any] = {}
        self._first = True

    def open(self, header: dict[str, Any]) -> JsonDocument:
        known = {name: value for name, value in header.items() if name != "query_rows"}
        print(json_text(known)[:-1], end=', "rows": [')
        return self

    def write(self, rows: Sequence[Row]) -> None:
        for row in rows:
            print("" if self._first else ", ", json_text(row), sep="", end="")
            self._first = False

    def close(self) -> None:
        tail = {"truncated": self.end.get("truncated", True), "took_ms": self.end.get("took_ms")}
        print("], " + json_text(tail)[1:], flush=True)


class Csv:
    """A null is an empty field; arrays, maps and structs are JSON."""

    def __init__(self, columns: Sequence[ColumnObject]) -> None:
        self._writer = csv.writer(sys.stdout, lineterminator="\n")
        self._writer.writerow([column["name"] for column in columns])
        sys.stdout.flush()

    def write(self, rows: Sequence[Row]) -> None:
        for row in rows:
            self._writer.writerow([_field(value) for value in row])
        sys.stdout.flush()

    def close(self) -> None:
        """Every row is out already."""


def _field(value: Any) -> Any:
    """
    >>> _field(True), _field(None), _field([1, "a"]), _field(7)
    ('true', '', '[1, "a"]', 7)
    """
    match value:
        case None:
            return ""
        case bool():
            return str(value).lower()
        case dict() | list():
            return json_text(value)
        case _:
            return value


class Arrow:
    """An Arrow IPC stream, with the columns' own types."""

    def __init__(self, columns: Sequence[ColumnObject]) -> None:
        if sys.stdout.isatty():
            raise UsageError("Arrow is not for a terminal", hint="send it into a file or a program:  … > rows.arrows")
        import pyarrow as pa

        from headrace.log.codecs.formats import make_codec
        from headrace.log.schema import arrow_type

        self._columns = [sql_column(column) for column in columns]
        self._codec = make_codec("JSON", "", tuple(self._columns))
        schema = pa.schema([(column.name, arrow_type(column.type)) for column in self._columns])
        self._writer = pa.ipc.new_stream(sys.stdout.buffer, schema)

    def write(self, rows: Sequence[Row]) -> None:
        if rows:
            self._writer.write_batch(self._batch(rows))
            sys.stdout.buffer.flush()

    def _batch(self, rows: Sequence[Row]) -> pa.RecordBatch:
        import pyarrow as pa

        from headrace.log.codecs.json_encode import to_json

        names = [column.name for column in self._columns]
        payloads = [to_json(dict(zip(names, row, strict=True))) for row in rows]
        decoded = self._codec.decode(pa.array(payloads, pa.binary()))
        for row, reason in decoded.errors.items():
            raise UsageError(f"row {row} cannot be written as Arrow: {reason}")
        return decoded.batch

    def close(self) -> None:
        self._writer.close()


def sql_column(column: ColumnObject) -> Column:
    """
    >>> sql_column({"name": "a", "type": "ARRAY<VARCHAR>"})
    Column(name='a', type=Array(element=Varchar()))
    """
    from headrace.sql.api import parse_columns
    from headrace.types import Column

    [declared] = parse_columns(f"c {column['type']}")
    return Column(column["name"], declared.type)

"""CSV → events. The heading names the fields; a value is what its column's type says, an empty one is null."""

from __future__ import annotations

import csv
import io
import json
import math
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from typing import IO, Any

from headrace.cli.file_rows import Rows, check_fields
from headrace.errors import UsageError
from headrace.log.codecs.json_encode import to_json

DELIMITERS = ",;\t|"
PIECE_ROWS = 1000
MORE = "$more"
"""Values that the heading has no name for."""


def read_csv(
    stream: IO[bytes], columns: Sequence[dict[str, Any]], delimiter: str | None = None, encoding: str | None = None
) -> Iterator[Rows]:
    """By default UTF-8, and separated by what makes the heading name the most columns."""
    csv.field_size_limit(sys.maxsize)  # the server says what is too large
    text = io.TextIOWrapper(stream, encoding=encoding or "utf-8-sig", newline="")
    names = [str(column["name"]) for column in columns]
    line = 0
    try:
        first = text.readline()
        chosen = delimiter or find_delimiter(first, names)
        rows = csv.reader(chain([first], text), delimiter=chosen, strict=True)
        heading = next(rows, [])
        if not heading:
            return
        _check_heading(heading, names)
        convert = {str(column["name"]).lower(): _converter(column["type"]) for column in columns}
        special = [(place, how) for place, name in enumerate(heading) if (how := convert.get(name.lower())) is not None]
        # Another heading makes other rows of the same values.
        before = "\x1f".join(heading).encode() + b"\0"
        while piece := list(islice(_numbered(rows), PIECE_ROWS)):
            line = piece[-1][0]
            yield Rows(
                [to_json(_event(heading, values, special)) for _, values in piece],
                [before + "\x1f".join(values).encode() for _, values in piece],
                [number for number, _ in piece],
                heading,
            )
    except UnicodeDecodeError as error:
        used = encoding or "UTF-8"
        raise UsageError(f"what follows line {line} is not {used}: {error.reason}", hint="--encoding latin-1") from None
    except csv.Error as error:
        raise UsageError(
            f"line {rows.line_num} is not CSV: {error}", detail="what comes before it, if anything, is sent"
        ) from None


def find_delimiter(heading: str, columns: Sequence[str]) -> str:
    """
    >>> find_delimiter("shop;amount", ["shop", "amount"]), find_delimiter("a,b", [])
    (';', ',')
    """
    known = {name.lower() for name in columns}

    def named(delimiter: str) -> int:
        return len(known & {name.lower() for name in next(csv.reader([heading], delimiter=delimiter), [])})

    return max(DELIMITERS, key=named)


def _check_heading(heading: list[str], columns: Sequence[str]) -> None:
    twice = [name for name, count in Counter(name.lower() for name in heading).items() if count > 1]
    if twice:
        raise UsageError(f"the heading names `{twice[0]}` twice")
    check_fields(heading, columns)


def _numbered(rows: Any) -> Iterator[tuple[int, list[str]]]:
    """Rows that are not empty, each with its last line."""
    return ((rows.line_num, values) for values in rows if values)


def _event(heading: list[str], values: list[str], special: list[tuple[int, Callable[[str], Any]]]) -> dict[str, Any]:
    read: list[Any] = [value or None for value in values]
    for place, convert in special:
        if place < len(read) and read[place] is not None:
            read[place] = convert(read[place])
    event = dict(zip(heading, read, strict=False))
    if len(values) > len(heading):
        event[MORE] = values[len(heading) :]
    return event


def _converter(type_: str) -> Callable[[str], Any] | None:
    """Text as the JSON that the server takes for the type. What does not fit stays text, for the server to say so."""
    if type_ in ("INTEGER", "BIGINT", "TIMESTAMP"):
        return _whole
    if type_ == "DOUBLE":
        return _number
    if type_ == "BOOLEAN":
        return lambda text: {"true": True, "false": False}.get(text.strip().lower(), text)
    if type_.startswith(("ARRAY", "MAP", "STRUCT")):
        return _json
    return None


def _whole(text: str) -> Any:
    """
    >>> _whole("1790000000000"), _whole("-7"), _whole("2026-11-15"), _whole("--7")
    (1790000000000, -7, '2026-11-15', '--7')
    """
    return int(text) if text.strip().removeprefix("-").isdecimal() and len(text) < 40 else text


def _number(text: str) -> Any:
    """
    >>> _number("1.5"), _number("NaN"), _number("inf"), _number("many")
    (1.5, None, 'inf', 'many')
    """
    try:
        value = float(text)
    except ValueError:
        return text
    return None if math.isnan(value) else text if math.isinf(value) else value


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text

"""CSV → events. The heading names the fields; a value is what its column's type says, an empty one is null."""

from __future__ import annotations

import csv
import io
import json
import math
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import IO, Any

from headrace.cli.file_rows import Rows, check_fields
from headrace.errors import UsageError
from headrace.log.codecs.json_encode import to_json

DELIMITERS = ",;\t|"
PIECE_ROWS = 1000
MORE = "$more"
"""Values that the heading has no name for."""
MARK = "\ufeff"
UTF_16_MARKS = (b"\xff\xfe", b"\xfe\xff")
DIGITS_OF_MS = (11, 12, 13, 15)
"""From April 1970 to 2286, and to the end of 9999, which stands for ever."""


def read_csv(
    stream: IO[bytes],
    columns: Sequence[dict[str, Any]],
    delimiter: str | None = None,
    encoding: str | None = None,
    most: int = PIECE_ROWS,
) -> Iterator[Rows]:
    """By default UTF-8, and separated by what makes the heading name the most columns. At most so many rows at once:
    one, if each is to be had as it comes."""
    csv.field_size_limit(sys.maxsize)  # the server says what is too large
    text = io.TextIOWrapper(stream, encoding=encoding or "utf-8", newline="")
    names = [str(column["name"]) for column in columns]
    line = blank = 0
    try:
        first, blank = _first_line(text)
        chosen = delimiter or find_delimiter(first, names)
        rows = csv.reader(chain([first], text), delimiter=chosen, strict=True)
        written = next(rows, [])
        # A spreadsheet has columns without a name behind the last one.
        heading = written[: max((place for place, name in enumerate(written, 1) if name.strip()), default=0)]
        if not written:
            return
        _check_heading(heading, names)
        convert = {str(column["name"]).lower(): _converter(column["type"]) for column in columns}
        special = [(place, how) for place, name in enumerate(heading) if (how := convert.get(name.lower())) is not None]
        # Another heading makes other rows of the same values.
        before = "\x1f".join(written).encode() + b"\0"
        for piece in _pieces(rows, most):
            line = blank + piece[-1][0]
            yield Rows(
                [to_json(_event(heading, values, special)) for _, values in piece],
                [before + "\x1f".join(values).encode() for _, values in piece],
                [blank + number for number, _ in piece],
                heading,
            )
    except UnicodeError as error:
        said = error.reason if isinstance(error, UnicodeDecodeError) else error
        wide = isinstance(error, UnicodeDecodeError) and error.object.startswith(UTF_16_MARKS)
        hint = f"--encoding {'utf-16' if wide else 'latin-1'}"
        raise UsageError(f"what follows line {line} is not {encoding or 'UTF-8'}: {said}", hint=hint) from None
    except csv.Error as error:
        raise UsageError(
            f"line {blank + rows.line_num} is not CSV: {error}", detail="what comes before it, if anything, is sent"
        ) from None


def _first_line(text: IO[str]) -> tuple[str, int]:
    """That says something, and how many come before it."""
    line = text.readline().removeprefix(MARK)
    blank = 0
    while line and not line.strip():
        line = text.readline()
        blank += 1
    return line, blank


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
    if not heading:
        raise UsageError("the heading names no field")
    twice = [name for name, count in Counter(name.lower() for name in heading).items() if count > 1]
    if twice:
        raise UsageError(f"the heading names `{twice[0]}` twice")
    check_fields(heading, columns)


def _pieces(rows: Any, most: int) -> Iterator[list[tuple[int, list[str]]]]:
    """Rows that are not empty, each with its last line. Those before an error come before it."""
    piece: list[tuple[int, list[str]]] = []
    try:
        for values in rows:
            if values:
                piece.append((rows.line_num, values))
                if len(piece) >= most:
                    yield piece
                    piece = []
    except Exception:
        if piece:
            yield piece
        raise
    if piece:
        yield piece


def _event(heading: list[str], values: list[str], special: list[tuple[int, Callable[[str], Any]]]) -> dict[str, Any]:
    read: list[Any] = [value or None for value in values]
    for place, convert in special:
        if place < len(read) and read[place] is not None:
            read[place] = convert(read[place])
    event = dict(zip(heading, read, strict=False))
    if any(values[len(heading) :]):
        event[MORE] = values[len(heading) :]
    return event


def _converter(type_: str) -> Callable[[str], Any] | None:
    """Text as the JSON that the server takes for the type. What does not fit stays text, for the server to say so."""
    if type_ in ("INTEGER", "BIGINT"):
        return _whole
    if type_ == "TIMESTAMP":
        return read_moment
    if type_ in ("DATE", "TIME"):
        return str.strip
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


def read_moment(text: str) -> Any:
    """Milliseconds since 1970, if the number has as many digits as such a time has: seconds have fewer, and so has a
    day (20261115), which would all be in 1970; a second (20261115120000) has one more, and would be in 2612.

    >>> read_moment("1790000000000"), read_moment("1790000000"), read_moment("20261115")
    (1790000000000, '1790000000', '20261115')
    """
    text = text.strip()
    return _whole(text) if len(text.removeprefix("-")) in DIGITS_OF_MS else text


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

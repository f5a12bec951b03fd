"""A difference as a file, in pieces: nothing but a piece is in memory, however many rows differ."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from typing import Any, Literal, get_args

from headrace.errors import HeadraceError
from headrace.log.codecs.json_encode import to_json
from headrace.types import BIGINT, DOUBLE, VARCHAR, BigInt, Column, DataType, Integer, display_name
from headrace.views.difference_rows import DifferenceRows, Differing, Filters

Format = Literal["csv", "json", "parquet"]
FORMATS: tuple[Format, ...] = get_args(Format)
MEDIA_TYPES: dict[Format, str] = {
    "csv": "text/csv; charset=utf-8",
    "json": "application/json",
    "parquet": "application/vnd.apache.parquet",
}
GROUP_ROWS = 20_000
"""Of Parquet: rows that are written together."""


def file_pieces(rows: DifferenceRows, filters: Filters, format_: Format, guarded: bool = False) -> Iterator[bytes]:
    """`guarded`: what a spreadsheet would take for a formula is kept as text by a leading quote, in CSV."""
    match format_:
        case "csv":
            return _csv(rows, filters, guarded)
        case "json":
            return _json(rows, filters)
        case "parquet":
            return _parquet(rows, filters)


def flat_columns(rows: DifferenceRows) -> list[Column]:
    """What a row has where rows are flat: the kind, the key, the window in milliseconds; then of each column the old
    value, the new one, and by how much they differ."""
    keys = {name: Column(name, _type_of_both(rows, name)) for name in rows.keys}
    old, new = ({column.name: column for column in source.value} for source in (rows.old, rows.new))
    found = [Column("kind", VARCHAR), *(_named("key", keys[name]) for name in rows.keys)]
    if rows.old.window is not None or rows.new.window is not None:
        found += [Column("window_start", BIGINT), Column("window_end", BIGINT)]
    for name in {**old, **new}:
        found += [_named(side, has[name]) for side, has in (("old", old), ("new", new)) if name in has]
        if name in old and name in new:
            found.append(Column(f"delta.{display_name(name)}", DOUBLE))
    return found


def _named(side: str, column: Column) -> Column:
    return Column(f"{side}.{display_name(column.name)}", column.type)


def _type_of_both(rows: DifferenceRows, name: str) -> DataType:
    """A column of the key may be of another type in each version: what holds the values of both."""
    types = list(dict.fromkeys(one.type for source in (rows.old, rows.new) for one in source.key if one.name == name))
    if len(types) == 1:
        return types[0]
    return BIGINT if all(isinstance(type_, Integer | BigInt) for type_ in types) else VARCHAR


def _flat(row: Differing) -> dict[str, Any]:
    found: dict[str, Any] = {"kind": row.kind}
    for side, values in (("key", row.key), ("old", row.old), ("new", row.new), ("delta", row.deltas)):
        found |= {f"{side}.{name}": value for name, value in (values or {}).items()}
    if row.window is not None:
        found |= {"window_start": row.window["start"], "window_end": row.window["end"]}
    return found


def _json(rows: DifferenceRows, filters: Filters) -> Iterator[bytes]:
    before = b"["
    for page in rows.each(filters):
        if page:
            yield before + b",\n".join(map(to_json, page))
            before = b",\n"
    yield b"[]\n" if before == b"[" else b"]\n"


def _csv(rows: DifferenceRows, filters: Filters, guarded: bool) -> Iterator[bytes]:
    names = [column.name for column in flat_columns(rows)]
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(names)
    for page in rows.each(filters):
        for row in page:
            flat = _flat(row)
            writer.writerow([_field(flat.get(name), guarded) for name in names])
        yield text.getvalue().encode()
        text.seek(0)
        text.truncate()


def _field(value: Any, guarded: bool) -> Any:
    """
    >>> _field(None, False), _field(True, False), _field([1, "a"], False), _field("=1", True), _field(-1, True)
    ('', 'true', '[1,"a"]', "'=1", -1)
    """
    match value:
        case None:
            return ""
        case bool() | list() | dict():
            return to_json(value).decode()
        case str() if guarded and value[:1] in ("=", "+", "-", "@", "\t", "\r"):
            return f"'{value}"
        case _:
            return value


def _parquet(rows: DifferenceRows, filters: Filters) -> Iterator[bytes]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from headrace.log.codecs.formats import make_codec
    from headrace.log.schema import arrow_type

    columns = flat_columns(rows)
    codec = make_codec("JSON", "", tuple(columns))
    texts = [column.name for column in columns if column.name.startswith("key.") and column.type == VARCHAR]
    schema = pa.schema([(column.name, arrow_type(column.type)) for column in columns])
    sink = _Sink()
    writer = pq.ParquetWriter(pa.PythonFile(sink, mode="w"), schema, compression="zstd")
    for page in rows.each(filters, GROUP_ROWS):
        if page:
            payloads = pa.array([to_json(_with_texts(_flat(row), texts)) for row in page], pa.binary())
            decoded = codec.decode(payloads)
            if decoded.errors:
                # It would be a row of nulls: better no file than one that lacks some.
                raise HeadraceError("a row cannot be written as Parquet", detail=next(iter(decoded.errors.values())))
            writer.write_batch(decoded.batch)
        yield sink.taken()
    writer.close()
    yield sink.taken()


def _with_texts(flat: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """
    >>> _with_texts({"key.k": 7, "key.l": "a", "key.m": None}, ["key.k", "key.l", "key.m", "key.n"])
    {'key.k': '7', 'key.l': 'a', 'key.m': None}
    """
    others = {name: flat[name] for name in names if not isinstance(flat.get(name), str | None)}
    return flat | {name: to_json(value).decode() for name, value in others.items()}


class _Sink(io.RawIOBase):
    """What a writer writes, to be taken away piece by piece."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._at = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def write(self, data: Any) -> int:
        piece = bytes(data)
        self._pieces.append(piece)
        self._at += len(piece)
        return len(piece)

    def taken(self) -> bytes:
        found, self._pieces = b"".join(self._pieces), []
        return found

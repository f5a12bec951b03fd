"""The three forms in which ksqlDB writes the rows of a query, by what the client accepts."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from headrace.log.codecs.json_encode import to_json
from headrace.server.ksql.errors import V1
from headrace.server.ksql.schemas import schema_text, type_text
from headrace.types import Column

DELIMITED, JSON = "application/vnd.ksqlapi.delimited.v1", "application/json"


@dataclass(frozen=True, slots=True)
class Header:
    query_id: str
    columns: Sequence[Column]
    keys: Collection[str] = ()


class Format(Protocol):
    media_type: str

    def header(self, header: Header) -> bytes: ...
    def row(self, values: Sequence[Any], tombstone: bool) -> bytes: ...
    def final(self, message: str) -> bytes: ...
    def error(self, body: dict[str, Any]) -> bytes: ...
    def end(self) -> bytes: ...


class Objects:
    """One array of objects: header, rows, and a message at the end."""

    media_type = V1

    def header(self, header: Header) -> bytes:
        body = {"queryId": header.query_id, "schema": schema_text(header.columns, header.keys)}
        return b"[" + to_json({"header": body})

    def row(self, values: Sequence[Any], tombstone: bool) -> bytes:
        body: dict[str, Any] = {"columns": values} | ({"tombstone": True} if tombstone else {})
        return b",\n" + to_json({"row": body})

    def final(self, message: str) -> bytes:
        return b",\n" + to_json({"finalMessage": message})

    def error(self, body: dict[str, Any]) -> bytes:
        return b",\n" + to_json({"errorMessage": body})

    def end(self) -> bytes:
        return b"]\n"


class Arrays:
    """One array: the columns' names and types, then an array for each row."""

    media_type = JSON

    def header(self, header: Header) -> bytes:
        return b"[" + to_json(metadata(header))

    def row(self, values: Sequence[Any], tombstone: bool) -> bytes:
        return b",\n" + to_json(values)

    def final(self, message: str) -> bytes:
        return b""

    def error(self, body: dict[str, Any]) -> bytes:
        return b",\n" + to_json(body)

    def end(self) -> bytes:
        return b"]\n"


class Lines:
    """The same, one to a line."""

    media_type = DELIMITED

    def header(self, header: Header) -> bytes:
        return to_json(metadata(header)) + b"\n"

    def row(self, values: Sequence[Any], tombstone: bool) -> bytes:
        return to_json(values) + b"\n"

    def final(self, message: str) -> bytes:
        return b""

    def error(self, body: dict[str, Any]) -> bytes:
        return to_json(body) + b"\n"

    def end(self) -> bytes:
        return b""


def metadata(header: Header) -> dict[str, Any]:
    return {
        "queryId": header.query_id,
        "columnNames": [column.name for column in header.columns],
        "columnTypes": [type_text(column.type) for column in header.columns],
    }


def format_for(accept: str, default: Format) -> Format:
    """
    >>> format_for("application/json;q=0.9", Lines()).media_type
    'application/json'
    """
    for wanted in accept.split(","):
        for known in (Objects(), Lines(), Arrays()):
            if wanted.partition(";")[0].strip().lower() == known.media_type:
                return known
    return default

"""What is to be done with a dead letter before it is sent again: which are meant, and what is put right in them.

Conditions and values are SQL. They see the letter (`REASON`, `SOURCE`, `EVENT_ID`, `PAYLOAD` as text, `ATTEMPTS`,
`ROWTIME`, when it was refused, and `ROWOFFSET`) and the topic's columns, each as the text that the event had in its
field: what did not fit its type is text still. A name that both have means the letter's.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from headrace.errors import UsageError
from headrace.log.base import TIME, Topic
from headrace.nearest import did_you_mean
from headrace.sql.alone import resolve_condition, resolve_value
from headrace.sql.evaluate import Compiled, compile_expression
from headrace.sql.expressions import Expression
from headrace.sql.functions.function import Function
from headrace.store.json_rows import to_json_rows
from headrace.types import BIGINT, VARCHAR, Bytes, Column, DataType, Varchar, display_name

PAYLOAD = "PAYLOAD"
OF_LETTER: dict[str, DataType] = {
    "REASON": VARCHAR,
    "SOURCE": VARCHAR,
    "EVENT_ID": VARCHAR,
    PAYLOAD: VARCHAR,
    "ATTEMPTS": BIGINT,
    "ROWTIME": BIGINT,
    "ROWOFFSET": BIGINT,
}
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])


@dataclass(frozen=True, slots=True)
class Letter:
    offset: int
    time_ms: int
    reason: str
    source: str
    event_id: str | None
    payload: bytes
    attempts: int = 1


class Unmendable(Exception):
    """Why a letter cannot be put right this way."""


@dataclass(frozen=True, slots=True)
class _Value:
    field: str
    column: Column
    compute: Compiled


class Mending:
    """Compiled for one topic. `SqlError` or `UsageError` if it does not fit."""

    def __init__(
        self, topic: Topic, where: str | None, values: Mapping[str, str], functions: Mapping[str, Function]
    ) -> None:
        self._names = {column.name.casefold(): column.name for column in topic.spec.key + topic.spec.value}
        columns: dict[str, DataType] = dict.fromkeys(self._names.values(), VARCHAR)
        columns |= OF_LETTER
        condition = resolve_condition(where, columns, functions) if where and where.strip() else None
        self._picks = compile_expression(condition) if condition is not None else None
        self._payload: Compiled | None = None
        self._values: list[_Value] = []
        for name, text in values.items():
            self._take(name, resolve_value(text, columns, functions), text)

    def _take(self, name: str, expression: Expression, text: str) -> None:
        compute, type_ = compile_expression(expression), expression.type or VARCHAR
        if name.upper() == PAYLOAD:
            if not isinstance(type_, Varchar | Bytes):
                raise UsageError(f"`payload = {text}` gives {type_}", hint="a payload is VARCHAR or BYTES")
            self._payload = compute
        elif name.casefold() == TIME:
            self._values.append(_Value(TIME, Column(TIME, type_), compute))
        elif name.casefold() in self._names:
            column = self._names[name.casefold()]
            self._values.append(_Value(display_name(column), Column(column, type_), compute))
        else:
            known = [display_name(column) for column in self._names.values()]
            others = f"its columns are {', '.join(known) or 'none'}; PAYLOAD is the whole event"
            hint = did_you_mean(name, known, others)
            raise UsageError(f"the topic has no column `{name}`", hint=hint)

    def picks(self, letter: Letter) -> bool:
        return self._picks is None or self._picks(self._row(letter)) is True

    def mended(self, letter: Letter) -> bytes:
        """The event to be sent. `Unmendable` if there is none."""
        row = self._row(letter)
        payload = letter.payload
        if self._payload is not None:
            made = self._payload(row)
            if made is None:
                raise Unmendable("the new payload is null")
            payload = made.encode() if isinstance(made, str) else made
        return self._with_values(payload, row) if self._values else payload

    def _with_values(self, payload: bytes, row: Mapping[str, Any]) -> bytes:
        fields = _read(payload)
        if fields is None:
            raise Unmendable("it is no JSON object, so no field of it can be set: set PAYLOAD")
        [new] = to_json_rows([value.column for value in self._values], [[v.compute(row) for v in self._values]])
        texts = [json.dumps(made, ensure_ascii=False).encode() for made in new]
        changed = {value.field.casefold(): text for value, text in zip(self._values, texts, strict=True)}
        # In its place, so that one sees at once what is different.
        mended = {name: changed.get(name.casefold(), bytes(text)) for name, text in fields.items()}
        there = {name.casefold() for name in fields}
        mended |= {value.field: changed[key] for value in self._values if (key := value.field.casefold()) not in there}
        return b"{" + b",".join(msgspec.json.encode(name) + b":" + text for name, text in mended.items()) + b"}"

    def _row(self, letter: Letter) -> dict[str, Any]:
        row: dict[str, Any] = dict.fromkeys(self._names.values())
        for name, text in (_read(letter.payload) or {}).items():
            if (column := self._names.get(name.casefold())) is not None:
                row[column] = _text(bytes(text))
        return row | {
            "REASON": letter.reason,
            "SOURCE": letter.source,
            "EVENT_ID": letter.event_id,
            PAYLOAD: letter.payload.decode("utf-8", "replace"),
            "ATTEMPTS": letter.attempts,
            "ROWTIME": letter.time_ms,
            "ROWOFFSET": letter.offset,
        }


def _read(payload: bytes) -> dict[str, msgspec.Raw] | None:
    try:
        return _fields.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _text(value: bytes) -> str | None:
    """Of a string what it says, of anything else its JSON."""
    if value == b"null":
        return None
    try:
        return msgspec.json.decode(value, type=str) if value.startswith(b'"') else value.decode()
    except (msgspec.DecodeError, UnicodeDecodeError):
        return value.decode("utf-8", "replace")

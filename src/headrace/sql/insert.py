"""INSERT INTO … VALUES → rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from headrace.nearest import did_you_mean
from headrace.sql.bind import bind
from headrace.sql.casting import caster
from headrace.sql.coerce import castable, is_number, widens
from headrace.sql.evaluate import compile_expression
from headrace.sql.expressions import Expression, Span
from headrace.sql.resolve import resolve
from headrace.sql.scope import Scope, find_source
from headrace.sql.source import Source, Sources
from headrace.sql.statements import InsertValues
from headrace.types import (
    BIGINT,
    BYTES,
    DATE,
    TIME,
    TIMESTAMP,
    VARCHAR,
    Array,
    Column,
    DataType,
    Map,
    Struct,
    display_name,
)

ROWTIME = Column("ROWTIME", BIGINT)


def plan_insert(statement: InsertValues, sources: Sources) -> tuple[Source, list[dict[str, Any]]]:
    """Where the rows go, and the rows: every key and value column, null where none is given, and ROWTIME (milliseconds)
    if it is. Values are as `evaluate` has them."""
    statement = bind(statement.script, statement, sources.functions())
    source = find_source(statement.script, sources, statement.target)
    if source.window is not None:
        message = f"`{display_name(source.name)}` is windowed: only its query writes it"
        raise statement.script.error(message, statement.target.span)
    if source.read_only:
        message = f"`{display_name(source.name)}` is a SOURCE: nothing is written to it"
        raise statement.script.error(message, statement.target.span)
    columns = _columns(statement, source)
    scope = Scope(statement.script, {})
    rows = [_row(statement, index, source, columns, scope) for index in range(len(statement.rows))]
    return source, rows


def _columns(statement: InsertValues, source: Source) -> list[Column]:
    if not statement.columns:
        return list(source.key + source.value)
    known = {column.name: column for column in (*source.key, *source.value, ROWTIME)}
    found: list[Column] = []
    for wanted in statement.columns:
        if wanted.name not in known:
            hint = did_you_mean(wanted.name, known, f"columns are {', '.join(map(display_name, known))}", display_name)
            raise statement.script.error(f"column `{display_name(wanted.name)}` does not exist", wanted.span, hint)
        if known[wanted.name] in found:
            raise statement.script.error(f"column `{display_name(wanted.name)}` is there twice", wanted.span)
        found.append(known[wanted.name])
    return found


def _row(statement: InsertValues, index: int, source: Source, columns: list[Column], scope: Scope) -> dict[str, Any]:
    values, span = statement.rows[index], _row_span(statement, index)
    if len(values) != len(columns):
        names = ", ".join(display_name(column.name) for column in columns)
        message = f"{len(values)} values for {len(columns)} columns"
        raise statement.script.error(message, span, f"the columns are {names}")
    row: dict[str, Any] = {column.name: None for column in source.key + source.value}
    for column, value in zip(columns, values, strict=True):
        row[column.name] = _value(value, column, scope)
    if row.get("ROWTIME", 0) is None:
        raise scope.error("ROWTIME cannot be null", span)
    for column in source.key if source.kind == "table" else ():
        if row[column.name] is None:
            raise scope.error(f"the primary key `{display_name(column.name)}` cannot be null", span)
    return row


def _row_span(statement: InsertValues, index: int) -> Span | None:
    return statement.row_spans[index] if index < len(statement.row_spans) else statement.target.span


def _value(expression: Expression, column: Column, scope: Scope) -> Any:
    """The constant, as the column's type. It must fit: nothing is rounded or cut in silence."""
    resolved = resolve(expression, scope, "VALUES")
    value = compile_expression(resolved)({})
    if value is None or resolved.type is None:
        return None
    if column == ROWTIME and resolved.type == VARCHAR:
        return _convert(value, VARCHAR, TIMESTAMP, column, expression, scope)
    if not _assignable(resolved.type, column.type):
        message = f"`{display_name(column.name)}` is {column.type}, not {resolved.type}"
        hint = "write X'CAFE', or TO_BYTES('yv4=', 'base64')" if column.type == BYTES else None
        raise scope.error(message, expression.span, hint)
    for field, fields in _unknown_fields(resolved.type, column.type):
        names = ", ".join(map(display_name, fields))
        message = f"`{display_name(column.name)}` has no field `{display_name(field)}`"
        raise scope.error(message, expression.span, f"fields are {names}")
    return _convert(value, resolved.type, column.type, column, expression, scope)


def _assignable(source: DataType, target: DataType) -> bool:
    if source == target or widens(source, target) or (is_number(source) and is_number(target)):
        return True
    if source == VARCHAR:
        return target in (DATE, TIME, TIMESTAMP)
    return type(source) is type(target) and castable(source, target)


def _unknown_fields(source: DataType, target: DataType) -> Iterator[tuple[str, list[str]]]:
    """Fields of a struct that the column has no place for, each with those it has."""
    match source, target:
        case Struct(given), Struct(fields):
            known = dict(fields)
            for name, inner in given:
                if name not in known:
                    yield name, list(known)
                else:
                    yield from _unknown_fields(inner, known[name])
        case (Array(inner), Array(element)) | (Map(_, inner), Map(_, element)):
            yield from _unknown_fields(inner, element)


def _convert(
    value: Any, source: DataType, target: DataType, column: Column, expression: Expression, scope: Scope
) -> Any:
    try:
        converted = caster(source, target)(value)
    except (ValueError, ArithmeticError):
        raise scope.error(f"`{value}` is not {target}", expression.span) from None
    if is_number(source) and is_number(target) and converted != value and not isinstance(converted, float):
        raise scope.error(f"`{value}` does not fit into {target}", expression.span)
    return converted

"""Arrays, maps and structs in expressions: their elements, their fields, and making them."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from headrace.nearest import did_you_mean
from headrace.sql.coerce import widens
from headrace.sql.expressions import Dereference, Expression, MapLiteral, StructLiteral, Subscript
from headrace.sql.implicit import convert
from headrace.sql.scope import Scope, typed
from headrace.types import BIGINT, INTEGER, Array, DataType, Map, Struct, display_name


class Walk(Protocol):
    """What the walk over the whole expression gives."""

    scope: Scope

    def resolve(self, node: Expression) -> Expression: ...

    def unify(self, nodes: list[Expression], what: str, whole: Expression) -> list[Expression]: ...


def resolve_subscript(node: Subscript, walk: Walk) -> Expression:
    base, index = walk.resolve(node.base), walk.resolve(node.index)
    match base.type:
        case Array(element):
            wanted, result = BIGINT, element
            if index.type not in (INTEGER, BIGINT):
                raise walk.scope.error(f"an array is subscripted with a whole number, not {index.type}", index.span)
        case Map(key, value):
            wanted, result = key, value  # type: ignore[assignment]
            if index.type is not None and not widens(index.type, key):
                raise walk.scope.error(f"the map's keys are {key}, not {index.type}", index.span)
        case _:
            raise walk.scope.error(f"{base.type or 'NULL'} cannot be subscripted", base.span)
    return replace(node, base=base, index=convert(index, wanted), type=result)


def resolve_dereference(node: Dereference, walk: Walk) -> Expression:
    base = walk.resolve(node.base)
    if not isinstance(base.type, Struct):
        raise walk.scope.error(f"{base.type or 'NULL'} has no fields", base.span, "`->` takes a field of a STRUCT")
    fields = dict(base.type.fields)
    if node.field not in fields:
        message = f"field `{display_name(node.field)}` does not exist"
        known = f"fields are {', '.join(map(display_name, fields))}" if len(fields) <= 12 else None
        raise walk.scope.error(message, node.span, did_you_mean(node.field, fields, known, display_name))
    return replace(node, base=base, type=fields[node.field])


def resolve_map(node: MapLiteral, walk: Walk) -> Expression:
    keys = walk.unify([walk.resolve(key) for key, _ in node.entries], "a map", node)
    values = walk.unify([walk.resolve(value) for _, value in node.entries], "a map", node)
    assert keys[0].type is not None
    assert values[0].type is not None
    entries = tuple(zip(keys, values, strict=True))
    return replace(node, entries=entries, type=Map(keys[0].type, values[0].type))


def resolve_struct(node: StructLiteral, walk: Walk) -> Expression:
    fields: list[tuple[str, Expression]] = []
    types: list[tuple[str, DataType]] = []
    for name, value in node.fields:
        resolved = typed(walk.resolve(value), walk.scope)
        assert resolved.type is not None
        fields.append((name, resolved))
        types.append((name, resolved.type))
    return replace(node, fields=tuple(fields), type=Struct(tuple(types)))

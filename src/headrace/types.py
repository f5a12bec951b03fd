"""The vocabulary of types: what a column can hold, in SQL's words.

Nothing here knows Arrow, Spark or SQLite; each tier maps these types to its own
(`log.schema`, `process.spark_types`, `store.sqlite`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias


@dataclass(frozen=True, slots=True)
class Boolean:
    def __str__(self) -> str:
        return "BOOLEAN"


@dataclass(frozen=True, slots=True)
class Integer:
    """32 bits, signed."""

    def __str__(self) -> str:
        return "INTEGER"


@dataclass(frozen=True, slots=True)
class BigInt:
    """64 bits, signed."""

    def __str__(self) -> str:
        return "BIGINT"


@dataclass(frozen=True, slots=True)
class Double:
    def __str__(self) -> str:
        return "DOUBLE"


@dataclass(frozen=True, slots=True)
class Decimal:
    precision: int
    scale: int

    def __str__(self) -> str:
        return f"DECIMAL({self.precision}, {self.scale})"


@dataclass(frozen=True, slots=True)
class Varchar:
    def __str__(self) -> str:
        return "VARCHAR"


@dataclass(frozen=True, slots=True)
class Bytes:
    def __str__(self) -> str:
        return "BYTES"


@dataclass(frozen=True, slots=True)
class Date:
    """Days since 1970-01-01."""

    def __str__(self) -> str:
        return "DATE"


@dataclass(frozen=True, slots=True)
class Time:
    """Milliseconds of the day."""

    def __str__(self) -> str:
        return "TIME"


@dataclass(frozen=True, slots=True)
class Timestamp:
    """A moment, kept in microseconds since 1970-01-01T00:00:00Z, shown in milliseconds."""

    def __str__(self) -> str:
        return "TIMESTAMP"


@dataclass(frozen=True, slots=True)
class Array:
    element: DataType

    def __str__(self) -> str:
        return f"ARRAY<{self.element}>"


@dataclass(frozen=True, slots=True)
class Map:
    key: DataType
    value: DataType

    def __str__(self) -> str:
        return f"MAP<{self.key}, {self.value}>"


@dataclass(frozen=True, slots=True)
class Struct:
    fields: tuple[tuple[str, DataType], ...]

    def __str__(self) -> str:
        inner = ", ".join(f"{quote_name(name)} {type_}" for name, type_ in self.fields)
        return f"STRUCT<{inner}>"


DataType: TypeAlias = (
    Boolean | Integer | BigInt | Double | Decimal | Varchar | Bytes | Date | Time | Timestamp | Array | Map | Struct
)

BOOLEAN, INTEGER, BIGINT, DOUBLE = Boolean(), Integer(), BigInt(), Double()
VARCHAR, BYTES, DATE, TIME, TIMESTAMP = Varchar(), Bytes(), Date(), Time(), Timestamp()

SIMPLE_TYPES: dict[str, DataType] = {
    str(type_): type_ for type_ in (BOOLEAN, INTEGER, BIGINT, DOUBLE, VARCHAR, BYTES, DATE, TIME, TIMESTAMP)
}


@dataclass(frozen=True, slots=True)
class Column:
    """A named, typed column. Names are as SQL sees them: upper case unless they were quoted."""

    name: str
    type: DataType

    def __str__(self) -> str:
        return f"{quote_name(self.name)} {self.type}"


def quote_name(name: str) -> str:
    """The name as it must be written in SQL to mean itself."""
    plain = name.isascii() and name.isidentifier() and name == name.upper()
    return name if plain else "`" + name.replace("`", "``") + "`"


def display_name(name: str) -> str:
    """The name as people see it: unquoted identifiers are shown in lower case.

    >>> display_name("PAGEID"), display_name("pageId")
    ('pageid', 'pageId')
    """
    return name.lower() if name == name.upper() else name


def type_to_json(type_: DataType) -> Any:
    """A JSON-able form of a type, the inverse of `type_from_json`."""
    match type_:
        case Decimal(precision, scale):
            return {"decimal": [precision, scale]}
        case Array(element):
            return {"array": type_to_json(element)}
        case Map(key, value):
            return {"map": [type_to_json(key), type_to_json(value)]}
        case Struct(fields):
            return {"struct": [[name, type_to_json(field)] for name, field in fields]}
        case _:
            return str(type_)


def type_from_json(value: Any) -> DataType:
    """
    >>> type_from_json(type_to_json(Array(Decimal(4, 2))))
    Array(element=Decimal(precision=4, scale=2))
    """
    if isinstance(value, str):
        return SIMPLE_TYPES[value]
    [(kind, inner)] = value.items()
    match kind:
        case "decimal":
            return Decimal(inner[0], inner[1])
        case "array":
            return Array(type_from_json(inner))
        case "map":
            return Map(type_from_json(inner[0]), type_from_json(inner[1]))
        case _:
            return Struct(tuple((name, type_from_json(field)) for name, field in inner))

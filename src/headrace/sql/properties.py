"""What WITH (…) says about a stream's or table's topic and formats."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from headrace.errors import SqlError
from headrace.sql.coerce import contains_map, has_text_keys, is_nested
from headrace.sql.script import Script, did_you_mean
from headrace.sql.statements import Identifier, Property
from headrace.types import BIGINT, BYTES, DOUBLE, INTEGER, TIMESTAMP, VARCHAR, Column, display_name

FORMATS = ("JSON", "DELIMITED", "KAFKA", "NONE")
_FORMATS_NOT_YET = ("AVRO", "PROTOBUF", "PROTOBUF_NOSR", "JSON_SR")
_KAFKA_TYPES = (INTEGER, BIGINT, DOUBLE, VARCHAR, BYTES)

# Every property there is, and what it says.
SOURCE_PROPERTIES: Mapping[str, str] = {
    "KAFKA_TOPIC": "the topic; by default the name of the stream or table",
    "VALUE_FORMAT": "JSON (default), DELIMITED, KAFKA or NONE",
    "KEY_FORMAT": "KAFKA (default), JSON, DELIMITED or NONE",
    "FORMAT": "both formats at once",
    "KEY": "classic KSQL: the column that holds the record's key",
    "PARTITIONS": "how many partitions the topic gets if it is made; by default 1",
    "REPLICAS": "accepted for ksqlDB's sake; the local log keeps one copy",
    "TIMESTAMP": "the column with the event time",
    "TIMESTAMP_FORMAT": "how that column is written, such as 'yyyy-MM-dd HH:mm:ss'",
    "WRAP_SINGLE_VALUE": "accepted for ksqlDB's sake, if TRUE",
}
# A query's sink takes its key from its SELECT.
SINK_PROPERTIES = {name: text for name, text in SOURCE_PROPERTIES.items() if name != "KEY"}
NOT_YET = frozenset(
    {
        "KEY_DELIMITER",
        "KEY_PROTOBUF_NULLABLE_REPRESENTATION",
        "KEY_SCHEMA_FULL_NAME",
        "KEY_SCHEMA_ID",
        "MODE",
        "RETENTION_MS",
        "VALUE_AVRO_SCHEMA_FULL_NAME",
        "VALUE_DELIMITER",
        "VALUE_PROTOBUF_NULLABLE_REPRESENTATION",
        "VALUE_SCHEMA_FULL_NAME",
        "VALUE_SCHEMA_ID",
        "WINDOW_SIZE",
        "WINDOW_TYPE",
    }
)


@dataclass(frozen=True, slots=True)
class Properties:
    """Checked properties: names that exist, values of the right kind."""

    script: Script
    by_name: Mapping[str, Property]

    def text(self, name: str) -> str | None:
        found = self.by_name.get(name)
        if found is None:
            return None
        if not isinstance(found.value, str) or not found.value:
            raise self.wrong(name, f"{name} must be a string in quotes, got `{found.value}`")
        return found.value

    def count(self, name: str) -> int | None:
        found = self.by_name.get(name)
        if found is None:
            return None
        # Classic KSQL: PARTITIONS='5'.
        text = str(found.value)
        if isinstance(found.value, bool) or not (text.isascii() and text.isdigit()) or not 1 <= int(text) <= 10_000:
            raise self.wrong(name, f"{name} must be a number from 1 to 10000, got `{found.value}`")
        return int(text)

    def format(self, name: str) -> str | None:
        """KEY_FORMAT or VALUE_FORMAT; FORMAT is for both."""
        where = name if name in self.by_name else "FORMAT"
        if name in self.by_name and "FORMAT" in self.by_name:
            raise self.wrong(name, f"FORMAT and {name} cannot both be there", "FORMAT sets both formats")
        given = self.text(where)
        if given is None:
            return None
        found = given.upper()
        if found in _FORMATS_NOT_YET:
            raise self.wrong(where, f"the format {found} is not supported yet", f"formats are {', '.join(FORMATS)}")
        if found not in FORMATS:
            hint = did_you_mean(found, FORMATS, f"formats are {', '.join(FORMATS)}")
            raise self.wrong(where, f"unknown format `{given}`", hint)
        return found

    def column(self, name: str, columns: Iterable[Column]) -> Column | None:
        """The column a property names, in any case unless it is in backticks."""
        given = self.text(name)
        if given is None:
            return None
        known = {column.name: column for column in columns}
        wanted = given[1:-1] if given[0] == given[-1] == "`" and len(given) > 2 else given
        found = known.get(wanted) or known.get(wanted.upper())
        if found is None:
            hint = did_you_mean(wanted, known, f"columns are {', '.join(map(display_name, known))}", display_name)
            raise self.wrong(name, f"{name}: column `{wanted}` does not exist", hint)
        return found

    def timestamp(self, columns: Iterable[Column]) -> tuple[str | None, str | None]:
        """The event time's column and its format."""
        column, pattern = self.column("TIMESTAMP", columns), self.text("TIMESTAMP_FORMAT")
        if column is None:
            if pattern is not None:
                raise self.wrong("TIMESTAMP_FORMAT", "TIMESTAMP_FORMAT needs TIMESTAMP")
            return None, None
        if column.type == VARCHAR:
            if pattern is None:
                hint = "say how it is written: TIMESTAMP_FORMAT='yyyy-MM-dd HH:mm:ss'"
                raise self.wrong("TIMESTAMP", f"the timestamp column `{display_name(column.name)}` is VARCHAR", hint)
        elif column.type not in (BIGINT, TIMESTAMP):
            message = f"the timestamp column `{display_name(column.name)}` is {column.type}"
            raise self.wrong("TIMESTAMP", message, "it must be BIGINT, TIMESTAMP or VARCHAR")
        elif pattern is not None:
            raise self.wrong("TIMESTAMP_FORMAT", f"TIMESTAMP_FORMAT is for VARCHAR, not for {column.type}")
        return column.name, pattern

    def wrong(self, name: str, message: str, hint: str | None = None) -> SqlError:
        found = self.by_name.get(name)
        return self.script.error(message, found.value_span if found else None, hint)


def read_properties(script: Script, given: tuple[Property, ...], known: Mapping[str, str]) -> Properties:
    """`SqlError` for a property that does not exist, or that cannot do anything yet."""
    for one in given:
        if one.name in NOT_YET:
            raise script.error(f"the property {one.name} is not supported yet", one.span)
        if one.name not in known and one.name in SOURCE_PROPERTIES:
            why = "a query keeps its source's key, or has that of its GROUP BY"
            raise script.error(f"{one.name} is not for CREATE … AS SELECT", one.span, why)
        if one.name not in known:
            hint = did_you_mean(one.name, known, f"properties are {', '.join(known)}")
            raise script.error(f"unknown property `{one.name}`", one.span, hint)
    found = Properties(script, {one.name: one for one in given})
    wrap = found.by_name.get("WRAP_SINGLE_VALUE")
    if wrap is not None and str(wrap.value).upper() != "TRUE":
        raise found.wrong("WRAP_SINGLE_VALUE", "WRAP_SINGLE_VALUE=FALSE is not supported yet")
    found.count("REPLICAS")
    return found


def check_formats(
    script: Script, target: Identifier, key: tuple[Column, ...], value: tuple[Column, ...], formats: tuple[str, str]
) -> None:
    """`SqlError` if a format cannot hold the columns. `formats` are the key's and the value's."""
    for column in key:
        if contains_map(column.type):
            raise script.error(f"the key `{display_name(column.name)}` cannot hold a MAP", target.span)
    for columns, format_, side in ((key, formats[0], "KEY_FORMAT"), (value, formats[1], "VALUE_FORMAT")):
        problem = format_problem(columns, format_)
        if problem:
            hint = f"choose another with {side}='JSON'" if format_ != "JSON" else "give the map VARCHAR keys"
            raise script.error(f"the format {format_} {problem}", target.span, hint)


def format_problem(columns: tuple[Column, ...], format_: str) -> str | None:
    """Why a format cannot hold the columns; None if it can."""
    names = ", ".join(display_name(column.name) for column in columns)
    if format_ == "NONE" and columns:
        return f"is for no columns at all, but there is {names}"
    if format_ == "KAFKA" and len(columns) > 1:
        return f"holds one column, but there are {names}"
    for column in columns:
        unfit = is_nested(column.type) if format_ == "DELIMITED" else column.type not in _KAFKA_TYPES
        if format_ == "JSON" and not has_text_keys(column.type):
            return f"has maps with VARCHAR keys only, but `{display_name(column.name)}` is {column.type}"
        if format_ in ("DELIMITED", "KAFKA") and unfit:
            return f"cannot hold `{display_name(column.name)}`, which is {column.type}"
    return None

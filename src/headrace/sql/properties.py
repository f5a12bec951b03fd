"""What WITH (…) says about a stream's or table's topic and formats."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from headrace.errors import SqlError
from headrace.nearest import did_you_mean
from headrace.sql import datetimes
from headrace.sql.clauses import UNIT_MS, Identifier, Property
from headrace.sql.coerce import contains_map, has_text_keys, is_nested
from headrace.sql.script import Script
from headrace.sql.source import Source, Window
from headrace.types import BIGINT, BYTES, DOUBLE, INTEGER, TIMESTAMP, VARCHAR, Column, display_name

FORMATS = ("JSON", "DELIMITED", "KAFKA", "NONE", "AVRO", "PROTOBUF", "JSON_SR", "PROTOBUF_NOSR")
WITH_MAPS = ("JSON", "JSON_SR", "AVRO", "PROTOBUF", "PROTOBUF_NOSR")
_WITH_NAMES = ("AVRO", "PROTOBUF", "JSON_SR")
_KAFKA_TYPES = (INTEGER, BIGINT, DOUBLE, VARCHAR, BYTES)
_AVRO_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_DELIMITERS = {"SPACE": " ", "TAB": "\t"}

# Every property there is, and what it says.
SOURCE_PROPERTIES: Mapping[str, str] = {
    "KAFKA_TOPIC": "the topic; by default the name of the stream or table",
    "VALUE_FORMAT": "JSON (default), AVRO, PROTOBUF, JSON_SR, DELIMITED, KAFKA or NONE",
    "KEY_FORMAT": "KAFKA (default), or one of the others",
    "FORMAT": "both formats at once",
    "KEY": "classic KSQL: the column that holds the record's key",
    "PARTITIONS": "how many partitions the topic gets if it is made; by default 1",
    "REPLICAS": "accepted for ksqlDB's sake; the local log keeps one copy",
    "RETENTION_MS": "how long the topic keeps records if it is made; by default for ever",
    "ROW_TTL_MS": "how long a table's view keeps a row that does not change, by event time; by default for ever",
    "TIMESTAMP": "the column with the event time",
    "TIMESTAMP_FORMAT": "how that column is written, such as 'yyyy-MM-dd HH:mm:ss'",
    "WRAP_SINGLE_VALUE": "FALSE: a value of one column is written bare, not as an object with one field",
    "KEY_DELIMITER": "what separates DELIMITED columns of the key: one character, SPACE or TAB; by default a comma",
    "VALUE_DELIMITER": "the same for the value",
    "WINDOW_TYPE": "TUMBLING, HOPPING or SESSION: the topic's keys have windows",
    "WINDOW_SIZE": "how long they are, such as '30 SECONDS'; not for SESSION",
    "KEY_SCHEMA_ID": "the number of the key's schema in the registry",
    "VALUE_SCHEMA_ID": "the number of the value's schema in the registry",
    "KEY_SCHEMA_FULL_NAME": "what the key's schema is called",
    "VALUE_SCHEMA_FULL_NAME": "what the value's schema is called",
    "VALUE_AVRO_SCHEMA_FULL_NAME": "the same, as older ksqlDBs wrote it",
}
# A query's sink takes its key and its window from its SELECT.
_NOT_FOR_SINKS = ("KEY", "WINDOW_TYPE", "WINDOW_SIZE")
# What a query may take: of CREATE … AS SELECT only.
QUERY_PROPERTIES: Mapping[str, str] = {
    "MAX_STATE_ROWS": "how many rows of state the query may keep; over it, it stops and says so",
    "MAX_STATE_BYTES": "the same in bytes",
    "MAX_BATCH_ROWS": "most rows it reads at once",
    "BATCH_COUNTS_LATE": "TRUE: its batch layer counts what came too late for the stream, too; by default FALSE",
}
SINK_PROPERTIES = {
    **{name: text for name, text in SOURCE_PROPERTIES.items() if name not in _NOT_FOR_SINKS},
    **QUERY_PROPERTIES,
}
INSERT_PROPERTIES = {"QUERY_ID": "what its id begins with, before a number; by default INSERTQUERY"}
NOT_YET = frozenset({"KEY_PROTOBUF_NULLABLE_REPRESENTATION", "MODE", "VALUE_PROTOBUF_NULLABLE_REPRESENTATION"})


# Those of ksqlDB's settings that say what a statement means where its WITH (…) does not.
KEY_FORMAT_SETTING = "ksql.persistence.default.format.key"
VALUE_FORMAT_SETTING = "ksql.persistence.default.format.value"
WRAP_SETTING = "ksql.persistence.wrap.single.values"
SETTINGS = (KEY_FORMAT_SETTING, VALUE_FORMAT_SETTING, WRAP_SETTING)


@dataclass(frozen=True, slots=True)
class Properties:
    """Checked properties: names that exist, values of the right kind. `settings` are those of SET."""

    script: Script
    by_name: Mapping[str, Property]
    settings: Mapping[str, str] = field(default_factory=dict)

    def text(self, name: str) -> str | None:
        found = self.by_name.get(name)
        if found is None:
            return None
        if not isinstance(found.value, str) or not found.value:
            raise self.wrong(name, f"{name} must be a string in quotes, got `{found.value}`")
        return found.value

    def count(self, name: str, most: int = 10_000) -> int | None:
        found = self.by_name.get(name)
        if found is None:
            return None
        # Classic KSQL: PARTITIONS='5'.
        text = str(found.value)
        number = isinstance(found.value, int | str) and not isinstance(found.value, bool)
        if not (number and text.isascii() and text.isdigit()) or not 1 <= int(text[:20]) <= most:
            raise self.wrong(name, f"{name} must be a number from 1 to {most}, got `{found.value}`")
        return int(text)

    def flag(self, name: str) -> bool | None:
        found = self.by_name.get(name)
        if found is None:
            return None
        if str(found.value).upper() not in ("TRUE", "FALSE"):
            raise self.wrong(name, f"{name} must be TRUE or FALSE, got `{found.value}`")
        return str(found.value).upper() == "TRUE"

    def delimiter(self, name: str, format_: str) -> str | None:
        """KEY_DELIMITER or VALUE_DELIMITER: a character, or its name."""
        given = self.text(name)
        if given is None:
            return None
        if format_ != "DELIMITED":
            raise self.wrong(name, f"{name} is for the format DELIMITED, not for {format_}")
        found = _DELIMITERS.get(given.upper(), given)
        if len(found) != 1:
            raise self.wrong(name, f"`{given}` is not a delimiter", "it is one character, SPACE or TAB")
        return found

    def wrapping(self, format_: str, value: Sequence[Column]) -> bool | None:
        """WRAP_SINGLE_VALUE, where it means something."""
        wrap = self.flag("WRAP_SINGLE_VALUE")
        if wrap is None:
            bare = self.settings.get(WRAP_SETTING, "").lower() == "false"
            return False if bare and len(value) == 1 and format_ in WITH_MAPS else None
        if len(value) != 1:
            message = f"WRAP_SINGLE_VALUE is for values of one column; here there are {len(value)}"
            raise self.wrong("WRAP_SINGLE_VALUE", message, "leave it out")
        if wrap and format_ in ("DELIMITED", "KAFKA", "NONE"):
            raise self.wrong("WRAP_SINGLE_VALUE", f"the format {format_} has nothing to wrap a value in")
        return wrap

    def window(self, key: Sequence[Column]) -> Window | None:
        """WINDOW_TYPE and WINDOW_SIZE of a topic somebody else writes."""
        kind, size = self.text("WINDOW_TYPE"), self.text("WINDOW_SIZE")
        if kind is None:
            if size is not None:
                raise self.wrong("WINDOW_SIZE", "WINDOW_SIZE needs WINDOW_TYPE")
            return None
        if not key:
            raise self.wrong("WINDOW_TYPE", "a windowed source needs a key column")
        match kind.upper():
            case "SESSION":
                if size is not None:
                    raise self.wrong("WINDOW_SIZE", "a session has no WINDOW_SIZE", "leave it out")
                return Window("session", 0, 0, 0)
            case "TUMBLING" | "HOPPING":
                milliseconds = self._duration("WINDOW_SIZE", size)
                return Window("tumbling" if kind.upper() == "TUMBLING" else "hopping", milliseconds, milliseconds, 0)
            case _:
                hint = did_you_mean(kind, ("TUMBLING", "HOPPING", "SESSION"), "it is TUMBLING, HOPPING or SESSION")
                raise self.wrong("WINDOW_TYPE", f"unknown window type `{kind}`", hint)

    def _duration(self, name: str, text: str | None) -> int:
        if text is None:
            raise self.wrong("WINDOW_TYPE", f"{name} is needed", f"such as {name}='30 SECONDS'")
        amount, _, unit = text.strip().partition(" ")
        known = UNIT_MS.get(unit.strip().upper().removesuffix("S"))
        if known is None or not (amount.isascii() and amount.isdigit()) or len(amount) > 12 or not int(amount):
            raise self.wrong(name, f"`{text}` is not a duration", "such as '30 SECONDS'")
        return int(amount) * known

    def format(self, name: str) -> str | None:
        """KEY_FORMAT or VALUE_FORMAT; FORMAT is for both."""
        where = name if name in self.by_name else "FORMAT"
        if name in self.by_name and "FORMAT" in self.by_name:
            raise self.wrong(name, f"FORMAT and {name} cannot both be there", "FORMAT sets both formats")
        given = self.text(where)
        if given is None:
            return None
        found = given.upper()
        if found not in FORMATS:
            hint = did_you_mean(found, FORMATS, f"formats are {', '.join(FORMATS)}")
            raise self.wrong(where, f"unknown format `{given}`", hint)
        return found

    def default_format(self, setting: str) -> str | None:
        """What SET says for statements that say nothing."""
        found = self.settings.get(setting, "").upper()
        return found if found in FORMATS else None

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
        if pattern is not None:
            try:
                datetimes.check_pattern(pattern)
            except ValueError as error:
                hint = "such as 'yyyy-MM-dd HH:mm:ss'; text in it is in quotes, ''T''"
                raise self.wrong("TIMESTAMP_FORMAT", str(error), hint) from None
        return column.name, pattern

    def details(self, formats: tuple[str, str], value: Sequence[Column]) -> dict[str, Any]:
        """The fields of a `Source` that say how its records are written, beside the formats."""
        largest = 2**31 - 1
        return {
            "key_delimiter": self.delimiter("KEY_DELIMITER", formats[0]),
            "value_delimiter": self.delimiter("VALUE_DELIMITER", formats[1]),
            "wrap_single_value": self.wrapping(formats[1], value),
            "retention_ms": self.count("RETENTION_MS", 2**63 - 1),
            "row_ttl_ms": self.count("ROW_TTL_MS", 2**62),
            "key_schema_id": self.count("KEY_SCHEMA_ID", largest),
            "value_schema_id": self.count("VALUE_SCHEMA_ID", largest),
            "key_schema_name": self._schema_name("KEY_SCHEMA_FULL_NAME", formats[0]),
            "value_schema_name": self._schema_name("VALUE_SCHEMA_FULL_NAME", formats[1])
            or self._schema_name("VALUE_AVRO_SCHEMA_FULL_NAME", formats[1]),
        }

    def checked(self, source: Source) -> Source:
        """`source`, if what is said about its rows can be so."""
        if source.row_ttl_ms is not None and source.kind == "stream":
            raise self.wrong(
                "ROW_TTL_MS", "a stream keeps no rows", "RETENTION_MS says how long its topic keeps records"
            )
        if source.row_ttl_ms is not None and source.window is not None:
            hint = "say it of the window: WINDOW TUMBLING (SIZE 1 HOUR, RETENTION 7 DAYS)"
            raise self.wrong("ROW_TTL_MS", "rows of windows are kept as long as their window", hint)
        return source

    def _schema_name(self, name: str, format_: str) -> str | None:
        given = self.text(name)
        if given is not None and format_ not in _WITH_NAMES:
            raise self.wrong(name, f"{name} is for formats with named schemas, not for {format_}")
        return given

    def wrong(self, name: str, message: str, hint: str | None = None) -> SqlError:
        found = self.by_name.get(name)
        return self.script.error(message, found.value_span if found else None, hint)


def read_properties(
    script: Script, given: tuple[Property, ...], known: Mapping[str, str], settings: Mapping[str, str]
) -> Properties:
    """`SqlError` for a property that does not exist, or that cannot do anything yet."""
    for one in given:
        if one.name in NOT_YET:
            raise script.error(f"the property {one.name} is not supported yet", one.span)
        if one.name not in known and one.name in QUERY_PROPERTIES:
            raise script.error(f"{one.name} is for CREATE … AS SELECT", one.span, "a declared source has no query")
        if one.name not in known and one.name in SOURCE_PROPERTIES:
            why = "a query has the key and the window of its source, or those of its GROUP BY"
            raise script.error(f"{one.name} is not for CREATE … AS SELECT", one.span, why)
        if one.name not in known:
            hint = did_you_mean(one.name, known, f"properties are {', '.join(known)}")
            raise script.error(f"unknown property `{one.name}`", one.span, hint)
    found = Properties(script, {one.name: one for one in given}, settings)
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
        if format_ == "AVRO" and not _AVRO_NAME.fullmatch(column.name):
            return f"has no field names like `{column.name}`"
        unfit = is_nested(column.type) if format_ == "DELIMITED" else column.type not in _KAFKA_TYPES
        if format_ in WITH_MAPS and not has_text_keys(column.type):
            return f"has maps with VARCHAR keys only, but `{display_name(column.name)}` is {column.type}"
        if format_ in ("DELIMITED", "KAFKA") and unfit:
            return f"cannot hold `{display_name(column.name)}`, which is {column.type}"
    return None

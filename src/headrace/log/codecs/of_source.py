"""The codecs of a declared stream or table: its formats with what WITH (…) says about them."""

from __future__ import annotations

from headrace.log.codecs.base import Codec, FormatOptions, Schemas, Side
from headrace.log.codecs.formats import make_codec
from headrace.sql.source import Source


def source_options(source: Source, side: Side) -> FormatOptions:
    """What WITH (…) says about a format, beside its name."""
    if side == "key":
        return FormatOptions(
            delimiter=source.key_delimiter or ",", full_name=source.key_schema_name, schema_id=source.key_schema_id
        )
    return FormatOptions(
        delimiter=source.value_delimiter or ",",
        wrap_single_value=source.wrap_single_value is not False,
        full_name=source.value_schema_name,
        schema_id=source.value_schema_id,
    )


def source_codec(source: Source, side: Side, schemas: Schemas | None, keep_rest: bool = False) -> Codec:
    format_, columns = (source.key_format, source.key) if side == "key" else (source.value_format, source.value)
    return make_codec(format_, source.topic, columns, side, source_options(source, side), schemas, keep_rest)


def read_plainly(source: Source, side: Side) -> bool:
    """Whether a raw topic's bytes are read field by field, without a codec: then a field that does not fit is null, and
    the others are there."""
    if side == "key":
        return source.key_format.upper() in ("JSON", "KAFKA")
    return source.value_format.upper() == "JSON" and source.wrap_single_value is not False

"""From a format's name to its codec: the one place that knows them all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.errors import UsageError
from headrace.log.codecs.base import Codec, FormatOptions, Schemas, Side
from headrace.log.codecs.delimited import Delimited
from headrace.log.codecs.json_payloads import JsonPayloads
from headrace.log.codecs.json_sr import JsonSrCodec
from headrace.log.codecs.kafka_primitives import KafkaPrimitive
from headrace.log.codecs.plain import Nothing, Raw
from headrace.types import Column

if TYPE_CHECKING:
    from headrace.log.codecs.avro import AvroCodec
    from headrace.log.codecs.protobuf import ProtobufCodec

FORMATS = ("JSON", "DELIMITED", "KAFKA", "NONE", "RAW", "AVRO", "PROTOBUF", "PROTOBUF_NOSR", "JSON_SR")
REGISTRY_FORMATS = ("AVRO", "PROTOBUF", "JSON_SR")
"""Those whose payloads name a schema in the registry."""


def make_codec(
    format_: str,
    topic: str,
    columns: tuple[Column, ...],
    side: Side = "value",
    options: FormatOptions | None = None,
    schemas: Schemas | None = None,
    keep_rest: bool = False,
) -> Codec:
    """The codec of a topic's key or value. `keep_rest`: undeclared fields of JSON go to `Decoded.rest`."""
    options = options or FormatOptions()
    name = format_.upper()
    if name in REGISTRY_FORMATS:
        if schemas is None:
            raise UsageError(f"the format {name} needs a schema registry")
        if name == "JSON_SR":
            return JsonSrCodec(topic, columns, schemas, side, options, keep_rest)
        return _registered(name)(topic, columns, schemas, side, options)
    match name:
        case "JSON":
            # A key of one column is that column, as in ksqlDB.
            wrapped = options.wrap_single_value if side == "value" else False
            return JsonPayloads(columns, wrapped, keep_rest)
        case "DELIMITED":
            return Delimited(columns, options.delimiter)
        case "KAFKA":
            return KafkaPrimitive(columns)
        case "PROTOBUF_NOSR":
            from headrace.log.codecs.protobuf import BareProtobuf

            return BareProtobuf(columns, options)
        case "NONE":
            return Nothing(columns)
        case "RAW":
            return Raw(columns)
        case _:
            raise UsageError(f"there is no format `{format_}`", hint=f"formats are {', '.join(FORMATS)}")


def _registered(name: str) -> type[AvroCodec | ProtobufCodec]:
    """Their libraries are large, and most processes never meet a record of theirs: they load when they are wanted."""
    if name == "AVRO":
        from headrace.log.codecs.avro import AvroCodec

        return AvroCodec
    from headrace.log.codecs.protobuf import ProtobufCodec

    return ProtobufCodec

"""OpenTelemetry's logs over HTTP, protobuf or JSON: each record an event, with its resource and its scope.

An exporter that gets no answer sends the same request again. There are no ids in the protocol, but each record has a
time in nanoseconds; so where all have one, record *i* of a request is known by the request's content and *i*.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import msgspec
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2

from headrace.collect.base import Sent
from headrace.collect.translate import Posted, digest, event_of, read_object, sent
from headrace.errors import UnsupportedMedia, UsageError
from headrace.log.codecs.json_codec import Event

PROTOBUF, JSON = "application/x-protobuf", "application/json"
EXPECTED = '{"resourceLogs": [{"resource": {…}, "scopeLogs": [{"logRecords": [{"body": {"stringValue": "…"}}]}]}]}'
MAX_DEPTH = 32
"""Of values in values: deeper ones are kept as text."""

Fields = dict[str, Any]


def translate(posted: Posted) -> Sent:
    match posted.media_type:
        case "application/x-protobuf" | "application/protobuf":
            records = list(_of_protobuf(posted.body))
        case "application/json":
            records = list(_of_json(read_object(posted.body, EXPECTED)))
        case other:
            raise UnsupportedMedia(
                f"cannot read logs sent as `{other[:60]}`", hint=f"OTLP over HTTP is {PROTOBUF} or {JSON}"
            )
    known = all(_nanos(record) for record in records)
    request = digest(posted.body) if known else ""
    return sent([_event(record, f"{request}/{row}" if known else None) for row, record in enumerate(records)])


def _nanos(record: Fields) -> int:
    return int(record["time_unix_nano"] or record["observed_time_unix_nano"])


def _event(record: Fields, id_: str | None) -> Event:
    # What protobuf cannot tell from nothing is nothing; but a body may be 0, or false.
    fields = {name: value for name, value in record.items() if value or (name == "body" and value is not None)}
    nanos = _nanos(record)
    event = event_of(fields, id_, nanos // 1_000_000 if nanos else None)
    assert isinstance(event, dict)  # the names of its fields are ours
    return event


# Protobuf


def _of_protobuf(body: bytes) -> Iterator[Fields]:
    try:
        request = logs_service_pb2.ExportLogsServiceRequest.FromString(body)
    except DecodeError:
        raise UsageError("the body is no ExportLogsServiceRequest", hint="is this an OTLP exporter of logs?") from None
    for resource in request.resource_logs:
        about = _attributes(resource.resource.attributes)
        for scope in resource.scope_logs:
            shared = {
                "service_name": _text(about.get("service.name")),
                "resource": about,
                "scope_name": scope.scope.name,
                "scope_version": scope.scope.version,
                "scope_attributes": _attributes(scope.scope.attributes),
                "schema_url": scope.schema_url or resource.schema_url,
            }
            for record in scope.log_records:
                yield {
                    "time_unix_nano": record.time_unix_nano,
                    "observed_time_unix_nano": record.observed_time_unix_nano,
                    "severity_number": record.severity_number,
                    "severity_text": record.severity_text,
                    "body": _value(record.body),
                    "attributes": _attributes(record.attributes),
                    "dropped_attributes_count": record.dropped_attributes_count,
                    "flags": record.flags,
                    "trace_id": record.trace_id.hex(),
                    "span_id": record.span_id.hex(),
                    "event_name": record.event_name,
                    **shared,
                }


def _attributes(pairs: Any, depth: int = 0) -> Fields:
    return {pair.key: _value(pair.value, depth + 1) for pair in pairs}


def _value(value: Any, depth: int = 0) -> Any:
    kind = value.WhichOneof("value")
    if depth > MAX_DEPTH:
        return str(value)
    match kind:
        case "array_value":
            return [_value(one, depth + 1) for one in value.array_value.values]
        case "kvlist_value":
            return _attributes(value.kvlist_value.values, depth)
        case "bytes_value":
            return base64.b64encode(value.bytes_value).decode()
        case None:
            return None
        case _:
            return getattr(value, kind)


# JSON: the same names in camel case, integers as text, ids in hexadecimal


def _of_json(request: Fields) -> Iterator[Fields]:
    for resource in _list(request, "resourceLogs"):
        about = _json_attributes(_object(resource, "resource"))
        for scope_logs in _list(resource, "scopeLogs"):
            scope = _object(scope_logs, "scope")
            shared = {
                "service_name": _text(about.get("service.name")),
                "resource": about,
                "scope_name": scope.get("name"),
                "scope_version": scope.get("version"),
                "scope_attributes": _json_attributes(scope),
                "schema_url": scope_logs.get("schemaUrl") or resource.get("schemaUrl"),
            }
            for record in _list(scope_logs, "logRecords"):
                yield {
                    "time_unix_nano": _integer(record, "timeUnixNano"),
                    "observed_time_unix_nano": _integer(record, "observedTimeUnixNano"),
                    "severity_number": _integer(record, "severityNumber"),
                    "severity_text": record.get("severityText"),
                    "body": _json_value(record.get("body")),
                    "attributes": _json_attributes(record),
                    "dropped_attributes_count": _integer(record, "droppedAttributesCount"),
                    "flags": _integer(record, "flags"),
                    "trace_id": record.get("traceId"),
                    "span_id": record.get("spanId"),
                    "event_name": record.get("eventName"),
                    **shared,
                }


def _list(value: Fields, name: str) -> list[Fields]:
    found = value.get(name)
    if found is None:
        return []
    if type(found) is not list or not all(type(one) is dict for one in found):
        raise UsageError(f"`{name}` is not a list of objects", hint=f"send {EXPECTED}")
    return found


def _object(value: Fields, name: str) -> Fields:
    found = value.get(name)
    return found if type(found) is dict else {}


def _integer(value: Fields, name: str) -> int:
    found = value.get(name)
    if found is None:
        return 0
    try:
        number = int(found) if type(found) in (int, str) and len(str(found)) <= 20 else None
    except ValueError:
        number = None
    if number is None or not 0 <= number < 1 << 63:
        raise UsageError(f"`{name}` is not a number of that kind", hint=f"send {EXPECTED}")
    return number


def _json_attributes(value: Fields, depth: int = 0) -> Fields:
    pairs = value.get("attributes" if depth == 0 else "values")
    if type(pairs) is not list:
        return {}
    return {
        str(pair["key"]): _json_value(pair.get("value"), depth + 1)
        for pair in pairs
        if type(pair) is dict and "key" in pair
    }


def _json_value(value: Any, depth: int = 0) -> Any:
    if type(value) is not dict or len(value) != 1 or depth > MAX_DEPTH:
        return value if depth <= MAX_DEPTH else msgspec.json.encode(value).decode()
    [(kind, inner)] = value.items()
    match kind:
        case "stringValue" | "boolValue" | "doubleValue" | "bytesValue":
            return inner
        case "intValue":
            return int(inner) if type(inner) is str and inner.lstrip("-").isdecimal() and len(inner) < 20 else inner
        case "arrayValue" if type(inner) is dict and type(inner.get("values", [])) is list:
            return [_json_value(one, depth + 1) for one in inner.get("values", [])]
        case "kvlistValue" if type(inner) is dict:
            return _json_attributes(inner, depth + 1)
        case _:
            return value


def _text(value: Any) -> str | None:
    return value if type(value) is str else None


# Answers


def answer(json: bool, rejected: int, reason: str) -> bytes:
    """What an exporter is told: all is well, or how many were not, and why (they need not be sent again)."""
    if json:
        told = {"rejectedLogRecords": str(rejected), "errorMessage": reason}
        return msgspec.json.encode({"partialSuccess": told} if rejected else {})
    response = logs_service_pb2.ExportLogsServiceResponse()
    if rejected:
        response.partial_success.rejected_log_records = rejected
        response.partial_success.error_message = reason
    return bytes(response.SerializeToString())


def status(json: bool, code: int, message: str) -> bytes:
    """A google.rpc.Status, which is how OTLP says that a request failed: `code` is gRPC's."""
    if json:
        return msgspec.json.encode({"code": code, "message": message})
    text = message.encode()[:8000]
    return b"\x08" + _varint(code) + b"\x12" + _varint(len(text)) + text


def _varint(number: int) -> bytes:
    """
    >>> _varint(300)
    b'\\xac\\x02'
    """
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])

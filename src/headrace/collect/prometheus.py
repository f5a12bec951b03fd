"""Prometheus remote write, version 1: snappy around protobuf. Each sample is an event.

A series has one sample at a time, so labels and time are a sample's id: what Prometheus sends again is taken once.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import pyarrow as pa
from google.protobuf import json_format, message_factory
from google.protobuf.message import DecodeError

from headrace.collect.base import Sent
from headrace.collect.translate import Posted, digest, event_of, sent
from headrace.errors import TooLarge, UnsupportedMedia, UsageError
from headrace.log.codecs.json_codec import Event, Unreadable
from headrace.log.codecs.proto_files import ProtoFiles

VERSION_2 = "io.prometheus.write.v2.request"
STALE = 0x7FF0000000000002
"""The bits of the NaN by which Prometheus says that a series has ended."""
_snappy = pa.Codec("snappy")
# The wire contract of Prometheus; numbers and names are theirs.
_PROTO = """syntax = "proto3"; package prometheus;
message WriteRequest { repeated TimeSeries timeseries = 1; reserved 2; repeated Metadata metadata = 3; }
message TimeSeries {
  repeated Label labels = 1; repeated Sample samples = 2; repeated Exemplar exemplars = 3;
  repeated Histogram histograms = 4;
}
message Label { string name = 1; string value = 2; }
message Sample { double value = 1; int64 timestamp = 2; }
message Exemplar { repeated Label labels = 1; double value = 2; int64 timestamp = 3; }
message Metadata { int32 type = 1; string metric_family_name = 2; string help = 4; string unit = 5; }
message BucketSpan { sint32 offset = 1; uint32 length = 2; }
message Histogram {
  oneof count { uint64 count_int = 1; double count_float = 2; }
  double sum = 3; sint32 schema = 4; double zero_threshold = 5;
  oneof zero_count { uint64 zero_count_int = 6; double zero_count_float = 7; }
  repeated BucketSpan negative_spans = 8; repeated sint64 negative_deltas = 9; repeated double negative_counts = 10;
  repeated BucketSpan positive_spans = 11; repeated sint64 positive_deltas = 12; repeated double positive_counts = 13;
  int32 reset_hint = 14; int64 timestamp = 15; repeated double custom_values = 16;
}"""


@lru_cache(maxsize=1)
def write_request() -> Any:
    """The class of the message, made when the first one comes."""
    return message_factory.GetMessageClass(ProtoFiles(_PROTO).message((0,)))


def translate(posted: Posted, max_bytes: int) -> Sent:
    """Samples, histograms and exemplars. The body is still in snappy: that is not what `Content-Encoding` means
    elsewhere, it is one block."""
    if VERSION_2 in posted.headers.get("content-type", "").lower():
        raise UnsupportedMedia("remote write 2.0 is not spoken here", hint="Prometheus falls back to 1.0 by itself")
    try:
        request = write_request().FromString(decompress(posted.body, max_bytes))
    except DecodeError:
        raise UsageError("the body is no WriteRequest", hint="is this Prometheus' remote_write?") from None
    return sent([event for series in request.timeseries for event in _events(series)])


def decompress(body: bytes, max_bytes: int) -> bytes:
    """A block begins with how long it becomes, so that a bomb is known before it goes off."""
    length = shift = 0
    for byte in body[:5]:
        length |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    else:
        raise UsageError("the body is not valid snappy")
    if length > max_bytes:
        raise TooLarge(
            f"the body is larger than {max_bytes} bytes", hint="send less at once; see [server] max_body_bytes"
        )
    try:
        return bytes(_snappy.decompress(body, length, asbytes=True))
    except (pa.ArrowInvalid, OSError) as error:
        raise UsageError("the body is not valid snappy", detail=str(error)) from None


def _events(series: Any) -> Iterator[Event | Unreadable]:
    labels = {label.name: label.value for label in series.labels}
    name = labels.pop("__name__", "")
    identity = digest(name.encode(), *(f"{key}\0{value}".encode() for key, value in sorted(labels.items())))
    about: dict[str, Any] = {"name": name, "labels": labels}
    for sample in series.samples:
        fields = about | {"value": sample.value}
        if math.isnan(sample.value):
            stale = struct.unpack("<Q", struct.pack("<d", sample.value))[0] == STALE
            fields = about | {"value": None, "stale": stale}
        yield event_of(fields, f"{identity}/{sample.timestamp}", sample.timestamp)
    for histogram in series.histograms:
        told = json_format.MessageToDict(histogram, preserving_proto_field_name=True)
        told.pop("timestamp", None)
        yield event_of(about | {"histogram": told}, f"{identity}/{histogram.timestamp}/h", histogram.timestamp)
    for exemplar in series.exemplars:
        own = {label.name: label.value for label in exemplar.labels}
        mark = digest(*(f"{key}\0{value}".encode() for key, value in sorted(own.items())))
        fields = about | {"value": exemplar.value, "exemplar": own}
        yield event_of(fields, f"{identity}/{exemplar.timestamp}/e/{mark}", exemplar.timestamp)

"""CloudEvents, OpenTelemetry's logs and Prometheus' samples → events."""

from __future__ import annotations

import base64
import json
import struct
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2
from opentelemetry.proto.common.v1 import common_pb2

from headrace.collect import cloudevents, otlp, prometheus
from headrace.collect.translate import Posted
from headrace.errors import TooLarge, UnsupportedMedia, UsageError
from headrace.log.codecs.json_codec import Unreadable

NANOS = 1_794_823_200_123_456_789


# CloudEvents

BINARY = {"ce-specversion": "1.0", "ce-id": "1", "ce-source": "/s", "ce-type": "t"}


def binary(body: bytes, media: str, **more: str) -> Any:
    [event] = cloudevents.translate(Posted(body, headers=BINARY | {"content-type": media} | more)).events
    return event


def test_data_is_kept_as_what_it_is() -> None:
    assert binary(b'{"a": 1}', "application/vnd.x+json")["data"] == {"a": 1}
    assert binary("hé".encode(), "text/plain; charset=utf-8")["data"] == "hé"
    assert binary(b"\x00\xff", "application/avro")["data_base64"] == base64.b64encode(b"\x00\xff").decode()
    # It says that it is JSON and is not.
    assert binary(b"{", "application/json")["data_base64"] == base64.b64encode(b"{").decode()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"id": ""}, "is no CloudEvent: `id` must be a string that is not empty"),
        ({"source": 7}, "is no CloudEvent: `source` must be a string that is not empty"),
        ({"specversion": "9"}, "has specversion `9`: 1.0 and 0.3 are known"),
        ({"time": "yesterday"}, "has a `time` that is no timestamp of RFC 3339"),
        ({"data_base64": "%"}, "has `data_base64` that is not base64"),
        ({"$time": 1}, "has a field `$time`, which is Headrace's own"),
    ],
)
def test_what_is_no_cloudevent(change: dict[str, Any], said: str) -> None:
    event = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t"} | change
    posted = Posted(json.dumps(event).encode(), headers={"content-type": cloudevents.STRUCTURED})
    assert cloudevents.translate(posted).events == [Unreadable(said)]


def test_a_request_that_is_none_is_told_what_one_is() -> None:
    with pytest.raises(UsageError, match="no CloudEvent"):
        cloudevents.translate(Posted(b"{}", headers={"content-type": "application/json"}))


# OpenTelemetry

ANY = st.recursive(
    st.text(max_size=5) | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, width=32),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


def proto_value(value: Any) -> Any:
    match value:
        case bool():
            return common_pb2.AnyValue(bool_value=value)
        case str():
            return common_pb2.AnyValue(string_value=value)
        case int():
            return common_pb2.AnyValue(int_value=value)
        case float():
            return common_pb2.AnyValue(double_value=value)
        case list():
            return common_pb2.AnyValue(array_value=common_pb2.ArrayValue(values=map(proto_value, value)))
        case _:
            pairs = [common_pb2.KeyValue(key=key, value=proto_value(one)) for key, one in value.items()]
            return common_pb2.AnyValue(kvlist_value=common_pb2.KeyValueList(values=pairs))


def json_value(value: Any) -> Any:
    match value:
        case bool():
            return {"boolValue": value}
        case str():
            return {"stringValue": value}
        case int():
            return {"intValue": str(value)}
        case float():
            return {"doubleValue": value}
        case list():
            return {"arrayValue": {"values": [json_value(one) for one in value]}}
        case _:
            return {"kvlistValue": {"values": [{"key": key, "value": json_value(one)} for key, one in value.items()]}}


@given(body=ANY, attribute=ANY, trace=st.binary(min_size=16, max_size=16))
@settings(max_examples=100)
def test_both_encodings_say_the_same(body: Any, attribute: Any, trace: bytes) -> None:
    request = logs_service_pb2.ExportLogsServiceRequest()
    scope = request.resource_logs.add().scope_logs.add()
    scope.scope.name = "s"
    record = scope.log_records.add(time_unix_nano=NANOS, severity_text="INFO", trace_id=trace, severity_number=9)
    record.body.CopyFrom(proto_value(body))
    record.attributes.add(key="a").value.CopyFrom(proto_value(attribute))
    same = {
        "timeUnixNano": str(NANOS),
        "severityText": "INFO",
        "severityNumber": 9,
        "traceId": trace.hex(),
        "body": json_value(body),
        "attributes": [{"key": "a", "value": json_value(attribute)}],
    }
    told = {"resourceLogs": [{"scopeLogs": [{"scope": {"name": "s"}, "logRecords": [same]}]}]}
    [first] = otlp.translate(Posted(request.SerializeToString(), headers={"content-type": otlp.PROTOBUF})).events
    [second] = otlp.translate(Posted(json.dumps(told).encode(), headers={"content-type": otlp.JSON})).events
    assert first.pop("$id") != second.pop("$id")  # other bytes, another request
    assert first == second
    assert (first["$time"], first["time_unix_nano"]) == (NANOS // 1_000_000, NANOS)


def test_records_without_a_time_have_no_ids() -> None:
    records = [{"timeUnixNano": str(NANOS), "body": {"stringValue": "a"}}, {"body": {"stringValue": "b"}}]
    told = {"resourceLogs": [{"scopeLogs": [{"logRecords": records}]}]}
    events = otlp.translate(Posted(json.dumps(told).encode(), headers={"content-type": otlp.JSON})).events
    assert [event.get("$id") for event in events] == [None, None]


@pytest.mark.parametrize("body", [b"\xff", b"{}", b'{"resourceLogs": 7}', b"[]"])
def test_what_is_no_request_is_an_error(body: bytes) -> None:
    for media in (otlp.PROTOBUF, otlp.JSON):
        with suppress(UsageError):
            assert otlp.translate(Posted(body, headers={"content-type": media})).events == []
    with pytest.raises(UnsupportedMedia):
        otlp.translate(Posted(body, headers={"content-type": "text/plain"}))


def test_a_deep_value_is_text_and_no_overflow() -> None:
    value: Any = {"stringValue": "x"}
    for _ in range(150):
        value = {"arrayValue": {"values": [value]}}
    told = {"resourceLogs": [{"scopeLogs": [{"logRecords": [{"body": value}]}]}]}
    [event] = otlp.translate(Posted(json.dumps(told).encode(), headers={"content-type": otlp.JSON})).events
    assert len(json.dumps(event)) > 1000


# Prometheus


def written(request: Any) -> Posted:
    return Posted(pa.compress(request.SerializeToString(), codec="snappy", asbytes=True))


def test_samples_histograms_and_the_end_of_a_series() -> None:
    request = prometheus.write_request()()
    series = request.timeseries.add()
    series.labels.add(name="__name__", value="up")
    series.samples.add(value=2.5, timestamp=7)
    series.samples.add(value=struct.unpack("<d", struct.pack("<Q", prometheus.STALE))[0], timestamp=8)
    series.histograms.add(count_int=3, sum=1.5, timestamp=9)
    series.exemplars.add(value=1, timestamp=7).labels.add(name="trace", value="t")
    events = prometheus.translate(written(request), 10_000).events
    assert [(event["name"], event["$time"]) for event in events] == [("up", 7), ("up", 8), ("up", 9), ("up", 7)]
    assert [event.get("value") for event in events] == [2.5, None, None, 1]
    assert events[1]["stale"] is True
    assert (events[2]["histogram"]["sum"], events[3]["exemplar"]) == (1.5, {"trace": "t"})
    assert len({event["$id"] for event in events}) == 4


def test_the_order_of_labels_is_of_no_consequence() -> None:
    ids = []
    for names in (("a", "b"), ("b", "a")):
        request = prometheus.write_request()()
        series = request.timeseries.add()
        for name in names:
            series.labels.add(name=name, value="1")
        series.samples.add(value=1, timestamp=7)
        ids.append(prometheus.translate(written(request), 10_000).events[0]["$id"])
    assert ids[0] == ids[1]


@given(st.binary(max_size=60))
@settings(max_examples=200)
def test_whatever_it_is_it_is_refused_or_read(body: bytes) -> None:
    with suppress(UsageError, TooLarge):
        assert isinstance(prometheus.translate(Posted(body), 10_000).events, list)

"""Whatever a request of any protocol holds: a clear refusal, or as many events as it has, which the codec can judge."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.collect import cloudevents, debezium, otlp, webhooks, weblogs
from headrace.collect.base import Sent
from headrace.collect.trackers import google, posthog, segment, snowplow
from headrace.collect.trackers.snowplow_fields import COLUMNS, OWN
from headrace.collect.translate import Posted, sent
from headrace.errors import UsageError
from headrace.log.base import Topic, TopicSpec
from headrace.log.codecs.event_time import TimeBounds
from headrace.log.codecs.json_codec import JsonCodec
from headrace.types import VARCHAR, Column

NOW = 1_794_823_200_000
TOKEN = webhooks.WebhookSettings(
    type="webhook", topic="t", signature="token", secrets=["s"], header="x", time_field="time", id_field="id"
)
TABLE = debezium.DebeziumSettings(type="debezium", topic="t", changes="c", add=["op", "source.ts_ms", "before.id.x"])
CODEC = JsonCodec(Topic(1, TopicSpec("t", value=(Column("EVENT", VARCHAR),)), ()))

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=6)
    | st.sampled_from(
        [
            "0001-01-01T00:00:00Z",
            "9999-12-31T23:59:59.999999999Z",
            "2026-11-16T10:00:00Z",
            "1e400",
            "9" * 18,
            "AAAA",
            "c",
        ]
    )
    | st.sampled_from(
        ["d", "iglu:a/b/jsonschema/1-0-0", "1x1", "http://[", "1.0", "io.debezium.time.Timestamp", "struct"]
    )
)


def values(names: list[str]) -> st.SearchStrategy[Any]:
    return st.recursive(
        SCALARS,
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*names, "$id", "x"]), inner, max_size=6)
        ),
        max_leaves=12,
    )


def json_posted(media: str = "application/json") -> Callable[[Any], Posted]:
    return lambda value: Posted(
        json.dumps(value).encode(), "v1/batch", {}, {"content-type": media, "x": "s", "referer": "http://[x"}, NOW
    )


# Protocol → the names that mean something to it, what is sent of a value, what is made of it.
PROTOCOLS: dict[str, tuple[list[str], Callable[[Any], Any], Callable[[Posted], Sent]]] = {
    "segment": (
        ["type", "messageId", "timestamp", "sentAt", "originalTimestamp", "context", "integrations", "batch"],
        lambda value: {"batch": [value, value], "sentAt": value, "context": value},
        lambda posted: segment.translate(posted)[0],
    ),
    "snowplow": (
        [*COLUMNS, *sorted(OWN), "e", "cx", "co", "ue_px", "ue_pr", "res", "vp"],
        lambda value: {"data": [value if not isinstance(value, dict) else {"e": "ue"} | value]},
        lambda posted: snowplow.translate(posted, "u"),
    ),
    "posthog": (
        ["event", "uuid", "distinct_id", "properties", "timestamp", "offset", "$insert_id", "token", "batch"],
        lambda value: {"batch": [value], "sent_at": value, "api_key": value},
        lambda posted: posthog.translate(posted, 10_000)[0],
    ),
    "google": (
        ["name", "params", "timestamp_micros", "client_id"],
        lambda value: {"events": [value], "timestamp_micros": value},
        lambda posted: google.translate(posted)[0],
    ),
    "cloudevents": (
        ["id", "source", "type", "specversion", "time", "data", "data_base64"],
        lambda value: (
            {"specversion": "1.0", "id": "1", "source": "s", "type": "t"} | value if isinstance(value, dict) else value
        ),
        cloudevents.translate,
    ),
    "otlp": (
        ["timeUnixNano", "body", "attributes", "key", "value", "stringValue", "arrayValue", "values", "kvlistValue"],
        lambda value: {"resourceLogs": [{"resource": value, "scopeLogs": [{"scope": value, "logRecords": [value]}]}]},
        otlp.translate,
    ),
    "webhook": (["id", "time"], lambda value: value, lambda posted: webhooks.translate(posted, TOKEN)),
    "debezium": (
        [
            "op",
            "before",
            "after",
            "source",
            "ts_ms",
            "schema",
            "payload",
            "fields",
            "field",
            "name",
            "type",
            "key",
            "value",
        ],
        lambda value: (
            {"op": "c", "after": value, "source": value, "schema": value} | value
            if isinstance(value, dict)
            else [value]
        ),
        lambda posted: debezium.translate(posted, TABLE).rows.get("t", sent([])),
    ),
}


@pytest.mark.parametrize("name", PROTOCOLS)
def test_any_request_is_refused_or_becomes_events(name: str) -> None:
    names, wrap, translate = PROTOCOLS[name]
    post = json_posted(cloudevents.STRUCTURED if name == "cloudevents" else "application/json")

    @given(values(names))
    @settings(max_examples=40)
    def check(value: Any) -> None:
        with suppress(UsageError):
            judged(translate(post(wrap(value))))

    check()


@given(
    st.lists(st.binary(max_size=60) | st.text('"[]-#: 0123456789aFields\\', max_size=60).map(str.encode), max_size=4)
)
@settings(max_examples=40)
def test_any_line_is_an_event_or_a_letter(lines: list[bytes]) -> None:
    assert judged(weblogs.WebLog().read(lines)) <= len(lines)


def judged(sent: Sent) -> int:
    """Every event is taken or has a reason, and has a text; how many there are."""
    texts = [sent.slices(row) for row in range(len(sent.events))]
    decoded = CODEC.decode(sent.events, sent.slices, NOW, TimeBounds(86_400_000))
    taken = decoded.batch.num_rows if decoded.batch is not None else 0
    assert taken + len(decoded.rejected) == len(sent.events) == len(texts)
    return len(texts)

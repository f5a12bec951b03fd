"""What trackers send → events with ids and times."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from headrace.collect.base import Sent
from headrace.collect.trackers import google, posthog, segment, snowplow
from headrace.collect.translate import Posted
from headrace.errors import UnsupportedMedia, UsageError
from headrace.log.codecs.json_codec import Unreadable

NOW = 1_794_823_200_000  # 2026-11-16T10:00:00Z


def posted(body: Any = b"", path: str = "", query: dict[str, str] | None = None, **headers: str) -> Posted:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Posted(content, path, query or {}, headers, NOW)


def only(sent: Sent) -> dict[str, Any]:
    [event] = sent.events
    assert isinstance(event, dict), event
    assert json.loads(sent.slices(0)) == event
    return event


def reason(sent: Sent) -> str:
    [event] = sent.events
    assert isinstance(event, Unreadable), event
    return event.reason


# Segment


def test_a_clock_that_is_wrong_is_corrected_by_when_it_says_it_sent() -> None:
    message = {"type": "track", "messageId": "m", "timestamp": "2020-01-01T00:00:00Z", "context": {"os": "x"}}
    body = {"batch": [message], "sentAt": "2020-01-01T00:00:10Z", "context": {"os": "y", "lib": "z"}, "writeKey": "w"}
    sent, key = segment.translate(posted(body, "v1/batch"))
    event = only(sent)
    assert (event["$id"], event["$time"], key) == ("m", NOW - 10_000, "w")
    assert (event["timestamp"], event["originalTimestamp"]) == ("2026-11-16T09:59:50.000Z", "2020-01-01T00:00:00Z")
    assert event["context"] == {"os": "x", "lib": "z"}
    assert "writeKey" not in event


def test_times_that_no_calendar_has_are_left_to_the_topic() -> None:
    body = {"timestamp": "0001-01-01T00:00:00Z", "sentAt": "9999-12-31T00:00:00Z"}
    event = only(segment.translate(posted(body, "v1/track"))[0])
    assert event["$time"] == event["timestamp"] < -(10**14)
    event = only(event_of(dtm="1", stm="9" * 18))
    assert event["$time"] == event["derived_tstamp"] < 0


def test_a_single_call_is_of_the_type_its_path_says() -> None:
    for path, type_ in (("v1/p", "page"), ("v1/identify", "identify"), ("alias/", "alias")):
        assert only(segment.translate(posted({"userId": "a", "type": "lie"}, path))[0])["type"] == type_


def test_a_field_that_is_called_like_ours_is_not_believed() -> None:
    sent, _ = segment.translate(posted({"batch": [{"$tombstone": True}, {"$id": "x"}, 7]}, "v1/batch"))
    assert [event.reason for event in sent.events] == [
        "has a field `$tombstone`, which is Headrace's own",
        "has a field `$id`, which is Headrace's own",
        "is no object, as a message must be",
    ]
    assert [sent.slices(row) for row in range(3)] == [b'{"$tombstone":true}', b'{"$id":"x"}', b"7"]


@pytest.mark.parametrize("body", [b"", b"[", b"[]", b"7", b'{"batch": 7}', b"\xff"])
def test_a_body_nobody_can_tell_events_from_is_an_error(body: bytes) -> None:
    with pytest.raises(UsageError):
        segment.translate(posted(body, "v1/batch"))


# Snowplow


def event_of(**parameters: Any) -> Sent:
    return snowplow.translate(posted({"schema": "iglu:x", "data": [{"e": "pv", **parameters}]}))


def test_parameters_become_typed_columns() -> None:
    described = {"schema": "iglu:com.acme/viewed/jsonschema/2-0-1", "data": {"sku": "a"}}
    outer = {"schema": "iglu:x/unstruct_event/jsonschema/1-0-0", "data": described}
    event = only(event_of(e="ue", eid="i", vid="3", cookie="1", res="1920x1080", se_va="2.5", tz="UTC", zz="kept",
                          ue_px=base64.b64encode(json.dumps(outer).encode()).decode()))  # fmt: skip
    assert (
        event.items()
        >= {
            "event": "unstruct",
            "domain_sessionidx": 3,
            "br_cookies": True,
            "dvce_screenwidth": 1920,
            "se_value": 2.5,
            "zz": "kept",
            "event_vendor": "com.acme",
            "event_name": "viewed",
            "event_version": "2-0-1",
            "$id": "i",
        }.items()
    )
    assert event["unstruct_event"] == described
    assert only(event_of(e="ue", ue_pr=json.dumps(outer)))["unstruct_event"] == described


def test_the_times_of_devices() -> None:
    late = only(event_of(dtm=str(NOW - 5_000_000), stm=str(NOW - 4_000_000)))
    assert (late["$time"], late["derived_tstamp"]) == (NOW - 1_000_000, "2026-11-16T09:43:20.000Z")
    assert only(event_of(ttm=str(NOW - 7), dtm="5"))["$time"] == NOW - 7
    assert only(event_of())["$time"] == NOW
    # A tracker that sends whole seconds seems to send before it happened.
    assert only(event_of(dtm=str(NOW - 100), stm=str(NOW - 900)))["$time"] == NOW


def test_addresses_come_apart_and_broken_ones_stay() -> None:
    event = only(event_of(url="http://shop.example:81/a?utm_source=mail&b=1#c", refr="http://[broken", p="web"))
    assert (event["page_urlhost"], event["page_urlport"], event["page_urlfragment"]) == ("shop.example", 81, "c")
    assert (event["mkt_source"], event["page_referrer"]) == ("mail", "http://[broken")
    assert "refr_urlhost" not in event


def test_who_the_browser_is() -> None:
    sent = snowplow.translate(posted(query={"e": "pv", "nuid": "n", "tnuid": "t"}), "cookie")
    assert only(sent)["network_userid"] == "t"
    assert only(snowplow.translate(posted(query={"e": "pv"}), "cookie"))["network_userid"] == "cookie"


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"e": ""}, "is no Snowplow event: it has no `e`"),
        ({"e": None}, "is no Snowplow event: it has no `e`"),
        ({"dvce_created_tstamp": "x"}, "has a parameter `dvce_created_tstamp`, which is the name of a column"),
        ({"vid": "many"}, "has `vid` = `many`, which is no domain_sessionidx"),
        ({"se_va": "nan"}, "has `se_va` = `nan`, which is no se_value"),
        ({"res": "wide"}, "has `res` = `wide`, which is no size"),
        ({"cx": "e30"}, "has `cx`, which does not describe itself: it needs `schema` and `data`"),
        ({"co": "{"}, "has `co`, which is not JSON"),
        (
            {"ue_pr": '{"data": {"schema": "x"}}'},
            "describes itself without a schema `iglu:vendor/name/jsonschema/1-0-0`",
        ),
    ],
)
def test_what_is_wrong_with_an_event(parameters: dict[str, str], said: str) -> None:
    assert reason(event_of(**parameters)) == said


# PostHog


def test_posthog_finds_the_person_the_id_and_the_time() -> None:
    event = {
        "event": "x",
        "timestamp": "2026-11-16T09:00:00Z",
        "properties": {"$distinct_id": "ann", "$insert_id": "i"},
    }
    sent, key = posthog.translate(
        posted({"api_key": "k", "batch": [event], "sent_at": "2026-11-16T09:00:30Z"}), max_bytes=1000
    )
    found = only(sent)
    assert (found["distinct_id"], found["$id"], found["$time"], key) == ("ann", "i", NOW - 30_000, "k")
    sent, key = posthog.translate(posted([{"event": "x", "offset": 500, "properties": {"token": "t"}}]), 1000)
    assert (only(sent)["$time"], key) == (NOW - 500, "t")


def test_a_form_has_few_fields_and_an_offset_is_a_number() -> None:
    with pytest.raises(UsageError, match="more than 20 fields"):
        posthog.translate(Posted(b"a=1&" * 100, headers={"content-type": posthog.FORM}), 1000)
    sent, _ = posthog.translate(posted([{"event": "x", "offset": 1e300}]), 1000)
    assert "$time" not in only(sent)


def test_a_compression_nobody_knows_is_said() -> None:
    with pytest.raises(UnsupportedMedia, match="lz64"):
        posthog.translate(posted(b"x", query={"compression": "lz64"}), 1000)


# Google


def test_an_event_without_a_time_has_no_id() -> None:
    sent, key = google.translate(posted({"client_id": "c", "events": [{"name": "a"}, 7]}, query={"api_secret": "s"}))
    assert (sent.events[0], key) == ({"client_id": "c", "name": "a"}, "s")
    assert isinstance(sent.events[1], Unreadable)


def test_the_same_event_has_the_same_id_and_its_own_time() -> None:
    event = {"name": "a", "timestamp_micros": NOW * 1000, "params": {"x": 1, "y": 2}}
    turned = {"params": {"y": 2, "x": 1}, "timestamp_micros": NOW * 1000, "name": "a"}
    first, again = (only(google.translate(posted({"client_id": "c", "events": [each]}))[0]) for each in (event, turned))
    assert (first["$id"], first["$time"]) == (again["$id"], NOW)
    other = only(google.translate(posted({"client_id": "d", "events": [event]}))[0])
    assert other["$id"] != first["$id"]

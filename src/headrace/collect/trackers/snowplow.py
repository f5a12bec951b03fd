"""Snowplow: batches to `tp2`, single events as the parameters of a pixel, → rows of its event model.

`eid` is the event's id. Its time is the true one if the tracker names it, else that of the device, corrected by how
wrong the device's clock was when it sent. Self-describing events and contexts are JSON, whether sent as base64 or not.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import msgspec

from headrace.collect.base import Sent
from headrace.collect.trackers.snowplow_fields import COLUMNS, EVENTS, SIZES, Misfit, column_of, size_of
from headrace.collect.translate import (
    UNREADABLE,
    Posted,
    base64_bytes,
    corrected,
    event_of,
    iso,
    moment_text,
    read_object,
    sent,
)
from headrace.errors import UsageError
from headrace.log.codecs.json_codec import Event, Unreadable

EXPECTED = '{"schema": "iglu:com.snowplowanalytics.snowplow/payload_data/…", "data": [{"e": "pv", "eid": "…"}, …]}'
PIXEL = bytes.fromhex("47494638396101000100800000000000ffffff21f90401000000002c00000000010001000002024401003b")
NO_EVENT = "is no Snowplow event: it has no `e`"
_IGLU = re.compile(r"iglu:(?P<vendor>[^/]+)/(?P<name>[^/]+)/(?P<format>[^/]+)/(?P<version>\d+-\d+-\d+)")
_JSON = {"cx": "co", "ue_px": "ue_pr"}
"""What is sent as base64 → the same sent as text."""
_URL_PARTS = ("scheme", "host", "port", "path", "query", "fragment")
_OFTEN = 512
_MARKETING = {
    "utm_medium": "mkt_medium",
    "utm_source": "mkt_source",
    "utm_term": "mkt_term",
    "utm_content": "mkt_content",
    "utm_campaign": "mkt_campaign",
}


def translate(posted: Posted, network_userid: str | None = None) -> Sent:
    """The events of a `tp2` request, or of a pixel's."""
    parameters: list[Any]
    if posted.body:
        parameters = read_object(posted.body, EXPECTED).get("data")  # type: ignore[assignment]
        if type(parameters) is not list:
            raise UsageError("the body has no list `data`", hint=f"send {EXPECTED}")
    else:
        parameters = [dict(posted.query)]
    return sent([_event(each, posted, network_userid) for each in parameters], parameters)


def _event(parameters: Any, posted: Posted, network_userid: str | None) -> Event | Unreadable:
    if type(parameters) is not dict:
        return Unreadable(NO_EVENT)
    try:
        row = _row(parameters)
    except Misfit as misfit:
        return Unreadable(str(misfit))
    if network_userid is not None:
        row.setdefault("network_userid", network_userid)
    if (agent := posted.headers.get("user-agent")) is not None:
        row.setdefault("useragent", agent)
    if (page := posted.headers.get("referer")) is not None and row.get("platform") == "web":
        row.setdefault("page_url", page)
    _add_addresses(row)
    row["collector_tstamp"] = iso(posted.now_ms)
    time_ms = row.pop("true_tstamp", None)
    if time_ms is None:
        time_ms = corrected(row.get("dvce_created_tstamp"), row.get("dvce_sent_tstamp"), posted.now_ms)
    else:
        row["true_tstamp"] = moment_text(time_ms)
    time_ms = posted.now_ms if time_ms is None else time_ms
    for name in ("dvce_created_tstamp", "dvce_sent_tstamp"):
        if name in row:
            row[name] = moment_text(row[name])
    row["derived_tstamp"] = moment_text(time_ms)
    return event_of(row, row.get("event_id"), time_ms)


def _row(parameters: Mapping[str, Any]) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for name, value in parameters.items():
        text = value if type(value) is str else "" if value is None else msgspec.json.encode(value).decode()
        if not text:
            continue
        if name == "e":
            row["event"] = EVENTS.get(text, text)
        elif (known := COLUMNS.get(name)) is not None and known[1] is str and name != "nuid":
            # What most of them are.
            row[known[0]] = text
        elif name in ("cx", "co"):
            row["contexts"] = _data(name, text, list)
        elif name in ("ue_px", "ue_pr"):
            row["unstruct_event"] = _data(name, text, dict)
        elif name in SIZES:
            row.update(size_of(name, text))
        # A tracker's own network user id comes before the one of the cookie.
        elif name != "nuid" or "tnuid" not in parameters:
            column, row_value = column_of(name, text)
            row[column] = row_value
    if "event" not in row:
        raise Misfit(NO_EVENT)
    return _named(row)


def _named(row: dict[str, Any]) -> dict[str, Any]:
    """With the event's vendor, name and version: what it says of itself, or Snowplow's own."""
    described = row.get("unstruct_event")
    found = _IGLU.fullmatch(str(described.get("schema", ""))) if described else None
    if described and found is None:
        raise Misfit("describes itself without a schema `iglu:vendor/name/jsonschema/1-0-0`")
    if found is not None:
        row.update((f"event_{part}", found[part]) for part in ("vendor", "name", "format", "version"))
        return row
    row.setdefault("event_vendor", "com.snowplowanalytics.snowplow")
    row["event_name"] = "event" if row["event"] == "struct" else row["event"]
    row["event_format"], row["event_version"] = "jsonschema", "1-0-0"
    return row


def _data(name: str, text: str, kind: type) -> Any:
    """What a self-describing JSON holds: the event, or the list of contexts."""
    if name in _JSON:
        plain = base64_bytes(text)
        if plain is None:
            raise Misfit(f"has `{name}`, which is not base64")
    else:
        plain = text.encode("utf-8", "surrogatepass")
    try:
        outer = msgspec.json.decode(plain)
    except UNREADABLE:
        raise Misfit(f"has `{name}`, which is not JSON") from None
    data = outer.get("data") if type(outer) is dict else None
    if type(data) is not kind:
        raise Misfit(f"has `{name}`, which does not describe itself: it needs `schema` and `data`")
    return data


def _add_addresses(row: dict[str, Any]) -> None:
    """The parts of the page's and the referrer's address, and the campaign that led there."""
    for column, prefix in (("page_url", "page_url"), ("page_referrer", "refr_url")):
        address = row.get(column)
        if type(address) is str:
            # Pages are viewed more than once; an address that is longer than these is one of a kind.
            row.update(_known_parts(address, prefix) if len(address) <= _OFTEN else _parts(address, prefix))


def _parts(address: str, prefix: str) -> dict[str, Any]:
    try:
        parts = urlsplit(address)
        values = (parts.scheme, parts.hostname, parts.port, parts.path, parts.query, parts.fragment)
    except ValueError:
        return {}  # it stays as it was sent
    found = {f"{prefix}{part}": value for part, value in zip(_URL_PARTS, values, strict=True) if value}
    if prefix == "page_url" and "utm_" in parts.query:
        found |= {_MARKETING[name]: value for name, value in parse_qsl(parts.query) if name in _MARKETING}
    return found


_known_parts = lru_cache(maxsize=4096)(_parts)

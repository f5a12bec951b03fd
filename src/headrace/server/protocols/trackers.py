"""Segment, Snowplow, PostHog and Google's Measurement Protocol, answered as their clients expect.

What does not fit the topic is a dead letter and answered with success: sending it again would not make it fit.
"""

from __future__ import annotations

import re
import uuid

from starlette.responses import Response

from headrace.collect.base import Outcome
from headrace.collect.trackers import google, posthog, segment, snowplow
from headrace.collect.trackers.settings import SnowplowSettings
from headrace.errors import NotFound
from headrace.server.errors import json_response
from headrace.server.protocols.asking import Asked, Protocol, Read

_TEXT_COOKIE = re.compile(r"[0-9A-Za-z-]{1,64}")


def read_segment(asked: Asked) -> Read:
    call = _last(asked)
    if call in ("settings", "m"):
        asked.require_collector()
    if call == "settings":
        # analytics.js asks what to load: itself alone.
        return Read(lambda outcome: json_response({"integrations": {"Segment.io": {}}, "plan": {}}))
    if call == "m":
        return Read(_success)  # how well the client does, not events of anybody's
    if call not in segment.TYPES and call not in segment.BATCHES:
        raise _nothing(asked)
    events, key = segment.translate(asked.posted)
    return asked.take(events, _success, asked.key or key)


def read_snowplow(asked: Asked) -> Read:
    gate = asked.gate()
    settings = gate.settings
    assert isinstance(settings, SnowplowSettings)
    anonymous = not settings.cookie or "sp-anonymous" in asked.posted.headers
    known = asked.request.cookies.get(settings.cookie, "") if settings.cookie else ""
    user = None if anonymous else known if _TEXT_COOKIE.fullmatch(known) else str(uuid.uuid4())
    events = snowplow.translate(asked.posted, user)
    pixel = not asked.posted.body

    def answer(outcome: Outcome) -> Response:
        response = (
            Response(snowplow.PIXEL, media_type="image/gif") if pixel else Response("ok", media_type="text/plain")
        )
        if pixel:
            response.headers["cache-control"] = "no-cache, no-store, must-revalidate"
        if user is not None:
            # Browsers send a cookie from pages of other sites only if it is for TLS alone.
            secure = "https" in (asked.request.url.scheme, asked.posted.headers.get("x-forwarded-proto"))
            response.set_cookie(
                settings.cookie,
                user,
                max_age=int(settings.cookie_days * 86_400),
                domain=settings.cookie_domain or None,
                secure=secure,
                httponly=True,
                samesite="none" if secure else "lax",
            )
        return response

    return asked.take(events, answer)


def read_posthog(asked: Asked) -> Read:
    call = _last(asked)
    if call in ("decide", "flags", "config"):
        asked.require_collector()
    if call in ("decide", "flags"):
        return Read(lambda outcome: json_response(posthog.NO_FLAGS))
    if call == "config":
        return Read(lambda outcome: json_response(posthog.NO_FLAGS | {"hasFeatureFlags": False}))
    events, key = posthog.translate(asked.posted, asked.max_bytes)
    return asked.take(events, lambda outcome: json_response({"status": 1}), key)


def read_google(asked: Asked) -> Read:
    if asked.posted.path.startswith("debug/"):
        asked.gate(asked.posted.query.get("api_secret"))
        found = google.problems(asked.posted.body)
        return Read(lambda outcome: json_response({"validationMessages": found}))
    events, key = google.translate(asked.posted)
    return asked.take(events, lambda outcome: Response(status_code=204), key)


def _success(outcome: Outcome) -> Response:
    return json_response({"success": True})


def _last(asked: Asked) -> str:
    return asked.posted.path.rstrip("/").rpartition("/")[2]


def _nothing(asked: Asked) -> NotFound:
    return NotFound(
        f"Segment's API has no `{asked.posted.path}`", hint="batch, track, page, screen, identify, group, …"
    )


SEGMENT = Protocol(kind="segment", read=read_segment, pages=True)
SNOWPLOW = Protocol(kind="snowplow", read=read_snowplow, pages=True)
POSTHOG = Protocol(kind="posthog", read=read_posthog, pages=True, unfolds=True)
GOOGLE = Protocol(kind="google", read=read_google, pages=True)

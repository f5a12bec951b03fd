"""Webhooks: what other services post when something happens there, believed only with a signature that fits.

A JSON body's fields are the event's. GitHub, Stripe and Slack sign as they do, so do services that follow Standard
Webhooks; `hmac` is for those that sign the body and say so in a header, `token` for those that just send the secret.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import parse_qs

import msgspec

from headrace.collect.base import Sent
from headrace.collect.definitions import CollectorSettings
from headrace.collect.translate import UNREADABLE, Posted, event_of, moment_ms, sent, text_of
from headrace.errors import ConfigError, Refused
from headrace.log.codecs.json_codec import Event, Unreadable
from headrace.secrecy import Secret
from headrace.toml_files import secret

Signature = Literal["github", "stripe", "standard", "slack", "hmac", "token"]
MAX_FIELDS = 1000
FORM = "application/x-www-form-urlencoded"


class WebhookSettings(CollectorSettings, frozen=True, kw_only=True):
    signature: Signature
    """How the sender proves who it is: `github`, `stripe`, `standard` (Standard Webhooks, Svix), `slack`, `hmac` or
    `token`."""
    secrets: list[Secret]
    """What was agreed with the sender, `env:NAME` for one in the environment; several while one is replaced."""
    tolerance_seconds: float = 300.0
    """How old a signed time may be (`stripe`, `standard`, `slack`), so that an old request cannot be played again."""
    header: str = "X-Signature"
    """Where the signature is (`hmac`), or the secret (`token`)."""
    algorithm: Literal["sha256", "sha1", "sha512"] = "sha256"
    """Of `hmac`."""
    encoding: Literal["hex", "base64"] = "hex"
    """Of the signature in `header`."""
    prefix: str = ""
    """Stands before the signature in `header`, such as `sha256=`."""
    id_header: str = ""
    """The header with an id that a repeated delivery has again (`hmac`, `token`)."""
    id_field: str = ""
    """Or the body's field with it."""
    time_field: str = ""
    """The body's field with the event's time: ISO 8601, or seconds or milliseconds since 1970."""
    keep_headers: list[str] = []
    """Headers to keep with the event."""

    def check(self) -> None:
        CollectorSettings.check(self)
        if not self.secrets:
            raise ConfigError("a webhook needs `secrets`", hint='secrets = ["env:WEBHOOK_SECRET"]', path=("secrets",))
        for each in self.secrets:
            if not secret(each):
                raise ConfigError("a secret is empty", path=("secrets",))
        if self.signature == "token" and self.header.lower() in map(str.lower, self.keep_headers):
            message = f"`{self.header}` is the secret itself, which would be stored with every event"
            raise ConfigError(message, path=("keep_headers",))


def translate(posted: Posted, settings: WebhookSettings) -> Sent:
    """The events of a request that is signed. `Refused` if it is not, without a word on how it should have been."""
    secrets = [secret(each).encode() for each in settings.secrets]
    if not _STYLES[settings.signature].proven(posted, settings, secrets):
        raise Refused("the signature does not fit", hint="are the sender's secret and `secrets` the same?")
    bodies = _bodies(posted)
    kept = {name: posted.headers[name.lower()] for name in settings.keep_headers if name.lower() in posted.headers}
    events = [_event(body, row, len(bodies), posted, settings, kept) for row, body in enumerate(bodies)]
    return sent(events, [posted.body] * len(events))


def challenge(sent: Sent, settings: WebhookSettings) -> str | None:
    """What Slack wants to hear before it sends events to an address: the word it sent there."""
    if settings.signature != "slack" or len(sent.events) != 1:
        return None
    event = sent.events[0]
    asked = isinstance(event, dict) and event.get("type") == "url_verification"
    return text_of(event.get("challenge")) if asked else None


def _bodies(posted: Posted) -> list[Any]:
    """What a body holds: an object, a list of them, or a form, with the JSON in `payload` as GitHub does it."""
    body = posted.body
    if posted.media_type == FORM and body.lstrip()[:1] not in (b"{", b"["):
        try:
            form = parse_qs(body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=MAX_FIELDS)
        except ValueError:
            return [Unreadable(f"is a form of more than {MAX_FIELDS} fields")]
        if set(form) != {"payload"}:
            return [{name: values[0] if len(values) == 1 else values for name, values in form.items()}]
        body = form["payload"][0].encode()
    try:
        value = msgspec.json.decode(body)
    except UNREADABLE:
        return [Unreadable("is not JSON, which a webhook's body must be")]
    return value if type(value) is list else [value]


def _event(
    body: Any, row: int, count: int, posted: Posted, settings: WebhookSettings, kept: dict[str, str]
) -> Event | Unreadable:
    if isinstance(body, Unreadable):
        return body
    if type(body) is not dict:
        return Unreadable("is no object, as an event must be")
    style = _STYLES[settings.signature]
    id_ = style.id(posted, body, settings)
    if id_ is not None and count > 1:
        id_ = f"{id_}/{row}"
    return event_of(body | style.added(posted), id_, _time(body, settings), kept)


def _time(body: dict[str, Any], settings: WebhookSettings) -> int | None:
    """Numbers that would be in the first half of 1970 as milliseconds are seconds."""
    name = settings.time_field or ("created" if settings.signature == "stripe" else "")
    time_ms = moment_ms(body.get(name)) if name else None
    if time_ms is not None and type(body.get(name)) is not str and 0 <= time_ms < 15_000_000_000:
        return int(float(body[name]) * 1000)
    return time_ms


# How senders sign


@dataclass(frozen=True, slots=True)
class _Style:
    proven: Callable[[Posted, WebhookSettings, list[bytes]], bool]
    id: Callable[[Posted, dict[str, Any], WebhookSettings], str | None]
    added: Callable[[Posted], dict[str, str]] = lambda posted: {}
    """Fields that only the headers know."""


def _fits(given: list[bytes], text: bytes, secrets: list[bytes], algorithm: str = "sha256") -> bool:
    """Any of the signatures with any of the secrets; all are tried, so that time tells nothing."""
    fits = False
    for each in secrets:
        made = hmac.new(each, text, getattr(hashlib, algorithm)).digest()
        for one in given[:10]:
            fits |= hmac.compare_digest(one, made)
    return fits


def _hex(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        return b""


def _base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""


def _fresh(seconds: str, posted: Posted, settings: WebhookSettings) -> bool:
    if not (seconds.isascii() and seconds.isdigit() and len(seconds) < 13):
        return False
    return abs(posted.now_ms / 1000 - int(seconds)) <= settings.tolerance_seconds


def _github(posted: Posted, settings: WebhookSettings, secrets: list[bytes]) -> bool:
    algorithm, _, signature = posted.headers.get("x-hub-signature-256", "").partition("=")
    return algorithm == "sha256" and _fits([_hex(signature)], posted.body, secrets)


def _stripe(posted: Posted, settings: WebhookSettings, secrets: list[bytes]) -> bool:
    parts = [part.strip().partition("=") for part in posted.headers.get("stripe-signature", "").split(",")]
    seconds = next((value for name, _, value in parts if name == "t"), "")
    given = [_hex(value) for name, _, value in parts if name == "v1"]
    return _fits(given, seconds.encode() + b"." + posted.body, secrets) and _fresh(seconds, posted, settings)


def _standard(posted: Posted, settings: WebhookSettings, secrets: list[bytes]) -> bool:
    id_, seconds = _standard_header(posted, "id"), _standard_header(posted, "timestamp")
    signatures = _standard_header(posted, "signature").split()
    given = [_base64(each[3:]) for each in signatures if each.startswith("v1,")]
    text = f"{id_}.{seconds}.".encode() + posted.body
    return _fits(given, text, list(_plain(secrets))) and _fresh(seconds, posted, settings)


def _standard_header(posted: Posted, name: str) -> str:
    """Svix, whose way became the standard, still sends its own names."""
    return posted.headers.get(f"webhook-{name}") or posted.headers.get(f"svix-{name}", "")


def _plain(secrets: list[bytes]) -> Iterator[bytes]:
    """Standard Webhooks writes its secrets as `whsec_` and base64, its libraries take them without the former, too."""
    for each in secrets:
        plain = _base64(each.removeprefix(b"whsec_").decode("ascii", "replace"))
        if plain:
            yield plain
        if not each.startswith(b"whsec_"):
            yield each


def _slack(posted: Posted, settings: WebhookSettings, secrets: list[bytes]) -> bool:
    version, _, signature = posted.headers.get("x-slack-signature", "").partition("=")
    seconds = posted.headers.get("x-slack-request-timestamp", "")
    text = f"v0:{seconds}:".encode() + posted.body
    return version == "v0" and _fits([_hex(signature)], text, secrets) and _fresh(seconds, posted, settings)


def _hmac(posted: Posted, settings: WebhookSettings, secrets: list[bytes]) -> bool:
    given = posted.headers.get(settings.header.lower(), "")
    if not given.startswith(settings.prefix):
        return False
    decode = _hex if settings.encoding == "hex" else _base64
    return _fits([decode(given.removeprefix(settings.prefix))], posted.body, secrets, settings.algorithm)


def _token(posted: Posted, settings: WebhookSettings, secrets: list[bytes]) -> bool:
    given = posted.headers.get(settings.header.lower(), "").removeprefix(settings.prefix).encode()
    fits = False
    for each in secrets:
        fits |= hmac.compare_digest(given, each)
    return fits


def _agreed_id(posted: Posted, body: dict[str, Any], settings: WebhookSettings) -> str | None:
    if settings.id_header:
        return text_of(posted.headers.get(settings.id_header.lower()))
    value = body.get(settings.id_field) if settings.id_field else None
    return str(value) if type(value) is int else text_of(value)


def _github_fields(posted: Posted) -> dict[str, str]:
    named = {"github_event": "x-github-event", "github_delivery": "x-github-delivery"}
    return {field: posted.headers[name] for field, name in named.items() if name in posted.headers}


_STYLES: dict[str, _Style] = {
    "github": _Style(
        _github, lambda posted, body, settings: text_of(posted.headers.get("x-github-delivery")), _github_fields
    ),
    "stripe": _Style(_stripe, lambda posted, body, settings: text_of(body.get("id"))),
    "standard": _Style(_standard, lambda posted, body, settings: text_of(_standard_header(posted, "id"))),
    "slack": _Style(_slack, lambda posted, body, settings: text_of(body.get("event_id"))),
    "hmac": _Style(_hmac, _agreed_id),
    "token": _Style(_token, _agreed_id),
}

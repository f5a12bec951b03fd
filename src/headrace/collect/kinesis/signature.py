"""AWS's signatures, version 4: who sent a request, and that nobody changed it. A key of `[auth] keys` is the secret;
its name, or the key itself, is the access key id."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import quote

from headrace.access.keys import HeldKey
from headrace.access.rights import Identity
from headrace.collect.kinesis.errors import UNRECOGNIZED, ApiError

ALGORITHM = "AWS4-HMAC-SHA256"
SKEW_S = 15 * 60
_PART = re.compile(r"(Credential|SignedHeaders|Signature)=([^,\s]+)")


@dataclass(frozen=True, slots=True)
class Signed:
    """What of a request is signed."""

    method: str
    path: str
    query: Sequence[tuple[str, str]]
    headers: Mapping[str, str]
    """By names in lower case."""
    body: bytes


def verify(request: Signed, keys: Sequence[HeldKey], now_ms: int) -> Identity:
    """Return whose key it is signed with. Keys of which only the hash is known are passed over."""
    header = request.headers.get("authorization", "")
    parts = dict(_PART.findall(header))
    if not header.startswith(ALGORITHM) or len(parts) != 3:
        raise ApiError(
            "MissingAuthenticationTokenException",
            "the request is not signed: give the client an access key id (a key's name in [auth] keys) and the key",
        )
    access, _, scope = parts["Credential"].partition("/")
    if scope.count("/") != 3:
        raise ApiError("IncompleteSignatureException", "the credential has no scope")
    moment = request.headers.get("x-amz-date", "")
    _check_time(moment, scope, now_ms)
    names = parts["SignedHeaders"].split(";")
    if "host" not in names and ":authority" not in names:
        raise ApiError("IncompleteSignatureException", "the host is not signed")
    text = "\n".join((ALGORITHM, moment, scope, hashlib.sha256(_canonical(request, names)).hexdigest()))
    found = None
    # All of them, always: how long it takes must not say which one it was.
    for key in keys:
        if key.text is None:
            continue
        name = key.identity.name
        known = hmac.compare_digest(access.encode(), name.encode()) & bool(name)
        known |= hmac.compare_digest(access.encode(), key.text.encode())
        expected = hmac.new(_signing_key(key.text, scope), text.encode(), hashlib.sha256).hexdigest()
        if known and hmac.compare_digest(expected.encode(), parts["Signature"].encode()):
            found = key.identity
    if found is None:
        raise ApiError(UNRECOGNIZED, "the access key id is no key's name, or the signature is not made with that key")
    return found


def _check_time(moment: str, scope: str, now_ms: int) -> None:
    try:
        signed = datetime.strptime(moment, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).timestamp()
    except ValueError:
        raise ApiError("IncompleteSignatureException", "X-Amz-Date is not a date") from None
    if not scope.startswith(moment[:8] + "/"):
        raise ApiError("IncompleteSignatureException", "the credential is of another day")
    if abs(signed - now_ms / 1000) > SKEW_S:
        raise ApiError("RequestExpired", f"the request was signed at {moment}: the clocks differ, or it is old")


def _canonical(request: Signed, names: Sequence[str]) -> bytes:
    # Over HTTP/2 the host is signed, and sent, as `:authority`; servers make a `host` of it again.
    sent = {":authority": request.headers.get("host", ""), **request.headers}
    headers = "".join(f"{name}:{' '.join(sent.get(name, '').split())}\n" for name in names)
    query = "&".join(f"{quote(name, '-_.~')}={quote(value, '-_.~')}" for name, value in sorted(request.query))
    digest = hashlib.sha256(request.body).hexdigest()
    path = quote(request.path, "/-_.~") or "/"
    return "\n".join((request.method, path, query, headers, ";".join(names), digest)).encode()


def _signing_key(secret: str, scope: str) -> bytes:
    key = b"AWS4" + secret.encode()
    for part in scope.split("/"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return key

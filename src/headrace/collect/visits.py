"""Request/acknowledge: the first call gets a visitor's and a session's id, which later calls carry.

What is carried is signed, so that nobody can speak as another visitor, and holds all there is to know: the server
remembers nothing. A session goes on as long as calls come within its timeout; the visitor stays.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass, replace
from typing import Literal

MAX_TOKEN = 200
FRESH_MS = 60_000
"""A token younger than this is not given anew: not every answer needs a cookie."""
AHEAD_MS = 300_000
"""How far ahead another server's clock may be."""


@dataclass(frozen=True, slots=True)
class Visit:
    visitor: str
    session: str
    seen_ms: int
    news: Literal["visitor", "session", "seen", ""] = ""
    """What of it is new since the token that was brought."""


class Visits:
    def __init__(self, key: bytes, timeout_s: float) -> None:
        self._key, self._timeout_ms = key, int(timeout_s * 1000)

    def token(self, visit: Visit) -> str:
        text = f"1.{visit.visitor}.{visit.session}.{visit.seen_ms}"
        return f"{text}.{self._sign(text)}"

    def read(self, token: str) -> Visit | None:
        """None for what we did not sign."""
        text, _, signature = token[:MAX_TOKEN].rpartition(".")
        parts = text.split(".")
        # Compared as bytes: a token is a header, and may hold anything.
        if (
            not hmac.compare_digest(self._sign(text).encode(), signature.encode("utf-8", "surrogatepass"))
            or len(parts) != 4
        ):
            return None
        return Visit(parts[1], parts[2], int(parts[3]))

    def goes_on(self, visit: Visit, now_ms: int) -> bool:
        return -AHEAD_MS <= now_ms - visit.seen_ms < self._timeout_ms

    def call(self, token: str, now_ms: int) -> Visit:
        """The visit that a call with this token belongs to, begun if there is none."""
        before = self.read(token) if token else None
        if before is None:
            return Visit(_new(), _new(), now_ms, "visitor")
        if not self.goes_on(before, now_ms):
            return Visit(before.visitor, _new(), now_ms, "session")
        if now_ms - before.seen_ms < FRESH_MS:
            return before
        return replace(before, seen_ms=now_ms, news="seen")

    def _sign(self, text: str) -> str:
        return hmac.new(self._key, text.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()[:32]


def _new() -> str:
    return secrets.token_hex(12)

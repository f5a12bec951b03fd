"""What collectors of trackers can be told."""

from __future__ import annotations

from headrace.collect.definitions import CollectorSettings


class TrackerSettings(CollectorSettings, frozen=True, kw_only=True):
    origins: list[str] = []
    """Sites whose pages may send, such as `https://shop.example`; without any, all may that have a key."""


class SnowplowSettings(TrackerSettings, frozen=True, kw_only=True):
    cookie: str = "sp"
    """The cookie by which a browser is known again (`network_userid`); empty sets none."""
    cookie_days: float = 365.0
    """How long a browser keeps it."""
    cookie_domain: str = ""
    """The domain it is for, if not the server's own."""

"""`[privacy]`: fields dropped, hashed or cut, before anything is stored."""

from __future__ import annotations

import hmac
import ipaddress
import re
from collections.abc import Sequence
from typing import Any

import msgspec

from headrace.collect.rules.fields import GONE, Change, Event, Path, Spellings
from headrace.collect.rules.settings import PrivacySettings

_encoder = msgspec.json.Encoder(decimal_format="number")
_HASH = re.compile(r"[0-9a-f]{64}")


class Hiding:
    def __init__(self, settings: PrivacySettings, key: bytes, spellings: Spellings) -> None:
        changes: list[tuple[str, Change]] = [(name, _dropped) for name in settings.drop]
        changes += [(name, lambda value: hashed(value, key)) for name in settings.hash]
        changes += [(name, _cut(length)) for name, length in settings.truncate.items()]
        self._changes = [(Path(name, spellings), change) for name, change in changes]
        hashes = {name.casefold() for name in settings.hash}
        self._again = [
            (path, _unless_hashed(change) if path.name.casefold() in hashes else change)
            for path, change in self._changes
        ]

    @property
    def names(self) -> Sequence[str]:
        return [path.name for path, _ in self._changes]

    def hide(self, event: Event) -> Event:
        for path, change in self._changes:
            event = path.edited(event, change)
        return event

    def hide_again(self, event: Event) -> Event:
        """Of an event that may be hidden already: what is a hash stays one."""
        for path, change in self._again:
            event = path.edited(event, change)
        return event


def hashed(value: Any, key: bytes) -> str | None:
    """The same for a text and a number that reads the same, so that they can still be joined."""
    if value is None:
        return None
    return hmac.digest(key, text_of(value).encode("utf-8", "surrogatepass"), "sha256").hex()


def _unless_hashed(change: Change) -> Change:
    return lambda value: value if type(value) is str and _HASH.fullmatch(value) else change(value)


def text_of(value: Any) -> str:
    """
    >>> text_of("a"), text_of(1), text_of(True), text_of([1, "a"])
    ('a', '1', 'true', '[1,"a"]')
    """
    return value if type(value) is str else _encoder.encode(value).decode()


def network_of(value: Any) -> str | None:
    """The network an address belongs to; None if it is no address, for what that is nobody knows.

    >>> network_of("192.0.2.77"), network_of("2001:db8:1:2::3"), network_of("::ffff:192.0.2.7"), network_of("you")
    ('192.0.2.0', '2001:db8:1::', '192.0.2.0', None)
    """
    try:
        address = ipaddress.ip_address(value.strip() if isinstance(value, str) else "")
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is None:
            return str(ipaddress.IPv6Network((int(address), 48), strict=False).network_address)
        address = address.ipv4_mapped
    return str(ipaddress.IPv4Network((int(address), 24), strict=False).network_address)


def _dropped(value: Any) -> Any:
    return GONE


def _cut(length: int | str) -> Change:
    if isinstance(length, str):
        return network_of

    def cut(value: Any) -> Any:
        if value is None or (type(value) is str and len(value) <= length):
            return value
        # What is no text and no number cannot be cut: it goes.
        return None if isinstance(value, list | dict | bool) else text_of(value)[:length]

    return cut

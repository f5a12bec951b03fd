"""Who may do what: keys with roles; and without keys, only those who sit at this machine."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import ipaddress
from collections.abc import Sequence
from typing import Literal
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection

from headrace.config import Key
from headrace.errors import ConfigError, Refused, Unauthenticated

Role = Literal["read", "write", "admin"]
RANK: dict[str, int] = {"read": 1, "write": 2, "admin": 3}


class Auth:
    def __init__(self, keys: Sequence[Key]) -> None:
        for key in keys:
            if key.role not in RANK:
                raise ConfigError(f"`{key.role}` is not a role", hint="[auth] keys have the role read, write or admin")
            if not key.key:
                raise ConfigError("a key of [auth] keys is empty")
        # Digests all have one length, so comparing them tells nothing about a key's.
        self._keys = [(_digest(key.key), key) for key in keys]

    @property
    def keys_set(self) -> bool:
        return bool(self._keys)

    def check(self, connection: HTTPConnection, needed: Role | None) -> None:
        """`Unauthenticated` or `Refused` unless the connection may."""
        if not self._keys:
            check_local(connection.headers.get("host", ""), connection.headers.get("origin"))
            return
        if needed is None:
            return
        key = self._find(_key_of(connection, needed))
        if key is None:
            raise Unauthenticated(
                "this needs a key",
                hint="send it as `Authorization: Bearer KEY`; keys are in headrace.toml, [auth] keys",
            )
        if RANK[key.role] < RANK[needed]:
            raise Refused(f"this needs the role `{needed}`, the key has `{key.role}`")

    def caller(self, connection: HTTPConnection, claimed: str) -> str:
        """Who it is, to be written down: by the key, where there are keys; otherwise whoever it claims to be."""
        key = self._find(_key_of(connection, "admin")) if self._keys else None
        if key is None:
            return claimed
        return key.name or f"somebody with the role {key.role}"

    def _find(self, key: str | None) -> Key | None:
        if key is None:
            return None
        digest, found = _digest(key), None
        # All of them, always: how long it takes must not say which one it was.
        for known, one in self._keys:
            if hmac.compare_digest(digest, known):
                found = one
        return found


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()


def _key_of(connection: HTTPConnection, needed: Role) -> str | None:
    scheme, _, key = connection.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and key.strip():
        return key.strip()
    if scheme.lower() == "basic":
        return _basic_key(key)
    # A browser's EventSource and WebSocket cannot set headers. Addresses end up in logs, so it is for reading only.
    if needed == "read" and (connection.scope["type"] == "websocket" or connection.scope["method"] == "GET"):
        return connection.query_params.get("key")
    return None


def _basic_key(credentials: str) -> str | None:
    """The password of basic authentication, which is what clients of Kafka's world can send; the user is of no
    consequence."""
    return _basic(credentials)[1] or None


def basic_user(credentials: str) -> str | None:
    """The user, or the password where that is empty: clients of trackers send their write key as the user."""
    user, password = _basic(credentials)
    return user or password or None


def _basic(credentials: str) -> tuple[str, str]:
    try:
        text = base64.b64decode(credentials.strip(), validate=True).decode()
    except (binascii.Error, ValueError):
        return "", ""
    user, _, password = text.partition(":")
    return user, password


def check_local(host: str, origin: str | None) -> None:
    """Without keys the server trusts this machine, but not the web sites its user visits: a page from elsewhere may
    neither talk to us (`Origin`) nor pretend that its own name is ours (`Host`)."""
    name = _hostname(f"//{host}")
    if name is not None and not is_loopback(name):
        raise Refused(f"`{host}` is not this machine", hint="set [auth] keys to be reached under other names")
    if origin is not None and not is_loopback(_hostname(origin) or ""):
        raise Refused(f"pages of `{origin}` may not use this server", hint="set [auth] keys to allow other sites")


def _hostname(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return ""


def is_loopback(host: str) -> bool:
    """
    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("example.org")
    (True, True, False)
    """
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False

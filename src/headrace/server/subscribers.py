"""Subscribers: clients that keep a connection for as long as they like (feeds, sockets, push queries).

They may take three quarters of the connections; the others stay free for writes, queries, health and administration.
One key, and one address of another machine, may take half of that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from starlette.requests import HTTPConnection

from headrace.access.rights import Identity
from headrace.config import ServerSettings
from headrace.errors import Overloaded
from headrace.server.audit import IDENTITY
from headrace.server.auth import is_loopback
from headrace.server.connections import most_subscribers
from headrace.server.metrics import Metrics

RETRY_S = 5.0


class Subscribers:
    """All subscribers of this process. Belongs to one event loop."""

    def __init__(self, settings: ServerSettings, metrics: Metrics, keys: Callable[[], int]) -> None:
        """`keys` says how many there are now."""
        self._settings, self._metrics, self._key_count = settings, metrics, keys
        self.most = most_subscribers(settings)
        self._keys: Counter[Identity | None] = Counter()
        self._addresses: Counter[str] = Counter()
        self._push: Counter[Identity | None] = Counter()

    @property
    def count(self) -> int:
        return self._keys.total()

    def check(self, connection: HTTPConnection) -> None:
        """`Overloaded` if the connection may not subscribe."""
        key, address = _key_of(connection), _address_of(connection)
        if self.count >= self.most:
            self._refuse("all", f"{self.most} clients are subscribed already", "max_subscribers")
        most = self._settings.max_subscribers_per_key or self._share(self.most)
        if self._keys[key] >= most:
            self._refuse("key", f"this key has {most} subscribers already", "max_subscribers_per_key")
        most = self._settings.max_subscribers_per_address or (self.most if is_loopback(address) else self.most // 2)
        if self._addresses[address] >= most:
            self._refuse("address", f"`{address}` has {most} subscribers already", "max_subscribers_per_address")

    def _refuse(self, limit: str, message: str, setting: str) -> None:
        self._metrics.refused_subscribers.labels(limit).inc()
        raise Overloaded(message, retry_after=RETRY_S, hint=f"see [server] {setting}")

    @contextmanager
    def client(self, connection: HTTPConnection, kind: str) -> Iterator[None]:
        """Count a subscriber for as long as it is there."""
        key, address = _key_of(connection), _address_of(connection)
        self._keys[key] += 1
        self._addresses[address] += 1
        try:
            with self._metrics.client(kind):
                yield
        finally:
            _give_back(self._keys, key)
            _give_back(self._addresses, address)

    def check_push(self, connection: HTTPConnection) -> None:
        """`Overloaded` if as many push queries run already as may, or as may of one key."""
        most = self._settings.max_push_queries
        if self._push.total() >= most:
            self._refuse("push", f"{most} push queries are running already", "max_push_queries")
        most = self._settings.max_push_queries_per_key or self._share(most)
        if self._push[_key_of(connection)] >= most:
            self._refuse("push of key", f"this key runs {most} push queries already", "max_push_queries_per_key")

    def _share(self, most: int) -> int:
        """Return what one key may take: half, unless it is the only one."""
        return max(1, most // 2) if self._key_count() > 1 else most

    @contextmanager
    def push(self, connection: HTTPConnection) -> Iterator[None]:
        """Count a push query for as long as it runs."""
        key = _key_of(connection)
        self._push[key] += 1
        try:
            yield
        finally:
            _give_back(self._push, key)


def _give_back(counts: Counter[Identity | None] | Counter[str], name: Identity | str | None) -> None:
    counts[name] -= 1  # type: ignore[index]
    if not counts[name]:  # type: ignore[index]
        del counts[name]


def _key_of(connection: HTTPConnection) -> Identity | None:
    found: Identity | None = connection.scope.get(IDENTITY)
    return found


def _address_of(connection: HTTPConnection) -> str:
    client = connection.scope.get("client")
    return str(client[0]) if client else ""

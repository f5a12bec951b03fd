"""`[enrich]`: what is known of an event's arrival, written into its fields."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Callable, Sequence
from typing import Any

from headrace.collect.rules.fields import Event, Path, Spellings
from headrace.collect.rules.hiding import hashed, network_of
from headrace.collect.rules.settings import EnrichSettings

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class Enriching:
    def __init__(self, settings: EnrichSettings, collector: str, key: bytes, spellings: Spellings) -> None:
        self._settings, self._spellings = settings, spellings
        self._proxies = [ipaddress.ip_network(network) for network in settings.proxies]
        self._key = key
        self._fixed: list[tuple[Path, Any]] = [
            (Path(name, spellings), value) for name, value in settings.fields.items()
        ]
        if settings.collector:
            self._fixed.append((Path(settings.collector, spellings), collector))
        given = (settings.arrival_time, settings.address, settings.user_agent)
        self._time, self._address, self._agent = (Path(name, spellings) if name else None for name in given)
        visit = (settings.visitor, settings.session)
        self._visitor, self._session = (Path(name, spellings) if name else None for name in visit)

    @property
    def names(self) -> Sequence[str]:
        visit = (self._visitor, self._session)
        known = (self._time, self._address, self._agent, *visit, *(path for path, _ in self._fixed))
        return [path.name for path in known if path is not None]

    def sender(self, address: str, forwarded: str) -> str:
        """Who sent it, as far as can be believed."""
        return believed(address, forwarded, self._proxies)

    def fill(
        self, address: str, user_agent: str, now_ms: int, visitor: str = "", session: str = ""
    ) -> Callable[[Event], Event]:
        """What is to be done with each event of one request. The address is what may be told of it."""
        values = list(self._fixed)
        if self._time is not None:
            values.append((self._time, now_ms if self._settings.arrival_time_as == "ms" else _iso(now_ms)))
        if self._address is not None:
            values.append((self._address, address or None))
        if self._agent is not None:
            values.append((self._agent, user_agent or None))
        if self._visitor is not None:
            values.append((self._visitor, visitor or None))
        if self._session is not None:
            values.append((self._session, session or None))

        if not values:
            return lambda event: event
        plain = {path.name: value for path, value in values if path.is_plain}
        ours = {name.casefold() for name in plain}
        deep = [(path, value) for path, value in values if not path.is_plain]

        def filled(event: Event) -> Event:
            spelled = self._spellings.of(event)
            theirs = [name for folded in ours if folded in spelled for name in spelled[folded]]
            made = {**event, **plain}
            for name in theirs:
                if name not in plain:
                    del made[name]
            for path, value in deep:
                made = path.put(made, value)
            return made

        return filled

    def told(self, address: str) -> str:
        """The address as it may be written down; empty where nothing may."""
        if not address:
            return ""
        match self._settings.address_as:
            case "plain":
                return address
            case "network":
                return network_of(address) or ""
            case "hash":
                return hashed(address, self._key) or ""


def believed(address: str, forwarded: str, proxies: Sequence[Network]) -> str:
    """Who sent it: the last of `X-Forwarded-For` that no proxy of ours is. What others wrote into it counts nothing.

    >>> ours = [ipaddress.ip_network("10.0.0.0/8")]
    >>> believed("10.1.1.1", "6.6.6.6, 192.0.2.7, 10.2.2.2", ours), believed("192.0.2.9", "6.6.6.6", ours)
    ('192.0.2.7', '192.0.2.9')
    """
    hops = [hop.strip() for hop in forwarded.split(",") if hop.strip()] if forwarded and proxies else []
    while hops and _is_in(address, proxies):
        hop = _without_port(hops.pop())
        try:
            address = str(ipaddress.ip_address(hop))
        except ValueError:
            break
    return address


def _is_in(address: str, networks: Sequence[Network]) -> bool:
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
        found = found.ipv4_mapped
    return any(found in network for network in networks)


def _without_port(hop: str) -> str:
    if hop.startswith("["):
        return hop[1:].partition("]")[0]
    return hop.partition(":")[0] if hop.count(":") == 1 else hop


def _iso(now_ms: int) -> str:
    moment = datetime.datetime.fromtimestamp(now_ms / 1000, datetime.UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{now_ms % 1000:03d}Z"

"""What collectors with sockets of their own have in common: where they listen, and who may send."""

from __future__ import annotations

import ipaddress
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from headrace.collect.definitions import CollectorSettings
from headrace.config import Project
from headrace.errors import ConfigError

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, slots=True)
class Address:
    """One place to listen: `udp://127.0.0.1:5514`."""

    transport: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.transport}://{host}:{self.port}"


class ListenSettings(CollectorSettings, frozen=True, kw_only=True):
    """Common to `syslog`, `udp` and `statsd`."""

    allow: list[str] = []
    """Networks that may send, such as `10.0.0.0/8`; needed where it listens beyond this machine. Others are counted."""
    buffer_bytes: int = 64 * 1024 * 1024
    """What may wait in memory for the log. Beyond it TCP is read no further and UDP is lost, and counted."""


class TlsSettings(ListenSettings, frozen=True, kw_only=True):
    tls_cert: str = ""
    """File with the certificate for `tls://`, relative to the project."""
    tls_key: str = ""
    """File with its private key."""
    tls_client_ca: str = ""
    """File with the certificates that sign those of the clients: given, only clients that have one may connect."""


def read_addresses(texts: Sequence[str], transports: tuple[str, ...], allow: list[str]) -> list[Address]:
    """`ConfigError` for what is no address, and for one that anybody could reach without `allow`."""
    if not texts:
        raise ConfigError("`listen` is empty", hint=f'say where:  listen = ["{transports[0]}://127.0.0.1:5514"]')
    addresses = [_address(text, transports) for text in texts]
    networks(allow)
    for address in addresses:
        if not allow and not is_loopback(address.host):
            hint = 'say who may:  allow = ["10.0.0.0/8"], or everybody:  allow = ["0.0.0.0/0", "::/0"]'
            raise ConfigError(open_to_all(str(address)), hint=hint, path=("listen",))
    return addresses


def open_to_all(address: str) -> str:
    """Return why an address is refused that is not this machine's alone."""
    return f"refusing to listen on `{address}`: anybody who reaches it could send"


def networks(allow: Sequence[str]) -> list[Network]:
    try:
        return [ipaddress.ip_network(one, strict=False) for one in allow]
    except ValueError as error:
        raise ConfigError(f"`allow`: {error}", hint="networks such as 10.0.0.0/8 or ::1/128", path=("allow",)) from None


class Admission:
    """Who may send. An address is looked at once."""

    MOST = 10_000

    def __init__(self, allow: Sequence[str]) -> None:
        self._networks = networks(allow)
        self._known: dict[str, bool] = {}

    def __call__(self, host: str) -> bool:
        if not self._networks:
            return True
        known = self._known.get(host)
        if known is None:
            address = ipaddress.ip_address(host.partition("%")[0])
            if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
                address = address.ipv4_mapped
            known = any(address in network for network in self._networks if network.version == address.version)
            if len(self._known) < self.MOST:
                self._known[host] = known
        return known


def tls_context(settings: TlsSettings, project: Project) -> ssl.SSLContext:
    def file(name: str, setting: str) -> Path:
        if not setting:
            raise ConfigError(f"`tls://` needs `{name}`", hint=f'{name} = "…", a PEM file', path=("listen",))
        found = project.folder / setting
        if not found.is_file():
            raise ConfigError(f"`{name}`: there is no file `{setting}`", path=(name,))
        return found

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(file("tls_cert", settings.tls_cert), file("tls_key", settings.tls_key))
        if settings.tls_client_ca:
            context.load_verify_locations(file("tls_client_ca", settings.tls_client_ca))
            context.verify_mode = ssl.CERT_REQUIRED
    except ssl.SSLError as error:
        raise ConfigError(f"the certificate cannot be used: {error.reason or error}") from error
    return context


def _address(text: str, transports: tuple[str, ...]) -> Address:
    hint = f'{" or ".join(transports)}, host and port:  "{transports[0]}://127.0.0.1:5514"'
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if host is None or port is None or parts.scheme not in transports:
        raise ConfigError(f"`{text}` is no address to listen on", hint=hint, path=("listen",))
    return Address(parts.scheme, host, port)


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"

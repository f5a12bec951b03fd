"""Asks the kernel which user is at the other end of a connection from this machine.

The client's socket is looked up by its whole address (both ends) with a SOCK_DIAG request, which costs some three
microseconds. Nothing is remembered: a port may belong to somebody else a moment later.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import struct
import threading
from functools import lru_cache
from pathlib import Path

NETLINK_SOCK_DIAG, SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST = 4, 20, 1
CONNECTED = frozenset({1, 4, 5, 8})
"""ESTABLISHED, FIN_WAIT1, FIN_WAIT2, CLOSE_WAIT: the client may still wait for an answer."""
OVERFLOW_UID = Path("/proc/sys/kernel/overflowuid")

_HEADER = struct.Struct("=IHHII")
_REQUEST = struct.Struct("=BBBBI")
_PORTS = struct.Struct("!HH")
_REST = struct.Struct("=III")
_FOUND = struct.Struct("=IIIII")  # expires, receive queue, send queue, uid, inode
_ADDRESSES = 20
"""Where the ports begin in an answer; two addresses of 16 bytes follow, then interface and cookie."""
_NO_COOKIE = 0xFFFFFFFF


class Peers:
    """Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        try:
            self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, NETLINK_SOCK_DIAG)
            self._socket.settimeout(1.0)
        except (OSError, AttributeError):
            # Another operating system, or a sandbox without it: then nobody is known by the user.
            self._socket = None

    def uid(self, client: tuple[str, int], server: tuple[str, int]) -> int | None:
        """Return the user who opened the client's end, or None where the kernel does not tell. A socket that its
        process has closed has no user any more: the kernel would report it as root's."""
        request = _request(client, server)
        if request is None or self._socket is None:
            return None
        with self._lock:
            try:
                self._socket.send(request)
                answer = self._socket.recv(8192)
            except OSError:
                return None
        return _uid(answer, request)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()


def own_uid() -> int | None:
    """Return the user that counts as the owner; None if this process runs as the one that stands for all users
    without a number here."""
    try:
        overflow = int(OVERFLOW_UID.read_text())
    except (OSError, ValueError):
        overflow = 65534
    uid = os.geteuid()
    return None if uid == overflow else uid


def _request(client: tuple[str, int], server: tuple[str, int]) -> bytes | None:
    around = _frame(client[0], server[0])
    return None if around is None else around[0] + _PORTS.pack(client[1], server[1]) + around[1]


@lru_cache(maxsize=256)
def _frame(client: str, server: str) -> tuple[bytes, bytes] | None:
    """Return a request without its ports: what comes before them, and after. None if the client is elsewhere. Only
    how addresses are written is remembered; parsing them takes longer than the kernel's answer."""
    try:
        here, there = ipaddress.ip_address(client), ipaddress.ip_address(server)
    except ValueError:
        return None
    if not here.is_loopback or here.version != there.version:
        return None
    family = socket.AF_INET if here.version == 4 else socket.AF_INET6
    rest = here.packed.ljust(16, b"\0") + there.packed.ljust(16, b"\0") + _REST.pack(0, _NO_COOKIE, _NO_COOKIE)
    body = _REQUEST.pack(family, socket.IPPROTO_TCP, 0, 0, _NO_COOKIE)
    size = _HEADER.size + len(body) + _PORTS.size + len(rest)
    return _HEADER.pack(size, SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST, 1, 0) + body, rest


def _uid(answer: bytes, request: bytes) -> int | None:
    if len(answer) < _ADDRESSES + 48 + _FOUND.size or _HEADER.unpack_from(answer)[1] != SOCK_DIAG_BY_FAMILY:
        return None
    # Where there is no such connection the kernel offers whoever listens on the port.
    ends = slice(_ADDRESSES, _ADDRESSES + 36)
    asked = slice(_HEADER.size + _REQUEST.size, _HEADER.size + _REQUEST.size + 36)
    if answer[17] not in CONNECTED or answer[ends] != request[asked]:
        return None
    uid, inode = _FOUND.unpack_from(answer, _ADDRESSES + 48)[3:]
    return uid if inode else None

"""Ends a connection that nobody takes anything from.

The HTTP server has no word for that: what it was handed stays with it, and the connection open, until the client takes
it. So the connection is looked up among our own by its two ends, and shut down, upon which the server gives up.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import struct

from starlette.types import Scope


def sever(scope: Scope) -> None:
    """Nothing happens if it has ended by itself."""
    client, server = scope.get("client"), scope.get("server")
    if not client or not server or server[1] is None:
        return
    # Granian writes ports as text.
    ends = (client[0], int(client[1])), int(server[1])
    for name in os.listdir("/proc/self/fd"):
        # One that was closed meanwhile, or is no connection.
        with contextlib.suppress(OSError):
            if not stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                continue
            with socket.socket(fileno=os.dup(int(name))) as found:
                if found.family not in (socket.AF_INET, socket.AF_INET6):
                    continue
                if (found.getpeername()[:2], found.getsockname()[1]) == ends:
                    reset(found)


def reset(connection: socket.socket) -> None:
    """Close a connection without waiting for what the client has not taken."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.shutdown(socket.SHUT_RDWR)

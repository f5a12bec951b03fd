"""HTTP itself: the same for the server and for collectors."""

from __future__ import annotations

from granian.constants import HTTPModes, Interfaces
from granian.http import HTTP1Settings
from granian.server.embed import Server
from starlette.types import ASGIApp

from headrace.config import Project

BACKLOG = 1024


def http_server(app: ASGIApp, project: Project, port: int) -> Server:
    """HTTP/1.1 with WebSocket, and HTTP/2 without TLS, on one port."""
    return Server(
        app,
        address=project.settings.server.host,
        port=port,
        interface=Interfaces.ASGINL,
        http=HTTPModes.auto,
        backlog=BACKLOG,
        http1_settings=HTTP1Settings(header_read_timeout=30_000, max_buffer_size=1024 * 1024),
        log_enabled=False,
    )

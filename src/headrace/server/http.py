"""HTTP itself: the same for the server and for collectors."""

from __future__ import annotations

from granian.constants import HTTPModes, Interfaces
from granian.http import HTTP1Settings, HTTP2Settings
from granian.server.embed import Server
from starlette.types import ASGIApp

from headrace.access.tls import server_files
from headrace.config import Project
from headrace.server.connections import most_connections

BACKLOG = 4096
PING_MS = 30_000
"""How often a client of HTTP/2 is asked whether it is still there."""


def http_server(app: ASGIApp, project: Project, port: int) -> Server:
    """HTTP/1.1 with WebSocket, and HTTP/2, on one port; over TLS where the project has a certificate, else without."""
    settings = project.settings.server
    certificate, key = server_files(project) or (None, None)
    return Server(
        app,
        address=settings.host,
        port=port,
        interface=Interfaces.ASGINL,
        http=HTTPModes.auto,
        backlog=BACKLOG,
        backpressure=most_connections(settings),
        http1_settings=HTTP1Settings(
            header_read_timeout=int(settings.header_seconds * 1000), max_buffer_size=1024 * 1024
        ),
        http2_settings=HTTP2Settings(keep_alive_interval=PING_MS),
        ssl_cert=certificate,
        ssl_key=key,
        log_enabled=False,
    )

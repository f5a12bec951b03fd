"""An agent's counters over HTTP: Flume's JSON, and Prometheus' text, both at `/metrics`."""

from __future__ import annotations

import http.server
import json
import re
import threading
from collections.abc import Mapping
from typing import Any

from headrace.collect.agents.running import Agent, metrics
from headrace.errors import UsageError


def prometheus_text(agent: Agent) -> str:
    """Every counter as `headrace_agent_event_put_success_count{agent=…,component=…,name=…}`."""
    lines = []
    for (role, name), counters in agent.counters.items():
        for key, value in counters.read().items():
            labels = f'agent="{agent.definition.name}",component="{role}",name="{name}"'
            lines.append(f"headrace_agent_{_snake(key)}{{{labels}}} {value}")
    return "\n".join(sorted(lines)) + "\n"


def _snake(name: str) -> str:
    """
    >>> _snake("EventPutSuccessCount")
    'event_put_success_count'
    """
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


class MetricsServer:
    """On the loopback address, until `close`."""

    def __init__(self, agent: Agent, port: int) -> None:
        try:
            self._server = http.server.ThreadingHTTPServer(("127.0.0.1", port), _handler(agent))
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise UsageError(f"cannot listen on port {port}: {reason}", hint="choose another --metrics-port") from None
        self._server.daemon_threads = True
        self.port: int = int(self._server.server_address[1])
        threading.Thread(target=self._server.serve_forever, args=(0.2,), name="agent-metrics", daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def _handler(agent: Agent) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        timeout = 10

        def do_GET(self) -> None:
            if self.path.split("?")[0] != "/metrics":
                self.send_error(404)
                return
            kind, body = rendered(agent, self.headers.get("Accept", ""))
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            return None

    return Handler


def rendered(agent: Agent, accept: str) -> tuple[str, bytes]:
    """Prometheus says what it wants; whoever does not gets Flume's JSON."""
    if "openmetrics" in accept or "text/plain" in accept:
        return "text/plain; version=0.0.4; charset=utf-8", prometheus_text(agent).encode()
    found: Mapping[str, Any] = metrics(agent)
    return "application/json; charset=utf-8", json.dumps(found).encode()

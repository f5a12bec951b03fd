"""`http`: each event posted to an address."""

from __future__ import annotations

import http.client
from collections.abc import Sequence
from urllib.parse import quote, urlsplit

from headrace.collect.agents.base import AgentError, Counters, Event, Sink
from headrace.collect.agents.options import ComponentKind, Context, Option, Options

_PLAIN = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) != "%")


class HttpSink(Sink):
    """One event a request. 2xx is delivered; what any other answer means, the properties say: by default it is sent
    again."""

    def __init__(self, options: Options, counters: Counters) -> None:
        self._options, self._counters = options, counters
        self._url = urlsplit(options.text("endpoint"))
        self.batch_size = 1
        self._connection: http.client.HTTPConnection | None = None

    def start(self) -> None:
        if self._url.scheme not in ("http", "https") or not self._url.hostname:
            raise AgentError(f"`{self._options.text('endpoint')}` is no address", hint="such as http://host:port/path")

    def deliver(self, events: Sequence[Event]) -> None:
        for event in events:
            status = self._post(event)
            if 200 <= status < 300:
                continue
            if self._says("rollback", status, True):
                raise AgentError(f"`{self._options.text('endpoint')}` answered {status}")
            # As told: the event is given up, and counted.
            self._counters.add("EventRefusedCount")

    def _post(self, event: Event) -> int:
        connection = self._connection or self._connect()
        path = (self._url.path or "/") + (f"?{self._url.query}" if self._url.query else "")
        headers = {
            "Content-Type": self._options.text("contentTypeHeader"),
            "Accept": self._options.text("acceptHeader"),
        }
        if event.id is not None:
            # Whatever another agent has called it: a header's value has no line ends.
            headers["Idempotency-Key"] = quote(event.id, _PLAIN, "utf-8", "backslashreplace")
        try:
            connection.request("POST", path, event.body, headers)
            answer = connection.getresponse()
            answer.read()
        except (OSError, http.client.HTTPException) as error:
            self.close()
            self._counters.add("ConnectionFailedCount")
            raise AgentError(f"`{self._options.text('endpoint')}` cannot be reached: {error}") from error
        return answer.status

    def _says(self, what: str, status: int, default: bool) -> bool:
        """`rollback.503`, `rollback.5XX`, or `defaultRollback`."""
        given = self._options.below(f"{what}.*")
        found = given.get(str(status), given.get(f"{status // 100}XX"))
        if found is None:
            return self._options.flag("defaultRollback") if default else default
        return found.strip().lower() == "true"

    def _connect(self) -> http.client.HTTPConnection:
        kind = http.client.HTTPSConnection if self._url.scheme == "https" else http.client.HTTPConnection
        timeout = self._options.integer("requestTimeout") / 1000
        self._connection = kind(self._url.hostname or "", self._url.port, timeout=timeout)
        self._counters.add("ConnectionCreatedCount")
        return self._connection

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
            self._counters.add("ConnectionClosedCount")


def _make(context: Context) -> HttpSink:
    return HttpSink(context.options, context.counters)


KIND = ComponentKind(
    "sink",
    ("http", "org.apache.flume.sink.http.HttpSink"),
    "Posts each event to an address.",
    _make,
    (
        Option("endpoint", "text", None, "The address.", required=True),
        Option("connectTimeout", "integer", 5000, "Accepted; `requestTimeout` holds for connecting, too."),
        Option("requestTimeout", "integer", 5000, "Milliseconds to wait for an answer.", least=1),
        Option("contentTypeHeader", "text", "text/plain", "What the body is said to be."),
        Option("acceptHeader", "text", "text/plain", "What answers are asked for."),
        Option("defaultRollback", "flag", True, "Send an event again that was not answered with 2xx."),
        Option("rollback.*", "text", None, "The same for one status (`503`) or a class of them (`5XX`)."),
        Option("defaultBackoff", "flag", True, "Accepted; a failure is always waited out."),
        Option("backoff.*", "text", None, "Accepted."),
        Option("defaultIncrementMetrics", "flag", False, "Accepted."),
        Option("incrementMetrics.*", "text", None, "Accepted."),
    ),
)

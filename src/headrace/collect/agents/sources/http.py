"""`http`: events posted as JSON, `[{"headers": {…}, "body": "…"}]`, or a body as it is."""

from __future__ import annotations

import http.server
import io
import socket
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

import msgspec

from headrace.collect.agents.base import AgentError, Counters, Event, Put
from headrace.collect.agents.options import ComponentKind, Context, Option
from headrace.collect.agents.sources.limits import IN_FLIGHT, MESSAGE_S, Budget, Patience, PatientReads
from headrace.collect.agents.sources.listening import ALLOW, HERE, TcpSource, check_listening
from headrace.structs import ready

MAX_BODY = 64 * 1024 * 1024
CHUNK = 64 * 1024
IDLE_S = 30.0
"""A connection on which no request comes for so long is closed."""
JSON_HANDLERS = ("json", "org.apache.flume.source.http.JSONHandler")
BLOB_HANDLERS = ("blob", "org.apache.flume.sink.solr.morphline.BlobHandler")


class JsonEvent(msgspec.Struct, forbid_unknown_fields=True):
    headers: dict[str, str] = {}
    body: str = ""


_decoder = msgspec.json.Decoder(ready(list[JsonEvent]))


class HttpSource(TcpSource):
    """200 when the channels have them, 503 while they are full, or too much comes at once: send again."""

    def __init__(self, host: str, port: int, counters: Counters, blob: bool = False, allow: Sequence[str] = ()) -> None:
        super().__init__(host, port, counters, allow)
        self._blob, self._budget = blob, Budget(IN_FLIGHT)

    def _serve(self, connection: socket.socket, put: Put) -> None:
        _Handler(connection, put, self._counters, self._budget, self._blob)


class _Handler(http.server.BaseHTTPRequestHandler):
    """One connection, until it ends."""

    protocol_version = "HTTP/1.1"

    def __init__(self, connection: socket.socket, put: Put, counters: Counters, budget: Budget, blob: bool) -> None:
        self._put, self._counters, self._budget, self._blob = put, counters, budget, blob
        self._held = 0
        self._patience = Patience(connection, IDLE_S, MESSAGE_S)
        super().__init__(connection, ("", 0), None)  # type: ignore[arg-type]

    def setup(self) -> None:
        super().setup()
        self.rfile.close()
        self.rfile = io.BufferedReader(PatientReads(self.connection, self._patience), CHUNK)

    def handle_one_request(self) -> None:
        self._patience.begin()
        super().handle_one_request()

    def do_POST(self) -> None:
        self._counters.add("AppendBatchReceivedCount")
        if self.headers.get("Origin") or self.headers.get("Sec-Fetch-Site", "none") != "none":
            # Agents are no browsers: a page, of whatever site, has no business here.
            self._counters.add("RequestRefusedCount")
            self.close_connection = True
            self._answer(HTTPStatus.FORBIDDEN, "web pages may not send here")
            return
        try:
            status, text = self._take()
        finally:
            self._budget.give_back(self._held)
            self._held = 0
        if status == HTTPStatus.OK:
            self._counters.add("AppendBatchAcceptedCount")
        self._answer(status, text)

    def _take(self) -> tuple[HTTPStatus, str]:
        body = self._body()
        if not isinstance(body, bytes):
            # What is left of it would be taken for the next request.
            self.close_connection = True
            return body
        try:
            events = [Event(body)] if self._blob else read_json(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            self._counters.add("EventReadFail")
            return HTTPStatus.BAD_REQUEST, f'not a list of {{"headers": {{…}}, "body": "…"}}: {error}'
        try:
            if events:
                self._put(events)
        except AgentError as error:
            return HTTPStatus.SERVICE_UNAVAILABLE, error.message
        return HTTPStatus.OK, ""

    def _body(self) -> bytes | tuple[HTTPStatus, str]:
        """Or what to answer instead."""
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdecimal()):
            return HTTPStatus.LENGTH_REQUIRED, "a Content-Length is needed"
        if len(length) > 18 or int(length) > MAX_BODY:
            return HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a body has at most {MAX_BODY} bytes"
        body, left = bytearray(), int(length)
        while left:
            # Only what comes counts, not what is promised: a promise costs nobody anything.
            if not self._budget.take(min(left, CHUNK)):
                self._counters.add("RequestRefusedCount")
                return HTTPStatus.SERVICE_UNAVAILABLE, f"more than {self._budget.most} bytes at once: send again"
            self._held += min(left, CHUNK)
            try:
                data = self.rfile.read(min(left, CHUNK))
            except TimeoutError:
                self._counters.add("RequestTimedOutCount")
                return HTTPStatus.REQUEST_TIMEOUT, f"the request took longer than {MESSAGE_S:g} s"
            if not data:
                return HTTPStatus.BAD_REQUEST, "the body is cut off"
            body += data
            left -= len(data)
        return bytes(body)

    def _answer(self, status: HTTPStatus, text: str) -> None:
        body = text.encode("utf-8", "backslashreplace")
        self.connection.settimeout(IDLE_S)
        self.send_response(status)
        if status == HTTPStatus.SERVICE_UNAVAILABLE:
            self.send_header("Retry-After", "1")
        if self.close_connection:
            self.send_header("Connection", "close")
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        return None


def read_json(body: bytes) -> list[Event]:
    return [Event(one.body.encode(), one.headers) for one in _decoder.decode(body)]


KIND = ComponentKind(
    "source",
    ("http", "org.apache.flume.source.http.HTTPSource"),
    "Events posted over HTTP as JSON.",
    lambda context: _make(context),
    (
        Option("bind", "text", HERE, "Address to listen on.", also=("host",)),
        Option("port", "integer", None, "Port to listen on.", required=True, least=0),
        ALLOW,
        Option(
            "handler",
            "text",
            "json",
            "How a body is read: JSON, or as one event (blob).",
            choices=(*JSON_HANDLERS, *BLOB_HANDLERS),
        ),
        Option("handler.*", "text", None, "Accepted."),
    ),
    check_listening,
)


def _make(context: Context) -> HttpSource:
    options = context.options
    blob = options.text("handler").lower() in {name.lower() for name in BLOB_HANDLERS}
    return HttpSource(options.text("bind"), options.integer("port"), context.counters, blob, options.words("allow"))

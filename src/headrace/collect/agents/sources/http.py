"""`http`: events posted as JSON, `[{"headers": {…}, "body": "…"}]`, or a body as it is."""

from __future__ import annotations

import http.server
import threading
from http import HTTPStatus
from typing import Any

import msgspec

from headrace.collect.agents.base import AgentError, Counters, Event, ListeningSource, Put
from headrace.collect.agents.options import ComponentKind, Context, Option

MAX_BODY = 64 * 1024 * 1024
BODY_S = 30.0
JSON_HANDLERS = ("json", "org.apache.flume.source.http.JSONHandler")
BLOB_HANDLERS = ("blob", "org.apache.flume.sink.solr.morphline.BlobHandler")


class JsonEvent(msgspec.Struct, forbid_unknown_fields=True):
    headers: dict[str, str] = {}
    body: str = ""


_decoder = msgspec.json.Decoder(list[JsonEvent])


class HttpSource(ListeningSource):
    """200 when the channels have them, 503 while they are full: send again."""

    def __init__(self, host: str, port: int, counters: Counters, blob: bool = False) -> None:
        self._host, self._port, self._counters, self._blob = host, port, counters, blob
        self._server: http.server.ThreadingHTTPServer | None = None
        self._thread: threading.Thread | None = None

    @property
    def port(self) -> int:
        return int(self._server.server_address[1]) if self._server else self._port

    def start(self, put: Put) -> None:
        try:
            self._server = http.server.ThreadingHTTPServer(
                (self._host, self._port), _handler(put, self._counters, self._blob)
            )
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise AgentError(
                f"cannot listen on `{self._host}:{self._port}`: {reason}", hint="choose another port"
            ) from None
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()


def _handler(put: Put, counters: Counters, blob: bool) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = BODY_S

        def do_POST(self) -> None:
            counters.add("AppendBatchReceivedCount")
            status, text = self._take()
            if status == HTTPStatus.OK:
                counters.add("AppendBatchAcceptedCount")
            self._answer(status, text)

        def _take(self) -> tuple[HTTPStatus, str]:
            length = self.headers.get("Content-Length", "")
            if not length.isdecimal():
                self.close_connection = True
                return HTTPStatus.LENGTH_REQUIRED, "a Content-Length is needed"
            if int(length) > MAX_BODY:
                self.close_connection = True
                return HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a body has at most {MAX_BODY} bytes"
            body = self.rfile.read(int(length))
            if len(body) < int(length):
                self.close_connection = True
                return HTTPStatus.BAD_REQUEST, "the body is cut off"
            try:
                events = [Event(body)] if blob else read_json(body)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                counters.add("EventReadFail")
                return HTTPStatus.BAD_REQUEST, f'not a list of {{"headers": {{…}}, "body": "…"}}: {error}'
            try:
                if events:
                    put(events)
            except AgentError as error:
                return HTTPStatus.SERVICE_UNAVAILABLE, error.message
            return HTTPStatus.OK, ""

        def _answer(self, status: HTTPStatus, text: str) -> None:
            body = text.encode()
            self.send_response(status)
            if status == HTTPStatus.SERVICE_UNAVAILABLE:
                self.send_header("Retry-After", "1")
            self.send_header("Content-Type", "text/plain; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            return None

    return Handler


def read_json(body: bytes) -> list[Event]:
    return [Event(one.body.encode(), one.headers) for one in _decoder.decode(body)]


KIND = ComponentKind(
    "source",
    ("http", "org.apache.flume.source.http.HTTPSource"),
    "Events posted over HTTP as JSON.",
    lambda context: _make(context),
    (
        Option("bind", "text", "0.0.0.0", "Address to listen on.", also=("host",)),
        Option("port", "integer", None, "Port to listen on.", required=True, least=0),
        Option(
            "handler",
            "text",
            "json",
            "How a body is read: JSON, or as one event (blob).",
            choices=(*JSON_HANDLERS, *BLOB_HANDLERS),
        ),
        Option("handler.*", "text", None, "Accepted."),
    ),
)


def _make(context: Context) -> HttpSource:
    options = context.options
    blob = options.text("handler").lower() in {name.lower() for name in BLOB_HANDLERS}
    return HttpSource(options.text("bind"), options.integer("port"), context.counters, blob)

"""`avro`: what another agent's avro sink sends, ours or Flume's."""

from __future__ import annotations

import socket
from collections.abc import Sequence

from headrace.collect.agents.avro_event import Reader, pack_lists
from headrace.collect.agents.avro_rpc import (
    FAILED,
    OK,
    Stream,
    answer_error,
    answer_handshake,
    answer_status,
    read_call,
    read_frame,
    read_handshake,
)
from headrace.collect.agents.base import AgentError, Counters, Put
from headrace.collect.agents.options import ComponentKind, Context, Option
from headrace.collect.agents.sources.limits import IN_FLIGHT, MESSAGE_S, Budget, Patience
from headrace.collect.agents.sources.listening import ALLOW, IDLE_S, TcpSource, check_listening
from headrace.errors import UsageError


class AvroSource(TcpSource):
    """A batch is answered with OK when the channels have it."""

    def __init__(
        self, host: str, port: int, counters: Counters, compress: bool = False, allow: Sequence[str] = ()
    ) -> None:
        super().__init__(host, port, counters, allow)
        self._compress, self._budget = compress, Budget(IN_FLIGHT)

    def _serve(self, connection: socket.socket, put: Put) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        patience = Patience(connection, IDLE_S, MESSAGE_S)
        stream = Stream(connection, self._compress, patience=patience, budget=self._budget)
        try:
            self._serve_stream(stream, put)
        finally:
            stream.release()

    def _serve_stream(self, stream: Stream, put: Put) -> None:
        shaken = False
        while (frame := read_frame(stream)) is not None:
            serial, message = frame
            reader, answer = Reader(message), b""
            if not shaken:
                known = read_handshake(reader)
                answer, shaken = answer_handshake(known), True
            try:
                answer += self._take(reader, put)
            except UsageError as error:
                self._counters.failed("EventReadFail", error)
                answer += answer_error(error.message)
            stream.write(pack_lists(serial, answer))
            stream.begin()

    def _take(self, reader: Reader, put: Put) -> bytes:
        call = read_call(reader)
        batch = "Batch" if call.name == "appendBatch" else ""
        self._counters.add(f"Append{batch}ReceivedCount")
        try:
            if call.events:
                put(call.events)
        except AgentError:
            return answer_status(FAILED)
        self._counters.add(f"Append{batch}AcceptedCount")
        return answer_status(OK)


def _make(context: Context) -> AvroSource:
    options = context.options
    return AvroSource(
        options.text("bind"),
        options.integer("port"),
        context.counters,
        options.text("compression-type") == "deflate",
        options.words("allow"),
    )


KIND = ComponentKind(
    "source",
    ("avro", "org.apache.flume.source.AvroSource"),
    "What avro sinks of other agents send.",
    _make,
    (
        Option("bind", "text", None, "Address to listen on.", required=True),
        Option("port", "integer", None, "Port to listen on.", required=True, least=0),
        ALLOW,
        Option("threads", "integer", 0, "Accepted; each connection has a thread."),
        Option("compression-type", "text", "none", "As the sink's.", choices=("none", "deflate")),
    ),
    check_listening,
)

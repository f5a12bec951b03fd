"""`netcat`: lines over TCP, each answered."""

from __future__ import annotations

import socket
from collections.abc import Sequence

from headrace.collect.agents.base import AgentError, Counters, Event, Put
from headrace.collect.agents.options import ComponentKind, Context, Option
from headrace.collect.agents.sources.listening import ALLOW, LineReader, TcpSource, check_listening

LONGEST_PUT = 100
"""Lines that are put, and answered, together."""


class NetcatSource(TcpSource):
    def __init__(
        self,
        host: str,
        port: int,
        counters: Counters,
        longest: int = 512,
        answer: bool = True,
        allow: Sequence[str] = (),
    ) -> None:
        super().__init__(host, port, counters, allow)
        self._longest, self._answer = longest, answer

    def _serve(self, connection: socket.socket, put: Put) -> None:
        reader = LineReader(connection, self._longest)
        while (lines := reader.read()) is not None:
            for first in range(0, len(lines), LONGEST_PUT):
                some = [Event(line) for line in lines[first : first + LONGEST_PUT]]
                try:
                    put(some)
                    answer = b"OK\n" * len(some)
                except AgentError as error:
                    # Whoever sent them is told, and may send them again.
                    answer = f"FAILED: {error.message}\n".encode() * len(some)
                if self._answer:
                    connection.sendall(answer)
        if reader.cut:
            self._counters.add("EventsCutCount", reader.cut)


def _make(context: Context) -> NetcatSource:
    options = context.options
    return NetcatSource(
        options.text("bind"),
        options.integer("port"),
        context.counters,
        options.integer("max-line-length"),
        options.flag("ack-every-event"),
        options.words("allow"),
    )


KIND = ComponentKind(
    "source",
    ("netcat", "org.apache.flume.source.NetcatSource"),
    "Lines over TCP, a line an event, each answered with OK.",
    _make,
    (
        Option("bind", "text", None, "Address to listen on.", required=True),
        Option("port", "integer", None, "Port to listen on.", required=True, least=0),
        ALLOW,
        Option("max-line-length", "integer", 512, "Longest line; what is longer is cut and counted.", least=1),
        Option("ack-every-event", "flag", True, "Answer each line with OK."),
        Option("encoding", "text", "utf-8", "Accepted; bytes are taken as they are."),
    ),
    check_listening,
)

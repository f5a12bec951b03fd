"""`avro`: to another agent's avro source, ours or Flume's."""

from __future__ import annotations

import time
from collections.abc import Sequence

from headrace.collect.agents.avro_rpc import AvroClient
from headrace.collect.agents.base import AgentError, Counters, Event, Sink
from headrace.collect.agents.options import ComponentKind, Context, Option, Options


class AvroSink(Sink):
    """Delivered when the next agent's channels have the events. If its answer is lost they are sent again: those with
    an id stay one event in the log."""

    def __init__(self, options: Options, counters: Counters) -> None:
        self._options, self._counters = options, counters
        self.batch_size = options.integer("batch-size")
        self._client: AvroClient | None = None
        self._opened = 0.0

    def start(self) -> None:
        self._connect()

    def deliver(self, events: Sequence[Event]) -> None:
        reset = self._options.integer("reset-connection-interval")
        if reset and time.monotonic() - self._opened > reset:
            self.close()
        client = self._client or self._connect()
        try:
            client.append_batch(events)
        except AgentError:
            self.close()
            raise

    def _connect(self) -> AvroClient:
        options = self._options
        try:
            self._client = AvroClient(
                options.text("hostname"),
                options.integer("port"),
                options.integer("connect-timeout") / 1000,
                options.integer("request-timeout") / 1000,
                options.text("compression-type") == "deflate",
                options.integer("compression-level"),
            )
        except AgentError:
            self._counters.add("ConnectionFailedCount")
            raise
        self._counters.add("ConnectionCreatedCount")
        self._opened = time.monotonic()
        return self._client

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None
            self._counters.add("ConnectionClosedCount")


def _make(context: Context) -> AvroSink:
    return AvroSink(context.options, context.counters)


KIND = ComponentKind(
    "sink",
    ("avro", "org.apache.flume.sink.AvroSink"),
    "To the avro source of another agent.",
    _make,
    (
        Option("hostname", "text", None, "Where the next agent is.", required=True),
        Option("port", "integer", None, "Its avro source's port.", required=True, least=1),
        Option("batch-size", "integer", 100, "Events at once.", least=1, also=("batchSize",)),
        Option("connect-timeout", "integer", 20_000, "Milliseconds to connect.", least=1),
        Option("request-timeout", "integer", 20_000, "Milliseconds to wait for an answer.", least=1),
        Option("reset-connection-interval", "integer", 0, "Seconds after which it connects anew; 0 is never.", least=0),
        Option("compression-type", "text", "none", "As the source's.", choices=("none", "deflate")),
        Option("compression-level", "integer", 6, "1 is fast, 9 is small.", least=0),
    ),
)

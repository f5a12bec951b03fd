"""`headrace`: into a topic of the log, each event once."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.collect.agents.base import AgentError, Counters, Event, Sink
from headrace.collect.agents.options import ComponentKind, Context, Option
from headrace.collect.agents.ports import LogWriter, Ports
from headrace.errors import HeadraceError


class LogSink(Sink):
    """Delivered when durable. What does not fit a topic's columns is a dead letter there."""

    def __init__(
        self, topic: str, batch_size: int, ports: Ports, counters: Counters, topic_header: str = "topic"
    ) -> None:
        self._topic, self.batch_size, self._ports, self._counters = topic, batch_size, ports, counters
        self._header = topic_header
        self._writer: LogWriter | None = None

    def start(self) -> None:
        self._open()

    def _open(self) -> LogWriter:
        if self._writer is None:
            if self._ports.open_log is None:
                raise AgentError("there is no log here", hint="name one:  --project DIR  or  --url URL")
            self._writer = self._ports.open_log()
            self._counters.add("ConnectionCreatedCount")
        return self._writer

    def deliver(self, events: Sequence[Event]) -> None:
        writer = self._open()
        for topic, share in self._by_topic(events).items():
            try:
                written = writer.write(topic, share)
            except HeadraceError as error:
                raise AgentError(f"topic `{topic}`: {error.message}", detail=error.detail, hint=error.hint) from error
            if written.duplicates:
                self._counters.add("EventDuplicateCount", written.duplicates)
            if written.rejected:
                self._counters.add("EventDeadLetterCount", written.rejected)

    def _by_topic(self, events: Sequence[Event]) -> dict[str, Sequence[Event]]:
        shares: dict[str, list[Event]] = {}
        if not self._header or not any(self._header in event.headers for event in events):
            return {self._topic: events}
        for event in events:
            shares.setdefault(event.headers.get(self._header, self._topic), []).append(event)
        return dict(shares)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None


def _make(context: Context) -> LogSink:
    options = context.options
    header = options.text("topicHeader") if options.flag("allowTopicOverride") else ""
    return LogSink(options.text("topic"), options.integer("batchSize"), context.ports, context.counters, header)


KIND = ComponentKind(
    "sink",
    ("headrace", "log"),
    "Into a topic of Headrace's log, each event once.",
    _make,
    (
        Option("topic", "text", None, "The topic; made, for records of bytes, if it is not there.", required=True),
        Option("batchSize", "integer", 10_000, "Most events at once.", least=1),
        Option("allowTopicOverride", "flag", False, "An event's own header may name another topic."),
        Option("topicHeader", "text", "topic", "That header."),
    ),
)

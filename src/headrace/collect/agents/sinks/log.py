"""`headrace`: into a topic of the log, each event once."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.collect.agents.base import AgentError, Counters, Event, Sink
from headrace.collect.agents.options import ComponentKind, Context, Option
from headrace.collect.agents.ports import LogWriter, Ports, Written
from headrace.collect.agents.sinks.header_topics import OPTION, SHOWN, HeaderTopics, header_topics, refusal, why_not
from headrace.collect.agents.texts import readable
from headrace.errors import HeadraceError, Refused


class LogSink(Sink):
    """Delivered when durable. What does not fit a topic's columns is a dead letter there; so is what asks, in a header,
    for a topic that it can never go to."""

    def __init__(
        self,
        topic: str,
        batch_size: int,
        ports: Ports,
        counters: Counters,
        topic_header: str = "",
        topics: HeaderTopics | None = None,
    ) -> None:
        self._topic, self.batch_size, self._ports, self._counters = topic, batch_size, ports, counters
        self._header, self._topics = topic_header, topics
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
                written = self._write(writer, topic, share)
            except HeadraceError as error:
                where = readable(topic)[:SHOWN]
                raise AgentError(f"topic `{where}`: {error.message}", detail=error.detail, hint=error.hint) from error
            if written.duplicates:
                self._counters.add("EventDuplicateCount", written.duplicates)
            if written.rejected:
                self._counters.add("EventDeadLetterCount", written.rejected)

    def _write(self, writer: LogWriter, topic: str, events: Sequence[Event]) -> Written:
        """One sender's header must not stop all others. What is wrong with the sink's own topic, somebody mends."""
        why = why_not(writer, topic, self._topics) if self._topics is not None and topic != self._topic else None
        if why is None:
            return writer.write(topic, events)
        reason = refusal(self._header, topic, why)
        writer.bury(self._topic, events, reason)
        self._counters.failed("EventTopicRefusedCount", Refused(reason))
        return Written(0, rejected=len(events))

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
    topics = header_topics(context)
    return LogSink(options.text("topic"), options.integer("batchSize"), context.ports, context.counters, header, topics)


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
        OPTION,
    ),
)

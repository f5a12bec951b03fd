"""An agent that runs: a thread for each source that is asked and for each sink or group of sinks."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from headrace.collect.agents import selectors
from headrace.collect.agents.base import (
    AgentError,
    Channel,
    Counters,
    Event,
    ListeningSource,
    PollingSource,
    Role,
    Sink,
    left_over,
)
from headrace.collect.agents.definition import AgentDefinition, ComponentDefinition
from headrace.collect.agents.interceptors import chain
from headrace.collect.agents.options import Context, Options
from headrace.collect.agents.ports import Ports
from headrace.collect.agents.processors import Processor, Single, make_processor
from headrace.collect.agents.selectors import ChannelProcessor

logger = logging.getLogger("headrace.agent")

IDLE_S = 0.05
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 5.0
DRAIN_S = 10.0
"""How long sinks go on after the sources have stopped, for what waits in memory."""


class Agent:
    """Made, started, stopped; then it is over. `ConfigError` if a component cannot be made of what it was told."""

    def __init__(self, definition: AgentDefinition, ports: Ports) -> None:
        self.definition, self._ports = definition, ports
        self.counters: dict[tuple[Role, str], Counters] = {}
        self.channels: dict[str, Channel] = {}
        self.sources: dict[str, PollingSource | ListeningSource] = {}
        self.sinks: dict[str, Sink] = {}
        self._stopping, self._sinks_stop = threading.Event(), threading.Event()
        self._threads: dict[str, threading.Thread] = {}
        self._done: dict[str, bool] = {}
        try:
            self._make()
        except BaseException:
            for channel in self.channels.values():
                channel.close()
            raise

    def _make(self) -> None:
        for name, component in self.definition.channels.items():
            channel = component.kind.make(self._context("channel", component))
            assert isinstance(channel, Channel)
            self.channels[name] = channel
            counters = self.counters["channel", name]
            counters.gauge("ChannelSize", channel.size)
            counters.gauge("ChannelCapacity", channel.capacity)
            counters.gauge("ChannelFillPercentage", partial(_fill, channel))
        for name, component in self.definition.sources.items():
            source = component.kind.make(self._context("source", component))
            assert isinstance(source, PollingSource | ListeningSource)
            self.sources[name] = source
        for name, component in self.definition.sinks.items():
            sink = component.kind.make(self._context("sink", component))
            assert isinstance(sink, Sink)
            self.sinks[name] = sink

    def _context(self, role: Role, component: ComponentDefinition) -> Context:
        counters = self.counters[role, component.name] = Counters(role, component.name, self._ports.clock)
        options = component.options
        if role == "source":
            options = self._fitting(component)
        return Context(self.definition.name, component.name, options, counters, self._ports)

    def _fitting(self, component: ComponentDefinition) -> Options:
        """With batches that its channels can take at once."""
        most = min((self.channels[name].transaction_capacity for name in component.channels), default=2**31)
        size = component.options.get("batchSize")
        return component.options.changed("batchSize", min(size, most)) if isinstance(size, int) else component.options

    # Starting and stopping

    def start(self) -> None:
        for name, processor, sinks in self._sink_runners():
            self._run(f"sink-{name}", partial(self._drain, processor, sinks))
        for name, source in self.sources.items():
            put = self._processor(self.definition.sources[name])
            if isinstance(source, PollingSource):
                self._run(f"source-{name}", partial(self._poll, name, source, put))
            else:
                self._run(f"source-{name}", partial(self._listen, name, source, put))

    def _run(self, name: str, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work, name=f"agent-{self.definition.name}-{name}", daemon=True)
        self._threads[name] = thread
        thread.start()

    def _sink_runners(self) -> list[tuple[str, Processor, list[str]]]:
        grouped = {sink for group in self.definition.groups.values() for sink in group.sinks}
        runners: list[tuple[str, Processor, list[str]]] = []
        for name, group in self.definition.groups.items():
            processor = make_processor(group.kind.name, group.sinks, group.options, time.monotonic)
            runners.append((name, processor, list(group.sinks)))
        return runners + [(name, Single(name), [name]) for name in self.sinks if name not in grouped]

    def _processor(self, component: ComponentDefinition) -> ChannelProcessor:
        assert component.selector is not None
        assert component.selector_options is not None
        make = selectors.multiplexing if component.selector.name == "multiplexing" else selectors.replicating
        intercepts = [one.kind.make(one.options, self._ports.clock) for one in component.interceptors]
        return ChannelProcessor(
            {name: self.channels[name] for name in component.channels},
            make(component.channels, component.selector_options),
            chain(intercepts),
            self.counters["source", component.name],
        )

    def stop(self, drain_s: float = DRAIN_S) -> None:
        """Sources first; then the sinks have a while for what is left."""
        self._stopping.set()
        for source in self.sources.values():
            if isinstance(source, ListeningSource):
                source.stop()
            else:
                source.wake()
        self._join("source-", 15.0)
        deadline = time.monotonic() + drain_s
        while time.monotonic() < deadline and not self._sinks_stop.is_set():
            waiting = [name for name, one in self.definition.channels.items() if one.kind.name == "memory"]
            if not any(self.channels[name].size() for name in waiting):
                break
            self._sinks_stop.wait(0.02)
        self._sinks_stop.set()
        for channel in self.channels.values():
            channel.wake()
        self._join("sink-", 60.0)
        for channel in self.channels.values():
            channel.close()

    def _join(self, prefix: str, seconds: float) -> None:
        for name, thread in self._threads.items():
            if name.startswith(prefix):
                thread.join(seconds)

    def finished(self) -> bool:
        """All sources have said all they will, and all of it is delivered."""
        polling = [name for name, source in self.sources.items() if isinstance(source, PollingSource)]
        if len(polling) < len(self.sources) or not all(self._done.get(name) for name in polling):
            return False
        return not any(channel.size() for channel in self.channels.values())

    # The threads

    def _poll(self, name: str, source: PollingSource, put: ChannelProcessor) -> None:
        counters, pause = self.counters["source", name], FIRST_PAUSE_S
        while not self._stopping.is_set():
            try:
                events = source.poll()
                if events and not self._put(put, events):
                    break
                if events:
                    source.taken()
                elif source.done:
                    self._done[name] = True
                    break
                else:
                    self._stopping.wait(IDLE_S)
                pause = FIRST_PAUSE_S
            except Exception as error:
                pause = self._failed(counters, "EventReadFail", f"source `{name}`", error, pause, self._stopping)
        source.close()
        counters.stopped_ms = self._ports.clock.now_ms()

    def _put(self, put: ChannelProcessor, events: Sequence[Event]) -> bool:
        """Until the channels have them; False if the agent stops before."""
        pause = IDLE_S
        while True:
            try:
                put(events)
                return True
            except AgentError as error:
                logger.debug("%s", error.message)
                events = left_over(events, error)
                if self._stopping.wait(pause):
                    return False
                pause = min(1.0, pause * 2)

    def _listen(self, name: str, source: ListeningSource, put: ChannelProcessor) -> None:
        counters, pause = self.counters["source", name], FIRST_PAUSE_S
        while not self._stopping.is_set():
            try:
                source.start(put)
                logger.info("source `%s` listens on port %d", name, source.port)
                return
            except Exception as error:
                pause = self._failed(
                    counters, "GenericProcessingFail", f"source `{name}`", error, pause, self._stopping
                )

    def _drain(self, processor: Processor, names: list[str]) -> None:
        started: set[str] = set()
        pause = FIRST_PAUSE_S
        while not self._sinks_stop.is_set():
            worked = False
            for name in processor.order():
                counters = self.counters["sink", name]
                try:
                    self._deliver(name, started, counters)
                    processor.succeeded(name)
                    worked, pause = True, FIRST_PAUSE_S
                    break
                except Exception as error:
                    processor.failed(name)
                    self._failed(counters, "EventWriteFail", f"sink `{name}`", error, 0.0, self._sinks_stop)
            if not worked and not self._sinks_stop.wait(pause):
                pause = min(LONGEST_PAUSE_S, pause * 2)
        for name in names:
            try:
                self.sinks[name].close()
            except Exception as error:
                logger.warning("sink `%s`: %s", name, error)
            self.counters["sink", name].stopped_ms = self._ports.clock.now_ms()

    def _deliver(self, name: str, started: set[str], counters: Counters) -> None:
        """One transaction: taken, delivered, gone from the channel; or given back."""
        sink = self.sinks[name]
        if name not in started:
            sink.start()
            started.add(name)
        [channel] = self.definition.sinks[name].channels
        with self.channels[channel].transaction() as transaction:
            events = transaction.take(sink.batch_size)
            if events:
                counters.add("EventDrainAttemptCount", len(events))
                sink.deliver(events)
        if not events:
            counters.add("BatchEmptyCount")
            sink.idle()
            return
        counters.add("BatchCompleteCount" if len(events) >= sink.batch_size else "BatchUnderflowCount")
        counters.add("EventDrainSuccessCount", len(events))

    def _failed(
        self, counters: Counters, name: str, what: str, error: Exception, pause: float, stop: threading.Event
    ) -> float:
        """Count, say, wait; returns how long to wait the next time."""
        before = counters.last_error
        counters.failed(name, error)
        if counters.last_error != before:
            logger.warning("%s: %s", what, error, exc_info=not isinstance(error, AgentError | OSError))
        if pause:
            stop.wait(pause)
        return min(LONGEST_PAUSE_S, pause * 2)


def _fill(channel: Channel) -> float:
    return round(100 * channel.size() / channel.capacity(), 4)


def metrics(agent: Agent) -> Mapping[str, Mapping[str, str]]:
    """Flume's JSON: `SOURCE.r1`, `CHANNEL.c1`, `SINK.k1`, all values as text."""
    found = {}
    for (role, name), counters in agent.counters.items():
        values = {key: str(value) for key, value in counters.read().items()}
        values |= {"Type": role.upper(), "StartTime": str(counters.started_ms), "StopTime": str(counters.stopped_ms)}
        found[f"{role.upper()}.{name}"] = values
    return found

"""`syslogtcp` and `syslogudp`: RFC 3164 and RFC 5424, as Flume reads them."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Sequence
from datetime import UTC, datetime

from headrace.clock import Clock
from headrace.collect.agents.base import AgentError, Counters, Event, Headers, ListeningSource, Put, left_over
from headrace.collect.agents.options import ComponentKind, Context, Option
from headrace.collect.agents.sources.listening import ALLOW, HERE, LineReader, TcpSource, check_listening, listen
from headrace.collect.listening.settings import Admission
from headrace.collect.syslog.times import BsdTimes

_PRIORITY = re.compile(rb"<(\d{1,3})>")
_RFC5424 = re.compile(rb"1 (\S+) (\S+) (?s:(.*))")
_RFC3164 = re.compile(rb"([A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d) (\S+) (?s:(.*))")
MAX_DATAGRAM = 65_536
_PAUSE_S = 0.05


def parse_syslog(line: bytes, times: BsdTimes, keep: bool = False) -> Event:
    """Flume's headers: Facility, Severity, and timestamp and host where the line has them. A line that is no syslog is
    kept, and says so in `flume.syslog.status`.

    >>> parse_syslog(b"<13>1 2026-11-16T13:00:00Z web app - - hello", BsdTimes(None, 0)).headers
    {'Facility': '1', 'Severity': '5', 'timestamp': '1794834000000', 'host': 'web'}
    """
    priority = _PRIORITY.match(line)
    if priority is None or int(priority[1]) > 191:
        return Event(line, {"Facility": "0", "Severity": "0", "flume.syslog.status": "Invalid"})
    headers: Headers = {"Facility": str(int(priority[1]) // 8), "Severity": str(int(priority[1]) % 8)}
    rest = line[priority.end() :]
    found = _RFC5424.fullmatch(rest)
    moment = _iso(found[1]) if found is not None else None
    if found is None:
        found = _RFC3164.fullmatch(rest)
        moment = times.read(found[1].decode()) if found is not None else None
    if found is None:
        return Event(line if keep else rest, headers)
    if moment is not None:
        headers["timestamp"] = str(moment)
    headers["host"] = found[2].decode("utf-8", "replace")
    return Event(line if keep else found[3], headers)


def _iso(text: bytes) -> int | None:
    try:
        moment = datetime.fromisoformat(text.decode("ascii"))
    except ValueError:
        return None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


class SyslogTcpSource(TcpSource):
    def __init__(
        self,
        host: str,
        port: int,
        counters: Counters,
        clock: Clock,
        longest: int,
        keep: bool,
        allow: Sequence[str] = (),
    ) -> None:
        super().__init__(host, port, counters, allow)
        self._clock, self._longest, self._keep = clock, longest, keep
        self._stopping = threading.Event()

    def _serve(self, connection: socket.socket, put: Put) -> None:
        reader = LineReader(connection, self._longest)
        while (lines := reader.read()) is not None:
            times = BsdTimes(None, self._clock.now_ms())
            events = [parse_syslog(line, times, self._keep) for line in lines if line]
            if events:
                put_patiently(put, events, self._stopping)
        if reader.cut:
            self._counters.add("EventsCutCount", reader.cut)

    def stop(self) -> None:
        self._stopping.set()
        super().stop()


class SyslogUdpSource(ListeningSource):
    """A datagram a line. While the channels are full the kernel keeps some, and drops the rest: that is UDP."""

    def __init__(
        self, host: str, port: int, counters: Counters, clock: Clock, keep: bool, allow: Sequence[str] = ()
    ) -> None:
        self._admits = Admission(allow)
        self._host, self._port, self._counters, self._clock, self._keep = host, port, counters, clock, keep
        self._socket: socket.socket | None = None
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()

    @property
    def port(self) -> int:
        return int(self._socket.getsockname()[1]) if self._socket else self._port

    def start(self, put: Put) -> None:
        self._socket = listen(self._host, self._port, socket.SOCK_DGRAM)
        self._socket.settimeout(0.2)
        self._thread = threading.Thread(target=self._serve, args=(self._socket, put), daemon=True)
        self._thread.start()

    def _serve(self, receiving: socket.socket, put: Put) -> None:
        while not self._stopping.is_set():
            try:
                line, address = receiving.recvfrom(MAX_DATAGRAM)
            except TimeoutError:
                continue
            except OSError:
                return
            if not self._admits(address[0]):
                self._counters.add("EventsRefusedCount")
                continue
            try:
                times = BsdTimes(None, self._clock.now_ms())
                put_patiently(put, [parse_syslog(line.rstrip(b"\r\n\0"), times, self._keep)], self._stopping)
            except Exception as error:
                # Nobody can be told of a datagram; the next ones are still wanted.
                self._counters.failed("EventsLostCount", error)

    def stop(self) -> None:
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(5)
        if self._socket is not None:
            self._socket.close()


def put_patiently(put: Put, events: Sequence[Event], stopping: threading.Event) -> None:
    """Syslog has no answer: whoever sends is held back, by not being read, until there is room."""
    while True:
        try:
            put(events)
            return
        except AgentError as error:
            events = left_over(events, error)
            if stopping.wait(_PAUSE_S):
                raise


def _keeps(context: Context) -> bool:
    return context.options.text("keepFields").lower() not in ("none", "false", "")


_OPTIONS = (
    Option("host", "text", HERE, "Address to listen on.", also=("bind",)),
    Option("port", "integer", None, "Port to listen on.", required=True, least=0),
    ALLOW,
    Option("keepFields", "text", "none", "`all` leaves the line whole in the body.", also=("keepFields.all",)),
    Option("eventSize", "integer", 65_536, "Longest line; what is longer is cut and counted.", least=1),
)

TCP = ComponentKind(
    "source",
    ("syslogtcp", "org.apache.flume.source.SyslogTcpSource"),
    "Syslog over TCP, a line an event.",
    lambda context: SyslogTcpSource(
        context.options.text("host"),
        context.options.integer("port"),
        context.counters,
        context.ports.clock,
        context.options.integer("eventSize"),
        _keeps(context),
        context.options.words("allow"),
    ),
    _OPTIONS,
    check_listening,
)
UDP = ComponentKind(
    "source",
    ("syslogudp", "org.apache.flume.source.SyslogUDPSource"),
    "Syslog over UDP, a datagram an event.",
    lambda context: SyslogUdpSource(
        context.options.text("host"),
        context.options.integer("port"),
        context.counters,
        context.ports.clock,
        _keeps(context),
        context.options.words("allow"),
    ),
    _OPTIONS[:4],
    check_listening,
)

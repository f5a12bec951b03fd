"""The collector `syslog`: listens for messages of RFC 5424 and RFC 3164 on UDP, TCP and TLS."""

from __future__ import annotations

import re
import zoneinfo
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from headrace.clock import Clock
from headrace.collect.base import Sent, sent_objects
from headrace.collect.columns import Columns
from headrace.collect.definitions import Definition
from headrace.collect.feed import Feed
from headrace.collect.listening.datagrams import Datagrams
from headrace.collect.listening.drain import Door, drain
from headrace.collect.listening.pool import Gathered, Pool
from headrace.collect.listening.settings import Admission, TlsSettings, read_addresses, tls_context
from headrace.collect.listening.streams import Streams
from headrace.collect.syslog.framing import SyslogFramer
from headrace.collect.syslog.parse import Reading, read_messages, read_text
from headrace.errors import ConfigError
from headrace.types import DataType, Varchar

TRANSPORTS = ("udp", "tcp", "tls")
_BLANK = re.compile(rb"\n\n+")


class SyslogSettings(TlsSettings, frozen=True, kw_only=True):
    listen: tuple[str, ...] = ("udp://127.0.0.1:5514", "tcp://127.0.0.1:5514")
    """Where to listen: `udp://`, `tcp://` or `tls://`, host and port each."""
    timezone: str = "UTC"
    """The zone of RFC 3164's times, which name none."""
    numeric: bool = False
    """Facility and severity as numbers rather than by name."""
    raw: bool = False
    """Keep each message as it came, in the field `raw`."""
    max_message_bytes: int = 64 * 1024
    """A longer message is a dead letter."""

    def check(self) -> None:
        super().check()
        read_addresses(self.listen, TRANSPORTS, self.allow)
        try:
            zoneinfo.ZoneInfo(self.timezone)
        except (zoneinfo.ZoneInfoNotFoundError, ValueError):
            raise ConfigError(
                f"there is no time zone `{self.timezone}`", hint='such as "Europe/Berlin"', path=("timezone",)
            ) from None


async def start(feed: Feed) -> None:
    settings = feed.settings(SyslogSettings)
    await feed.cursor()
    pool, admits = Pool(settings.buffer_bytes), Admission(settings.allow)
    doors: list[Door] = []
    try:
        for address in read_addresses(settings.listen, TRANSPORTS, settings.allow):
            if address.transport == "udp":
                doors.append(Datagrams(address, pool, feed.counters, admits))
                continue
            streams = Streams(pool, feed.counters, admits, lambda _: SyslogFramer(settings.max_message_bytes))
            context = tls_context(settings, feed.project) if address.transport == "tls" else None
            await streams.open(address, context)
            doors.append(streams)
    except BaseException:
        for door in doors:
            if isinstance(door, Datagrams):
                door.close()
            else:
                await door.close()
        raise
    feed.running("listening on " + ", ".join(settings.listen))
    await drain(feed, pool, doors, Reader(settings, feed.clock, feed.column_type))


@dataclass(frozen=True, slots=True)
class Reader:
    """Gathered messages → events."""

    settings: SyslogSettings
    clock: Clock
    column_type: Callable[[str], DataType | None]

    def __call__(self, gathered: Sequence[Gathered]) -> Columns:
        reading = Reading(
            now_ms=self.clock.now_ms(),
            zone=zoneinfo.ZoneInfo(self.settings.timezone),
            numeric=self.settings.numeric,
            raw=self.settings.raw,
            text=isinstance(self.column_type("structured_data"), Varchar),
        )
        pieces = [_lines(one) for one in gathered]
        if None not in pieces:
            many = self._read_many([piece for piece in pieces if piece is not None], reading)
            if many is not None:
                return _with_hosts(many, [one.address for one in gathered], [_count(piece) for piece in pieces])
        messages = [_messages(one, piece) for one, piece in zip(gathered, pieces, strict=True)]
        each = read_messages([message for some in messages for message in some], reading)
        too_long = {
            row: f"is longer than {self.settings.max_message_bytes} bytes"
            for row in range(each.rows)
            if len(each.originals(row)) > self.settings.max_message_bytes
        }
        each = replace(each, unreadable={**each.unreadable, **too_long})
        return _with_hosts(each, [one.address for one in gathered], [len(some) for some in messages])

    def _read_many(self, pieces: list[bytes], reading: Reading) -> Columns | None:
        whole = b"".join(pieces)
        if not whole or _longest(whole) > self.settings.max_message_bytes:
            return None
        try:
            return read_text(whole.decode(), reading)
        except UnicodeDecodeError:
            return None


def _lines(gathered: Gathered) -> bytes | None:
    """Its messages, one a line; None if one holds several lines."""
    if gathered.lines:
        whole = b"".join(gathered.messages)
        if b"\r\n" in whole:
            whole = whole.replace(b"\r\n", b"\n")
        if b"\n\n" in whole:
            whole = _BLANK.sub(b"\n", whole)
        return whole.lstrip(b"\n")
    whole = b"\n".join([message.rstrip(b"\r\n\0") for message in gathered.messages]) + b"\n"
    return whole if whole.count(b"\n") == len(gathered.messages) and b"\n\n" not in whole else None


def _messages(gathered: Gathered, lines: bytes | None) -> list[bytes]:
    if lines is not None:
        return lines.split(b"\n")[:-1]
    # An empty one is a dead letter as any other without a priority: it was sent, so it counts.
    return [message.rstrip(b"\r\n\0") for message in gathered.messages]


def _longest(lines: bytes) -> int:
    ends = np.flatnonzero(np.frombuffer(lines, np.uint8) == ord("\n"))
    return int(np.diff(ends, prepend=-1).max()) - 1


def _count(piece: bytes | None) -> int:
    return 0 if piece is None else piece.count(b"\n")


def _with_hosts(columns: Columns, addresses: Sequence[str], counts: Sequence[int]) -> Columns:
    """Who names no host is known by the address it sent from."""
    hosts = columns.fields.get("host")
    if hosts is not None and None not in hosts:
        return columns
    senders = [address for address, count in zip(addresses, counts, strict=True) for _ in range(count)]
    if hosts is not None:
        senders = [host or sender for host, sender in zip(hosts, senders, strict=True)]
    return replace(columns, fields={**columns.fields, "host": senders})


def sample(definition: Definition) -> Sent:
    """A test event."""
    text = b"<14>1 - headrace test - - - a test event of the collector " + definition.name.encode()
    read = read_messages([text], Reading(now_ms=0))
    return sent_objects(read.objects(), read.originals)

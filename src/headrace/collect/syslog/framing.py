"""Where a syslog message ends on a connection: after its octets are counted, or at the end of the line (RFC 6587).

A connection's first byte says which: a digit is a count, anything else a line. A NUL ends a line too; Python's
SysLogHandler sends no other end.
"""

from __future__ import annotations

import re

from headrace.collect.listening.pool import Pool
from headrace.collect.listening.streams import Framer, OutOfStep

_DIGITS = b"0123456789"
_LINE_ENDS = re.compile(rb"\n+")
_LONGEST_COUNT = 9


class SyslogFramer(Framer):
    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._rest = b""
        self._counted: bool | None = None
        self._skipping = 0
        """Octets of a message too long to keep that are still to come; -1: up to the end of its line."""

    def feed(self, data: bytes, pool: Pool, address: str) -> None:
        if self._counted is None:
            self._counted = data[:1].isdigit()
        if self._counted:
            self._feed_counted(self._rest + data, pool, address)
        else:
            self._feed_lines(data, pool, address)

    def end(self, pool: Pool, address: str) -> None:
        if self._rest and self._skipping == 0:
            pool.add(address, self._rest)
        self._rest = b""

    # Lines

    def _feed_lines(self, data: bytes, pool: Pool, address: str) -> None:
        if b"\0" in data:
            data = data.replace(b"\0", b"\n")
        if self._skipping:
            data = self._skip_line(data)
        cut = data.rfind(b"\n") + 1
        if cut:
            lines = self._rest + data[:cut] if self._rest else data[:cut]
            self._rest = data[cut:]
            pool.add(address, lines, lines=True)
        else:
            self._rest += data
        if len(self._rest) > self._most:
            # Its beginning becomes a dead letter, as too long; the rest of the line goes with it.
            pool.add(address, self._rest[: self._most + 1])
            self._rest, self._skipping = b"", -1

    def _skip_line(self, data: bytes) -> bytes:
        at = data.find(b"\n")
        if at < 0:
            return b""
        self._skipping = 0
        return data[at + 1 :]

    # Counts

    def _feed_counted(self, data: bytes, pool: Pool, address: str) -> None:
        at, end = 0, len(data)
        while at < end:
            if self._skipping:
                step = min(self._skipping, end - at)
                self._skipping -= step
                at += step
                continue
            if between := _LINE_ENDS.match(data, at):
                # Some end a counted message with one as well. They are nothing, so nothing of them is kept.
                at = between.end()
                continue
            space = data.find(b" ", at, at + _LONGEST_COUNT + 1)
            count = data[at : space if space >= 0 else at + _LONGEST_COUNT + 1]
            if space < 0 and len(count) <= _LONGEST_COUNT and not count.strip(_DIGITS):
                break
            if not count.isdigit():
                self._rest = b""
                pool.add(address, data[at : at + min(self._most, 1024)])
                raise OutOfStep("an octet count was expected, and the messages after it cannot be told apart")
            size, start = int(count), space + 1
            if size > self._most:
                if end - start <= self._most:
                    break
                pool.add(address, data[start : start + self._most + 1])
                self._skipping, at = size, start
                continue
            if start + size > end:
                break
            if size:
                pool.add(address, data[start : start + size])
            at = start + size
        self._rest = data[at:]

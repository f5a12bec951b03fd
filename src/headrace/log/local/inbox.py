"""What waits for the commit thread."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence

from headrace.errors import LogError, Overloaded
from headrace.log.local.requests import AppendRequest, ControlRequest, Request

NO_LINGER_BYTES = 1024 * 1024
"""With this much waiting, more is not waited for."""
GROUP_BYTES = 64 * 1024 * 1024


class Inbox:
    """Any thread puts requests in, the commit thread takes them out, a group at a time and in order."""

    def __init__(self, linger_ms: float, most_bytes: int) -> None:
        self._linger_s, self._most_bytes = linger_ms / 1000, most_bytes
        self._changed = threading.Condition()
        self._queue: deque[Request] = deque()
        self._bytes = 0
        """Of what waits and of what was taken and is not done."""
        self._since = 0.0
        """When the oldest that waits has come."""
        self._closing = False

    def put(self, request: Request) -> None:
        """`Overloaded` if there is no room; one request always has."""
        with self._changed:
            if self._closing:
                raise LogError("the log is closed")
            if request.bytes and self._bytes and self._bytes + request.bytes > self._most_bytes:
                raise Overloaded(
                    "too much is waiting to be written",
                    retry_after=1.0,
                    hint="send again later, or less at once",
                    pending_bytes=self._bytes,
                )
            self._bytes += request.bytes
            self._queue.append(request)
            if len(self._queue) == 1:
                self._since = time.monotonic()
                self._changed.notify()

    def take(self) -> list[Request]:
        """The next group, or one control request; nothing once it is closed and empty."""
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._closing)
            pause = self._pause()
        if pause > 0:
            # Not a wait on the condition: every writer would wake this thread for nothing.
            time.sleep(pause)
        taken: list[Request] = []
        size = 0
        with self._changed:
            while self._queue and size < GROUP_BYTES:
                if isinstance(self._queue[0], ControlRequest) and taken:
                    break
                taken.append(self._queue.popleft())
                size += taken[-1].bytes
                if isinstance(taken[-1], ControlRequest):
                    break
        return taken

    def _pause(self) -> float:
        """How long to wait for more. What came while the last group was written has waited long enough."""
        if self._closing or not isinstance(self._queue[0], AppendRequest) or self._bytes >= NO_LINGER_BYTES:
            return 0.0
        return self._since + self._linger_s - time.monotonic()

    def done(self, requests: Sequence[Request]) -> None:
        """They take no more room."""
        with self._changed:
            self._bytes -= sum(request.bytes for request in requests)

    def close(self) -> None:
        """Nothing more comes in; what is there can still be taken."""
        with self._changed:
            self._closing = True
            self._changed.notify()

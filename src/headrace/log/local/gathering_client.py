"""A client whose appends travel together: for processes that take many small requests."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path

from headrace.errors import HeadraceError
from headrace.log.base import Acks, Append, Appended
from headrace.log.local.client import LocalClient
from headrace.log.local.gather import Send
from headrace.log.local.sender import Sender

LINGER_S = 0.001
DELIVERY_S = 10.0
"""How long an append is tried while the owner is away. Longer than a restart takes, shorter than clients wait."""


class GatheringClient(LocalClient):
    """Appends with acks `all` of one moment become one numbered write to the owner, which so takes a few large batches
    in place of many small ones; they are sent again, and land once, if the owner is started anew meanwhile."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._sender = Sender(self.desk, None, "all", LINGER_S, DELIVERY_S)

    def append(self, appends: Sequence[Append], acks: Acks = "all") -> Future[list[Appended]]:
        if acks != "all" or len(appends) != 1:
            # Several batches are one atomic write by themselves: no other may share their fate.
            return super().append(appends, acks)
        [one] = appends
        self.topic(one.topic)
        future: Future[Appended] = Future()
        future.set_running_or_notify_cancel()
        self._sender.send(Send(one.topic, one.partition, one.batch, future), wait=False)
        return _as_list(future)

    def close(self) -> None:
        # Whoever waits for an append has its error from the append.
        with contextlib.suppress(HeadraceError):
            self._sender.close()
        super().close()


def _as_list(future: Future[Appended]) -> Future[list[Appended]]:
    listed: Future[list[Appended]] = Future()
    listed.set_running_or_notify_cancel()

    def done(finished: Future[Appended]) -> None:
        error = finished.exception()
        if error is not None:
            listed.set_exception(error)
        else:
            listed.set_result([finished.result()])

    future.add_done_callback(done)
    return listed

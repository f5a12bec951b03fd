"""A client whose appends travel together: for processes that take many small requests."""

from __future__ import annotations

import contextlib
import threading
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
        if acks != "all" or not appends:
            return super().append(appends, acks)
        for one in appends:
            self.topic(one.topic)
        sends = [Send(one.topic, one.partition, one.batch, Future()) for one in appends]
        for send in sends:
            send.future.set_running_or_notify_cancel()
        together = _all_of([send.future for send in sends])
        self._sender.send(*sends, wait=False)
        return together

    def close(self) -> None:
        # Whoever waits for an append has its error from the append.
        with contextlib.suppress(HeadraceError):
            self._sender.close()
        super().close()


def _all_of(futures: Sequence[Future[Appended]]) -> Future[list[Appended]]:
    """Done when all are; fails with the first error."""
    together: Future[list[Appended]] = Future()
    together.set_running_or_notify_cancel()
    left, lock = len(futures), threading.Lock()

    def done(_: Future[Appended]) -> None:
        nonlocal left
        with lock:
            left -= 1
            if left:
                return
        errors = [error for future in futures if (error := future.exception()) is not None]
        if errors:
            together.set_exception(errors[0])
        else:
            together.set_result([future.result() for future in futures])

    for future in futures:
        future.add_done_callback(done)
    return together

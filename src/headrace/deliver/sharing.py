"""What takes long to make and many ask for at about the same time is made once, in a few threads of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

from headrace.errors import HeadraceError

T = TypeVar("T")

THREADS = 4
KEEP_SECONDS = 60.0
"""How long something is kept for those who come later. Who has it holds it as long as they like."""


@dataclass(slots=True)
class Stop:
    """For whoever makes something: whether anybody still wants it."""

    asked: bool = False

    def check(self) -> None:
        if self.asked:
            raise HeadraceError("the server is stopping")


Make: TypeAlias = Callable[[Stop], T]


class Sharing(Generic[T]):
    """Safe to use from several event loops."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._made: dict[Hashable, Future[T]] = {}
        self._stop = Stop()
        self._threads = ThreadPoolExecutor(THREADS, "headrace-sharing")

    async def get(self, what: Hashable, make: Make[T], fits: Callable[[T], bool] = lambda made: True) -> T:
        """One that is being made, or was made and fits; else it is made anew."""
        made = self._find(what, make, fits)
        try:
            # Shielded: one client that goes away must not cancel what the others wait for.
            return await asyncio.shield(asyncio.wrap_future(made))
        except Exception:
            self._forget(what, made)
            raise

    def _find(self, what: Hashable, make: Make[T], fits: Callable[[T], bool]) -> Future[T]:
        with self._lock:
            made = self._made.get(what)
            if made is not None and (not made.done() or _fits(made, fits)):
                return made
            self._stop.check()
            made = self._made[what] = self._threads.submit(make, self._stop)
        self._forget_later(what, made)
        return made

    def _forget_later(self, what: Hashable, made: Future[T]) -> None:
        loop = asyncio.get_running_loop()
        again = self._forget if made.done() else self._forget_later
        loop.call_later(KEEP_SECONDS, again, what, made)

    def _forget(self, what: Hashable, made: Future[T]) -> None:
        with self._lock:
            if self._made.get(what) is made:
                del self._made[what]

    def close(self) -> None:
        self._stop.asked = True
        self._threads.shutdown(cancel_futures=True)
        with self._lock:
            self._made.clear()


def _fits(made: Future[T], fits: Callable[[T], bool]) -> bool:
    return not made.cancelled() and made.exception() is None and fits(made.result())

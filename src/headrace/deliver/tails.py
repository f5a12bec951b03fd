"""What everybody who follows a topic shares: one thread that waits for the log, and what was read and decoded last.

A feed costs one waiting future, not a thread. Feeds of the same view that are at the same place get the same decoded
events, so two hundred of them read and decode once.
"""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import partial
from typing import Any, TypeAlias, TypeVar

from headrace.log.base import Log, PartitionEnds, Snapshot
from headrace.store.arrivals import behind, has_arrivals
from headrace.store.base import Position

T = TypeVar("T")
Waiter: TypeAlias = "asyncio.Future[Snapshot | None]"

WAIT_SECONDS = 0.25
"""How long the thread waits for the log before it looks whether it should stop."""
PAUSE_PER_WAITER = 50e-6
LONGEST_PAUSE = 0.02
SHARED_READS, SHARED_SECONDS = 64, 5.0
"""How many reads are kept for those who come to the same place, and for how long: a read may be a megabyte."""
WOKEN_AT_ONCE = 64
"""Between so many subscribers that are woken, others get their turn: a request must not wait for all of them."""


class Tails:
    """Safe to use from several event loops. The thread starts with the first who waits and ends with `close`."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._lock = threading.Lock()
        self._waiting: dict[str, set[Waiter]] = {}
        self._wanted = threading.Event()
        self._thread: threading.Thread | None = None
        self._seen = log.snapshot()
        self._reads: OrderedDict[Hashable, asyncio.Future[Any]] = OrderedDict()
        self.closed = False

    async def wait(self, topic: str, position: Position, seconds: float) -> Snapshot:
        """The log as it is when the topic has records after `position`, is gone, or `seconds` have passed."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while True:
            woken: Waiter = loop.create_future()
            timer = loop.call_at(end, _wake, (woken,), None)
            try:
                snapshot = self._register(topic, woken)
                if topic not in snapshot.ends:
                    snapshot = await self._now()  # made since the thread last looked, or gone
                if self._ready(snapshot, topic, position):
                    return snapshot
                news = await woken
                if news is None or self._ready(news, topic, position):
                    return news or await self._now()
            finally:
                timer.cancel()
                self._forget(topic, woken)

    def wake(self, topics: Iterable[str]) -> None:
        """Whoever waits for these is to look again: something else than their records has changed."""
        with self._lock:
            waiting = [waiter for topic in topics for waiter in self._waiting.get(topic, ())]
        wake_all(waiting, None)

    async def _now(self) -> Snapshot:
        """The local log is asked at once; one elsewhere must not keep everybody waiting."""
        return self._log.snapshot() if has_arrivals(self._log) else await asyncio.to_thread(self._log.snapshot)

    def _ready(self, snapshot: Snapshot, topic: str, position: Position) -> bool:
        return self.closed or topic not in snapshot.ends or behind(snapshot, topic, position) > 0

    async def share(self, what: Hashable, load: Callable[[], T]) -> T:
        """What `load` gives, called in a thread, once for all who ask for the same at about the same time."""
        key = (asyncio.get_running_loop(), what)
        read = self._reads.get(key)
        if read is None:
            read = self._reads[key] = asyncio.ensure_future(asyncio.to_thread(load))
            read.add_done_callback(partial(self._forget_later, key))
            while len(self._reads) > SHARED_READS:
                self._reads.popitem(last=False)
        try:
            # Shielded: one client that goes away must not cancel what the others wait for.
            loaded: T = read.result() if read.done() else await asyncio.shield(read)
            return loaded
        except Exception:
            self._reads.pop(key, None)
            raise

    def _forget_later(self, key: Hashable, read: asyncio.Future[Any]) -> None:
        read.get_loop().call_later(SHARED_SECONDS, self._drop, key, read)

    def _drop(self, key: Hashable, read: asyncio.Future[Any]) -> None:
        if self._reads.get(key) is read:
            del self._reads[key]

    def forget(self, what: Hashable) -> None:
        """The next who ask load it anew."""
        self._reads.pop((asyncio.get_running_loop(), what), None)

    def close(self) -> None:
        """Everybody who waits is woken; feeds then end by themselves."""
        self.closed = True
        self._wanted.set()
        if self._thread is not None:
            self._thread.join()
        with self._lock:
            waiting = [waiter for waiters in self._waiting.values() for waiter in waiters]
        wake_all(waiting, None)

    def _register(self, topic: str, waiter: Waiter) -> Snapshot:
        """The log as the thread last saw it: whatever it sees next, it will tell."""
        with self._lock:
            self._waiting.setdefault(topic, set()).add(waiter)
            if self._thread is None and not self.closed:
                self._seen = self._log.snapshot()
                self._thread = threading.Thread(target=self._run, name="headrace-tails", daemon=True)
                self._thread.start()
            self._wanted.set()
            return self._seen

    def _forget(self, topic: str, waiter: Waiter) -> None:
        with self._lock:
            waiters = self._waiting.get(topic)
            if waiters is not None:
                waiters.discard(waiter)
                if not waiters:
                    del self._waiting[topic]

    def _run(self) -> None:
        pause = threading.Event()
        while not self.closed:
            self._wanted.wait()
            try:
                snapshot = self._log.wait(self._seen.arrival, WAIT_SECONDS)
            except Exception:
                # The log may be reopening after a failed write. Those who wait come to see for themselves in time.
                pause.wait(WAIT_SECONDS)
                continue
            woken = self._take_changed(snapshot)
            wake_all(woken, snapshot)
            # The more there are to wake, the longer they take: better one wake for several commits than a queue.
            if len(woken) > 1:
                pause.wait(min(LONGEST_PAUSE, len(woken) * PAUSE_PER_WAITER))

    def _take_changed(self, snapshot: Snapshot) -> list[Waiter]:
        with self._lock:
            before, self._seen = self._seen, snapshot
            if not self._waiting:
                self._wanted.clear()
            changed = [topic for topic in self._waiting if _ends(before, topic) != _ends(snapshot, topic)]
            return [waiter for topic in changed for waiter in self._waiting[topic]]


def _ends(snapshot: Snapshot, topic: str) -> tuple[PartitionEnds, ...] | None:
    return snapshot.ends.get(topic)


def wake_all(waiters: Iterable[Waiter], snapshot: Snapshot | None) -> None:
    by_loop: dict[asyncio.AbstractEventLoop, list[Waiter]] = {}
    for waiter in waiters:
        by_loop.setdefault(waiter.get_loop(), []).append(waiter)
    for loop, waiting in by_loop.items():
        try:
            loop.call_soon_threadsafe(_wake, waiting, snapshot)
        except RuntimeError:
            continue  # that loop is closed, and with it all who waited in it


def _wake(waiters: Sequence[Waiter], snapshot: Snapshot | None) -> None:
    for waiter in waiters[:WOKEN_AT_ONCE]:
        if not waiter.done():
            waiter.set_result(snapshot)
    if rest := waiters[WOKEN_AT_ONCE:]:
        rest[0].get_loop().call_soon(_wake, rest, snapshot)

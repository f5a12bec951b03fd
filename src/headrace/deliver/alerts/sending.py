"""Tells destinations: webhooks over HTTP with the sender of callbacks, signed if the project has a secret; topics
through the collector, with the notice's id as the event's, so that it is there once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import TimeoutError as TooLong
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING

from headrace.clock import Clock
from headrace.collect.base import Collector, RawEvents
from headrace.collect.tickets.callbacks import (
    FIRST_PAUSE_S,
    LONGEST_PAUSE_S,
    Callbacks,
    Delivery,
    http_client,
    post_once,
)
from headrace.deliver.alerts.definitions import Destination, check_address
from headrace.deliver.alerts.state import Notice
from headrace.errors import HeadraceError
from headrace.toml_files import secret as from_environment

if TYPE_CHECKING:
    import httpx

TRIED_FOR_MS = 24 * 3_600_000
"""How long a receiver that is away is tried."""
APPEND_S = 10.0

Over = Callable[[Notice, int, str | None], None]
"""Telling is over, after so many attempts; with what went wrong, if it was never taken."""


class Sender:
    """Every notice is begun once, and over once."""

    def __init__(self, collector: Collector, clock: Clock, seconds: float, secret: bytes | None, over: Over) -> None:
        self._collector, self._clock, self._seconds, self._secret = collector, clock, seconds, secret
        self._over = over
        self._lock = threading.Lock()
        self._open: dict[str, tuple[Notice, Delivery]] = {}
        self._failed: dict[str, tuple[int, float, str]] = {}
        """Of what is tried here: attempts, when again, what went wrong."""
        self._unnoted: dict[str, tuple[Notice, int, str | None]] = {}
        """Of what is open: what is over, but could not be written down."""

    @cached_property
    def _callbacks(self) -> Callbacks:
        return Callbacks(self._secret, self._seconds, self._clock, self._called)

    @cached_property
    def _http(self) -> httpx.Client:
        return http_client(self._seconds)

    def send(self, notice: Notice, place: Destination) -> None:
        """Begin, if it is not begun yet; called again and again while it is not over."""
        name = f"{notice.id} {notice.to}"
        with self._lock:
            unnoted = self._unnoted.get(name)
            if unnoted is None and name in self._open:
                return
        if unnoted is not None:
            with suppress(HeadraceError):  # the next look tries again
                self._note(name, *unnoted)
            return
        attempts, due, error = self._failed.get(name, (0, 0.0, ""))
        if self._clock.monotonic() < due:
            return
        if error and self._clock.now_ms() >= notice.since_ms + TRIED_FOR_MS:
            self._failed.pop(name)
            self._over(notice, attempts, error)
            return
        wrong = self._post(name, notice, place) if place.webhook else self._write(notice, place)
        if wrong is not None:
            pause = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0**attempts)
            self._failed[name] = (attempts + 1, self._clock.monotonic() + pause, wrong)
        elif place.topic:
            self._failed.pop(name, None)
            self._over(notice, attempts + 1, None)

    def trouble(self, notice: Notice) -> tuple[int, str | None]:
        """Attempts so far, and what went wrong, of a notice that is not over."""
        name = f"{notice.id} {notice.to}"
        with self._lock:
            _, delivery = self._open.get(name, (None, None))
        if delivery is not None:
            return delivery.attempts, delivery.error
        attempts, _, error = self._failed.get(name, (0, 0.0, None))
        return attempts, error

    def try_once(self, name: str, place: Destination, body: str) -> str | None:
        """What went wrong, at once."""
        if place.topic:
            return self._write(Notice(name, place.key, body, 0), place)
        try:
            url = check_address(from_environment(place.webhook))
        except HeadraceError as error:
            return error.message
        return post_once(self._http, url, body.encode(), self._secret, self._clock)

    def close(self) -> None:
        if "_callbacks" in vars(self):
            self._callbacks.close()
        if "_http" in vars(self):
            self._http.close()

    def _post(self, name: str, notice: Notice, place: Destination) -> str | None:
        try:
            url = check_address(from_environment(place.webhook))
        except HeadraceError as error:
            return error.message
        expires = notice.since_ms + TRIED_FOR_MS
        delivery = Delivery(self._clock.monotonic(), name, url, notice.body.encode(), expires)
        with self._lock:
            self._open[name] = notice, delivery
        self._failed.pop(name, None)
        self._callbacks.post(delivery)
        return None

    def _write(self, notice: Notice, place: Destination) -> str | None:
        raw = RawEvents(place.topic, notice.body.encode(), source="alert", idempotency_key=notice.id)
        try:
            outcome = self._collector.collect(raw).result(APPEND_S)
        except HeadraceError as error:
            return error.message
        except TooLong:
            return "the log does not answer"
        return outcome.rejected[0].reason if outcome.rejected else None

    def _called(self, delivery: Delivery, taken: bool) -> None:
        with self._lock:
            notice, _ = self._open[delivery.name]
        self._note(delivery.name, notice, delivery.attempts, None if taken else delivery.error)

    def _note(self, name: str, notice: Notice, attempts: int, error: str | None) -> None:
        """It is open until that is written, however long it takes: what is not open is told again."""
        try:
            self._over(notice, attempts, error)
        except BaseException:
            with self._lock:
                self._unnoted[name] = (notice, attempts, error)
            raise
        with self._lock:
            self._unnoted.pop(name, None)
            self._open.pop(name, None)

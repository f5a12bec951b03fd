"""Results posted to the caller, again and again until they are taken, signed so that the receiver knows who sent them.

Only to hosts that the project names: a server that posts to whatever address it is given can be made to talk to what
only it can reach. No redirect is followed, for the same reason.

The HTTP client is imported when the first callback is asked for: it takes a sixth of a server's start, and few projects
have any.
"""

from __future__ import annotations

import hashlib
import heapq
import hmac
import logging
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from headrace.clock import Clock
from headrace.errors import Refused, UsageError

if TYPE_CHECKING:
    import httpx

logger = logging.getLogger("headrace.callbacks")

SIGNATURE = "X-Headrace-Signature"
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 600.0
SENDERS, SENDERS_PER_HOST = 8, 2
BUSY_S = 0.05
"""When to look again for a host that has as many requests as it may."""
MAX_URL = 2000


@dataclass(order=True, slots=True)
class Delivery:
    due: float
    name: str = field(compare=False)
    """What is told: a ticket's result, an alert's state."""
    url: str = field(compare=False)
    body: bytes = field(compare=False)
    expires_ms: int = field(compare=False)
    attempts: int = field(compare=False, default=0)
    error: str | None = field(compare=False, default=None)


Over = Callable[[Delivery, bool], None]
"""Called when a delivery is over: was it taken?"""


def check_callback(url: str, hosts: Sequence[str]) -> str:
    """The address, if results may be posted there. Read by the very library that will call it."""
    if not hosts:
        raise Refused(
            "callbacks are not allowed here", hint="name the hosts in headrace.toml: [collect] callback_hosts"
        )
    import httpx

    try:
        parsed = httpx.URL(url if len(url) <= MAX_URL else "")
    except (httpx.InvalidURL, UnicodeError):
        parsed = httpx.URL("")
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise UsageError(f"`{url[:80]}` is not an address to post to", hint="https://host/path")
    if parsed.userinfo:
        raise UsageError("a callback's address must not contain a password", hint="its requests are signed")
    host = f"[{parsed.host}]" if ":" in parsed.host else parsed.host.lower()
    port = parsed.port or (443 if parsed.scheme == "https" else 80)
    if host not in hosts and f"{host}:{port}" not in hosts:
        raise Refused(
            f"results may not be posted to `{host}:{port}`", hint="add it to [collect] callback_hosts in headrace.toml"
        )
    return url


def sign(secret: bytes, seconds: int, body: bytes) -> str:
    """
    >>> sign(b"s", 7, b"{}")[:20]
    't=7,v1=b12cae8f0db9d'
    """
    return f"t={seconds},v1={hmac.new(secret, b'%d.' % seconds + body, hashlib.sha256).hexdigest()}"


def post_once(http: httpx.Client, url: str, body: bytes, secret: bytes | None, clock: Clock) -> str | None:
    """What went wrong. Signed, if there is a secret to do it with."""
    import httpx

    headers = {"Content-Type": "application/json"}
    if secret is not None:
        headers[SIGNATURE] = sign(secret, clock.now_ms() // 1000, body)
    try:
        # Streamed, so that nobody can make us read an endless answer.
        with http.stream("POST", url, content=body, headers=headers) as answer:
            return None if answer.is_success else f"answered {answer.status_code}"
    except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
        return f"{type(error).__name__}: {error}"[:200]


def http_client(seconds: float) -> httpx.Client:
    import httpx

    return httpx.Client(follow_redirects=False, trust_env=False, timeout=seconds)


def _host(delivery: Delivery) -> str:
    import httpx

    return httpx.URL(delivery.url).host


class Callbacks:
    """Posts until it is told to stop. What is not over by then is begun anew after the next start."""

    def __init__(self, secret: bytes | None, seconds: float, clock: Clock, over: Over) -> None:
        self._secret, self._clock, self._over = secret, clock, over
        self._seconds = seconds
        self._waiting: list[Delivery] = []
        self._at_host: Counter[str] = Counter()
        self._changed = threading.Condition()
        self._stopping = False
        self._senders = ThreadPoolExecutor(SENDERS, "headrace-callback")
        self._thread = threading.Thread(target=self._run, name="headrace-callbacks", daemon=True)
        self._thread.start()

    @cached_property
    def _http(self) -> httpx.Client:
        return http_client(self._seconds)

    def post(self, delivery: Delivery) -> None:
        with self._changed:
            heapq.heappush(self._waiting, delivery)
            self._changed.notify()

    def waiting(self) -> int:
        return len(self._waiting) + self._at_host.total()

    def _run(self) -> None:
        while (delivery := self._next()) is not None:
            self._senders.submit(self._send, self._http, delivery)

    def _next(self) -> Delivery | None:
        with self._changed:
            while not self._stopping:
                now = self._clock.monotonic()
                if self._waiting and self._waiting[0].due <= now:
                    delivery = heapq.heappop(self._waiting)
                    host = _host(delivery)
                    if self._at_host[host] < SENDERS_PER_HOST:
                        self._at_host[host] += 1
                        return delivery
                    delivery.due = now + BUSY_S
                    heapq.heappush(self._waiting, delivery)
                self._changed.wait(max(0.001, self._waiting[0].due - now) if self._waiting else None)
        return None

    def _send(self, http: httpx.Client, delivery: Delivery) -> None:
        delivery.attempts += 1
        delivery.error = self._try(http, delivery)
        with self._changed:
            self._at_host[_host(delivery)] -= 1
            self._changed.notify()
        if delivery.error is None:
            self._finish(delivery, True)
            return
        pause = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** (delivery.attempts - 1))
        if self._clock.now_ms() + pause * 1000 >= delivery.expires_ms:
            logger.warning("what `%s` became was never taken: %s", delivery.name, delivery.error)
            self._finish(delivery, False)
            return
        delivery.due = self._clock.monotonic() + pause
        self.post(delivery)

    def _try(self, http: httpx.Client, delivery: Delivery) -> str | None:
        return post_once(http, delivery.url, delivery.body, self._secret, self._clock)

    def _finish(self, delivery: Delivery, taken: bool) -> None:
        try:
            self._over(delivery, taken)
        except Exception:
            # Not written down: it is posted again after the next start, and the receiver knows its name.
            logger.exception("cannot note that the callback of `%s` is over", delivery.name)

    def close(self) -> None:
        with self._changed:
            self._stopping = True
            self._changed.notify()
        self._thread.join()
        self._senders.shutdown(cancel_futures=True)
        if "_http" in vars(self):
            self._http.close()

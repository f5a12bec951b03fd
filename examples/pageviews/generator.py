"""A website's page views, sent through the public HTTP API. Needs nothing but Python.

    python generator.py --rate 300 --url http://127.0.0.1:8080

Visitors come in sessions from somewhere (a search, a newsletter, a friend), look at a few pages, mostly popular ones,
and leave. There are more of them in the evening than at night, and now and then a page is linked somewhere and many
come at once. Phones lose their connection: some views arrive out of order, a few arrive minutes late. Batches carry an
Idempotency-Key, so that sending one again after an error is harmless.
"""

from __future__ import annotations

import argparse
import heapq
import http.client
import json
import math
import random
import signal
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import FrameType
from typing import Any
from urllib.parse import urlsplit

PAGES = [
    "/", "/pricing", "/docs", "/blog", "/docs/install", "/features", "/login", "/signup", "/blog/streaming-sql",
    "/docs/windows", "/about", "/contact", "/docs/joins", "/blog/exactly-once", "/careers", "/changelog",
    "/docs/cli", "/blog/late-data", "/status", "/customers", "/docs/tables", "/blog/arrow", "/security", "/partners",
    "/docs/http-api", "/blog/kappa", "/events", "/press", "/legal/privacy", "/legal/terms",
]  # fmt: skip
REFERRERS = [
    ("https://search.example/", 45),
    ("", 25),
    ("https://news.example/item?id=42", 10),
    ("https://social.example/", 9),
    ("https://newsletter.example/issue/17", 6),
    ("https://friend.example/links", 5),
]
COUNTRIES = [("DE", 30), ("US", 26), ("FR", 11), ("GB", 9), ("IN", 8), ("BR", 6), ("JP", 5), ("NG", 3), ("AU", 2)]
DEVICES = [("phone", 55), ("desktop", 38), ("tablet", 7)]

USERS = 20_000
BURST_EVERY_S, BURST_S, BURST_FACTOR = 90.0, 8.0, 4.0
OUT_OF_ORDER, LATE = 0.03, 0.002
BATCH_S = 0.1
"""How often views are sent: what happened within this time goes into one request."""


@dataclass
class Visitor:
    """One session of one user."""

    userid: str
    sessionid: str
    country: str
    device: str
    referrer: str
    left: int


@dataclass
class Website:
    """Makes page views. The same seed makes the same visitors and pages, whatever the clock says."""

    chance: random.Random
    weights: list[float] = field(default_factory=lambda: [1 / (rank + 1) ** 1.1 for rank in range(len(PAGES))])
    visitors: list[Visitor] = field(default_factory=list)

    def view(self, now_ms: int, trending: str | None) -> dict[str, Any]:
        visitor = self._somebody()
        page = trending if trending and self.chance.random() < 0.7 else self.chance.choices(PAGES, self.weights)[0]
        view = {
            "userid": visitor.userid,
            "pageid": page,
            "referrer": visitor.referrer or None,
            "sessionid": visitor.sessionid,
            "country": visitor.country,
            "device": visitor.device,
            "viewtime": now_ms,
        }
        # Within a session the next page is reached from this one.
        visitor.referrer = f"https://shop.example{page}"
        return view

    def _somebody(self) -> Visitor:
        if len(self.visitors) < 200 or self.chance.random() < 0.15:
            self.visitors.append(self._newcomer())
        index = self.chance.randrange(len(self.visitors))
        visitor = self.visitors[index]
        visitor.left -= 1
        if visitor.left <= 0:
            self.visitors[index] = self.visitors[-1]
            self.visitors.pop()
        return visitor

    def _newcomer(self) -> Visitor:
        # Some people come again and again, most rarely.
        number = int(USERS * self.chance.random() ** 3)
        return Visitor(
            userid=f"u{number:05d}",
            sessionid=f"{self.chance.getrandbits(48):012x}",
            country=_pick(self.chance, COUNTRIES),
            device=_pick(self.chance, DEVICES),
            referrer=_pick(self.chance, REFERRERS),
            left=1 + int(self.chance.expovariate(1 / 5)),
        )


def _pick(chance: random.Random, options: list[tuple[str, int]]) -> str:
    return chance.choices([name for name, _ in options], [weight for _, weight in options])[0]


def rhythm(now_s: float) -> float:
    """The day's rhythm around 1: least at four in the morning, most at four in the afternoon (UTC)."""
    hour = now_s / 3600 % 24
    return 1 + 0.35 * math.sin((hour - 10) / 24 * 2 * math.pi)


@dataclass
class Traffic:
    """Batches of views in the order they arrive, which is not quite the order they happened in."""

    website: Website
    rate: float
    chance: random.Random
    delayed: list[tuple[float, int, dict[str, Any]]] = field(default_factory=list)
    """Views on their way: (arrives at, tie-break, view)."""
    made: int = 0
    burst_until: float = 0.0
    next_burst: float = 0.0
    trending: str | None = None

    def batch(self, now: float, since: float) -> list[dict[str, Any]]:
        """What arrives at `now`, having happened since `since` or been delayed before."""
        self._burst(now)
        wanted = self.rate * rhythm(now) * (BURST_FACTOR if now < self.burst_until else 1) * (now - since)
        count = int(wanted) + (self.chance.random() < wanted % 1)
        arriving = []
        for _ in range(count):
            happened = since + self.chance.random() * (now - since)
            view = self.website.view(int(happened * 1000), self.trending if now < self.burst_until else None)
            if (delay := self._delay()) > 0:
                self.made += 1
                heapq.heappush(self.delayed, (now + delay, self.made, view))
            else:
                arriving.append(view)
        while self.delayed and self.delayed[0][0] <= now:
            arriving.append(heapq.heappop(self.delayed)[2])
        return arriving

    def _delay(self) -> float:
        draw = self.chance.random()
        if draw < LATE:
            return self.chance.uniform(75, 180)
        if draw < LATE + OUT_OF_ORDER:
            return self.chance.uniform(0.5, 8)
        return 0.0

    def _burst(self, now: float) -> None:
        if not self.next_burst:
            self.next_burst = now + self.chance.uniform(0.3, 1.0) * BURST_EVERY_S
        if now >= self.next_burst:
            self.burst_until = now + BURST_S
            self.next_burst = now + self.chance.uniform(0.7, 1.3) * BURST_EVERY_S
            self.trending = self.chance.choice(PAGES[8:])


class Sender:
    """Sends batches over one connection; tries again, with the same key, until each is taken."""

    def __init__(self, url: str, topic: str, key: str | None = None) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "127.0.0.1", parts.port or 80
        self._path = f"{parts.path.rstrip('/')}/v1/topics/{topic}/events"
        self._headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
        self._run = uuid.uuid4().hex
        self._number = 0
        self._connection: http.client.HTTPConnection | None = None
        self.stopping = False
        self.troubled = False

    def send(self, batch: list[dict[str, Any]]) -> int:
        """How many were accepted; 0 if told to stop before the server took it."""
        self._number += 1
        headers = self._headers | {"Idempotency-Key": f"{self._run}-{self._number}"}
        body = json.dumps(batch).encode()
        pause = 0.2
        while not self.stopping:
            try:
                status, answer, wait = self._post(body, headers)
            except (OSError, http.client.HTTPException) as error:
                self._close()
                status, answer, wait = 0, {"error": {"message": f"the server does not answer ({error})"}}, pause
            if status in (200, 422):
                self._calm()
                return int(answer["accepted"]) + int(answer.get("duplicates", 0))
            self._complain(status, answer)
            time.sleep(min(max(wait, pause), 5.0))
            pause = min(pause * 2, 5.0)
        return 0

    def _post(self, body: bytes, headers: dict[str, str]) -> tuple[int, dict[str, Any], float]:
        if self._connection is None:
            self._connection = http.client.HTTPConnection(self._host, self._port, timeout=10)
        self._connection.request("POST", self._path, body, headers)
        response = self._connection.getresponse()
        text = response.read()
        try:
            answer = json.loads(text)
        except ValueError:
            answer = {"error": {"message": text.decode(errors="replace")[:200]}}
        return response.status, answer, float(response.headers.get("Retry-After", 0))

    def _complain(self, status: int, answer: dict[str, Any]) -> None:
        """Once per trouble: nobody wants the same line five times a second."""
        if not self.troubled:
            self.troubled = True
            message = answer.get("error", {}).get("message", f"status {status}")
            print(f"generator: {message}; trying again", file=sys.stderr, flush=True)

    def _calm(self) -> None:
        if self.troubled:
            self.troubled = False
            print("generator: events are accepted again", file=sys.stderr, flush=True)

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None


def moments(sender: Sender) -> Iterator[tuple[float, float]]:
    """(now, the one before), every tenth of a second; a pause of the machine is not made up for."""
    before = time.time()
    while not sender.stopping:
        time.sleep(BATCH_S)
        now = time.time()
        # The clock may have been set back, or the server away for an hour.
        yield now, min(now, max(before, now - 1.0))
        before = now


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=float, default=300, help="views a second, on average (default 300)")
    parser.add_argument("--url", default="http://127.0.0.1:8080", help="the server's address")
    parser.add_argument("--topic", default="pageviews")
    parser.add_argument("--key", default=None, help="API key, if the server wants one")
    parser.add_argument("--seed", type=int, default=None, help="the same visitors again")
    parser.add_argument("--count", type=int, default=None, help="stop after this many views")
    options = parser.parse_args()
    seed = random.randrange(1 << 30) if options.seed is None else options.seed
    traffic = Traffic(Website(random.Random(seed)), options.rate, random.Random(seed + 1))
    sender = Sender(options.url, options.topic, options.key)

    def stop(number: int, frame: FrameType | None) -> None:
        sender.stopping = True

    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGTERM, stop)
    sent = 0
    for now, before in moments(sender):
        batch = traffic.batch(now, before)
        if options.count is not None:
            batch = batch[: options.count - sent]
        if batch:
            sent += sender.send(batch)
        if options.count is not None and sent >= options.count:
            break
    print(f"generator: {sent} page views sent (seed {seed})", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""What all pullers share: back-off, resuming, and from a stream of items to writes."""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import httpx
import msgspec

from headrace.collect.base import sent_objects
from headrace.collect.definitions import CollectorSettings
from headrace.collect.feed import Feed
from headrace.collect.gate import Arrival
from headrace.errors import ConfigError
from headrace.log.base import ID
from headrace.log.codecs.json_codec import Unreadable
from headrace.secrecy import Address, Secret, shown_address
from headrace.toml_files import secret

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 30.0
MOST_ITEMS, MOST_BYTES = 1000, 4 * 1024 * 1024
"""Of one write; and what may wait for it."""
_MISSING = object()


class Broken(Exception):
    """The source is away or says something that cannot be: it is tried again after a pause."""

    def __init__(self, message: str, retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


PASSING = (Broken, httpx.HTTPError, OSError, asyncio.TimeoutError)
"""What a source that is away raises."""


class Backoff:
    """Pauses that double, with jitter, so that many clients do not come back together."""

    def __init__(self, feed: Feed) -> None:
        self._feed, self._tries = feed, 0

    def reset(self) -> None:
        self._tries = 0

    async def pause(self, error: BaseException) -> None:
        """The collector waits, and says for what."""
        why = str(error) or type(error).__name__
        self._feed.counters.failed(why)
        longest = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** min(self._tries, 20))
        seconds = max(getattr(error, "retry_after", 0.0), longest * (0.5 + random.random() / 2))
        self._tries += 1
        self._feed.waiting(f"{why}; tried again in {seconds:.1f} s")
        await asyncio.sleep(seconds)


class PullSettings(CollectorSettings, frozen=True, kw_only=True):
    id: str = ""
    """Where an event holds its id, such as `meta.id`: then what the source sends twice is stored once."""


class UrlSettings(PullSettings, frozen=True, kw_only=True):
    url: Address = ""
    """Where the source is."""
    headers: dict[str, Secret] = {}
    """Sent with every request; `env:NAME` is what the environment holds."""
    format: str = "json"
    """`json`: what is sent is an event; `text`: it is the field `message` of one."""

    def check(self) -> None:
        super().check()
        schemes = self.schemes()
        if not self.url.startswith(schemes):
            raise ConfigError(
                f"`{shown_address(self.url)}` is no address to pull from" if self.url else "a puller needs a `url`",
                hint=f"it begins with {' or '.join(schemes)}",
                path=("url",),
            )
        if self.format not in ("json", "text"):
            raise ConfigError(f"there is no format `{self.format}`", hint="json or text", path=("format",))

    @staticmethod
    def schemes() -> tuple[str, ...]:
        return ("http://", "https://")

    def sent_headers(self) -> dict[str, str]:
        return {name: secret(value) for name, value in self.headers.items()}


@dataclass(frozen=True, slots=True)
class Item:
    """One event of a source, and the cursor after it (None: as before)."""

    event: Any
    original: bytes
    cursor: Any = None


async def resumed(feed: Feed, source: str) -> Any:
    """The cursor of this source; None at its beginning, and where the file names another source than it did."""
    known = await feed.cursor()
    return known.get("at") if isinstance(known, dict) and is_of(known, source) else None


def source_name(source: str) -> str:
    """What a cursor says of its source: all of it but its secrets, and a mark that is another for other secrets, for a
    parameter may also be what is asked for. Slow on purpose, so that nobody finds them by trying."""
    shown = shown_address(source)
    if shown == source:
        return source
    mark = hashlib.scrypt(source.encode("utf-8", "surrogatepass"), salt=b"headrace cursor", n=2**14, r=8, p=1, dklen=8)
    return f"{shown} {mark.hex()}"


def is_of(cursor: dict[str, Any], source: str) -> bool:
    # As older versions wrote it, or as it is written now.
    return cursor.get("of") in (source, source_name(source))


class Writer:
    """Writes items, each write with the cursor of its last one."""

    def __init__(self, feed: Feed, source: str, id_path: str = "") -> None:
        self._feed, self._source, self._id_path = feed, source_name(source), id_path

    async def write(self, items: list[Item], at: Any) -> None:
        originals = [item.original for item in items]
        events = [self._with_id(item.event) for item in items]
        size = sum(map(len, originals))
        cursor = {"of": self._source, "at": at}
        await self._feed.put(sent_objects(events, originals.__getitem__), Arrival(size=size), cursor)

    def _with_id(self, event: Any) -> Any:
        if not self._id_path or not isinstance(event, dict) or ID in event:
            return event
        found = look_up(event, self._id_path)
        return event if found is None else event | {ID: found if isinstance(found, str) else str(found)}


async def pump(writer: Writer, items: AsyncIterator[Item], at: Any, wrote: Callable[[Any], None]) -> None:
    """Write what a stream brings, as much at once as has come while the last was written, until it ends. Bounded: what
    is not taken is not read. `wrote` is told each cursor that is in the log."""
    queue: asyncio.Queue[Item | None] = asyncio.Queue(MOST_ITEMS)

    async def read() -> None:
        try:
            async for item in items:
                await queue.put(item)
        finally:
            # Also when it fails: what came before is written first.
            await queue.put(None)

    reading = asyncio.create_task(read())
    try:
        ended = False
        while not ended:
            batch: list[Item] = []
            size = 0
            item = await queue.get()
            while item is not None:
                batch.append(item)
                size += len(item.original)
                if queue.empty() or len(batch) >= MOST_ITEMS or size >= MOST_BYTES:
                    break
                item = queue.get_nowait()
            ended = item is None
            if batch:
                at = next((one.cursor for one in reversed(batch) if one.cursor is not None), at)
                await writer.write(batch, at)
                wrote(at)
        await reading
    finally:
        reading.cancel()


def read_item(data: bytes | str, format: str, more: dict[str, Any] | None = None) -> Any:
    """An event out of what a source sent as one."""
    try:
        if format == "text":
            text = data if isinstance(data, str) else data.decode()
            return {"message": text} | (more or {})
        return msgspec.json.decode(data)
    except (UnicodeDecodeError, RecursionError, msgspec.DecodeError) as error:
        return Unreadable(f"is not {'UTF-8' if format == 'text' else 'valid JSON'}: {error}")


def look_up(value: Any, path: str) -> Any:
    """What is at a path, None if nothing is. Numbers are places of an array, from its end if negative.

    >>> look_up({"data": {"items": [{"id": 1}, {"id": 2}]}}, "data.items.-1.id")
    2
    """
    for part in path.split(".") if path else []:
        found: Any = _MISSING
        if isinstance(value, dict):
            found = value.get(part, _MISSING)
        elif isinstance(value, list) and part.lstrip("-").isdigit():
            place = int(part)
            found = value[place] if -len(value) <= place < len(value) else _MISSING
        if found is _MISSING:
            return None
        value = found
    return value


def client(settings: UrlSettings, timeout: httpx.Timeout) -> httpx.AsyncClient:
    own = _origin(httpx.URL(settings.url))

    async def keep_to_ourselves(request: httpx.Request) -> None:
        # Wherever the source sends us to: what proves who we are is for the source.
        if _origin(request.url) != own:
            for name in settings.headers:
                request.headers.pop(name, None)

    return httpx.AsyncClient(
        headers=settings.sent_headers(),
        timeout=timeout,
        trust_env=False,
        follow_redirects=True,
        event_hooks={"request": [keep_to_ourselves]},
    )


def _origin(url: httpx.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port


def check_answer(answer: httpx.Response) -> None:
    """`Broken` for what is no success, with the pause that the source asks for."""
    if answer.is_success:
        return
    after = answer.headers.get("retry-after", "")
    raise Broken(
        f"{shown_address(str(answer.request.url.copy_with(query=None)))} answered {answer.status_code}",
        retry_after=min(float(after), 3600.0) if after.isdigit() else 0.0,
    )

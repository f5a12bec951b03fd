"""What all pullers share: back-off, resuming, and from a stream of messages to writes."""

from __future__ import annotations

import asyncio
import hashlib
import random
import zlib
from collections import deque
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
"""Of one write, and what may wait for it: a message more than these at most."""
MOST_MESSAGE_BYTES = 16 * 1024 * 1024
"""Of what a source sends at once."""
PIECE_BYTES = 1024 * 1024
"""Of what is decompressed at once."""
ENCODINGS = "gzip, deflate"
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


def how_to_go_on(name: str) -> str:
    """Where what comes next in a source is not there any more: somebody must say that it may be left out."""
    return f"`headrace collector reset {name} --to beginning` goes on with the oldest that is there"


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
    position: str = ""
    """Where it was in its source, for the dead letters."""


async def resumed(feed: Feed, source: str) -> Any:
    """The cursor of this source; None at its beginning, and where the file names another source than it did."""
    at, _ = await resumed_or_started(feed, source, "")
    return at


async def resumed_or_started(feed: Feed, source: str, start: str) -> tuple[Any, str]:
    """The same, and where to begin without one: as the file says, or as it was told last."""
    known = await feed.cursor()
    if not isinstance(known, dict) or not is_of(known, source):
        return None, start
    return known.get("at"), known.get("start") or start


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
        position = (lambda row: items[row].position) if any(item.position for item in items) else None
        arrived = Arrival(size=size, position=position)
        await self._feed.put(sent_objects(events, originals.__getitem__), arrived, cursor)

    def _with_id(self, event: Any) -> Any:
        if not self._id_path or not isinstance(event, dict) or ID in event:
            return event
        found = look_up(event, self._id_path)
        return event if found is None else event | {ID: found if isinstance(found, str) else str(found)}


Message = list[Item]
"""What came as one: its events are written together, so that the cursor never stands within it."""


class _Arrived:
    """Messages that wait to be written: bounded, by their number and by their bytes."""

    def __init__(self) -> None:
        self._waiting: deque[Message] = deque()
        self._items = self._bytes = 0
        self._ended = False
        self._changed = asyncio.Condition()

    async def put(self, message: Message) -> None:
        """Waits for room. One message always finds some."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._items < MOST_ITEMS and self._bytes < MOST_BYTES)
            self._waiting.append(message)
            self._items += len(message)
            self._bytes += size_of(message)
            self._changed.notify_all()

    async def end(self) -> None:
        async with self._changed:
            self._ended = True
            self._changed.notify_all()

    async def take(self) -> Message:
        """As much as has come and one write should have; nothing at the end."""
        async with self._changed:
            await self._changed.wait_for(lambda: bool(self._waiting) or self._ended)
            taken: Message = []
            size = 0
            while self._waiting and len(taken) < MOST_ITEMS and size < MOST_BYTES:
                message = self._waiting.popleft()
                size += size_of(message)
                taken += message
            self._items -= len(taken)
            self._bytes -= size
            self._changed.notify_all()
            return taken


def size_of(message: Message) -> int:
    return sum(len(item.original) for item in message)


async def pump(writer: Writer, messages: AsyncIterator[Message], at: Any, wrote: Callable[[Any], None]) -> None:
    """Write what a stream brings, as much at once as has come while the last was written, until it ends. Bounded: what
    is not taken is not read. `wrote` is told each cursor that is in the log."""
    arrived = _Arrived()

    async def read() -> None:
        try:
            async for message in messages:
                if message:
                    await arrived.put(message)
        finally:
            # Also when it fails: what came before is written first.
            await arrived.end()

    reading = asyncio.create_task(read())
    try:
        while batch := await arrived.take():
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
        headers={"accept-encoding": ENCODINGS} | settings.sent_headers(),
        timeout=timeout,
        trust_env=False,
        follow_redirects=True,
        event_hooks={"request": [keep_to_ourselves]},
    )


def _origin(url: httpx.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port


async def decoded(answer: httpx.Response, piece: int = PIECE_BYTES) -> AsyncIterator[bytes]:
    """An answer's bytes as they come, decompressed, a piece at a time: a small answer may become a very large one."""
    encoding = answer.headers.get("content-encoding", "identity").strip().lower()
    if encoding == "identity":
        async for data in answer.aiter_raw():
            yield data
        return
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise Broken(f"the answer is encoded as `{encoding[:40]}`, which was not asked for")
    # 32: whatever its header says it is.
    inflate = zlib.decompressobj(zlib.MAX_WBITS + 32)
    try:
        async for data in answer.aiter_raw():
            while data:
                if inflate.eof:
                    inflate = zlib.decompressobj(zlib.MAX_WBITS + 32)
                yield inflate.decompress(data, piece)
                data = inflate.unused_data if inflate.eof else inflate.unconsumed_tail
    except zlib.error as error:
        raise Broken(f"the answer is not compressed as it says: {error}") from None


async def read_answer(http: httpx.AsyncClient, url: httpx.URL | str, most: int, **given: Any) -> httpx.Response:
    """The answer to a question, with all of its content: `Broken` if that is more than `most` bytes."""
    async with http.stream("GET", url, **given) as answer:
        content = bytearray()
        async for data in decoded(answer):
            content += data
            if len(content) > most:
                raise Broken(f"the answer has more than {most} bytes: let it hold less, as its address may say")
        headers = [(name, value) for name, value in answer.headers.multi_items() if name != "content-encoding"]
        return httpx.Response(answer.status_code, headers=headers, content=bytes(content), request=answer.request)


def check_answer(answer: httpx.Response) -> None:
    """`Broken` for what is no success, with the pause that the source asks for."""
    if answer.is_success:
        return
    after = answer.headers.get("retry-after", "")
    raise Broken(
        f"{shown_address(str(answer.request.url.copy_with(query=None)))} answered {answer.status_code}",
        retry_after=min(float(after), 3600.0) if after.isdigit() else 0.0,
    )

"""The collector `sse`: follows a stream of server-sent events, and goes on after the last id it has."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

import httpx

from headrace.collect.feed import Feed
from headrace.collect.pull.base import (
    PASSING,
    Backoff,
    Broken,
    Item,
    UrlSettings,
    Writer,
    check_answer,
    client,
    pump,
    read_item,
    resumed,
)
from headrace.secrecy import shown_address

MOST_BYTES = 16 * 1024 * 1024
"""Of one event."""


class SseSettings(UrlSettings, frozen=True, kw_only=True):
    events: list[str] = []
    """Only events of these types; empty for all."""
    idle_seconds: float = 300.0
    """A source that says nothing for so long, not even a comment, is asked again."""


async def start(feed: Feed) -> None:
    settings = feed.settings(SseSettings)
    at = await resumed(feed, settings.url)
    backoff, writer = Backoff(feed), Writer(feed, settings.url, settings.id)

    def wrote(cursor: object) -> None:
        nonlocal at
        at = cursor
        backoff.reset()

    timeout = httpx.Timeout(30.0, read=settings.idle_seconds)
    async with client(settings, timeout) as http:
        while True:
            try:
                headers = {"accept": "text/event-stream", "cache-control": "no-cache"}
                if at:
                    headers["last-event-id"] = str(at)
                async with http.stream("GET", settings.url, headers=headers) as answer:
                    check_answer(answer)
                    feed.running(f"following {shown_address(settings.url)}")
                    await pump(writer, _items(answer, settings), at, wrote)
                raise Broken("the stream ended")
            except PASSING as error:
                await backoff.pause(error)


async def _items(answer: httpx.Response, settings: SseSettings) -> AsyncIterator[Item]:
    parser = Parser()
    async for data in answer.aiter_bytes():
        for event in parser.feed(data):
            if settings.events and event.type not in settings.events:
                continue
            found = read_item(event.data, settings.format, {"event": event.type})
            yield Item(found, event.data.encode(), event.id or None)


@dataclass(frozen=True, slots=True)
class ServerEvent:
    type: str
    data: str
    id: str
    """The last one that was named, here or before."""


class Parser:
    """Bytes → events, as the HTML standard says."""

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[str] = []
        self._type = ""
        self._id = ""
        self._begun = False

    def feed(self, data: bytes) -> list[ServerEvent]:
        whole = self._rest + data
        if not self._begun and whole:
            if whole[:3] != b"\xef\xbb\xbf" and b"\xef\xbb\xbf".startswith(whole[:3]):
                self._rest = whole
                return []
            whole, self._begun = whole.removeprefix(b"\xef\xbb\xbf"), True
        # A CR at the end may be the half of a line's end.
        held = whole.endswith(b"\r")
        lines = (whole[:-1] if held else whole).replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        self._rest = lines.pop() + (b"\r" if held else b"")
        if len(self._rest) + sum(map(len, self._data)) > MOST_BYTES:
            raise Broken(f"an event of more than {MOST_BYTES} bytes")
        return [event for line in lines if (event := self._line(line.decode(errors="replace"))) is not None]

    def _line(self, line: str) -> ServerEvent | None:
        if not line:
            return self._dispatch()
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._type = value
        elif name == "id" and "\0" not in value:
            self._id = value
        return None

    def _dispatch(self) -> ServerEvent | None:
        data, self._data = self._data, []
        type_, self._type = self._type or "message", ""
        return ServerEvent(type_, "\n".join(data), self._id) if data else None

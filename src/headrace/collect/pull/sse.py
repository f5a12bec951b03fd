"""The collector `sse`: follows a stream of server-sent events, and goes on after the last id it has."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx

from headrace.collect.feed import Feed
from headrace.collect.pull.base import (
    PASSING,
    Backoff,
    Broken,
    Item,
    Message,
    UrlSettings,
    Writer,
    check_answer,
    client,
    decoded,
    pump,
    read_item,
    resumed,
    source_name,
)
from headrace.collect.reset import place_of_cursor
from headrace.log.codecs.json_codec import Unreadable
from headrace.secrecy import shown_address


class SseSettings(UrlSettings, frozen=True, kw_only=True):
    events: list[str] = []
    """Only events of these types; empty for all."""
    idle_seconds: float = 300.0
    """A source that says nothing for so long, not even a comment, is asked again."""


def place(settings: SseSettings, to: str) -> Any:
    """The cursor that begins there."""
    return place_of_cursor(source_name(settings.url), to)


async def start(feed: Feed) -> None:
    settings = feed.settings(SseSettings)
    at = await resumed(feed, settings.url)
    backoff, writer = Backoff(feed), Writer(feed, settings.url, settings.id)
    most = feed.project.settings.collect.max_event_bytes

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
                    await pump(writer, _messages(answer, settings, most), at, wrote)
                raise Broken("the stream ended")
            except PASSING as error:
                await backoff.pause(error)


async def _messages(answer: httpx.Response, settings: SseSettings, most: int) -> AsyncIterator[Message]:
    parser = Parser(most)
    async for data in decoded(answer):
        for event in parser.feed(data):
            if settings.events and event.type not in settings.events:
                continue
            found = read_item(event.data, settings.format, {"event": event.type})
            if event.too_long:
                found = Unreadable(f"is an event of more than {most} bytes; this is its beginning")
            yield [Item(found, event.data.encode(), event.id or None, f"id {event.id}" if event.id else "")]


@dataclass(frozen=True, slots=True)
class ServerEvent:
    type: str
    data: str
    id: str
    """The last one that was named, here or before."""
    too_long: bool = False
    """This is only its beginning."""


class Parser:
    """Bytes → events, as the HTML standard says. Of one with more than `most` bytes of data only the beginning is kept,
    and of any other line that is longer nothing."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._rest = b""
        self._skipping = False
        """Up to the end of a line that is too long."""
        self._data: list[str] = []
        self._size = 0
        self._too_long = False
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
        rest = lines.pop()
        if lines and self._skipping:
            lines, self._skipping = lines[1:], False
        found = [event for line in lines if (event := self._line(line.decode(errors="replace"))) is not None]
        self._rest = self._kept(rest) + (b"\r" if held else b"")
        return found

    def _kept(self, rest: bytes) -> bytes:
        """Of the beginning of a line: nothing of one that is too long."""
        if not self._skipping and len(rest) > self._most + len("data: "):
            self._skipping = True
            if rest.startswith(b"data:"):
                self._line(rest.decode(errors="replace"))
        return b"" if self._skipping else rest

    def _line(self, line: str) -> ServerEvent | None:
        if not line:
            return self._dispatch()
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._add(value)
        elif name == "event":
            self._type = value
        elif name == "id" and "\0" not in value:
            self._id = value
        return None

    def _add(self, value: str) -> None:
        # Each with the line's end between it and the one before: empty ones are not for free.
        room = self._most - self._size
        self._too_long = self._too_long or len(value) > room
        if room >= 0:
            self._data.append(value[:room])
            self._size += len(value) + 1

    def _dispatch(self) -> ServerEvent | None:
        data, self._data, self._size = self._data, [], 0
        type_, self._type = self._type or "message", ""
        too_long, self._too_long = self._too_long, False
        return ServerEvent(type_, "\n".join(data), self._id, too_long) if data else None

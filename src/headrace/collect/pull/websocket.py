"""The collector `websocket`: connects, says what it wants, and takes every message as an event."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

import msgspec
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException

from headrace.collect.feed import Feed
from headrace.collect.pull.base import (
    MOST_MESSAGE_BYTES,
    PASSING,
    Backoff,
    Broken,
    Item,
    Message,
    UrlSettings,
    Writer,
    look_up,
    pump,
    read_item,
    resumed,
    source_name,
)
from headrace.collect.reset import place_of_cursor
from headrace.secrecy import Secret, shown_address

PLACE = "{cursor}"


class WebSocketSettings(UrlSettings, frozen=True, kw_only=True):
    """`{cursor}` in `url` and `subscribe` is the last cursor that is in the log."""

    subscribe: list[Secret] = []
    """Messages to send when connected."""
    cursor: str = ""
    """Where a message holds its cursor, such as `seq`."""
    first: str | int = ""
    """The cursor at the very beginning."""
    ping_seconds: float = 20.0
    """How often the source is asked whether it is there; no answer within the same time ends the connection."""

    @staticmethod
    def schemes() -> tuple[str, ...]:
        return ("ws://", "wss://")


def place(settings: WebSocketSettings, to: str) -> Any:
    """The cursor that begins there."""
    return place_of_cursor(source_name(settings.url), to)


async def start(feed: Feed) -> None:
    settings = feed.settings(WebSocketSettings)
    at = await resumed(feed, settings.url)
    backoff, writer = Backoff(feed), Writer(feed, settings.url, settings.id)

    def wrote(cursor: Any) -> None:
        nonlocal at
        at = cursor
        backoff.reset()

    while True:
        try:
            known = settings.first if at is None else at
            async with connect(
                settings.url.replace(PLACE, quote(_text(known), safe="")),
                additional_headers=settings.sent_headers(),
                ping_interval=settings.ping_seconds,
                ping_timeout=settings.ping_seconds,
                # One event may have less: then it is a dead letter.
                max_size=max(MOST_MESSAGE_BYTES, feed.project.settings.collect.max_event_bytes),
                max_queue=2,
                proxy=None,
            ) as connection:
                for message in settings.subscribe:
                    await connection.send(message.replace(PLACE, _json(known)))
                feed.running(f"following {shown_address(settings.url)}")
                await pump(writer, _messages(connection, settings), at, wrote)
            raise Broken("the source closed the connection")
        except (*PASSING, WebSocketException) as error:
            await backoff.pause(error)


async def _messages(connection: ClientConnection, settings: WebSocketSettings) -> AsyncIterator[Message]:
    async for message in connection:
        data = message.encode() if isinstance(message, str) else message
        event = read_item(data, settings.format)
        # An array is several events, which one cursor stands for.
        events = event if isinstance(event, list) else [event]
        cursor = look_up(events[-1], settings.cursor) if settings.cursor and events else None
        originals = [data] if len(events) == 1 else [msgspec.json.encode(one) for one in events]
        yield [Item(one, original, cursor) for one, original in zip(events, originals, strict=True)]


def _text(cursor: Any) -> str:
    return cursor if isinstance(cursor, str) else msgspec.json.encode(cursor).decode()


def _json(cursor: Any) -> str:
    """A number stays one; text is quoted, as it stands in a JSON message."""
    return msgspec.json.encode(cursor).decode()

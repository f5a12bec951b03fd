"""The collector `poll`: asks an HTTP address again and again, each time for what came after the last answer."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import msgspec

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
    look_up,
    read_answer,
    read_item,
    resumed,
    source_name,
)
from headrace.collect.reset import place_of_cursor
from headrace.errors import ConfigError
from headrace.secrecy import shown_address

HEADER, ETAG, LINK = "header:", "etag", "link"


class PollSettings(UrlSettings, frozen=True, kw_only=True):
    items: str = ""
    """Where the answer holds its events, such as `data.items`; empty if it is itself one or an array of them."""
    cursor: str = ""
    """Where the answer says how to go on: a path in it (`next`, `items.-1.id`), `header:NAME`, `etag` (asked with
    `If-None-Match`), or `link` (the address with `rel="next"`)."""
    parameter: str = ""
    """The parameter of the address that the cursor is sent as. Needed for a path and for a header."""
    every_seconds: float = 1.0
    """How long to wait after an answer with nothing new. One with events is followed by the next question at once."""
    wait_seconds: float = 60.0
    """How long a source that holds the question until there is something (long poll) may take."""
    max_answer_bytes: int = 16 * 1024 * 1024
    """An answer with more, decompressed, is not taken: the collector waits, and says so."""

    def check(self) -> None:
        super().check()
        needs = self.cursor not in ("", ETAG, LINK)
        if needs and not self.parameter:
            raise ConfigError(
                "a `cursor` needs a `parameter`", hint='how it is sent:  parameter = "after"', path=("cursor",)
            )
        if self.cursor == "" and self.id == "" and self.format == "json":
            raise ConfigError(
                "without a `cursor` every answer would be stored again",
                hint='say how the source goes on (cursor = "next"), or where its events have ids (id = "id")',
                path=("cursor",),
            )


def place(settings: PollSettings, to: str) -> Any:
    """The cursor that begins there."""
    return place_of_cursor(source_name(settings.url), to)


async def start(feed: Feed) -> None:
    settings = feed.settings(PollSettings)
    at = await resumed(feed, settings.url)
    backoff, writer = Backoff(feed), Writer(feed, settings.url, settings.id)
    async with client(settings, httpx.Timeout(30.0, read=settings.wait_seconds + 10.0)) as http:
        while True:
            try:
                answer = await _ask(http, settings, at)
                items = _items(answer, settings)
                following = _cursor(answer, settings) if items or answer.status_code == 200 else None
            except PASSING as error:
                await backoff.pause(error)
                continue
            backoff.reset()
            feed.running(f"polling {shown_address(settings.url)}")
            moved = following is not None and following != at
            if items or moved:
                at = following if moved else at
                await writer.write(items, at)
            if not items or not moved:
                await asyncio.sleep(settings.every_seconds)


async def _ask(http: httpx.AsyncClient, settings: PollSettings, at: Any) -> httpx.Response:
    url, headers = httpx.URL(settings.url), {}
    if at is not None:
        if settings.cursor == ETAG:
            headers["if-none-match"] = str(at)
        elif settings.cursor == LINK:
            url = url.join(str(at))
            if url.host != httpx.URL(settings.url).host:
                raise Broken(f"the source's next address is of another host, `{url.host}`")
        else:
            url = url.copy_merge_params({settings.parameter: at if isinstance(at, str | int) else str(at)})
    answer = await read_answer(http, url, settings.max_answer_bytes, headers=headers)
    if answer.status_code not in (204, 304):
        check_answer(answer)
    return answer


def _items(answer: httpx.Response, settings: PollSettings) -> list[Item]:
    if answer.status_code in (204, 304) or not answer.content:
        return []
    if settings.format == "text":
        return [Item(read_item(line, "text"), line) for line in answer.content.splitlines() if line]
    found = look_up(_body(answer), settings.items)
    if found is None:
        return []
    events = found if isinstance(found, list) else [found]
    return [Item(event, msgspec.json.encode(event)) for event in events]


def _cursor(answer: httpx.Response, settings: PollSettings) -> Any:
    if settings.cursor == ETAG:
        return answer.headers.get("etag")
    if settings.cursor == LINK:
        return answer.links.get("next", {}).get("url")
    if settings.cursor.startswith(HEADER):
        return answer.headers.get(settings.cursor.removeprefix(HEADER))
    if not settings.cursor or settings.format == "text" or not answer.content:
        return None
    return look_up(_body(answer), settings.cursor)


def _body(answer: httpx.Response) -> Any:
    try:
        return msgspec.json.decode(answer.content)
    except (RecursionError, msgspec.DecodeError) as error:
        raise Broken(f"the answer is not valid JSON: {error}") from None

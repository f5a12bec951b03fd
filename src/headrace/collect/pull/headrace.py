"""The collector `headrace`: follows a topic of another Headrace, record by record, by its offsets."""

from __future__ import annotations

from typing import Any

import httpx
import msgspec

from headrace.collect.definitions import CollectorSettings
from headrace.collect.feed import Feed
from headrace.collect.pull.base import (
    ENCODINGS,
    PASSING,
    Backoff,
    Broken,
    Item,
    Writer,
    check_answer,
    how_to_go_on,
    read_answer,
    resumed_or_started,
    source_name,
)
from headrace.collect.reset import place_in_offsets
from headrace.errors import ConfigError, OffsetOutOfRange, PositionOfAnotherLog
from headrace.log.base import HEADERS, ID, TIME, TOMBSTONE
from headrace.secrecy import Address, Secret, shown_address
from headrace.toml_files import secret

WAIT_S = 20.0
MOST_ANSWER_BYTES = 64 * 1024 * 1024
"""It answers with some 4 MiB of records, or with one that is larger."""


class HeadraceSettings(CollectorSettings, frozen=True, kw_only=True):
    url: Address = ""
    """The other server, such as `http://eu.example:8080`."""
    source: str = ""
    """Its topic; the same name as here by default."""
    key: Secret = ""
    """An API key that may read there, or `env:NAME`."""
    start: str = "earliest"
    """Where to begin the first time: `earliest` or `latest`."""
    batch: int = 2000
    """Records of one write."""

    def check(self) -> None:
        super().check()
        if not self.url.startswith(("http://", "https://")):
            raise ConfigError("a puller needs a `url`", hint='url = "http://eu.example:8080"', path=("url",))
        if self.start not in ("earliest", "latest"):
            raise ConfigError(f"`start` cannot be `{self.start}`", hint="earliest or latest", path=("start",))


async def start(feed: Feed) -> None:
    settings = feed.settings(HeadraceSettings)
    address = _address(settings)
    at, begin = await resumed_or_started(feed, address, settings.start)
    backoff, writer = Backoff(feed), Writer(feed, address)
    headers = {"accept-encoding": ENCODINGS}
    if settings.key:
        headers["authorization"] = f"Bearer {secret(settings.key)}"
    timeout = httpx.Timeout(30.0, read=WAIT_S + 30.0)
    async with httpx.AsyncClient(headers=headers, timeout=timeout, trust_env=False) as http:
        wait_s = 0.0
        while True:
            try:
                place = {"from": begin} if at is None else {"at": str(at)}
                params = place | {"limit": settings.batch, "wait": wait_s}
                answer = await read_answer(http, address, MOST_ANSWER_BYTES, params=params)
                if answer.status_code in (OffsetOutOfRange.status, PositionOfAnotherLog.status):
                    raise Broken(f"{_said(answer)}; {how_to_go_on(feed.gate.name)}")
                check_answer(answer)
                page = msgspec.json.decode(answer.content)
                items = [_item(record) for record in page["records"]]
                following, more = _following(page, feed.gate.name)
            except (KeyError, TypeError, ValueError, msgspec.DecodeError) as error:
                await backoff.pause(Broken(f"{address} is no Headrace: {error}"))
                continue
            except PASSING as error:
                await backoff.pause(error)
                continue
            backoff.reset()
            # The first answer comes at once, and says that somebody is there.
            wait_s = WAIT_S
            feed.running(f"following {shown_address(address)} at {following}")
            if items or more or at is None:
                at = following
                await writer.write(items, at)


def _address(settings: HeadraceSettings) -> str:
    return f"{settings.url.rstrip('/')}/v1/topics/{settings.source or settings.topic}/records"


def place(settings: HeadraceSettings, to: str) -> Any:
    """The cursor that begins there."""
    cursor = place_in_offsets(source_name(_address(settings)), to)
    return cursor if cursor["at"] is None else cursor | {"at": to}


def _following(page: dict[str, Any], name: str) -> tuple[str, bool]:
    """Where to go on, and whether there are partitions that were not there before: they are read from their beginning.
    `Broken` where the topic has less than was read already: it is another one of that name."""
    at, starts, ends = (_offsets(page[part]) for part in ("next", "starts", "ends"))
    for partition, offset in at.items():
        if ends.get(partition, 0) < offset:
            raise Broken(f"the topic there was made anew: offset {offset} is beyond its end; {how_to_go_on(name)}")
    new = {partition: starts[partition] for partition in ends if partition not in at}
    epoch = f"@{page['epoch']}" if page.get("epoch") else ""
    return ",".join(f"{partition}:{offset}" for partition, offset in sorted((at | new).items())) + epoch, bool(new)


def _offsets(text: str) -> dict[int, int]:
    pairs = (pair.split(":") for pair in text.split(",") if pair)
    return {int(partition): int(offset) for partition, offset in pairs}


def _said(answer: httpx.Response) -> str:
    """What the other one says is wrong."""
    try:
        return str(msgspec.json.decode(answer.content)["error"]["message"])[:300]
    except (KeyError, TypeError, msgspec.DecodeError):
        return f"{answer.request.url.copy_with(query=None)} answered {answer.status_code}"


def _item(record: dict[str, Any]) -> Item:
    """The record as it was sent there: its time, id and headers come along."""
    value = record["value"]
    event: dict[str, Any] = {**record["key"], **(value or {}), **(record.get("rest") or {})}
    event[TIME] = record["time_ms"]
    if value is None:
        event[TOMBSTONE] = True
    if record.get("id") is not None:
        event[ID] = record["id"]
    if record.get("headers"):
        event[HEADERS] = record["headers"]
    position = f"{record['partition']}:{record['offset']}" if "offset" in record else ""
    return Item(event, msgspec.json.encode(event), position=position)

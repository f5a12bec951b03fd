"""The collector `kafka`: follows a topic of a Kafka cluster. Offsets are kept with the events, not in the cluster."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from headrace.collect import debezium
from headrace.collect.definitions import CollectorSettings
from headrace.collect.feed import Feed
from headrace.collect.poison import guarded
from headrace.collect.pull.base import (
    MOST_BYTES,
    Backoff,
    Broken,
    Item,
    Writer,
    how_to_go_on,
    read_item,
    resumed_or_started,
    source_name,
)
from headrace.collect.reset import place_in_offsets
from headrace.errors import ConfigError
from headrace.log.base import HEADERS, TIME, TOMBSTONE
from headrace.secrecy import Secret
from headrace.toml_files import secret

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message

POLL_S = 0.5
LOOK_AGAIN = 100
"""Polls between two looks at the topic's partitions."""
REQUEST_S = 10.0
STEP = 100

Offsets = dict[str, int]
"""By partition, as text: that is what a JSON object has."""


class KafkaSettings(CollectorSettings, frozen=True, kw_only=True):
    bootstrap: str = ""
    """Some of the brokers, `host:port` each, separated by commas."""
    source: str = ""
    """The topic there; the same name as here by default."""
    start: str = "earliest"
    """Where to begin the first time: `earliest` or `latest`."""
    format: str = "json"
    """`json`: a value is an event; `text`: it is the field `message` of one; `bytes`: key and value of a raw topic;
    `debezium`: a change of a row, which becomes the row after it, or a tombstone."""
    conf: dict[str, Secret] = {}
    """Further properties of librdkafka, as they are; `env:NAME` is what the environment holds."""
    batch: int = 5000
    """Records of one write."""

    def check(self) -> None:
        super().check()
        if not self.bootstrap:
            raise ConfigError("a puller from Kafka needs `bootstrap`", hint='bootstrap = "broker-1:9092"')
        if self.start not in ("earliest", "latest"):
            raise ConfigError(f"`start` cannot be `{self.start}`", hint="earliest or latest", path=("start",))
        if self.format not in ("json", "text", "bytes", "debezium"):
            hint = "json, text, bytes or debezium"
            raise ConfigError(f"there is no format `{self.format}`", hint=hint, path=("format",))


async def start(feed: Feed) -> None:
    settings = feed.settings(KafkaSettings)
    topic, source = settings.source or settings.topic, _source(settings)
    known, begin = await resumed_or_started(feed, source, settings.start)
    offsets: Offsets = known or {}
    backoff, writer = Backoff(feed), Writer(feed, source)
    key_column = feed.key_column() if settings.format == "json" else None
    changes = Changes() if settings.format == "debezium" else None
    consumer = await asyncio.to_thread(_connect, settings)
    try:
        assigned: frozenset[int] = frozenset()
        while True:
            try:
                partitions = await asyncio.to_thread(_partitions, consumer, topic)
                if partitions != assigned:
                    places = await asyncio.to_thread(_places, consumer, topic, partitions, offsets, begin)
                    if places != offsets:
                        # What is the latest now is where it goes on after a crash, too.
                        await writer.write([], places)
                    offsets = places
                    await asyncio.to_thread(_assign, consumer, topic, offsets)
                    assigned = partitions
                feed.running(f"following {source}, {len(assigned)} partitions")
                for _ in range(LOOK_AGAIN):
                    messages = await asyncio.to_thread(_poll, consumer, settings.batch, feed.gate.name)
                    if messages:
                        if changes is not None:
                            items, read = changes.read(messages)
                        else:
                            items = [_item(one, settings.format, key_column) for one in messages]
                            read = {str(one.partition()): one.offset() + 1 for one in messages}
                        offsets = offsets | read
                        await writer.write(items, offsets)
                    backoff.reset()
            except Broken as error:
                assigned = frozenset()
                await backoff.pause(error)
    finally:
        with contextlib.suppress(RuntimeError):
            await asyncio.to_thread(consumer.close)


def _source(settings: KafkaSettings) -> str:
    return f"{settings.bootstrap}/{settings.source or settings.topic}"


def place(settings: KafkaSettings, to: str) -> Any:
    """The cursor that begins there."""
    cursor = place_in_offsets(source_name(_source(settings)), to)
    if cursor["at"] is not None:
        cursor["at"] = {partition: int(offset) for partition, offset in cursor["at"].items()}
    return cursor


def _connect(settings: KafkaSettings) -> Consumer:
    try:
        from confluent_kafka import Consumer
    except ImportError as error:
        raise ConfigError("the Kafka client is not installed", hint="pip install 'headrace[kafka]'") from error

    return Consumer(
        {
            "bootstrap.servers": settings.bootstrap,
            # Nothing is committed: the group is only a name that librdkafka wants.
            "group.id": f"headrace-collector-{settings.topic}",
            "enable.auto.commit": False,
            "enable.partition.eof": False,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed",
            **{name: secret(value) for name, value in settings.conf.items()},
        },
        logger=logging.getLogger("headrace.listeners.kafka"),
    )


def _partitions(consumer: Consumer, topic: str) -> frozenset[int]:
    from confluent_kafka import KafkaException

    try:
        found = consumer.list_topics(topic, timeout=REQUEST_S).topics[topic]
    except KafkaException as error:
        raise Broken(f"Kafka does not answer: {error.args[0].str()}") from error
    if found.error is not None or not found.partitions:
        raise Broken(f"Kafka has no topic `{topic}`")
    return frozenset(found.partitions)


def _places(consumer: Consumer, topic: str, partitions: frozenset[int], known: Offsets, start: str) -> Offsets:
    """Where to go on. A partition that is new after the first time is read from its beginning."""
    from confluent_kafka import KafkaException, TopicPartition

    places: Offsets = {}
    for partition in partitions:
        offset = known.get(str(partition))
        if offset is None:
            try:
                low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=REQUEST_S)
            except KafkaException as error:
                raise Broken(f"Kafka does not answer: {error.args[0].str()}") from error
            offset = high if start == "latest" and not known else low
        places[str(partition)] = offset
    return places


def _assign(consumer: Consumer, topic: str, places: Offsets) -> None:
    from confluent_kafka import TopicPartition

    consumer.assign([TopicPartition(topic, int(partition), offset) for partition, offset in places.items()])


def _poll(consumer: Consumer, most: int, name: str) -> Sequence[Message]:
    from confluent_kafka import KafkaError, KafkaException

    messages: list[Message]
    try:
        messages = consumer.consume(min(most, STEP), POLL_S)
        size = sum(map(len, messages))
        # Step by step, so that large records do not come by thousands.
        while messages and len(messages) < most and size < MOST_BYTES:
            more = consumer.consume(min(most - len(messages), STEP), 0)
            if not more:
                break
            messages += more
            size += sum(map(len, more))
    except KafkaException as error:
        raise Broken(error.args[0].str()) from error
    good: list[Message] = []
    for message in messages:
        wrong = message.error()
        if wrong is None:
            good.append(message)
        elif wrong.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            raise Broken(f"records were deleted there before they were read: {wrong.str()}; {how_to_go_on(name)}")
        elif not wrong.retriable() and wrong.code() != KafkaError._ALL_BROKERS_DOWN:
            raise Broken(wrong.str())
    return good


class Changes:
    """Reads a database's changes."""

    def __init__(self) -> None:
        self._deletions = debezium.Deletions()

    def read(self, messages: Sequence[Message]) -> tuple[list[Item], Offsets]:
        """What they say, and where to go on after them. After a deletion that is the deletion itself, until the record
        behind it is there: what follows a restart must not take its tombstone for one of its own."""
        items: list[Item] = []
        offsets: Offsets = {}
        for message in messages:
            key, value, partition = message.key(), message.value(), message.partition()
            made = guarded(partial(debezium.row_of, key, value))
            deletes = isinstance(made, dict) and TOMBSTONE in made
            repeated = self._deletions.repeated(partition, key, deletes=deletes, tombstone=value is None)
            if made is not None and not repeated:
                items.append(Item(made, value or b"", position=_position(message)))
            held = deletes and value is not None
            offsets[str(partition)] = message.offset() + (not held)
        return items, offsets


def _item(message: Message, format: str, key_column: str | None) -> Item:
    event = guarded(lambda: _event(message, format, key_column))
    return Item(event, message.value() or b"", position=_position(message))


def _position(message: Message) -> str:
    return f"{message.topic()}:{message.partition()}:{message.offset()}"


def _event(message: Message, format: str, key_column: str | None) -> Any:
    key, value = message.key(), message.value()
    event: Any
    if format == "bytes":
        event = {"key": _base64(key), "value": _base64(value)}
    elif value is None:
        event = {}
    else:
        event = read_item(value, format)
    if isinstance(event, dict):
        if value is None:
            event[TOMBSTONE] = True
        if key is not None and key_column is not None and key_column not in map(str.casefold, event):
            event[key_column] = key.decode(errors="replace")
        if message.timestamp()[1] >= 0:
            event[TIME] = message.timestamp()[1]
        if headers := message.headers():
            event[HEADERS] = {name: None if body is None else {"base64": _base64(body)} for name, body in headers}
    return event


def _base64(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()

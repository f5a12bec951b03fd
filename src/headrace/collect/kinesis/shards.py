"""Which shard a record goes to, and what shards there are."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import Any

from headrace.collect.kinesis.errors import INVALID, ApiError
from headrace.collect.kinesis.numbers import sequence_number, shard_id
from headrace.log.base import PartitionEnds, Topic
from headrace.log.writing.reshape import MD5_PLACES, STRETCH, key_ranges, md5_place


@dataclass(frozen=True, slots=True)
class HashRange:
    """The MD5 hashes a shard takes, both ends included."""

    first: int
    last: int


def hash_ranges(topic: Topic) -> tuple[HashRange, ...]:
    """By partition. A topic that was not made as a stream places its own keys; what it shows is its own line of places,
    drawn to this scale."""
    ranges = key_ranges(topic)
    # (A stream that was moved to Kafka has its hash, and no ranges: there they are even.)
    if topic.spec.key_hash == "md5" and topic.ranges:
        return tuple(HashRange(part.low, part.high - 1) for part in ranges)
    line = topic.first_partitions * STRETCH
    return tuple(HashRange(part.low * MD5_PLACES // line, part.high * MD5_PLACES // line - 1) for part in ranges)


class Placing:
    """Finds shards for hashes, of a topic as it is at one moment."""

    def __init__(self, topic: Topic) -> None:
        self.topic = topic
        self.ranges = hash_ranges(topic)
        open_ = sorted((self.ranges[number].first, number) for number in open_partitions(topic))
        self._firsts = [first for first, _ in open_]
        self._numbers = [number for _, number in open_]

    def of_key(self, key: bytes) -> int:
        return self.of_hash(md5_place(key))

    def of_hash(self, place: int) -> int:
        return self._numbers[bisect_right(self._firsts, place) - 1]


def open_partitions(topic: Topic) -> list[int]:
    return [number for number, part in enumerate(key_ranges(topic)) if not part.closed]


def children(topic: Topic, partition: int) -> list[int]:
    return [number for number, part in enumerate(topic.ranges) if partition in part.parents]


def hash_key(text: str) -> int:
    """An explicit one, in decimal."""
    place = int(text) if text.isascii() and text.isdecimal() and len(text) < 40 else MD5_PLACES
    if place >= MD5_PLACES:
        raise ApiError(INVALID, f"`{text[:50]}` is not a hash key: a number below 2**128 is")
    return place


def describe_shard(topic: Topic, number: int, ranges: tuple[HashRange, ...], ends: PartitionEnds) -> dict[str, Any]:
    part = key_ranges(topic)[number]
    numbers = {"StartingSequenceNumber": sequence_number(topic.id, number, 0)}
    if part.closed:
        numbers["EndingSequenceNumber"] = sequence_number(topic.id, number, max(0, ends.end - 1))
    shard: dict[str, Any] = {
        "ShardId": shard_id(number),
        "HashKeyRange": _hash_range_json(ranges[number]),
        "SequenceNumberRange": numbers,
    }
    if part.parents:
        shard["ParentShardId"] = shard_id(part.parents[0])
    if len(part.parents) > 1:
        shard["AdjacentParentShardId"] = shard_id(part.parents[1])
    return shard


def describe_child(topic: Topic, number: int, ranges: tuple[HashRange, ...]) -> dict[str, Any]:
    parents = [shard_id(parent) for parent in topic.parents(number)]
    return {
        "ShardId": shard_id(number),
        "ParentShards": parents,
        "HashKeyRange": _hash_range_json(ranges[number]),
    }


def _hash_range_json(part: HashRange) -> dict[str, str]:
    return {"StartingHashKey": str(part.first), "EndingHashKey": str(part.last)}

"""Shards that are listed, split, merged, and brought to a number."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Literal

import msgspec

from headrace.collect.kinesis.account import Account, OfStream
from headrace.collect.kinesis.errors import INVALID, LIMIT, NOT_FOUND, VALIDATION, ApiError
from headrace.collect.kinesis.numbers import partition_of, shard_id
from headrace.collect.kinesis.shards import children, hash_key, hash_ranges, open_partitions
from headrace.collect.kinesis.streams import describe_shards
from headrace.collect.kinesis.wire import Model
from headrace.log.base import Topic
from headrace.log.writing.reshape import MD5_PLACES, key_ranges
from headrace.structs import ready

MOST_LISTED = 10_000


class ShardFilter(Model, frozen=True, kw_only=True):
    type: Literal[
        "AFTER_SHARD_ID", "AT_TRIM_HORIZON", "FROM_TRIM_HORIZON", "AT_LATEST", "AT_TIMESTAMP", "FROM_TIMESTAMP"
    ]
    shard_id: str | None = None
    timestamp: float | None = None


class ListShards(OfStream, frozen=True, kw_only=True):
    next_token: str | None = None
    exclusive_start_shard_id: str | None = None
    max_results: int = 1000
    shard_filter: ShardFilter | None = None


class SplitShard(OfStream, frozen=True, kw_only=True):
    shard_to_split: str
    new_starting_hash_key: str


class MergeShards(OfStream, frozen=True, kw_only=True):
    shard_to_merge: str
    adjacent_shard_to_merge: str


class UpdateShardCount(OfStream, frozen=True, kw_only=True):
    target_shard_count: int
    scaling_type: Literal["UNIFORM_SCALING"] = "UNIFORM_SCALING"


class _Page(msgspec.Struct, frozen=True, array_like=True):
    stream: str
    after: int
    filter: ShardFilter | None = None


def list_shards(account: Account, request: ListShards) -> dict[str, Any]:
    page = _page(request)
    if not 1 <= request.max_results <= MOST_LISTED:
        raise ApiError(VALIDATION, f"MaxResults is 1 to {MOST_LISTED}")
    topic = account.topic(page.stream)
    numbers = [number for number in _filtered(account, topic, page.filter) if number > page.after]
    shown = numbers[: request.max_results]
    answer: dict[str, Any] = {"Shards": describe_shards(account, topic, shown)}
    if len(numbers) > len(shown):
        answer["NextToken"] = msgspec.json.encode(_Page(page.stream, shown[-1], page.filter)).hex()
    return answer


def _page(request: ListShards) -> _Page:
    if request.next_token is None:
        start = request.exclusive_start_shard_id
        return _Page(request.name, -1 if start is None else partition_of(start), request.shard_filter)
    try:
        return msgspec.json.decode(bytes.fromhex(request.next_token), type=ready(_Page))
    except (ValueError, msgspec.DecodeError):
        raise ApiError("ExpiredNextTokenException", "the NextToken is not one of this server's") from None


def _filtered(account: Account, topic: Topic, wanted: ShardFilter | None) -> list[int]:
    every = list(range(topic.spec.partitions))
    if wanted is None:
        return every
    match wanted.type:
        case "AFTER_SHARD_ID":
            after = partition_of(wanted.shard_id or "")
            return [number for number in every if number > after]
        case "AT_LATEST":
            return open_partitions(topic)
        case "AT_TRIM_HORIZON":
            return [number for number in every if not topic.parents(number)]
        case "FROM_TRIM_HORIZON":
            return every
        case at_or_from:
            if wanted.timestamp is None:
                raise ApiError(VALIDATION, f"{at_or_from} needs a Timestamp")
            return _at(account, topic, int(wanted.timestamp * 1000), at_or_from == "FROM_TIMESTAMP")


def _at(account: Account, topic: Topic, time_ms: int, later_too: bool) -> list[int]:
    """Shards that were open at a time, and with `later_too` those that came after. A shard was open until its children
    were made."""
    born = account.note(topic).born
    found = []
    for number in range(topic.spec.partitions):
        ended = [born.get(child, 0) for child in children(topic, number)]
        open_then = not ended or min(ended) > time_ms
        if open_then and (later_too or born.get(number, 0) <= time_ms):
            found.append(number)
    return found


def split_shard(account: Account, request: SplitShard) -> None:
    topic = _reshapable(account, request)
    number = _existing(account, topic, request.shard_to_split)
    at = hash_key(request.new_starting_hash_key)
    part = hash_ranges(topic)[number]
    if not part.first < at <= part.last:
        raise ApiError(INVALID, f"NewStartingHashKey of {shard_id(number)} is {part.first + 1} to {part.last}")
    _split(account, topic, number, at)


def merge_shards(account: Account, request: MergeShards) -> None:
    topic = _reshapable(account, request)
    one = _existing(account, topic, request.shard_to_merge)
    other = _existing(account, topic, request.adjacent_shard_to_merge)
    _merge(account, topic, one, other)


def _split(account: Account, topic: Topic, number: int, at: int) -> None:
    if len(open_partitions(topic)) >= account.settings.max_shards:
        raise ApiError(LIMIT, f"a stream has at most {account.settings.max_shards} shards: [kinesis] max_shards")
    # A topic that places its own keys has its own line of places: there, halves.
    made = account.log.split_partition(topic.name, number, at if topic.spec.key_hash == "md5" else None)
    _note_born(account, topic, made)


def _merge(account: Account, topic: Topic, one: int, other: int) -> None:
    _note_born(account, topic, (account.log.merge_partitions(topic.name, one, other),))


def _note_born(account: Account, topic: Topic, made: tuple[int, ...]) -> None:
    note = account.note(topic)
    born = note.born | dict.fromkeys(made, account.clock.now_ms())
    account.write_note(topic, msgspec.structs.replace(note, born=born))


def _reshapable(account: Account, request: OfStream) -> Topic:
    if "split" not in account.log.capabilities:
        raise ApiError(INVALID, "this log's partitions cannot be split or merged: Kafka has neither")
    return account.topic(request.name)


def _existing(account: Account, topic: Topic, shard: str) -> int:
    number = partition_of(shard)
    if number >= topic.spec.partitions:
        text = f"Shard {shard} in stream {topic.name} under account {account.settings.account} does not exist"
        raise ApiError(NOT_FOUND, text)
    return number


def update_shard_count(account: Account, request: UpdateShardCount) -> dict[str, Any]:
    """Even parts: shards are split where a new one begins, then what belongs into one is merged."""
    topic, target = _reshapable(account, request), request.target_shard_count
    before = len(open_partitions(topic))
    if target < 1 or topic.spec.key_hash != "md5":
        raise ApiError(INVALID, "TargetShardCount is 1 or more, of a stream made by CreateStream")
    if target > account.settings.max_shards:
        raise ApiError(LIMIT, f"a stream has at most {account.settings.max_shards} shards: [kinesis] max_shards")
    edges = [number * MD5_PLACES // target for number in range(target)]
    for edge in edges[1:]:
        topic = account.topic(topic.name)
        over = [n for n in open_partitions(topic) if key_ranges(topic)[n].low < edge < key_ranges(topic)[n].high]
        for number in over:
            _note_born(account, topic, account.log.split_partition(topic.name, number, edge))
    while pair := _mergeable(account.topic(topic.name), edges):
        _merge(account, account.topic(topic.name), *pair)
    return {
        "StreamName": topic.name,
        "StreamARN": account.arn(topic.name),
        "CurrentShardCount": before,
        "TargetShardCount": target,
    }


def _mergeable(topic: Topic, edges: list[int]) -> tuple[int, int] | None:
    """Two neighbours without an edge between them."""
    ranges = key_ranges(topic)
    ordered = sorted(open_partitions(topic), key=lambda number: ranges[number].low)
    for one, other in pairwise(ordered):
        if ranges[other].low not in edges:
            return one, other
    return None

"""Streams themselves: made, described, listed, deleted, kept for a while, tagged."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec

from headrace.collect.kinesis.account import Account, OfStream, name_in_arn
from headrace.collect.kinesis.errors import INVALID, LIMIT, VALIDATION, ApiError
from headrace.collect.kinesis.notes import StreamNote
from headrace.collect.kinesis.numbers import partition_of
from headrace.collect.kinesis.shards import describe_shard, hash_ranges, open_partitions
from headrace.collect.kinesis.wire import Model, Moment
from headrace.errors import Conflict, NotFound
from headrace.log.base import Topic, TopicConfig, TopicSpec
from headrace.log.schema import is_topic_name

HOUR_MS = 3_600_000
MOST_TAGS = 50
LONGEST_NAME = 128
LEAST_HOURS, MOST_HOURS = 24, 8760
ON_DEMAND_SHARDS = 4


class Mode(Model, frozen=True, kw_only=True):
    stream_mode: str


class CreateStream(Model, frozen=True, kw_only=True):
    stream_name: str
    shard_count: int | None = None
    stream_mode_details: Mode | None = None
    tags: dict[str, str] = {}


class DescribeStream(OfStream, frozen=True, kw_only=True):
    limit: int = 100
    exclusive_start_shard_id: str | None = None


class ListStreams(Model, frozen=True, kw_only=True):
    limit: int = 100
    exclusive_start_stream_name: str = ""
    next_token: str | None = None


class Retention(OfStream, frozen=True, kw_only=True):
    retention_period_hours: int


class UpdateStreamMode(OfStream, frozen=True, kw_only=True):
    stream_mode_details: Mode


def create_stream(account: Account, request: CreateStream) -> None:
    name, settings = request.stream_name, account.settings
    if not is_topic_name(name) or len(name) > LONGEST_NAME or name.startswith("_"):
        raise ApiError(VALIDATION, f"`{name[:130]}` is not a stream's name: letters, digits, `.`, `_` and `-`")
    mode = request.stream_mode_details.stream_mode if request.stream_mode_details else "PROVISIONED"
    shards = request.shard_count or (ON_DEMAND_SHARDS if mode == "ON_DEMAND" else 0)
    if shards < 1:
        raise ApiError(VALIDATION, "ShardCount is 1 or more")
    if shards > settings.max_shards:
        raise ApiError(LIMIT, f"a stream has at most {settings.max_shards} shards: [kinesis] max_shards")
    _check_tags(request.tags)
    _refuse_existing(account, name)
    topic = account.log.create_topic(
        TopicSpec(
            name,
            kind="raw",
            partitions=shards,
            key_hash="md5" if "split" in account.log.capabilities else "murmur2",
            config=TopicConfig(retention_ms=int(settings.retention_hours * HOUR_MS)),
        )
    )
    note = StreamNote(topic_id=topic.id, created_ms=account.clock.now_ms(), tags=request.tags, mode=mode)
    account.write_note(topic, note)


def _refuse_existing(account: Account, name: str) -> None:
    try:
        account.log.topic(name)
    except NotFound:
        return
    raise Conflict(f"Stream {name} under account {account.settings.account} already exists.")


def delete_stream(account: Account, request: OfStream) -> None:
    topic = account.topic(request.name)
    account.check_unused(topic)
    account.log.delete_topic(topic.name)
    account.notes.put(f"stream/{topic.name}", None)


def _described(account: Account, topic: Topic, note: StreamNote) -> dict[str, Any]:
    return {
        "StreamName": topic.name,
        "StreamARN": account.arn(topic.name),
        "StreamStatus": "ACTIVE",
        "StreamModeDetails": {"StreamMode": note.mode},
        "StreamCreationTimestamp": Moment(note.created_ms),
    }


def _details(account: Account, topic: Topic) -> dict[str, Any]:
    return _described(account, topic, account.note(topic)) | {
        "RetentionPeriodHours": retention_hours(topic),
        "EnhancedMonitoring": [{"ShardLevelMetrics": []}],
        "EncryptionType": "NONE",
    }


def describe_stream(account: Account, request: DescribeStream) -> dict[str, Any]:
    topic = account.topic(request.name)
    after = -1 if request.exclusive_start_shard_id is None else partition_of(request.exclusive_start_shard_id)
    limit = _limit(request.limit, 10_000)
    numbers = range(after + 1, min(topic.spec.partitions, after + 1 + limit))
    return {
        "StreamDescription": _details(account, topic)
        | {
            "Shards": describe_shards(account, topic, list(numbers)),
            "HasMoreShards": after + 1 + limit < topic.spec.partitions,
        }
    }


def describe_shards(account: Account, topic: Topic, numbers: list[int]) -> list[dict[str, Any]]:
    ranges, ends = hash_ranges(topic), account.log.snapshot().ends[topic.name]
    return [describe_shard(topic, number, ranges, ends[number]) for number in numbers if number < len(ends)]


def describe_stream_summary(account: Account, request: OfStream) -> dict[str, Any]:
    topic = account.topic(request.name)
    shards = {"OpenShardCount": len(open_partitions(topic)), "ConsumerCount": 0}
    return {"StreamDescriptionSummary": _details(account, topic) | shards}


def list_streams(account: Account, request: ListStreams) -> dict[str, Any]:
    after = request.next_token or request.exclusive_start_stream_name
    topics = [topic for topic in account.log.topics() if not topic.internal and topic.name > after]
    limit = _limit(request.limit, 10_000)
    page = topics[:limit]
    answer: dict[str, Any] = {
        "StreamNames": [topic.name for topic in page],
        "StreamSummaries": [_described(account, topic, account.note(topic)) for topic in page],
        "HasMoreStreams": len(topics) > limit,
    }
    return answer | ({"NextToken": page[-1].name} if len(topics) > limit else {})


def _limit(asked: int, most: int) -> int:
    if not 1 <= asked <= most:
        raise ApiError(VALIDATION, f"a limit is 1 to {most}, got {asked}")
    return asked


# Retention


def retention_hours(topic: Topic) -> int:
    """A topic that keeps everything shows the longest time Kinesis has."""
    return max(1, topic.spec.config.retention_ms // HOUR_MS) if topic.spec.config.retention_ms else MOST_HOURS


def increase_retention(account: Account, request: Retention) -> None:
    _set_retention(account, request, shorter=False)


def decrease_retention(account: Account, request: Retention) -> None:
    _set_retention(account, request, shorter=True)


def _set_retention(account: Account, request: Retention, shorter: bool) -> None:
    topic = account.topic(request.name)
    hours, now = request.retention_period_hours, retention_hours(topic)
    if not LEAST_HOURS <= hours <= MOST_HOURS:
        raise ApiError(INVALID, f"a retention period is {LEAST_HOURS} to {MOST_HOURS} hours, got {hours}")
    if hours > now if shorter else hours < now:
        which = "longer" if shorter else "shorter"
        raise ApiError(INVALID, f"{hours} hours is {which} than the stream's {now}: use the other action")
    config = replace(topic.spec.config, retention_ms=hours * HOUR_MS)
    account.log.alter_topic(replace(topic.spec, config=config))


def update_stream_mode(account: Account, request: UpdateStreamMode) -> None:
    """It is remembered and shown; shards are never scaled by themselves."""
    mode = request.stream_mode_details.stream_mode
    if mode not in ("PROVISIONED", "ON_DEMAND"):
        raise ApiError(VALIDATION, f"`{mode[:40]}` is not a stream's mode")
    topic = account.topic(request.name)
    account.write_note(topic, msgspec.structs.replace(account.note(topic), mode=mode))


# Tags


class AddTags(OfStream, frozen=True, kw_only=True):
    tags: dict[str, str]


class RemoveTags(OfStream, frozen=True, kw_only=True):
    tag_keys: list[str]


class ListTags(OfStream, frozen=True, kw_only=True):
    exclusive_start_tag_key: str = ""
    limit: int = MOST_TAGS


class OfResource(Model, frozen=True, kw_only=True):
    resource_arn: str = msgspec.field(name="ResourceARN")
    tags: dict[str, str] = {}
    tag_keys: list[str] = []


def add_tags(account: Account, request: AddTags) -> None:
    topic = account.topic(request.name)
    note = account.note(topic)
    tags = note.tags | request.tags
    _check_tags(tags)
    account.write_note(topic, msgspec.structs.replace(note, tags=tags))


def _check_tags(tags: dict[str, str]) -> None:
    if len(tags) > MOST_TAGS:
        raise ApiError(INVALID, f"a stream has at most {MOST_TAGS} tags")
    if any(not 0 < len(key) <= 128 or len(value) > 256 for key, value in tags.items()):
        raise ApiError(INVALID, "a tag's key has 1 to 128 characters, its value at most 256")


def remove_tags(account: Account, request: RemoveTags) -> None:
    topic = account.topic(request.name)
    note = account.note(topic)
    tags = {key: value for key, value in note.tags.items() if key not in request.tag_keys}
    account.write_note(topic, msgspec.structs.replace(note, tags=tags))


def list_tags(account: Account, request: ListTags) -> dict[str, Any]:
    tags = sorted(account.note(account.topic(request.name)).tags.items())
    left = [(key, value) for key, value in tags if key > request.exclusive_start_tag_key]
    limit = _limit(request.limit, MOST_TAGS)
    return {
        "Tags": [{"Key": key, "Value": value} for key, value in left[:limit]],
        "HasMoreTags": len(left) > limit,
    }


def list_resource_tags(account: Account, request: OfResource) -> dict[str, Any]:
    tags = account.note(account.topic(name_in_arn(request.resource_arn))).tags
    return {"Tags": [{"Key": key, "Value": value} for key, value in sorted(tags.items())]}


def tag_resource(account: Account, request: OfResource) -> None:
    add_tags(account, AddTags(stream_arn=request.resource_arn, tags=request.tags))


def untag_resource(account: Account, request: OfResource) -> None:
    remove_tags(account, RemoveTags(stream_arn=request.resource_arn, tag_keys=request.tag_keys))

"""The actions by name: who may, what goes in, what does it. `docs/reference/kinesis.md` lists them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from headrace.collect.kinesis import read, reshard, streams
from headrace.collect.kinesis.account import Account, OfStream
from headrace.collect.kinesis.errors import INVALID, ApiError
from headrace.collect.kinesis.put import PutRecord, PutRecords
from headrace.collect.kinesis.shards import open_partitions
from headrace.collect.kinesis.wire import Model

Role = Literal["read", "write", "admin"]


@dataclass(frozen=True, slots=True)
class Action:
    role: Role
    model: type[Any]
    run: Callable[[Any, Any], Any] | None
    """None for those that wait for the log: `put`."""


class Nothing(Model, frozen=True, kw_only=True):
    pass


class OfConsumers(Model, frozen=True, kw_only=True):
    stream_arn: str = msgspec.field(name="StreamARN", default="")


def describe_limits(account: Account, request: Nothing) -> dict[str, Any]:
    topics = [topic for topic in account.log.topics() if not topic.internal]
    return {
        "ShardLimit": account.settings.max_shards,
        "OpenShardCount": sum(len(open_partitions(topic)) for topic in topics),
        "OnDemandStreamCount": sum(account.note(topic).mode == "ON_DEMAND" for topic in topics),
        "OnDemandStreamCountLimit": 1000,
    }


def set_monitoring(account: Account, request: OfStream) -> dict[str, Any]:
    """There are no shard-level metrics to switch on: /metrics has what there is, always."""
    topic = account.topic(request.name)
    none: list[str] = []
    return {
        "StreamName": topic.name,
        "StreamARN": account.arn(topic.name),
        "CurrentShardLevelMetrics": none,
        "DesiredShardLevelMetrics": none,
    }


def refuse_encryption(account: Account, request: OfStream) -> None:
    account.topic(request.name)
    raise ApiError(INVALID, "this server does not encrypt streams: encrypt the disk, or the data before it is sent")


def stop_encryption(account: Account, request: OfStream) -> None:
    """It is not encrypted: that is what was asked for."""
    account.topic(request.name)


def refuse_consumers(account: Account, request: Nothing) -> None:
    raise ApiError(INVALID, "this server has no enhanced fan-out: read with GetRecords, which is not limited here")


def no_consumers(account: Account, request: OfConsumers) -> dict[str, Any]:
    return {"Consumers": []}


ACTIONS: dict[str, Action] = {
    "CreateStream": Action("admin", streams.CreateStream, streams.create_stream),
    "DeleteStream": Action("admin", OfStream, streams.delete_stream),
    "DescribeStream": Action("read", streams.DescribeStream, streams.describe_stream),
    "DescribeStreamSummary": Action("read", OfStream, streams.describe_stream_summary),
    "ListStreams": Action("read", streams.ListStreams, streams.list_streams),
    "ListShards": Action("read", reshard.ListShards, reshard.list_shards),
    "PutRecord": Action("write", PutRecord, None),
    "PutRecords": Action("write", PutRecords, None),
    "GetShardIterator": Action("read", read.GetShardIterator, read.get_shard_iterator),
    "GetRecords": Action("read", read.GetRecords, read.get_records),
    "SplitShard": Action("admin", reshard.SplitShard, reshard.split_shard),
    "MergeShards": Action("admin", reshard.MergeShards, reshard.merge_shards),
    "UpdateShardCount": Action("admin", reshard.UpdateShardCount, reshard.update_shard_count),
    "UpdateStreamMode": Action("admin", streams.UpdateStreamMode, streams.update_stream_mode),
    "IncreaseStreamRetentionPeriod": Action("admin", streams.Retention, streams.increase_retention),
    "DecreaseStreamRetentionPeriod": Action("admin", streams.Retention, streams.decrease_retention),
    "AddTagsToStream": Action("admin", streams.AddTags, streams.add_tags),
    "RemoveTagsFromStream": Action("admin", streams.RemoveTags, streams.remove_tags),
    "ListTagsForStream": Action("read", streams.ListTags, streams.list_tags),
    "ListTagsForResource": Action("read", streams.OfResource, streams.list_resource_tags),
    "TagResource": Action("admin", streams.OfResource, streams.tag_resource),
    "UntagResource": Action("admin", streams.OfResource, streams.untag_resource),
    "DescribeLimits": Action("read", Nothing, describe_limits),
    "EnableEnhancedMonitoring": Action("admin", OfStream, set_monitoring),
    "DisableEnhancedMonitoring": Action("admin", OfStream, set_monitoring),
    "StartStreamEncryption": Action("admin", OfStream, refuse_encryption),
    "StopStreamEncryption": Action("admin", OfStream, stop_encryption),
    "ListStreamConsumers": Action("read", OfConsumers, no_consumers),
    "RegisterStreamConsumer": Action("admin", Nothing, refuse_consumers),
    "DescribeStreamConsumer": Action("read", Nothing, refuse_consumers),
    "DeregisterStreamConsumer": Action("admin", Nothing, refuse_consumers),
    "SubscribeToShard": Action("read", Nothing, refuse_consumers),
}

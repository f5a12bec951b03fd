"""GetShardIterator and GetRecords."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Literal

from headrace.collect.kinesis.account import Account, OfStream
from headrace.collect.kinesis.errors import INVALID, NOT_FOUND, VALIDATION, ApiError
from headrace.collect.kinesis.numbers import Iterator as ShardIterator
from headrace.collect.kinesis.numbers import (
    iterator_text,
    offset_of,
    partition_of,
    read_iterator,
    sequence_number,
)
from headrace.collect.kinesis.shards import children, describe_child, hash_ranges
from headrace.collect.kinesis.wire import Model, Moment
from headrace.errors import NotFound, OffsetOutOfRange
from headrace.log.base import TIME, Log, PartitionEnds, Records, Topic
from headrace.log.codecs.event_json import event_maker, fields_json
from headrace.log.codecs.json_encode import to_json
from headrace.log.writing.reshape import key_ranges

MOST_RECORDS = 10_000
MOST_BYTES = 10 * 1024 * 1024

Row = tuple[int, int, str, bytes]
"""Offset, time, partition key, data."""


class GetShardIterator(OfStream, frozen=True, kw_only=True):
    shard_id: str
    shard_iterator_type: Literal[
        "AT_SEQUENCE_NUMBER", "AFTER_SEQUENCE_NUMBER", "TRIM_HORIZON", "LATEST", "AT_TIMESTAMP"
    ]
    starting_sequence_number: str | None = None
    timestamp: float | None = None


class GetRecords(Model, frozen=True, kw_only=True):
    shard_iterator: str
    limit: int = MOST_RECORDS


def get_shard_iterator(account: Account, request: GetShardIterator) -> dict[str, Any]:
    topic = account.topic(request.name)
    number = partition_of(request.shard_id)
    offset = _start(account, topic, number, request)
    return {"ShardIterator": _iterator(account, topic, number, offset)}


def _iterator(account: Account, topic: Topic, number: int, offset: int) -> str:
    return iterator_text(ShardIterator(topic.name, topic.id, number, offset, account.clock.now_ms()))


def _start(account: Account, topic: Topic, number: int, request: GetShardIterator) -> int:
    ends = shard_ends(account.log, topic, number, account)
    match request.shard_iterator_type:
        case "TRIM_HORIZON":
            return ends.start
        case "LATEST":
            return ends.end
        case "AT_TIMESTAMP":
            if request.timestamp is None:
                raise ApiError(VALIDATION, "AT_TIMESTAMP needs a Timestamp")
            return first_at(account.log, topic, number, int(request.timestamp * 1000), ends)
        case after_or_at:
            if not request.starting_sequence_number:
                raise ApiError(VALIDATION, f"{after_or_at} needs a StartingSequenceNumber")
            offset = offset_of(request.starting_sequence_number, topic.id, number)
            offset += after_or_at == "AFTER_SEQUENCE_NUMBER"
            if offset > ends.end:
                raise ApiError(INVALID, "the sequence number is none that this shard has given")
            return max(offset, ends.start)


def shard_ends(log: Log, topic: Topic, number: int, account: Account) -> PartitionEnds:
    ends = log.snapshot().ends.get(topic.name, ())
    if number >= len(ends):
        raise ApiError(
            NOT_FOUND,
            f"Shard {number} in stream {topic.name} under account {account.settings.account} does not exist",
        )
    return ends[number]


def first_at(log: Log, topic: Topic, number: int, time_ms: int, ends: PartitionEnds) -> int:
    """The first record of that time or later; the end if there is none. The log's index only says about where."""
    offset = max(ends.start, log.offset_at_time(topic.name, number, max(0, time_ms)))
    if offset >= ends.end:
        return ends.end
    for records in log.read(topic.name, number, offset, ends.end, [TIME]):
        times = records.batch.column(0).to_pylist()
        for at, time in zip(records.each_offset(), times, strict=True):
            if time >= time_ms:
                return at
    return ends.end


def get_records(account: Account, request: GetRecords) -> dict[str, Any]:
    if not 1 <= request.limit <= MOST_RECORDS:
        raise ApiError(VALIDATION, f"Limit is 1 to {MOST_RECORDS}, got {request.limit}")
    now = account.clock.now_ms()
    at = read_iterator(request.shard_iterator, now, account.settings.iterator_seconds)
    topic = account.topic(at.topic)
    if topic.id != at.topic_id:
        raise ApiError(NOT_FOUND, f"the iterator is of an earlier stream {at.topic}")
    ends = shard_ends(account.log, topic, at.partition, account)
    # What retention took is gone, as in Kinesis: reading goes on with the oldest there is.
    first = max(at.offset, ends.start)
    found, after = _take(_rows(account.log, topic, at.partition, first, ends.end), request.limit, first, ends.end)
    answer: dict[str, Any] = {
        "Records": [
            {
                "SequenceNumber": sequence_number(topic.id, at.partition, offset),
                "ApproximateArrivalTimestamp": Moment(time),
                "Data": data,
                "PartitionKey": key,
            }
            for offset, time, key, data in found
        ],
        # 0 says that all was read: a reader may stop there.
        "MillisBehindLatest": 0 if after >= ends.end else max(1, now - (found[-1][1] if found else now)),
    }
    if key_ranges(topic)[at.partition].closed and after >= ends.end:
        ranges = hash_ranges(topic)
        answer["ChildShards"] = [describe_child(topic, child, ranges) for child in children(topic, at.partition)]
        answer["NextShardIterator"] = None
    else:
        answer["NextShardIterator"] = _iterator(account, topic, at.partition, after)
    return answer


def _take(rows: Iterable[Row], limit: int, first: int, end: int) -> tuple[list[Row], int]:
    """Up to the limits, at least one; and the offset after them."""
    found: list[Row] = []
    size = 0
    try:
        for row in rows:
            size += len(row[3]) + len(row[2])
            if found and size > MOST_BYTES:
                return found, row[0]
            found.append(row)
            if len(found) >= limit:
                return found, row[0] + 1
    except (OffsetOutOfRange, NotFound):
        # Retention, or a deletion, at this very moment. The next call sees it, and goes on with what is left: nothing
        # that was not read counts as read.
        return found, found[-1][0] + 1 if found else first
    return found, max(first, end)


def _rows(log: Log, topic: Topic, number: int, first: int, end: int) -> Iterator[Row]:
    if first >= end:
        return
    raw = topic.spec.kind == "raw"
    for records in log.read(topic.name, number, first, end, [TIME, "KEY", "VALUE"] if raw else None):
        yield from _raw_rows(records) if raw else _event_rows(records, topic)


def _raw_rows(records: Records) -> Iterator[Row]:
    step = max(1, min(1000, MOST_BYTES * records.batch.num_rows // max(1, records.batch.nbytes)))
    offsets = records.each_offset()
    for start in range(0, records.batch.num_rows, step):
        part = records.batch.slice(start, step)
        times, keys, values = (part.column(name).to_pylist() for name in (TIME, "KEY", "VALUE"))
        for place, (time, key, value) in enumerate(zip(times, keys, values, strict=True)):
            yield offsets[start + place], time, (key or b"").decode(errors="replace"), value or b""


def _event_rows(records: Records, topic: Topic) -> Iterator[Row]:
    """Of a topic with columns: each as the JSON event it was."""
    make = event_maker(topic)
    offsets = records.each_offset()
    for start in range(0, records.batch.num_rows, 500):
        rows = records.batch.slice(start, 500).to_pylist(maps_as_pydicts=None)
        for place, row in enumerate(rows):
            offset = offsets[start + place]
            event = make(row, records.partition, offset)
            yield offset, row[TIME], _key_text(event["key"]), b"" if event["value"] is None else fields_json(event)


def _key_text(key: Any) -> str:
    values = list(key.values()) if isinstance(key, dict) else [] if key is None else [key]
    return "/".join(one if isinstance(one, str) else to_json(one).decode() for one in values if one is not None)

"""PutRecord and PutRecords.

A record of a stream is bytes under its partition key, placed by MD5. All records of one call are one atomic write. Each
gets an event id of the call's `amz-sdk-invocation-id`, which an SDK keeps while it tries again: a retry after a lost
answer finds them there, and gets the numbers they have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import msgspec
import pyarrow as pa

from headrace.collect.base import Outcome, RawEvents, Sent
from headrace.collect.kinesis.account import Account, OfStream
from headrace.collect.kinesis.errors import INTERNAL, INVALID, THROTTLED, VALIDATION, ApiError
from headrace.collect.kinesis.numbers import sequence_number, shard_id
from headrace.collect.kinesis.shards import Placing, hash_key
from headrace.collect.kinesis.wire import Model
from headrace.collect.split import read_one
from headrace.log.base import ID, Append, Appended, Topic
from headrace.log.codecs.json_codec import JsonCodec
from headrace.structs import ready

MAX_KEY = 256
THROTTLED_TEXT = "Rate exceeded for shard {shard} in stream {stream} under account {account}."
LEFT_OUT = "Rate exceeded for stream {stream}: the record was left out, as its collector's [shed] says."

Place = tuple[int, int]


class PutRecord(OfStream, frozen=True, kw_only=True):
    data: bytes
    partition_key: str
    explicit_hash_key: str | None = None


class Entry(Model, frozen=True, kw_only=True):
    data: bytes
    partition_key: str
    explicit_hash_key: str | None = None


class PutRecords(OfStream, frozen=True, kw_only=True):
    records: list[Entry]


@dataclass(frozen=True, slots=True)
class Failed:
    """A record that was not taken."""

    name: str
    message: str


Result = Place | Failed


@dataclass(frozen=True, slots=True)
class Write:
    """One call's records, ready to be appended: the rows of each append, by their number in the call."""

    topic: Topic
    appends: list[Append]
    rows: list[list[int]]
    ids: list[str] | None
    failed: dict[int, Failed]

    def results(self, account: Account, appended: Sequence[Appended]) -> list[Result]:
        """Where each record is. Of records that were there already the index of ids knows it: that waits for the log,
        so not in its own thread."""
        found: dict[int, Result] = dict(self.failed)
        known: list[int] = []
        for rows, answer in zip(self.rows, appended, strict=True):
            duplicates = set(answer.duplicates)
            partition, offset = answer.positions[0][:2] if answer.positions else (0, 0)
            for place, row in enumerate(rows):
                if place in duplicates:
                    known.append(row)
                else:
                    found[row] = (partition, offset)
                    offset += 1
        if known:
            assert self.ids is not None
            ids = self.ids
            places = account.log.places(self.topic.name, [ids[row] for row in known])
            for row, there in zip(known, places, strict=True):
                # Retention may have taken it meanwhile: it was stored once, where is no longer known.
                found[row] = there or Failed(INTERNAL, "the record was stored before, and has expired since")
        return [found[row] for row in range(len(found))]


def check_records(account: Account, entries: Sequence[Entry | PutRecord]) -> None:
    limits = account.settings
    if not 0 < len(entries) <= limits.max_records:
        raise ApiError(VALIDATION, f"a call has 1 to {limits.max_records} records, got {len(entries)}")
    total = 0
    for entry in entries:
        if not 0 < len(entry.partition_key) <= MAX_KEY:
            raise ApiError(VALIDATION, f"a partition key has 1 to {MAX_KEY} characters")
        size = len(entry.data) + len(entry.partition_key)
        if size > limits.max_record_bytes:
            raise ApiError(INVALID, f"a record has at most {limits.max_record_bytes} bytes, got {size}")
        total += size
    if total > limits.max_request_bytes:
        raise ApiError(INVALID, f"the records of a call have at most {limits.max_request_bytes} bytes, got {total}")


def plan_write(account: Account, topic: Topic, entries: Sequence[Entry | PutRecord], invocation: str | None) -> Write:
    """For a topic of bytes, as it is now."""
    placing = Placing(topic)
    rate = account.rate(topic.name)
    by_partition: dict[int, list[int]] = {}
    failed: dict[int, Failed] = {}
    for row, entry in enumerate(entries):
        explicit = entry.explicit_hash_key
        if explicit is None:
            number = placing.of_key(entry.partition_key.encode())
        else:
            number = placing.of_hash(hash_key(explicit))
        if rate is None or account.quota.take((topic.id, number), rate, len(entry.data)):
            by_partition.setdefault(number, []).append(row)
        else:
            failed[row] = Failed(THROTTLED, _throttled(account, topic, number))
    ids = None if invocation is None else [f"{invocation}/{row}" for row in range(len(entries))]
    appends = [Append(topic.name, _batch(entries, rows, ids), number) for number, rows in by_partition.items()]
    return Write(topic, appends, list(by_partition.values()), ids, failed)


def _throttled(account: Account, topic: Topic, number: int) -> str:
    return THROTTLED_TEXT.format(shard=shard_id(number), stream=topic.name, account=account.settings.account)


def _batch(entries: Sequence[Entry | PutRecord], rows: Sequence[int], ids: Sequence[str] | None) -> pa.RecordBatch:
    columns = {
        "KEY": pa.array([entries[row].partition_key.encode() for row in rows], pa.binary()),
        "VALUE": pa.array([entries[row].data for row in rows], pa.binary()),
    }
    if ids is not None:
        columns[ID] = pa.array([ids[row] for row in rows], pa.string())
    return pa.record_batch(columns)


# Topics with columns: records are JSON events, as everywhere else


@dataclass(frozen=True, slots=True)
class Events:
    """One call's records as events of a topic."""

    topic: Topic
    raw: RawEvents
    ids: list[str]

    def results(self, account: Account, outcome: Outcome) -> list[Result]:
        """As `Write.results`. One that does not fit is a dead letter; sending it again would make another. One that was
        left out by the collector's `[shed]` is not stored, and may come again."""
        rejected = {each.index: each for each in outcome.rejected}
        found: dict[int, Result] = {
            row: Failed(INVALID, f"{each.reason}: it is a dead letter, do not send it again")
            for row, each in rejected.items()
        }
        found |= dict.fromkeys(outcome.left_out, Failed(THROTTLED, LEFT_OUT.format(stream=self.topic.name)))
        taken = [row for row in range(len(self.ids)) if row not in found]
        for row, place in zip(taken, self._places(account, outcome, taken), strict=True):
            # One that was there before may have expired meanwhile.
            found[row] = place or Failed(INTERNAL, "the record was stored before, and has expired since")
        return [found[row] for row in range(len(self.ids))]

    def _places(self, account: Account, outcome: Outcome, taken: list[int]) -> Sequence[Place | None]:
        if "event-ids" in account.log.capabilities:
            return account.log.places(self.topic.name, [self.ids[row] for row in taken])
        # Exact where there is one partition; else any of the call's places.
        places = [(number, offset) for number, first, last in outcome.positions for offset in range(first, last + 1)]
        return [places[min(row, len(places) - 1)] if places else None for row in range(len(taken))]


def plan_events(
    account: Account, topic: Topic, data: Sequence[bytes], invocation: str | None, source: str = "kinesis"
) -> Events:
    codec = JsonCodec(topic)
    events = [read_one(one, codec.decoder) for one in data]
    key = invocation or uuid4().hex
    ids = [_own_id(event) or f"{key}/{row}" for row, event in enumerate(events)]
    raw = RawEvents(topic.name, sent=Sent(events, data.__getitem__), idempotency_key=key, source=source, placed=True)
    return Events(topic, raw, ids)


def _own_id(event: Any) -> str | None:
    found = event.get(ID) if isinstance(event, Mapping) else None
    return found if isinstance(found, str) and found else None


# Answers


def put_records_answer(topic: Topic, results: Sequence[Result]) -> dict[str, Any]:
    records = [
        {"ErrorCode": one.name, "ErrorMessage": one.message}
        if isinstance(one, Failed)
        else {"SequenceNumber": sequence_number(topic.id, *one), "ShardId": shard_id(one[0])}
        for one in results
    ]
    return {"FailedRecordCount": sum("ErrorCode" in one for one in records), "Records": records}


def put_record_answer(topic: Topic, results: Sequence[Result]) -> dict[str, Any]:
    [result] = results
    if isinstance(result, Failed):
        raise ApiError(result.name, result.message, 500 if result.name == INTERNAL else 400)
    return {"SequenceNumber": sequence_number(topic.id, *result), "ShardId": shard_id(result[0])}


put_record_decoder = msgspec.json.Decoder(ready(PutRecord))
put_records_decoder = msgspec.json.Decoder(ready(PutRecords))

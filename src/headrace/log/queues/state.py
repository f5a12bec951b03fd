"""What a queue remembers, as records of the compacted topic `_queues`: JSON keys, JSON values, null deletes.

| key | value |
|---|---|
| `["q", NAME]` | the queue's definition |
| `["f", NAME, PARTITION]` | the floor: everything below this offset is settled |
| `["c", NAME, PARTITION, CHUNK]` | of 256 offsets from the floor on, those settled and those delivered |
| `["o", ""]` | where several processes can write: which one delivers |

A chunk's record is rewritten whenever something in it changes, with all it holds, so the newest one is enough. When
the floor has passed a chunk, its record is deleted. Times are wall-clock milliseconds, because only they outlive a
process; see `Lane.restore` for what a clock that jumped can do."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

import msgspec
import pyarrow as pa

from headrace.log.base import TOMBSTONE, Append, Log, TopicConfig, TopicSpec
from headrace.log.queues.base import QueueDefinition
from headrace.structs import ready

QUEUES_TOPIC = "_queues"
QUEUES_SPEC = TopicSpec(QUEUES_TOPIC, kind="raw", config=TopicConfig(compacted=True))
CHUNK = 256
OWNER_KEY: tuple[str | int, ...] = ("o", "")


class Delivered(msgspec.Struct, frozen=True, array_like=True):
    """An unsettled message: how often it was delivered, when it may be again, why it was refused."""

    deliveries: int
    due_ms: int
    reason: str | None = None


class Chunk(msgspec.Struct, frozen=True):
    done: list[tuple[int, int]] = []
    out: dict[int, Delivered] = {}


Key = tuple[str | int, ...]
_chunk = msgspec.json.Decoder(ready(Chunk))


def definition_key(queue: str) -> Key:
    return ("q", queue)


def floor_key(queue: str, partition: int) -> Key:
    return ("f", queue, partition)


def chunk_key(queue: str, partition: int, chunk: int) -> Key:
    return ("c", queue, partition, chunk)


def append_state(entries: Iterable[tuple[Key, Any]]) -> Append:
    """The append that writes these; None deletes."""
    pairs = [
        (msgspec.json.encode(key), None if value is None else msgspec.json.encode(value)) for key, value in entries
    ]
    columns = {
        "KEY": pa.array([key for key, _ in pairs], pa.binary()),
        "VALUE": pa.array([value for _, value in pairs], pa.binary()),
        TOMBSTONE: pa.array([value is None for _, value in pairs], pa.bool_()),
    }
    return Append(QUEUES_TOPIC, pa.record_batch(columns), 0)


def read_state(log: Log) -> dict[Key, bytes]:
    """The newest value of every key of a queue."""
    found: dict[Key, bytes] = {}
    ends = log.snapshot().ends[QUEUES_TOPIC][0]
    for records in log.read(QUEUES_TOPIC, 0, ends.start, ends.end, ["KEY", "VALUE", TOMBSTONE]):
        columns = (records.batch.column(name).to_pylist() for name in ("KEY", "VALUE", TOMBSTONE))
        for key, value, deleted in zip(*columns, strict=True):
            name = tuple(msgspec.json.decode(key))
            if deleted or value is None:
                found.pop(name, None)
            elif name != OWNER_KEY:
                found[name] = value
    return found


def definition_value(definition: QueueDefinition) -> dict[str, Any]:
    return asdict(definition)


def read_definition(value: bytes) -> QueueDefinition:
    return msgspec.json.decode(value, type=ready(QueueDefinition))


def read_chunk(value: bytes) -> Chunk:
    return _chunk.decode(value)

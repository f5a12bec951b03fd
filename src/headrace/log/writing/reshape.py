"""Splitting and merging partitions: who takes which keys from now on. What was written stays where it is.

Keys have a place on a line, `(hash % n) * 2**31 + hash`, where n is the number of partitions the topic was made with;
partition p begins with the p-th stretch of 2**31. So a topic that nobody split places keys as Kafka does. With the hash
`md5` the line is that of its 2**128 values, in even parts at first, as Kinesis has it.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import replace
from hashlib import md5
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from headrace.errors import NotFound, UsageError
from headrace.log.base import KeyRange, Topic, TopicSpec
from headrace.log.codecs.keys import KeyColumns
from headrace.log.schema import MAX_PARTITIONS, RAW_KEY
from headrace.log.writing.partitioning import Partitions, hash_rows

STRETCH = 1 << 31
MD5_PLACES = 1 << 128
Numbers: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"


def key_ranges(topic: Topic) -> tuple[KeyRange, ...]:
    if topic.ranges:
        return topic.ranges
    return tuple(KeyRange(number * STRETCH, (number + 1) * STRETCH) for number in range(topic.spec.partitions))


def first_ranges(spec: TopicSpec) -> tuple[KeyRange, ...]:
    """What a new topic begins with."""
    if spec.key_hash != "md5":
        return ()
    edges = [number * MD5_PLACES // spec.partitions for number in range(spec.partitions + 1)]
    return tuple(KeyRange(low, high) for low, high in pairwise(edges))


def md5_place(key: bytes) -> int:
    """
    >>> md5_place(b"a") == int("0cc175b9c0f1b6a831c399e269772661", 16)
    True
    """
    return int.from_bytes(md5(key, usedforsecurity=False).digest())


def split(topic: Topic, number: int, at: int | None = None) -> Topic:
    """The topic with two partitions more, for the halves of one that is closed, or what is before `at` and the rest."""
    parent = _open(topic, number)
    middle = (parent.low + parent.high) // 2 if at is None else at
    if not parent.low <= middle < parent.high or at == parent.low:
        raise UsageError(
            f"partition {number} of topic `{topic.name}` cannot be split at {at}",
            hint=f"it is for {parent.low + 1} to {parent.high - 1}",
        )
    if middle == parent.low:
        raise UsageError(f"partition {number} of topic `{topic.name}` is for a single hash: it cannot be split")
    halves = (KeyRange(parent.low, middle, (number,)), KeyRange(middle, parent.high, (number,)))
    return _reshaped(topic, (number,), halves)


def merge(topic: Topic, one: int, other: int) -> Topic:
    """The topic with one partition more, for two that are closed."""
    first, second = sorted((_open(topic, one), _open(topic, other)), key=lambda part: part.low)
    if one == other or first.high != second.low:
        raise UsageError(
            f"partitions {one} and {other} of topic `{topic.name}` are not neighbours",
            hint=f"neighbours of {one}: " + (", ".join(map(str, _neighbours(topic, one))) or "none"),
        )
    return _reshaped(topic, (one, other), (KeyRange(first.low, second.high, tuple(sorted((one, other)))),))


def _open(topic: Topic, number: int) -> KeyRange:
    if not 0 <= number < topic.spec.partitions:
        raise NotFound(f"topic `{topic.name}` has no partition {number}", hint=f"0 to {topic.spec.partitions - 1}")
    found = key_ranges(topic)[number]
    if found.closed:
        raise closed_partition(topic, number)
    return found


def closed_partition(topic: Topic, number: int) -> UsageError:
    children = [str(child) for child, part in enumerate(topic.ranges) if number in part.parents]
    return UsageError(
        f"partition {number} of topic `{topic.name}` is closed", hint="its keys went to " + ", ".join(children)
    )


def _neighbours(topic: Topic, number: int) -> list[int]:
    ranges = key_ranges(topic)
    ours = ranges[number]
    return [
        other
        for other, part in enumerate(ranges)
        if not part.closed and (part.high == ours.low or part.low == ours.high)
    ]


def _reshaped(topic: Topic, parents: tuple[int, ...], added: tuple[KeyRange, ...]) -> Topic:
    count = topic.spec.partitions + len(added)
    if count > MAX_PARTITIONS:
        raise UsageError(f"topic `{topic.name}` cannot have {count} partitions", hint=f"at most {MAX_PARTITIONS}")
    ranges = [
        replace(part, closed=True) if number in parents else part for number, part in enumerate(key_ranges(topic))
    ]
    return replace(topic, spec=replace(topic.spec, partitions=count), ranges=(*ranges, *added))


class Layout:
    """Finds the partitions of keys in a topic that was split or merged."""

    def __init__(self, topic: Topic, key_columns: KeyColumns) -> None:
        self._first = topic.first_partitions
        self._has_key = bool(topic.spec.key)
        self._key_columns = key_columns
        open_ = sorted((part.low, number) for number, part in enumerate(topic.ranges) if not part.closed)
        self._by_md5 = topic.spec.key_hash == "md5"
        self._places = [low for low, _ in open_]
        self._lows = np.array([] if self._by_md5 else self._places, np.int64)
        self._numbers = np.array([number for _, number in open_], np.int64)

    @property
    def size(self) -> int:
        """How many partitions are open."""
        return len(self._numbers)

    def choose(self, batch: pa.RecordBatch, turn: int) -> Partitions:
        """For each row; rows without a key go to the open partitions in turn."""
        rows = batch.num_rows
        in_turn: Numbers = self._numbers[(turn + np.arange(rows)) % len(self._numbers)]
        if not self._has_key or not rows:
            return in_turn
        if self._by_md5:
            return self._choose_by_md5(batch.column(RAW_KEY.name).to_pylist(), in_turn)
        hashes, present = hash_rows(*self._key_columns.of(batch))
        masked = (hashes & np.uint32(0x7FFFFFFF)).astype(np.int64)
        places = (masked % self._first) * STRETCH + masked
        by_key: Numbers = self._numbers[np.searchsorted(self._lows, places, side="right") - 1]
        return by_key if present is None else np.where(present, by_key, in_turn)

    def _choose_by_md5(self, keys: list[bytes | None], in_turn: Numbers) -> Numbers:
        numbers = self._numbers.tolist()
        chosen = [
            other if key is None else numbers[self._index(md5_place(key))]
            for key, other in zip(keys, in_turn.tolist(), strict=True)
        ]
        return np.array(chosen, np.int64)

    def _index(self, place: int) -> int:
        return bisect_right(self._places, place) - 1

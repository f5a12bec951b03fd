"""Names of places: sequence numbers, shard ids, iterators. Each can be read back."""

from __future__ import annotations

import base64
import binascii
import re

import msgspec

from headrace.collect.kinesis.errors import EXPIRED, INVALID, ApiError
from headrace.structs import ready

# As wide as Kinesis's own, which have 56 digits and begin with 49: some clients count on it.
_FIRST_BIT = 1 << 185
_TOPIC, _PARTITION = 120, 72
_SHARD = re.compile(r"(?:shardId-)?([0-9]{1,12})", re.ASCII)
_NUMBER = re.compile(r"[1-9][0-9]{0,128}", re.ASCII)


def sequence_number(topic_id: int, partition: int, offset: int) -> str:
    """Grows within a shard, and from a shard to its children.

    >>> sequence_number(3, 1, 7)
    '49039857307708443471454788856164646216877555960361517063'
    """
    return str(_FIRST_BIT | topic_id << _TOPIC | partition << _PARTITION | offset)


def offset_of(text: str, topic_id: int, partition: int) -> int:
    """The offset in a sequence number of this shard."""
    number = int(text) if _NUMBER.fullmatch(text) else 0
    if number >> 185 != 1 or (number ^ _FIRST_BIT) >> _TOPIC != topic_id:
        raise ApiError(INVALID, f"`{text[:130]}` is not a sequence number of this stream")
    if (number >> _PARTITION) & ((1 << (_TOPIC - _PARTITION)) - 1) != partition:
        raise ApiError(INVALID, f"`{text[:130]}` is a sequence number of another shard")
    return number & ((1 << _PARTITION) - 1)


def shard_id(partition: int) -> str:
    """
    >>> shard_id(3)
    'shardId-000000000003'
    """
    return f"shardId-{partition:012}"


def partition_of(shard: str) -> int:
    found = _SHARD.fullmatch(shard)
    if found is None:
        raise ApiError(INVALID, f"`{shard[:130]}` is not a shard id")
    return int(found[1])


class Iterator(msgspec.Struct, frozen=True, array_like=True):
    """Where to read next."""

    topic: str
    topic_id: int
    partition: int
    offset: int
    made_ms: int


def iterator_text(iterator: Iterator) -> str:
    return base64.b64encode(msgspec.msgpack.encode(iterator)).decode()


def read_iterator(text: str, now_ms: int, seconds: float) -> Iterator:
    try:
        found = msgspec.msgpack.decode(base64.b64decode(text, validate=True), type=ready(Iterator))
    except (binascii.Error, ValueError, msgspec.DecodeError):
        raise ApiError(INVALID, "the shard iterator is not one of this server's") from None
    if now_ms - found.made_ms > seconds * 1000:
        raise ApiError(EXPIRED, f"the iterator is older than {seconds:g} seconds: ask for another")
    return found

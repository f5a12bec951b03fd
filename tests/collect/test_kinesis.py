"""Kinesis's names, bodies, rates and signatures, without a server."""

from __future__ import annotations

import time
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, cast

import cbor2
import msgspec
import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from hypothesis import given
from hypothesis import strategies as st

from headrace.access.keys import read_keys
from headrace.clock import ManualClock, SystemClock
from headrace.collect.kinesis.account import Account
from headrace.collect.kinesis.errors import ApiError
from headrace.collect.kinesis.numbers import (
    Iterator,
    iterator_text,
    offset_of,
    partition_of,
    read_iterator,
    sequence_number,
    shard_id,
)
from headrace.collect.kinesis.put import PutRecords
from headrace.collect.kinesis.quota import Quota, Rate
from headrace.collect.kinesis.read import GetRecords, get_records
from headrace.collect.kinesis.shards import Placing, hash_ranges
from headrace.collect.kinesis.signature import Signed, verify
from headrace.collect.kinesis.wire import Moment, decode, encode
from headrace.config import Key, KinesisSettings
from headrace.log.base import Log, SchemaVersion, Topic, TopicSpec
from headrace.log.writing.reshape import MD5_PLACES, first_ranges, merge, split
from tests.log.support import open_owner, put

places = st.tuples(st.integers(0, 1 << 40), st.integers(0, 16383), st.integers(0, 1 << 60))


@given(places, places)
def test_sequence_numbers_can_be_read_back_and_grow(one: tuple[int, int, int], other: tuple[int, int, int]) -> None:
    number = sequence_number(*one)
    assert offset_of(number, one[0], one[1]) == one[2]
    assert len(number) == 56
    if one[0] == other[0]:
        assert (int(number) < int(sequence_number(*other))) == (one[1:] < other[1:])


@given(st.text(max_size=140))
def test_what_is_no_number_is_an_error_of_the_client(text: str) -> None:
    for read in (lambda: offset_of(text, 3, 0), lambda: partition_of(text), lambda: read_iterator(text, 0, 300)):
        with suppress(ApiError):
            assert isinstance(read(), int | Iterator)


@given(places, st.text(max_size=20))
def test_iterators_can_be_read_back_until_they_expire(place: tuple[int, int, int], name: str) -> None:
    iterator = Iterator(name, *place, made_ms=1_000_000)
    assert read_iterator(iterator_text(iterator), 1_000_000 + 300_000, 300) == iterator
    with pytest.raises(ApiError) as raised:
        read_iterator(iterator_text(iterator), 1_000_000 + 300_001, 300)
    assert raised.value.name == "ExpiredIteratorException"


def test_shard_ids_can_be_read_back() -> None:
    assert [partition_of(shard_id(number)) for number in (0, 7, 16383)] == [0, 7, 16383]


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 1 << 30), st.integers(0, MD5_PLACES - 1)), max_size=12))
def test_open_shards_always_cover_every_hash_once(steps: list[tuple[bool, int, int]]) -> None:
    spec = TopicSpec("s", kind="raw", partitions=3, key_hash="md5")
    topic = Topic(1, spec, (SchemaVersion(1, (), ()),), first_ranges(spec))
    for is_split, choice, place in steps:
        ordered = sorted((part.low, number) for number, part in enumerate(topic.ranges) if not part.closed)
        if is_split:
            number = Placing(topic).of_hash(place)
            if place != topic.ranges[number].low:
                topic = split(topic, number, place)
        elif len(ordered) > 1:
            at = choice % (len(ordered) - 1)
            topic = merge(topic, ordered[at][1], ordered[at + 1][1])
    placing, ranges = Placing(topic), hash_ranges(topic)
    for place in [0, MD5_PLACES - 1, *(place for *_, place in steps)]:
        number = placing.of_hash(place)
        assert ranges[number].first <= place <= ranges[number].last
        assert not topic.ranges[number].closed


RECORDS = st.lists(st.tuples(st.binary(max_size=50), st.text(max_size=10)), max_size=5)


@given(RECORDS)
def test_both_encodings_say_the_same(records: list[tuple[bytes, str]]) -> None:
    body = {"StreamName": "s", "Records": [{"Data": data, "PartitionKey": key} for data, key in records]}
    as_json = decode(encode(body, False), False, PutRecords)
    assert as_json == decode(encode(body, True), True, PutRecords)
    assert [(one.data, one.partition_key) for one in as_json.records] == records


def test_a_moment_is_seconds_in_json_and_milliseconds_in_cbor() -> None:
    assert encode({"T": Moment(1500)}, False) == b'{"T":1.5}'
    assert encode({"T": Moment(1500)}, True) == cbor2.dumps({"T": cbor2.CBORTag(1, 1500)})


@given(st.binary(max_size=200), st.booleans())
def test_any_body_is_read_or_refused(body: bytes, cbor: bool) -> None:
    with suppress(ApiError):
        assert isinstance(decode(body, cbor, PutRecords), PutRecords)


def test_a_rate_lets_through_what_it_says() -> None:
    clock = ManualClock()
    quota, rate, shard = Quota(clock), Rate(records=10, bytes=1000), (1, 0)
    assert [quota.take(shard, rate, 1) for _ in range(12)] == [True] * 10 + [False] * 2
    assert quota.take((1, 1), rate, 5000), "a record larger than a second's bytes passes alone"
    assert not quota.take((1, 1), rate, 1)
    clock.advance(500)
    assert [quota.take(shard, rate, 1) for _ in range(6)] == [True] * 5 + [False]


KEYS = read_keys([Key("secret-0123456789", "write", "writer"), Key("other-0123456789", "admin")], Path()).keys


def signed(body: bytes, headers: dict[str, str], now_ms: int, key: str, secret: str) -> dict[str, str]:
    request = AWSRequest("POST", "http://127.0.0.1:8080/", headers=headers, data=body)
    SigV4Auth(Credentials(key, secret), "kinesis", "us-east-1").add_auth(request)
    return {name.lower(): value for name, value in request.headers.items()} | {"host": "127.0.0.1:8080"}


def check(headers: dict[str, str], body: bytes, now_ms: int) -> Any:
    return verify(Signed("POST", "/", (), headers, body), KEYS, now_ms)


@given(st.binary(max_size=100), st.text("abc xyz", max_size=20))
def test_signatures_of_the_real_signer_hold_and_changed_requests_do_not(body: bytes, value: str) -> None:
    now_ms = int(time.time() * 1000)
    headers = signed(body, {"x-amz-target": "T", "x-extra": value}, now_ms, "writer", "secret-0123456789")
    assert check(headers, body, now_ms).name == "writer"
    for wrong_headers, wrong_body, at in (
        (headers, body + b"x", now_ms),
        (headers | {"x-amz-target": "U"}, body, now_ms),
        (headers | {"host": "elsewhere"}, body, now_ms),
        (headers, body, now_ms + 16 * 60 * 1000),
        (headers | {"authorization": "AWS4-HMAC-SHA256 Credential=writer"}, body, now_ms),
    ):
        with pytest.raises(ApiError):
            check(wrong_headers, wrong_body, at)
    with pytest.raises(ApiError):
        check(signed(body, {}, now_ms, "writer", "other-0123456789"), body, now_ms)


def test_models_pass_over_what_newer_clients_send() -> None:
    body = msgspec.json.encode({"StreamName": "s", "Records": [], "StreamId": "new"})
    assert decode(body, False, PutRecords).name == "s"


def test_a_stream_without_ranges_of_its_own_has_even_ones() -> None:
    """As on Kafka, where nothing is split."""
    topic = Topic(1, TopicSpec("s", kind="raw", partitions=4, key_hash="md5"), (SchemaVersion(1, (), ()),))
    assert [part.first for part in hash_ranges(topic)] == [number * MD5_PLACES // 4 for number in range(4)]
    assert Placing(topic).of_hash(MD5_PLACES - 1) == 3


class Overtaking:
    """A log whose retention strikes once, after a reader has looked where its beginning is."""

    def __init__(self, log: Log, before: int) -> None:
        self._log, self._before = log, before

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def read(self, topic: str, partition: int, *more: Any) -> Any:
        self._log.delete_records(topic, partition, self._before)
        return self._log.read(topic, partition, *more)


def test_retention_at_the_moment_of_reading_takes_only_what_it_took(tmp_path: Path) -> None:
    """What is left is read by the next call: nothing that is still there is passed over."""
    with closing(open_owner(tmp_path / "log")) as log:
        topic = log.create_topic(TopicSpec("kept", kind="raw"))
        for n in range(4):
            put(log, "kept", KEY=[b"k"], VALUE=[b"%d" % n])
        others = cast(Any, None)

        def read(log: Any, at: str) -> tuple[list[bytes], int, str]:
            account = Account(log, SystemClock(), others, others, KinesisSettings(), others, others, others)
            page = get_records(account, GetRecords(shard_iterator=at))
            return [one["Data"] for one in page["Records"]], page["MillisBehindLatest"], page["NextShardIterator"]

        first = iterator_text(Iterator("kept", topic.id, 0, 0, SystemClock().now_ms()))
        found, behind, after = read(Overtaking(log, 2), first)
        assert found == []
        assert behind > 0
        found, behind, _ = read(log, after)
        assert (found, behind) == ([b"2", b"3"], 0)

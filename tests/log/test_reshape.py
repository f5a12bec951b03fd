"""Splitting and merging partitions: what was written stays readable, keys keep their order, readers find the new."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import NotFound, UsageError
from headrace.log.base import Append, KeyRange, Log, Route, SchemaVersion, Topic, TopicConfig, TopicSpec
from headrace.log.codecs.keys import KeyColumns
from headrace.log.local import LocalClient, LocalLog
from headrace.log.writing.partitioning import murmur2
from headrace.log.writing.reshape import MD5_PLACES, STRETCH, Layout, key_ranges, md5_place, merge, split
from tests.log.support import DERIVED, PLAIN, VIEWS, batch, manual_clock, numbers, open_owner, put, rows

USERS = [f"user {n}" for n in range(40)]


@pytest.fixture(params=["local-owner", "local-client"])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Log]:
    owner = open_owner(tmp_path / "log", serve=True)
    made: Log = owner if request.param == "local-owner" else LocalClient(tmp_path / "log")
    yield made
    made.close()
    owner.close()


def write(log: Log, first: int, count: int) -> None:
    for n in range(first, first + count):
        put(log, "pageviews", USERID=USERS, N=[n] * len(USERS))


def by_user(found: list[dict[str, Any]]) -> dict[str, list[int]]:
    """What each key's reader sees, reading partitions in the order of arrival."""
    seen: dict[str, list[int]] = {}
    for row in sorted(found, key=lambda row: row["$arrival"]):
        seen.setdefault(row["USERID"], []).append(row["N"])
    return seen


def test_a_split_partition_stays_readable_and_its_children_follow(log: Log) -> None:
    log.create_topic(VIEWS)
    write(log, 0, 3)
    before = log.snapshot().ends["pageviews"]
    assert log.split_partition("pageviews", 0) == (2, 3)
    write(log, 3, 3)
    ends = log.snapshot().ends["pageviews"]
    assert ends[0] == before[0]
    assert [end.end > 0 for end in ends] == [True] * 4
    found = rows(log, "pageviews")
    assert by_user(found) == {user: list(range(6)) for user in USERS}
    for row in found:
        place = murmur2(row["USERID"].encode()) & 0x7FFFFFFF
        if row["N"] < 3 or place % 2:
            assert row["partition"] == place % 2
        else:
            assert row["partition"] == (2 if place < STRETCH // 2 else 3)
    topic = log.topic("pageviews")
    assert topic.ranges[0] == KeyRange(0, STRETCH, (), closed=True)
    assert (topic.parents(3), topic.first_partitions, topic.spec.partitions) == ((0,), 2, 4)


def test_neighbours_are_merged(log: Log) -> None:
    log.create_topic(VIEWS)
    write(log, 0, 2)
    log.split_partition("pageviews", 0)
    write(log, 2, 2)
    with pytest.raises(UsageError, match="not neighbours") as raised:
        log.merge_partitions("pageviews", 1, 2)
    assert raised.value.hint == "neighbours of 1: 3"
    assert log.merge_partitions("pageviews", 3, 1) == 4
    assert log.merge_partitions("pageviews", 4, 2) == 5
    write(log, 4, 2)
    found = rows(log, "pageviews")
    assert by_user(found) == {user: list(range(6)) for user in USERS}
    assert {row["partition"] for row in found if row["N"] >= 4} == {5}
    assert log.topic("pageviews").ranges[5] == KeyRange(0, 2 * STRETCH, (2, 4))


def test_a_closed_partition_takes_nothing(log: Log) -> None:
    log.create_topic(VIEWS)
    log.split_partition("pageviews", 1)
    for use in (
        lambda: put(log, "pageviews", 1, USERID=["a"], N=[1]),
        lambda: log.split_partition("pageviews", 1),
        lambda: log.merge_partitions("pageviews", 0, 1),
    ):
        with pytest.raises(UsageError, match="partition 1 of topic `pageviews` is closed") as raised:
            use()
        assert raised.value.hint == "its keys went to 2, 3"
    put(log, "pageviews", 2, USERID=["a"], N=[1])
    for number in (-1, 9):
        with pytest.raises(NotFound):
            log.split_partition("pageviews", number)


def test_records_without_a_key_go_to_open_partitions_in_turn(log: Log) -> None:
    log.create_topic(replace(PLAIN, partitions=2))
    log.split_partition("plain", 0)
    for n in range(9):
        put(log, "plain", N=[n])
    put(log, "plain", N=list(range(9, 18)))
    assert [len(numbers(log, partition=number)) for number in range(4)] == [0, 6, 6, 6]


def test_the_same_definition_is_still_the_same_topic(log: Log) -> None:
    log.create_topic(VIEWS)
    log.split_partition("pageviews", 0)
    assert log.create_topic(VIEWS).spec.partitions == 4
    assert log.alter_topic(replace(VIEWS, config=TopicConfig(retention_ms=5))).spec.partitions == 4
    assert log.topic("pageviews").ranges[0].closed


def test_it_is_all_there_after_opening_again(tmp_path: Path) -> None:
    log = open_owner(tmp_path / "log")
    log.create_topic(VIEWS)
    write(log, 0, 2)
    log.split_partition("pageviews", 0)
    write(log, 2, 2)
    topic, found = log.topic("pageviews"), rows(log, "pageviews")
    log.close()
    log = open_owner(tmp_path / "log")
    assert (log.topic("pageviews"), rows(log, "pageviews")) == (topic, found)
    write(log, 4, 1)
    assert by_user(rows(log, "pageviews")) == {user: list(range(5)) for user in USERS}
    log.close()


def test_what_was_staged_before_is_placed_again(tmp_path: Path) -> None:
    log = open_owner(tmp_path / "log")
    log.create_topic(replace(DERIVED, partitions=2))
    rows_ = batch(K=USERS, N=[1] * len(USERS))
    log.stage("t", 0, 0, [Route("counts", {"K": "K", "N": "N"})], iter([rows_]))
    log.split_partition("counts", 0)
    log.commit("t", [(0, 0)])
    assert {row["partition"] for row in rows(log, "counts")} == {1, 2, 3}
    log.close()


def test_writers_go_on_while_partitions_are_split_and_merged(tmp_path: Path) -> None:
    log = open_owner(tmp_path / "log", linger_ms=1.0)
    log.create_topic(VIEWS)
    done = threading.Event()

    def writer() -> None:
        for n in range(60):
            log.append([Append("pageviews", batch(USERID=USERS, N=[n] * len(USERS)))])
        log.append([Append("pageviews", batch(USERID=USERS, N=[60] * len(USERS)))]).result(60)
        done.set()

    thread = threading.Thread(target=writer)
    thread.start()
    log.split_partition("pageviews", 0)
    log.split_partition("pageviews", 1)
    log.merge_partitions("pageviews", 3, 4)
    thread.join(60)
    assert done.is_set()
    found = rows(log, "pageviews")
    assert by_user(found) == {user: list(range(61)) for user in USERS}
    for number, part in enumerate(log.topic("pageviews").ranges):
        # Whoever reads parents before children reads every key in order.
        for parent in part.parents:
            last = max((row["$arrival"] for row in found if row["partition"] == parent), default=-1)
            assert all(row["$arrival"] > last for row in found if row["partition"] == number)
    log.close()


@pytest.mark.parametrize("group", [None, "g"])
def test_consumers_read_parents_to_their_end_first(log: Log, group: str | None) -> None:
    log.create_topic(VIEWS)
    write(log, 0, 2)
    with log.consumer("pageviews", group) as consumer:
        seen = drain(consumer, 40)
        log.split_partition("pageviews", 0)
        write(log, 2, 2)
        log.merge_partitions("pageviews", 2, 3)
        write(log, 4, 2)
        seen += drain(consumer, 240 - len(seen))
    order: dict[str, list[int]] = {}
    for user, n in seen:
        order.setdefault(user, []).append(n)
    assert order == {user: list(range(6)) for user in USERS}


def drain(consumer: Any, least: int) -> list[tuple[str, int]]:
    """In small polls, so that partitions come in turn."""
    seen: list[tuple[str, int]] = []
    for _ in range(200):
        for records in consumer.poll(0.2, max_records=7):
            columns = records.batch.to_pydict()
            seen += zip(columns["USERID"], columns["N"], strict=True)
        if len(seen) >= least:
            return seen
    raise AssertionError(f"only {len(seen)} records came")


def test_a_deletion_is_kept_while_its_parent_may_hold_the_value(tmp_path: Path) -> None:
    clock = manual_clock()
    log = open_owner(tmp_path / "log", clock, segment_seconds=10)
    log.create_topic(replace(DERIVED, config=TopicConfig(compacted=True, tombstone_ms=0)))
    put(log, "counts", K=["a", "b"], N=[1, 2])
    log.split_partition("counts", 0)
    put(log, "counts", K=["a", "b"], tombstone_=[True, True])
    for _ in range(3):
        clock.advance(20_000)
        log.maintain()
    assert [(row["K"], row["$tombstone"]) for row in rows(log, "counts") if row["partition"]] == [
        (row["K"], True) for row in rows(log, "counts") if row["partition"]
    ]
    assert len(rows(log, "counts")) == 4
    log.close()


@settings(deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 40), st.integers(0, 40)), max_size=12), st.integers(1, 4))
def test_open_partitions_share_the_whole_line(steps: list[tuple[bool, int, int]], partitions: int) -> None:
    topic = Topic(1, replace(VIEWS, partitions=partitions), (SchemaVersion(1, VIEWS.key, VIEWS.value),))
    for splits, one, other in steps:
        open_ = [number for number, part in enumerate(key_ranges(topic)) if not part.closed]
        by_place = sorted(open_, key=lambda number: key_ranges(topic)[number].low)
        if splits or len(by_place) < 2:
            topic = split(topic, open_[one % len(open_)])
        else:
            place = other % (len(by_place) - 1)
            topic = merge(topic, by_place[place], by_place[place + 1])
    ranges = sorted((part.low, part.high) for part in key_ranges(topic) if not part.closed)
    assert (ranges[0][0], ranges[-1][1]) == (0, partitions * STRETCH)
    assert [high for _, high in ranges[:-1]] == [low for low, _ in ranges[1:]]
    if topic.ranges:
        chosen = Layout(topic, KeyColumns(topic.spec)).choose(batch(USERID=USERS), 0)
        for user, number in zip(USERS, chosen, strict=True):  # type: ignore[arg-type]
            hashed = murmur2(user.encode()) & 0x7FFFFFFF
            place = (hashed % partitions) * STRETCH + hashed
            assert topic.ranges[number].low <= place < topic.ranges[number].high


def test_internal_topics_are_not_split(tmp_path: Path) -> None:
    log: LocalLog = open_owner(tmp_path / "log")
    log.create_topic(replace(PLAIN, name="_own"))
    with pytest.raises(UsageError):
        log.split_partition("_own", 0)
    log.close()


def test_a_topic_placed_by_md5_is_split_where_one_says(log: Log, tmp_path: Path) -> None:
    spec = TopicSpec("bytes", kind="raw", partitions=3, key_hash="md5")
    made = log.create_topic(spec)
    assert [part.low for part in made.ranges] == [0, MD5_PLACES // 3, 2 * MD5_PLACES // 3]
    at = MD5_PLACES // 3 + 12345
    assert log.split_partition("bytes", 1, at) == (3, 4)
    with pytest.raises(UsageError, match="cannot be split at"):
        log.split_partition("bytes", 4, at)
    keys = [user.encode() for user in USERS]
    put(log, "bytes", KEY=keys, VALUE=keys)
    ranges = log.topic("bytes").ranges
    assert (ranges[3].high, ranges[4].low) == (at, at)
    assert log.create_topic(spec) == log.topic("bytes")
    found = [(n, row["KEY"]) for n in range(5) for r in log.read("bytes", n, 0) for row in r.batch.to_pylist()]
    assert sorted(key for _, key in found) == sorted(keys)
    assert all(ranges[number].low <= md5_place(key) < ranges[number].high for number, key in found)


def test_only_raw_topics_are_placed_by_md5(log: Log) -> None:
    with pytest.raises(UsageError, match="md5"):
        log.create_topic(replace(VIEWS, key_hash="md5"))


def test_events_are_found_by_their_ids(log: Log) -> None:
    log.create_topic(TopicSpec("bytes", kind="raw", partitions=2, key_hash="md5"))
    columns: dict[str, Any] = {"KEY": [b"a", b"b", b"c"], "VALUE": [b"1", b"2", b"3"], "$id": ["x", "y", None]}
    put(log, "bytes", **columns)
    places = log.places("bytes", ["y", "nobody", "x"])
    assert places[1] is None
    for place, value in ((places[0], b"2"), (places[2], b"1")):
        assert place is not None
        [records] = log.read("bytes", place[0], place[1], place[1] + 1)
        assert records.batch.column("VALUE").to_pylist() == [value]

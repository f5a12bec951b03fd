"""Topics: made, altered, deleted, found by name."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from headrace.errors import Conflict, NotFound, UsageError
from headrace.log.base import Log, TopicConfig, TopicSpec
from headrace.types import BIGINT, BYTES, VARCHAR, Column
from tests.contracts.logs import Place
from tests.log.support import PLAIN, VIEWS, numbers, put, rows


def test_a_topic_is_found_by_its_name(log: Log) -> None:
    made = log.create_topic(VIEWS)
    assert (log.topic("pageviews"), made.spec, made.schemas[0].version) == (made, VIEWS, 1)


def test_topics_are_listed_by_name_internal_ones_too(log: Log) -> None:
    for spec in (VIEWS, replace(PLAIN, name="_catalog"), PLAIN):
        log.create_topic(spec)
    assert [(topic.name, topic.internal) for topic in log.topics()] == [
        ("_catalog", True),
        ("pageviews", False),
        ("plain", False),
    ]


def test_making_the_same_topic_again_changes_nothing(log: Log) -> None:
    assert log.create_topic(VIEWS) == log.create_topic(VIEWS)


def test_a_name_that_is_taken_is_a_conflict(log: Log) -> None:
    log.create_topic(VIEWS)
    with pytest.raises(Conflict, match="pageviews"):
        log.create_topic(replace(VIEWS, partitions=3))


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "x" * 250])
def test_what_is_no_topic_name_is_refused(log: Log, name: str) -> None:
    with pytest.raises(UsageError):
        log.create_topic(replace(VIEWS, name=name))


def test_columns_of_a_topic_do_not_begin_with_a_dollar(log: Log) -> None:
    with pytest.raises(UsageError, match="\\$x"):
        log.create_topic(TopicSpec("t", value=(Column("$x", BIGINT),)))


@pytest.mark.parametrize("name", ["../plain", "", ".", "x" * 300, "a\0b"])
def test_what_is_no_topic_name_is_never_found(log: Log, name: str) -> None:
    log.create_topic(PLAIN)
    with pytest.raises(NotFound):
        log.topic(name)


def test_a_missing_topic_is_named_with_the_nearest(log: Log) -> None:
    log.create_topic(VIEWS)
    with pytest.raises(NotFound, match="did you mean `pageviews`"):
        log.topic("pageview")


def test_added_columns_are_null_in_older_records(log: Log) -> None:
    log.create_topic(PLAIN)
    put(log, "plain", N=[1])
    altered = log.alter_topic(
        replace(PLAIN, value=(*PLAIN.value, Column("S", VARCHAR)), config=TopicConfig(5_000_000, 6_000_000))
    )
    put(log, "plain", N=[2], S=["two"])
    assert [(row["N"], row["S"]) for row in rows(log, "plain")] == [(1, None), (2, "two")]
    assert ([version.version for version in altered.schemas], log.topic("plain")) == ([1, 2], altered)


def test_columns_are_neither_removed_nor_retyped(log: Log) -> None:
    log.create_topic(PLAIN)
    for value in ((), (Column("N", VARCHAR),)):
        with pytest.raises(UsageError):
            log.alter_topic(replace(PLAIN, value=value))


def test_a_deleted_topic_is_gone_and_may_be_made_again(log: Log) -> None:
    log.create_topic(PLAIN)
    put(log, "plain", N=[1, 2, 3])
    log.delete_topic("plain")
    assert (log.topics(), log.snapshot().ends) == ([], {})
    with pytest.raises(NotFound):
        put(log, "plain", N=[4])
    log.create_topic(PLAIN)
    put(log, "plain", N=[5])
    assert (numbers(log), log.snapshot().arrival) == ([5], 4)


def test_a_raw_topic_holds_bytes(log: Log) -> None:
    made = log.create_topic(TopicSpec("raw", kind="raw"))
    put(log, "raw", KEY=[b"k", None], VALUE=[b"\x00\xff", None], headers_=[[("h", b"1")], None])
    assert made.spec.value == (Column("VALUE", BYTES),)
    assert [(row["KEY"], row["VALUE"], row["$headers"]) for row in rows(log, "raw")] == [
        (b"k", b"\x00\xff", {"h": b"1"}),
        (None, None, None),
    ]


def test_a_derived_topic_has_headers_if_it_says_so(place: Place) -> None:
    for name, headers in (("with", True), ("without", False)):
        place.log.create_topic(replace(PLAIN, name=name, role="derived", headers=headers))
    put(place.log, "with", N=[1, 2], headers_=[[("h", b"1")], None])
    put(place.log, "without", N=[1])
    place.reopen()
    assert [(row["N"], row["$headers"]) for row in rows(place.log, "with")] == [(1, {"h": b"1"}), (2, None)]
    assert "$headers" not in rows(place.log, "without")[0]


CHANGED = TopicConfig(
    retention_ms=60_000,
    retention_bytes=10_000_000,
    compacted=True,
    tombstone_ms=5_000,
    segment_bytes=1_000_000,
    compression="zstd",
    min_insync=1,
)


def test_every_field_of_the_configuration_can_be_changed(place: Place) -> None:
    place.log.create_topic(VIEWS)
    place.log.alter_topic(replace(VIEWS, config=CHANGED))
    assert place.log.topic("pageviews").spec.config == CHANGED
    place.reopen()
    assert place.log.topic("pageviews").spec.config == CHANGED


@pytest.mark.parametrize(
    "wrong",
    [{"retention_ms": -1}, {"compression": "rar"}, {"compacted": 1}, {"segment_bytes": "big"}, {"tombstone_ms": 2**63}],
    ids=str,
)
def test_a_configuration_that_makes_no_sense_is_refused(log: Log, wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=next(iter(wrong.values() if "compression" in wrong else wrong))):
        log.create_topic(replace(VIEWS, config=TopicConfig(**wrong)))

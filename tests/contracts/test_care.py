"""Caring for a log: damage, deletion of records."""

from __future__ import annotations

import pytest

from headrace.errors import NotFound, OffsetOutOfRange, UsageError
from headrace.log.base import Log, PartitionEnds
from tests.contracts.logs import Place
from tests.log.support import PLAIN, numbers, put


@pytest.mark.needs("quarantine")
def test_nothing_is_set_aside_that_is_not_damaged(log: Log) -> None:
    log.create_topic(PLAIN)
    put(log, "plain", N=[1])
    with pytest.raises(UsageError):
        log.quarantine("plain", 0, 0)


@pytest.mark.needs("delete_records")
def test_deleted_records_are_gone_and_offsets_go_on(place: Place) -> None:
    log = place.log
    log.create_topic(PLAIN)
    put(log, "plain", N=list(range(10)))
    assert log.delete_records("plain", 0, 4) == 4
    assert (log.snapshot().ends["plain"][0], numbers(log, start=4)) == (PartitionEnds(4, 10), list(range(4, 10)))
    with pytest.raises(OffsetOutOfRange) as raised:
        numbers(log, start=3)
    assert (raised.value.data["start"], raised.value.data["end"]) == (4, 10)
    assert log.delete_records("plain", 0, 2) == 4
    place.reopen()
    assert place.log.delete_records("plain", 0, 10) == 10
    assert put(place.log, "plain", N=[10]).positions == ((0, 10, 10),)
    assert numbers(place.log, start=10) == [10]


@pytest.mark.needs("delete_records")
def test_only_what_is_there_can_be_deleted(log: Log) -> None:
    log.create_topic(PLAIN)
    put(log, "plain", N=[1])
    with pytest.raises(OffsetOutOfRange):
        log.delete_records("plain", 0, 2)
    with pytest.raises(NotFound):
        log.delete_records("plain", 1, 0)
    with pytest.raises(NotFound):
        log.delete_records("nowhere", 0, 0)
    assert numbers(log) == [1]

"""The coordinator: time, restarts of the owner, and what a zombie cannot do."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import Fenced, NotFound
from headrace.log.base import TopicPartition
from headrace.log.local import LocalClient, LocalLog
from headrace.log.local import consumer as consumer_module
from headrace.log.local.members import Member, Members
from headrace.log.local.offsets import TOPIC
from headrace.log.local.services import Answer, Beat, SentOffsets
from tests.log.support import PLAIN, manual_clock, open_owner, put
from tests.support import wait_for

P0 = TopicPartition("plain", 0)
FOUR = replace(PLAIN, partitions=4)


def beat(log: LocalLog, before: Answer | None = None, timeout_s: float = 10.0) -> Answer:
    """A member's poll; `before` is the answer it got last."""
    member, held = (before.member, before.partitions) if before else (None, ())
    return log.coordinator.beat(Beat("g", member, "", frozenset({"plain"}), timeout_s, held))


def test_a_session_ends_by_the_clock(tmp_path: Path) -> None:
    clock = manual_clock()
    log = open_owner(tmp_path / "log", clock)
    log.create_topic(FOUR)
    first = beat(log)
    second = beat(log)
    assert (len(first.partitions), second.partitions, second.settled) == (4, (), False)
    first = beat(log, first)
    second = beat(log, second)
    assert (len(first.partitions), len(second.partitions), second.settled) == (2, 2, True)
    clock.advance(6_000)
    second = beat(log, second)
    log.coordinator.keep_alive("g", second.member)
    clock.advance(6_000)
    # The first has been silent for twelve seconds.
    second = beat(log, second)
    assert len(second.partitions) == 4
    with pytest.raises(Fenced):
        log.coordinator.keep_alive("g", first.member)
    with pytest.raises(Fenced):
        log.coordinator.commit(SentOffsets("g", first.member, {P0: 0}))
    again = beat(log, first)
    assert (again.joined, again.resumed, again.member == first.member) == (True, False, False)
    log.close()


def test_after_a_restart_of_the_owner_everyone_gets_back_what_it_had(tmp_path: Path) -> None:
    owner = open_owner(tmp_path / "log", serve=True)
    client = LocalClient(tmp_path / "log")
    client.create_topic(FOUR)
    for number in range(4):
        put(client, "plain", number, N=[number, number + 10])
    consumers = [client.consumer("plain", group="g", client=f"c{number}") for number in range(2)]
    got: list[int] = []

    def poll() -> bool:
        for consumer in consumers:
            got.extend(n for records in consumer.poll(0.02) for n in records.batch.column("N").to_pylist())
        return False

    wait_for(lambda: poll() or {len(consumer.assignment()) for consumer in consumers} == {2}, 20, "two each")
    wait_for(lambda: poll() or len(got) >= 8, 20, "all records")
    before, count = [consumer.assignment() for consumer in consumers], len(got)
    owner.close()
    poll()
    owner = open_owner(tmp_path / "log", serve=True)
    put(client, "plain", 0, N=[100])
    wait_for(lambda: poll() or (100 in got and client.groups() == ["g"]), 20, "the members to come back")
    wait_for(lambda: poll() or len(client.group("g").members) == 2, 20, "the other one")
    wait_for(lambda: poll() or client.group("g").state == "stable", 20, "the group to settle")
    assert [consumer.assignment() for consumer in consumers] == before
    # Nothing that was read before came again, although nothing was committed.
    assert got[count:] == [100]
    for consumer in consumers:
        consumer.commit()
        consumer.close()
    assert client.group("g").lag == 0
    client.close()
    owner.close()


def test_offsets_are_records_of_an_internal_compacted_topic(tmp_path: Path) -> None:
    log = open_owner(tmp_path / "log")
    log.create_topic(PLAIN)
    with pytest.raises(NotFound):
        log.topic(TOPIC)
    member = beat(log)
    for offset in range(3):
        log.coordinator.commit(SentOffsets("g", member.member, {P0: offset}))
    topic = log.topic(TOPIC)
    assert (topic.internal, topic.spec.config.compacted, log.group("g").offsets[0].committed) == (True, True, 2)
    assert [row["OFFSET"] for records in log.read(TOPIC, 0, 0) for row in records.batch.to_pylist()] == [0, 1, 2]
    log.close()


def test_the_records_of_offsets_may_be_compacted_or_gone(tmp_path: Path) -> None:
    log = open_owner(tmp_path / "log", segment_bytes=2_000)
    log.create_topic(PLAIN)
    member = beat(log)
    for offset in range(60):
        log.coordinator.commit(SentOffsets("g", member.member, {P0: offset}))
    log.maintain()
    log.close()
    log = open_owner(tmp_path / "log", segment_bytes=2_000)
    assert log.group("g").offsets[0].committed == 59
    log.delete_topic(TOPIC)
    with pytest.raises(NotFound):
        log.group("g")
    log.reset_group("g", {P0: 0})
    assert log.group("g").offsets[0].committed == 0
    log.close()


def test_names_of_groups_that_are_empty_do_not_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.log.local.groups.MOST_GROUPS", 10)
    log = open_owner(tmp_path / "log")
    log.create_topic(PLAIN)
    stays = beat(log)
    for number in range(100):
        answer = log.coordinator.beat(Beat(f"g{number}", None, "", frozenset({"plain"}), 10.0, ()))
        assert len(answer.partitions) == 1
        log.coordinator.leave(f"g{number}", answer.member)
    assert len(log.coordinator._groups) <= 11
    assert not beat(log, stays).joined
    log.close()


STEPS = st.lists(
    st.tuples(st.sampled_from(["beat", "beat", "beat", "join", "leave", "expire"]), st.integers(0, 4)), max_size=60
)


@given(STEPS, st.integers(1, 7))
def test_no_partition_is_ever_held_by_two_and_all_settle(steps: list[tuple[str, int]], count: int) -> None:
    group, held = Members(), dict[str, set[TopicPartition]]()
    partitions = {"t": count}

    def step(name: str) -> None:
        member = group.by_id.get(name)
        if member is None:
            member = Member(name, "", frozenset({"t"}), 1.0, 1.0)
            group.join(member, ())
            held[name] = set()
        member.held &= held[name]
        group.share_out(partitions)
        held[name] = set(group.grant(member, 0.0))
        live = [at for one in group.by_id for at in held[one]]
        assert len(live) == len(set(live))

    for what, number in steps:
        name = f"m{number}"
        if what in ("beat", "join"):
            step(name)
        else:
            group.remove(name)
    for _ in range(3):
        for name in list(group.by_id):
            step(name)
    if group.by_id:
        assert group.is_settled
        assert sorted(at for name in group.by_id for at in held[name]) == [
            TopicPartition("t", number) for number in range(count)
        ]
        loads = sorted(len(held[name]) for name in group.by_id)
        assert loads[-1] - loads[0] <= 1


def test_a_topic_that_is_made_again_with_fewer_partitions_is_read_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The coordinator has not said yet that the other partitions are gone: it is not asked again for long."""
    monkeypatch.setattr(consumer_module, "_BEAT_S", 100.0)
    log = open_owner(tmp_path / "log")
    log.create_topic(FOUR)
    with log.consumer("plain", "g", session_timeout_s=300.0) as consumer:
        wait_for(lambda: not consumer.poll(0.1) and len(consumer.assignment()) == 4, 10, "all four partitions")
        log.delete_topic("plain")
        log.create_topic(PLAIN)
        put(log, "plain", N=[7])
        [records] = consumer.poll(30)
        assert records.batch.column("N").to_pylist() == [7]
    log.close()

"""The whole contract at once: any order of calls leaves the log and a model of some fifty lines alike."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    invariant,
    multiple,
    precondition,
    rule,
    run_state_machine_as_test,
)

from headrace.errors import Fenced, NotFound, OffsetOutOfRange
from headrace.log.base import Consumer, Producer, TopicPartition, TopicSpec
from headrace.types import BIGINT, Column
from tests.contracts.logs import Place
from tests.log.support import batch, put
from tests.support import wait_for

NAMES = ("a", "b")
GROUPS = ("g", "h")


@dataclass
class Part:
    """A partition: values with the offsets they were given, and where it starts."""

    start: int = 0
    records: list[tuple[int, int]] = field(default_factory=list)

    def add(self, first: int, last: int, values: list[int]) -> None:
        assert last - first + 1 == len(values)
        assert first >= self.end
        self.records += zip(range(first, last + 1), values, strict=True)

    @property
    def end(self) -> int:
        return self.records[-1][0] + 1 if self.records else 0

    def after(self, offset: int) -> list[int]:
        return [value for at, value in self.records if at >= max(offset, self.start)]


@dataclass
class Model:
    topics: dict[str, list[Part]] = field(default_factory=dict)
    committed: dict[str, dict[TopicPartition, int]] = field(default_factory=dict)
    pending: list[tuple[TopicPartition, list[int]]] = field(default_factory=list)
    pending_offsets: dict[str, dict[TopicPartition, int]] = field(default_factory=dict)

    def delete_topic(self, name: str) -> None:
        del self.topics[name]
        for offsets in self.committed.values():
            for at in [at for at in offsets if at.topic == name]:
                del offsets[at]

    def at(self, place: TopicPartition) -> Part:
        return self.topics[place.topic][place.partition]

    def commit(self, group: str, offsets: dict[TopicPartition, int]) -> None:
        self.committed.setdefault(group, {}).update(offsets)

    def rest(self, group: str, place: TopicPartition) -> list[int]:
        """What a group has not read yet."""
        return self.at(place).after(self.committed.get(group, {}).get(place, 0))

    def forget_transaction(self) -> None:
        self.pending, self.pending_offsets = [], {}


class Machine(RuleBasedStateMachine):
    make: Callable[[Path], Place]

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.place = type(self).make(Path(self.folder.name))
        self.model = Model()
        self.numbers = count()
        self.producer: Producer | None = None
        self.open = False
        self.sent: list[tuple[TopicPartition, list[int]]] = []

    partitions = Bundle("partitions")
    """Partitions that were made once; their topic may be gone."""

    def values(self, rows: int) -> list[int]:
        return [next(self.numbers) for _ in range(rows)]

    def is_there(self, at: TopicPartition) -> bool:
        return at.topic in self.model.topics and at.partition < len(self.model.topics[at.topic])

    # Topics

    @rule(target=partitions, name=st.sampled_from(NAMES), partitions=st.integers(1, 2))
    def create(self, name: str, partitions: int):  # type: ignore[no-untyped-def]
        if name not in self.model.topics:
            self.place.log.create_topic(TopicSpec(name, value=(Column("N", BIGINT),), partitions=partitions))
            self.model.topics[name] = [Part() for _ in range(partitions)]
        return multiple(*(TopicPartition(name, number) for number in range(len(self.model.topics[name]))))

    @precondition(lambda self: self.model.topics and not self.open)
    @rule(data=st.data())
    def delete_topic(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.model.topics)))
        self.place.log.delete_topic(name)
        self.model.delete_topic(name)

    # Writing

    def is_held(self, at: TopicPartition) -> bool:
        """Whether readers stop here before a transaction that is open."""
        pending = any(place == at for place, _ in self.model.pending)
        return pending and "unheld" not in self.place.log.capabilities

    def is_held_group(self, group: str) -> bool:
        """Whether a transaction that is open holds offsets of the group: then Kafka lets none be committed beside it
        that the transaction would replace, and forgets them with the group."""
        return group in self.model.pending_offsets and "unheld" not in self.place.log.capabilities

    @rule(at=partitions, rows=st.integers(1, 5))
    def append(self, at: TopicPartition, rows: int) -> None:
        if self.is_held(at):
            return
        values = self.values(rows)
        if not self.is_there(at):
            if at.topic not in self.model.topics:
                with pytest.raises(NotFound):
                    put(self.place.log, at.topic, at.partition, N=list(values))
            return
        [(_, first, last)] = put(self.place.log, at.topic, at.partition, N=list(values)).positions
        self.model.at(at).add(first, last, values)

    def named_producer(self) -> Producer:
        if self.producer is None:
            self.producer = self.place.log.producer("worker", linger_ms=0)
        return self.producer

    @precondition(lambda self: not self.open)
    @rule(at=partitions, rows=st.integers(1, 5))
    def send(self, at: TopicPartition, rows: int) -> None:
        if self.is_there(at):
            values = self.values(rows)
            [(_, first, last)] = (
                self.named_producer().send(at.topic, batch(N=list(values)), at.partition).result(30).positions
            )
            self.model.at(at).add(first, last, values)

    @precondition(lambda self: not self.open)
    @rule()
    def begin(self) -> None:
        self.named_producer().begin()
        self.open = True

    @precondition(lambda self: self.open)
    @rule(at=partitions, rows=st.integers(1, 5))
    def send_in_transaction(self, at: TopicPartition, rows: int) -> None:
        if self.is_there(at):
            values = self.values(rows)
            self.named_producer().send(at.topic, batch(N=list(values)), at.partition)
            self.model.pending.append((at, values))

    @precondition(lambda self: self.open)
    @rule(at=partitions, group=st.sampled_from(GROUPS), data=st.data())
    def send_offsets(self, at: TopicPartition, group: str, data: st.DataObject) -> None:
        if self.is_there(at):
            part = self.model.at(at)
            offset = data.draw(st.integers(part.start, max(part.start, part.end)))
            self.named_producer().send_offsets(group, {at: offset})
            self.model.pending_offsets.setdefault(group, {})[at] = offset

    @precondition(lambda self: self.open)
    @rule()
    def commit(self) -> None:
        self.named_producer().commit()
        self.open = False
        for at, values in self.model.pending:
            part = self.model.at(at)
            read = self.read(at, part.end)
            assert [value for _, value in read[: len(values)]] == values
            part.add(read[0][0], read[len(values) - 1][0], values)
        for group, offsets in self.model.pending_offsets.items():
            self.model.commit(group, offsets)
        self.model.forget_transaction()

    @precondition(lambda self: self.open)
    @rule()
    def abort(self) -> None:
        self.named_producer().abort()
        self.open = False
        self.model.forget_transaction()

    @precondition(lambda self: self.producer is not None)
    @rule()
    def another_takes_the_name(self) -> None:
        """Whatever was open is over, and the former producer cannot write any more."""
        former, self.producer = self.named_producer(), None
        self.named_producer()
        if self.model.pending or self.model.pending_offsets:
            with pytest.raises(Fenced):
                former.commit()
        self.open = False
        self.model.forget_transaction()
        with contextlib.suppress(Fenced):
            former.close()

    # Reading

    def read(self, at: TopicPartition, start: int) -> list[tuple[int, int]]:
        ends = self.place.log.snapshot().ends[at.topic][at.partition]
        found = []
        for records in self.place.log.read(at.topic, at.partition, max(start, ends.start), columns=["$offset", "N"]):
            found += [(row["$offset"], row["N"]) for row in records.batch.to_pylist()]
        return found

    @rule(at=partitions, data=st.data())
    def consume(self, at: TopicPartition, data: st.DataObject) -> None:
        if self.is_there(at):
            part = self.model.at(at)
            start = data.draw(st.integers(part.start, max(part.start, part.end)))
            with self.place.log.consumer(at.topic, columns=["N"]) as consumer:
                wait_for(lambda: at in consumer.assignment() or (bool(consumer.poll(0.05)) and False), 20, "assignment")
                others = [other for other in consumer.assignment() if other != at]
                consumer.pause(others)
                consumer.seek(at, start)
                assert self.poll(consumer, len(part.after(start))) == {at: part.after(start)} or not part.after(start)

    def poll(self, consumer: Consumer, wanted: int) -> dict[TopicPartition, list[int]]:
        """So many records; one poll more may not find any."""
        found: dict[TopicPartition, list[int]] = {}

        def enough() -> bool:
            for records in consumer.poll(0.05, max_records=3):
                place = TopicPartition(records.topic, records.partition)
                found.setdefault(place, []).extend(records.batch.column("N").to_pylist())
            return sum(map(len, found.values())) >= wanted

        wait_for(enough, 30, f"{wanted} records, got {found}")
        return found

    @precondition(lambda self: self.model.topics)
    @rule(group=st.sampled_from(GROUPS), commit=st.booleans(), data=st.data())
    def consume_in_a_group(self, group: str, commit: bool, data: st.DataObject) -> None:
        if self.is_held_group(group):
            return
        name = data.draw(st.sampled_from(sorted(self.model.topics)))
        places = [TopicPartition(name, number) for number in range(len(self.model.topics[name]))]
        rest = {at: values for at in places if (values := self.model.rest(group, at))}
        with self.place.log.consumer(name, group=group, columns=["N"], out_of_range="earliest") as consumer:
            assert self.poll(consumer, sum(map(len, rest.values()))) == rest
            if commit and rest:
                consumer.commit()
                self.model.commit(group, {at: self.model.at(at).end for at in rest})
        wait_for(lambda: self.is_empty(group), 20, "the member to leave")

    def is_empty(self, group: str) -> bool:
        try:
            return self.place.log.group(group).state == "empty"
        except NotFound:
            return True

    # Care

    @rule(at=partitions, group=st.sampled_from(GROUPS), data=st.data())
    def reset_group(self, at: TopicPartition, group: str, data: st.DataObject) -> None:
        if self.is_there(at) and not self.is_held_group(group):
            part = self.model.at(at)
            with pytest.raises(OffsetOutOfRange):
                self.place.log.reset_group(group, {at: part.end + 1000})
            offset = data.draw(st.integers(part.start, max(part.start, part.end)))
            self.place.log.reset_group(group, {at: offset})
            self.model.commit(group, {at: offset})

    @rule(group=st.sampled_from(GROUPS))
    def delete_group(self, group: str) -> None:
        if self.is_held_group(group):
            return
        try:
            self.place.log.delete_group(group)
        except NotFound:
            assert not self.model.committed.get(group)
        self.model.committed.pop(group, None)

    @rule(at=partitions, data=st.data())
    def delete_records(self, at: TopicPartition, data: st.DataObject) -> None:
        if self.is_there(at):
            part = self.model.at(at)
            before = data.draw(st.integers(0, part.end))
            part.start = max(part.start, before)
            assert self.place.log.delete_records(at.topic, at.partition, before) == part.start

    @precondition(lambda self: not self.open)
    @rule()
    def reopen(self) -> None:
        if self.producer is not None:
            self.producer.close()
            self.producer = None
        self.place.reopen()

    @invariant()
    def alike(self) -> None:
        log = self.place.log
        assert {topic.name for topic in log.topics() if not topic.internal} == set(self.model.topics)
        for name, parts in self.model.topics.items():
            ends = log.snapshot().ends[name]
            assert [end.start for end in ends] == [part.start for part in parts]
            for number, part in enumerate(parts):
                assert [value for _, value in self.read(TopicPartition(name, number), 0)] == part.after(0)
        for group, offsets in self.model.committed.items():
            if offsets:
                found = {one.at: one.committed for one in log.group(group).offsets if one.committed is not None}
                assert found == offsets

    def teardown(self) -> None:
        try:
            if self.producer is not None:
                self.producer.close()
        finally:
            self.place.close()
            self.folder.cleanup()


@pytest.mark.slow
def test_the_log_does_what_the_model_does(place: Place) -> None:
    machine = type("Machine", (Machine,), {"make": staticmethod(place.another)})
    few = settings(
        max_examples=place.model_examples,
        stateful_step_count=30,
        deadline=None,
        # Where a step takes long there are only a few examples, so they are the same each time, and a failure as it was
        # found beats minutes of looking for a smaller one.
        derandomize=place.model_examples <= 10,
        phases=[phase for phase in Phase if phase != Phase.shrink or place.model_examples > 10],
        suppress_health_check=list(HealthCheck),
        print_blob=True,
    )
    run_state_machine_as_test(machine, settings=few)

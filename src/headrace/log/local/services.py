"""What producers and consumers need of the owner, wherever they are: a desk to hand records in, and coordination."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol

from headrace.log.base import Acks, Appended, TopicPartition
from headrace.log.local.gather import Run
from headrace.log.local.producers import Stamp


@dataclass(frozen=True, slots=True)
class SentOffsets:
    """Offsets of a group that a transaction commits; by a member of the group, if it says which."""

    group: str
    member: str | None
    offsets: Mapping[TopicPartition, int]


class Desk(Protocol):
    def open(self, name: str | None) -> tuple[int, int]:
        """The producer's id and epoch; durable."""

    def append(self, runs: Sequence[Run], acks: Acks, stamp: Stamp | None) -> Future[list[Appended]]:
        """One atomic write, an answer per send."""

    def stage(self, stamp: Stamp, task: int, runs: Sequence[Run], timeout_s: float) -> Future[list[Appended]]:
        """Rows of the transaction that `commit` with this stamp will end. The answer is empty."""

    def commit(self, stamp: Stamp, tasks: int, offsets: Sequence[SentOffsets]) -> Future[list[Appended]]:
        """The first so many tasks, an answer per send; and the offsets."""

    def abort(self, stamp: Stamp) -> None: ...


@dataclass(frozen=True, slots=True)
class Beat:
    """What a member says when it polls."""

    group: str
    member: str | None
    client: str
    topics: frozenset[str]
    """Those there are that match its subscription; which it resolves itself, so no pattern can keep the owner busy."""
    timeout_s: float
    held: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """What it then reads: these partitions and no others."""

    member: str
    generation: int
    partitions: tuple[TopicPartition, ...]
    committed: Mapping[TopicPartition, int]
    """Of the partitions it did not say it held; of all of them if it had to join anew."""
    joined: bool
    resumed: bool
    """It joined anew because the owner did: nobody else had its partitions meanwhile."""
    settled: bool
    """False: ask again soon, partitions are changing hands."""


class Coordination(Protocol):
    """What a consumer needs of the coordinator, wherever that is."""

    def beat(self, beat: Beat) -> Answer: ...
    def keep_alive(self, group: str, member: str) -> None: ...
    def leave(self, group: str, member: str) -> None: ...
    def commit(self, sent: SentOffsets) -> None: ...

"""What every log promises.

The promises, whoever implements them:

- An append is acknowledged (`acks="all"`) when it is durable, and nobody reads what is not.
- Several batches in one call, and a committed transaction, become visible together or not at all.
- A `Snapshot` is a moment of the log. Reading up to the same snapshot twice gives the same records.
- With the capability `arrival`, every record gets an *arrival number* that grows across all topics, and its topic's
  *stream time*; a snapshot is everything below one arrival number.
- With `event-ids`, a record whose event id the topic already has is not stored again; its row number comes back as a
  duplicate.

What a log cannot promise is missing from its `capabilities`, with the reason in docs/reference/logs.md. The values that
go in and out are in `values.py`, and are imported from here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self

import pyarrow as pa

from headrace.errors import CorruptFrame, PositionOfAnotherLog, UsageError
from headrace.log.epochs import ENDLESS, Epochs
from headrace.log.values import (
    ARRIVAL,
    HEADERS,
    ID,
    LOG_TIME,
    NO_STREAM_TIME,
    OFFSET,
    PARTITION,
    PUBLISHER_PREFIX,
    REST,
    ROUTE,
    STREAM_TIME,
    TIME,
    TOMBSTONE,
    WINDOW_END,
    WINDOW_START,
    Acks,
    Append,
    Appended,
    BatchIdentity,
    Committed,
    FormatOptions,
    Group,
    GroupMember,
    GroupOffset,
    KeyRange,
    PartitionEnds,
    Records,
    Route,
    SchemaVersion,
    Snapshot,
    Start,
    Subscription,
    TimestampColumn,
    Topic,
    TopicConfig,
    TopicPartition,
    TopicSpec,
    TopicStats,
)

if TYPE_CHECKING:
    from headrace.log.codecs.base import Schemas

__all__ = [
    "ARRIVAL",
    "HEADERS",
    "ID",
    "LOG_TIME",
    "NO_STREAM_TIME",
    "OFFSET",
    "PARTITION",
    "PUBLISHER_PREFIX",
    "REST",
    "ROUTE",
    "STREAM_TIME",
    "TIME",
    "TOMBSTONE",
    "WINDOW_END",
    "WINDOW_START",
    "Acks",
    "Append",
    "Appended",
    "BatchIdentity",
    "Capability",
    "Committed",
    "Consumer",
    "FormatOptions",
    "Group",
    "GroupMember",
    "GroupOffset",
    "KeyRange",
    "Log",
    "PartitionEnds",
    "Producer",
    "Records",
    "Route",
    "SchemaVersion",
    "Snapshot",
    "Start",
    "Subscription",
    "TimestampColumn",
    "Topic",
    "TopicConfig",
    "TopicPartition",
    "TopicSpec",
    "TopicStats",
]


class Producer(ABC):
    """Writes in batches, each exactly once: what is sent again after a lost answer lands once. For one thread.

    A producer with a `name` is the only one of that name: opening it fences the former one, whose next call raises
    `Fenced`, and finishes what that one left open (aborted, never read).
    """

    @abstractmethod
    def send(self, topic: str, batch: pa.RecordBatch, partition: int | None = None) -> Future[Appended]:
        """Take a batch, to be written within the linger time, together with others. In a transaction the future is done
        with the commit, positions given. Order within a partition is the order of the calls, whatever is retried."""

    @abstractmethod
    def flush(self, timeout: float = 30.0) -> None:
        """Everything sent so far is acknowledged, or an error is raised."""

    @abstractmethod
    def begin(self) -> None:
        """Start a transaction. `UsageError` without a name, or inside of one."""

    @abstractmethod
    def send_offsets(self, group: str, offsets: Mapping[TopicPartition, int], consumer: Consumer | None = None) -> None:
        """Commit these offsets of a group with the transaction: read, process, write, exactly once. With the `consumer`
        they came from, the commit is `Fenced` if that one has lost one of the partitions meanwhile."""

    @abstractmethod
    def commit(self) -> None:
        """All of the transaction becomes visible, at once."""

    @abstractmethod
    def abort(self) -> None:
        """Nothing of the transaction is ever read."""

    @abstractmethod
    def close(self) -> None:
        """Flushes; a transaction that is open is aborted."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


class Consumer(ABC):
    """Reads the partitions it has, only what is committed. For one thread.

    In a group the partitions are shared out among the members, as few as possible moving when one comes or goes; a
    member that neither polls nor heartbeats within the session timeout loses its own. The three ways to use it: commit
    before processing (at most once), after it (at least once), or with `Producer.send_offsets` (exactly once).
    """

    @abstractmethod
    def assignment(self) -> frozenset[TopicPartition]: ...

    @abstractmethod
    def poll(self, timeout: float = 1.0, max_records: int = 10_000) -> list[Records]:
        """What is new, at once if there is some, else within `timeout` (long poll). Keeps membership alive."""

    @abstractmethod
    def heartbeat(self) -> None:
        """Keep membership alive without polling, while processing takes long. Takes no partition away. `Fenced` if the
        group has moved on already. Without a group it does nothing."""

    @abstractmethod
    def position(self, at: TopicPartition) -> int:
        """The offset `poll` will give next."""

    @abstractmethod
    def seek(self, at: TopicPartition, to: int | Start) -> None: ...

    @abstractmethod
    def seek_to_time(self, time_ms: int) -> None:
        """All partitions: to the first record at or after that event time."""

    @abstractmethod
    def pause(self, partitions: Sequence[TopicPartition]) -> None: ...

    @abstractmethod
    def resume(self, partitions: Sequence[TopicPartition]) -> None: ...

    @abstractmethod
    def commit(self, offsets: Mapping[TopicPartition, int] | None = None) -> None:
        """Remember the group's offsets, durably: those given, or what `poll` has returned so far. `Fenced` if the group
        has moved on without this member."""

    @abstractmethod
    def close(self) -> None:
        """Leaves the group; commits nothing by itself."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


Capability = Literal[
    "arrival",
    "event-ids",
    "stage",
    "split",
    "quarantine",
    "archive",
    "sizes",
    "counted",
    "evict",
    "unheld",
    "servers",
    "fork",
]


class Log(ABC):
    """Open until `close`. Safe to use from several threads."""

    capabilities: frozenset[Capability] = frozenset()
    """What this log can beyond the common contract. `arrival`: one order over all partitions, kept with each record;
    without it, records of different partitions are ordered by time, partition, offset, `Snapshot.arrival` only tells
    whether anything is new, and `$stream_time` is only what a record of another log was stamped with there; what it is
    made of can be read as `$log_time`. `sizes`: `stats` knows bytes and segments. `counted`:
    `stats` counts records; without it offsets, of which marks of transactions and what compaction took have some too.
    `evict`: `reset_group` can send members away. `fork`: `fork_topic`, by the owner. `unheld`: what is acknowledged is
    read at once, whatever transaction is open beside it."""

    schemas: Schemas | None = None
    """Where the schemas of payloads are registered; given by who opens the log."""

    # Topics

    @abstractmethod
    def create_topic(self, spec: TopicSpec) -> Topic:
        """Make a topic. `Conflict` if the name is taken by one that differs; the same again returns the
        existing one."""

    @abstractmethod
    def alter_topic(self, spec: TopicSpec) -> Topic:
        """Add value columns or change the configuration. Columns are never removed or retyped (`UsageError`)."""

    @abstractmethod
    def delete_topic(self, name: str) -> None: ...

    @abstractmethod
    def topic(self, name: str) -> Topic:
        """`NotFound`, with the nearest name as a hint, if there is none."""

    @abstractmethod
    def topics(self) -> list[Topic]:
        """By name, internal ones too."""

    @abstractmethod
    def stats(self, name: str) -> TopicStats: ...

    # Writing

    @abstractmethod
    def append(self, appends: Sequence[Append], acks: Acks = "all") -> Future[list[Appended]]:
        """One atomic write. The future is done when durable (`all`) or taken (`0`, `1`: positions are then empty).

        Raises at once `Overloaded` when too much is waiting, `DiskFull`, `NotFound`, `UsageError` for wrong columns.
        The future fails with `DiskFull` or `LogError` when the write did; then nothing of it will ever be visible.
        """

    @abstractmethod
    def stage(
        self,
        transaction: str,
        task: int,
        attempt: int,
        routes: Sequence[Route],
        batches: Iterator[pa.RecordBatch],
    ) -> int:
        """Hand over one task's rows of a transaction; returns how many. Nothing is visible or durable yet. Rows of a
        route with an `order` are committed in it, whichever task had them; others task after task."""

    @abstractmethod
    def commit(
        self, transaction: str, tasks: Sequence[tuple[int, int]], identity: BatchIdentity | None = None
    ) -> Committed:
        """Make the named tasks' rows visible, all at once. `BatchConflict` as in docs/log-format.md."""

    @abstractmethod
    def abort(self, transaction: str) -> None:
        """Forget what was staged. Unknown transactions are fine."""

    def known_damage(self) -> list[CorruptFrame]:
        """What readers in this process have found damaged and nobody has set aside yet. Logs whose files others own
        know of none."""
        return []

    @abstractmethod
    def last_identity(self, query: str, version: int) -> BatchIdentity | None: ...

    # Reading

    @abstractmethod
    def snapshot(self) -> Snapshot:
        """Now. Cheap enough to call in a loop."""

    def at_rest(self, topics: Sequence[str]) -> bool:
        """Whether no transaction is under way in these topics, nor in what `last_identity` reads. A log that shows a
        transaction partition by partition may have shown a part of it; at rest it has shown all."""
        return True

    @abstractmethod
    def wait(self, arrival: int, timeout: float) -> Snapshot:
        """The first snapshot whose arrival is above `arrival`, or the current one after `timeout` seconds."""

    @abstractmethod
    def read(
        self,
        topic: str,
        partition: int,
        start: int,
        end: int | None = None,
        columns: Sequence[str] | None = None,
    ) -> Iterator[Records]:
        """Records with start ≤ offset < end (default: the end now). Columns by name, system ones too; those
        the topic does not have are an error, those a frame does not have are null. `OffsetOutOfRange` if
        `start` is before the log's start; `CorruptFrame` at damage. Memory is bounded by a frame."""

    @abstractmethod
    def offset_at_time(self, topic: str, partition: int, time_ms: int) -> int:
        """The first offset from which on a record with `$time` ≥ time_ms can be; the end if there is none."""

    @abstractmethod
    def offset_at_arrival(self, topic: str, partition: int, arrival: int) -> int:
        """The first offset whose arrival number is ≥ arrival; the end if there is none."""

    # Producers, consumers, groups

    @abstractmethod
    def producer(
        self,
        name: str | None = None,
        acks: Acks = "all",
        linger_ms: float = 5.0,
        transaction_timeout_s: float = 60.0,
    ) -> Producer:
        """With a name it can do transactions and fences the former one of that name."""

    @abstractmethod
    def consumer(
        self,
        topics: Subscription,
        group: str | None = None,
        start: Start = "earliest",
        columns: Sequence[str] | None = None,
        client: str = "",
        session_timeout_s: float = 10.0,
        out_of_range: Literal["error"] | Start = "error",
    ) -> Consumer:
        """Without a group it reads all partitions of the topics. `start`: where to begin without a committed offset;
        a topic made after the consumer is always read from its beginning. A topic that is named has to exist
        (`NotFound`). `out_of_range`: what `poll` does when retention has overtaken its position: raise
        `OffsetOutOfRange` (again and again, until a `seek`), or go on from the start or the end."""

    @abstractmethod
    def groups(self) -> list[str]: ...

    @abstractmethod
    def group(self, name: str) -> Group:
        """`NotFound` if nobody ever joined it or committed."""

    @abstractmethod
    def reset_group(self, name: str, offsets: Mapping[TopicPartition, int], force: bool = False) -> None:
        """Set committed offsets, of a group that need not exist. `Conflict` while it has members, unless forced: then
        they are sent away first."""

    @abstractmethod
    def delete_group(self, name: str) -> None: ...

    # Care

    @abstractmethod
    def delete_records(self, topic: str, partition: int, before: int) -> int:
        """Forget the records below `before`; returns the new start. Readers below it get `OffsetOutOfRange`."""

    def split_partition(self, topic: str, partition: int, at: int | None = None) -> tuple[int, int]:
        """Close a partition and open two for the halves of its hash range, or for what is before the place `at` and
        the rest; what it holds stays. With `split`."""
        raise UsageError("this log cannot split partitions")

    def merge_partitions(self, topic: str, one: int, other: int) -> int:
        """Close two partitions with neighbouring hash ranges and open one for both. With `split`."""
        raise UsageError("this log cannot merge partitions")

    def fork_topic(self, name: str, fork: str, writers: Sequence[tuple[str, int]] = ()) -> Topic:
        """Make a topic `fork` with the records of `name`, at the same offsets and with the same arrival numbers. From
        then on what queries commit to `name` goes to `fork` instead; others write to `name` as before. `writers` are
        those queries, with their versions. The same again returns the existing one. With `fork`."""
        raise UsageError("this log cannot fork topics")

    def places(self, topic: str, ids: Sequence[str]) -> list[tuple[int, int] | None]:
        """Partition and offset of the records with these event ids; None where the topic has none. With `event-ids`."""
        raise UsageError("this log does not know event ids")

    def quarantine(self, topic: str, partition: int, offset: int) -> tuple[int, int]:
        """Set aside the damage that `offset` is in, so that readers pass over exactly those offsets: [from, to).
        `UsageError` if nothing is damaged there."""
        raise UsageError("this log has nothing to set aside")

    def epochs(self) -> Epochs | None:
        """Which part of the log was written between which two openings: what positions outside of the log are checked
        with (`log.epochs`). None if this log does not keep them. Cheap enough to call for every request."""
        return None

    def current_epoch(self) -> str | None:
        """Return what to keep with offsets outside of the log, for `check_offsets`."""
        epochs = self.epochs()
        return None if epochs is None else epochs.current.id

    def check_offsets(self, topic: str, offsets: Mapping[int, int], epoch: str | None, what: str, hint: str) -> None:
        """`PositionOfAnotherLog` if offsets that were kept outside of the log, with the epoch of then, are not of this
        log: it was restored to an earlier moment, or is another one. Those without an epoch are believed."""
        epochs = self.epochs()
        end = ENDLESS if epochs is None or epoch is None else epochs.end(epoch)
        if end == ENDLESS:
            return
        ends = self.snapshot().ends.get(topic, ())
        if end is None or any(
            number >= len(ends) or offset > self.offset_at_arrival(topic, number, end)
            for number, offset in offsets.items()
        ):
            raise PositionOfAnotherLog(
                f"{what} has read topic `{topic}` further than this log goes",
                detail="the log was restored to an earlier moment since, or is another one",
                hint=hint,
            )

    def owner_alive(self) -> bool:
        """Whether writes can reach the log now. Cheap enough to call in a loop."""
        return True

    @abstractmethod
    def close(self) -> None: ...

"""`file`: events wait on disk, and are there after a crash."""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from headrace.collect.agents.base import AgentError, Channel, ChannelFull, Counters, Event, Transaction
from headrace.collect.agents.channels.memory import check_capacities, check_transaction
from headrace.collect.agents.channels.room import Room
from headrace.collect.agents.channels.spool import Piece, Spool
from headrace.collect.agents.options import ComponentKind, Context, Option
from headrace.errors import ConfigError

logger = logging.getLogger("headrace.agent.file_channel")

FILE_BYTES = 64 * 1024 * 1024
FRAME_BYTES = 128 * 1024 * 1024


class FileChannel(Channel):
    """A put is committed when it is synced. A take is committed when it is written: lost with the machine's power, it
    is merely taken again."""

    def __init__(
        self,
        name: str,
        counters: Counters,
        folder: Path,
        capacity: int = 1_000_000,
        transaction_capacity: int = 10_000,
        patience_s: float = 3.0,
        file_bytes: int = FILE_BYTES,
        min_free_bytes: int = 0,
    ) -> None:
        self.name, self.counters, self.transaction_capacity = name, counters, transaction_capacity
        self._lock = _lock_folder(folder, name)
        self.room = Room(name, capacity, None, patience_s)
        self.spool = Spool(folder, file_bytes, min_free_bytes, lambda lost: counters.add("EventsDamagedCount", lost))
        self.room.events = self.spool.pending
        counters.gauge("ChannelBytesOnDisk", self.spool.size)
        if self.spool.pending:
            logger.info("channel `%s` has %d events from before", name, self.spool.pending)

    def transaction(self) -> Transaction:
        return FileTransaction(self)

    def size(self) -> int:
        return self.room.events

    def capacity(self) -> int:
        return self.room.capacity

    def wake(self) -> None:
        self.room.wake()

    def close(self) -> None:
        self.spool.close()
        os.close(self._lock)


class FileTransaction(Transaction):
    def __init__(self, channel: FileChannel) -> None:
        self._channel = channel
        self._put: list[Event] = []
        self._taken: list[Piece] = []

    def put(self, events: Sequence[Event]) -> None:
        channel = self._channel
        channel.counters.add("EventPutAttemptCount", len(events))
        check_transaction(channel, len(self._put) + len(events))
        check_frame(channel.name, events)
        channel.room.reserve(len(events), 0)
        self._put += events

    def take(self, most: int) -> list[Event]:
        channel, room = self._channel, self._channel.room
        channel.counters.add("EventTakeAttemptCount")
        most = min(most, channel.transaction_capacity - sum(piece.count for piece in self._taken))
        with room.changed:
            taken, lost = channel.spool.take(most)
            if not taken and not lost and not room.stopping:
                room.changed.wait(min(room.patience_s, 0.5))
                taken, lost = channel.spool.take(most)
        if lost:
            room.release(lost, 0)
        self._taken += taken
        return [event for piece in taken for event in self._named(piece)]

    def _named(self, piece: Piece) -> Iterator[Event]:
        """An event that has no id gets its place's, which is the same whenever it is taken: so it lands in the log
        once."""
        for number, event in enumerate(piece.events or (), piece.first):
            if event.id is None:
                yield Event(event.body, event.headers, f"{self._channel.spool.id}:{number}", event.origin)
            else:
                yield event

    def commit(self) -> None:
        channel, room = self._channel, self._channel.room
        if self._put:
            _or_agent_error(channel.name, lambda: channel.spool.put(self._put))
            with room.changed:
                room.changed.notify_all()
            channel.counters.add("EventPutSuccessCount", len(self._put))
            self._put = []
        if self._taken:
            taken = sum(piece.count for piece in self._taken)
            _or_agent_error(channel.name, lambda: channel.spool.settle(self._taken))
            room.release(taken, 0)
            channel.counters.add("EventTakeSuccessCount", taken)
            self._taken = []

    def rollback(self) -> None:
        channel, room = self._channel, self._channel.room
        if self._put:
            room.release(len(self._put), 0)
        if self._taken:
            with room.changed:
                channel.spool.give_back(self._taken)
                room.changed.notify_all()
        self._put, self._taken = [], []


def check_frame(name: str, events: Sequence[Event]) -> None:
    """What is put together is one frame, and a frame is written and read as a whole."""
    size = sum(len(event.body) for event in events)
    if len(events) > 1 and size > FRAME_BYTES:
        raise ChannelFull(f"{size} bytes are more than channel `{name}` takes at once", never=True)


def _or_agent_error(name: str, write: Callable[[], None]) -> None:
    try:
        write()
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise AgentError(
            f"channel `{name}` cannot be written: {reason}", hint="free some disk; it is tried again"
        ) from error


def _lock_folder(folder: Path, name: str) -> int:
    """Two agents with one folder would each take what the other put."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = os.open(folder / "in_use.lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise ConfigError(
            f"channel `{name}`: another agent uses `{folder}`", hint="give each file channel `dataDirs` of its own"
        ) from None
    return lock


def _make(context: Context) -> FileChannel:
    options = context.options
    folders = options.words("dataDirs")
    folder = (
        Path(folders[0]).expanduser() if folders else context.ports.home(context.agent) / f"file-channel-{context.name}"
    )
    return FileChannel(
        context.name,
        context.counters,
        folder,
        options.integer("capacity"),
        options.integer("transactionCapacity"),
        options.number("keep-alive"),
        min(options.integer("maxFileSize"), FILE_BYTES),
        options.integer("minimumRequiredSpace"),
    )


KIND = ComponentKind(
    "channel",
    ("file", "org.apache.flume.channel.file.FileChannel"),
    "Events wait on disk, synced, and are there after a crash.",
    _make,
    (
        Option("dataDirs", "words", None, "Folder of the events; of several, the first is used."),
        Option(
            "checkpointDir", "text", None, "Accepted. There is no checkpoint: what is taken is in the files themselves."
        ),
        Option("capacity", "integer", 1_000_000, "Most events.", least=1),
        Option("transactionCapacity", "integer", 10_000, "Most events of one transaction.", least=1),
        Option("keep-alive", "number", 3.0, "Seconds a put waits for room, before the source tries again.", least=0),
        Option(
            "maxFileSize",
            "integer",
            FILE_BYTES,
            "A new file is begun after so many bytes (at most 64 MiB).",
            least=4096,
        ),
        Option(
            "minimumRequiredSpace",
            "integer",
            524_288_000,
            "Free bytes of the disk below which puts are refused.",
            least=0,
        ),
        Option("checkpointInterval", "integer", 30_000, "Accepted; see `checkpointDir`."),
        Option("useDualCheckpoints", "flag", False, "Accepted; see `checkpointDir`."),
        Option("backupCheckpointDir", "text", None, "Accepted; see `checkpointDir`."),
    ),
    check_capacities,
)

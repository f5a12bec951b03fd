"""A log with a buffer on disk in front of it: what comes while the log is away is kept, and goes to it in order.

What an acknowledgement from here means: the events are durable on this machine, and will be in the log, before any
that come later, when it is back. Events without an id get one, so that handing them over twice writes them once. Nobody
reads them until then, and whether one is a duplicate is not known yet.
"""

from __future__ import annotations

import hashlib
import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from itertools import islice
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc

from headrace.collect.spool.files import (
    ASIDE,
    Files,
    decode,
    encode,
    frame_bytes,
    frames,
    keep_damage,
    left_behind,
    open_files,
)
from headrace.collect.spool.refused import letters_of
from headrace.config import Project
from headrace.errors import DeadlineExceeded, DiskFull, HeadraceError, LogError, NotRunning, Overloaded
from headrace.log.base import ID, Acks, Append, Appended, Log, Topic
from headrace.log.codecs.base import Schemas
from headrace.log.dead_letters import DeadLetter, bury
from headrace.log.local.files import replace_file

logger = logging.getLogger("headrace.spool")

LOOK_S, PAUSE_S, OTHERS_S = 0.2, 0.5, 5.0
TOGETHER, TOGETHER_BYTES = 1000, 4 * 1024 * 1024
"""Frames that are handed over in one write."""
FULL_S = 5.0
PASSING = (NotRunning, LogError, DeadlineExceeded, Overloaded, DiskFull)

_Stored = tuple[bytes, Future[list[Appended]], list[Appended]]


class Spool:
    """A `Destination` of events. Safe to use from several threads."""

    def __init__(self, log: Log, home: Path, max_bytes: int) -> None:
        self._log, self._home, self._max_bytes = log, home, max_bytes
        self.schemas: Schemas | None = log.schemas
        self._files: Files = open_files(home)
        self._topics: dict[str, Topic] = {}
        self._lock = threading.RLock()
        self._spooling = bool(self._files.numbers)
        """While it is, everything goes to disk: what comes later must not be in the log earlier."""
        self._in_flight = 0
        self._waiting_bytes = 0
        self._queue: queue.SimpleQueue[_Stored | None] = queue.SimpleQueue()
        self._stopping = threading.Event()
        self._in_vain: set[Path] = set()
        self.on_change: Callable[[str], None] = lambda detail: None
        """Told what there is to say about it; nothing when all is well."""
        self._name = uuid4().hex
        self._number = 0
        self._writer = threading.Thread(target=self._write, name="headrace-spool", daemon=True)
        self._drainer = threading.Thread(target=self._drain, name="headrace-spool-drain", daemon=True)
        self._writer.start()
        self._drainer.start()

    @property
    def size(self) -> int:
        """Bytes that wait."""
        return self._files.size + self._waiting_bytes

    def topic(self, name: str) -> Topic:
        """As it was last, while the log cannot say."""
        try:
            found = self._topics[name] = self._log.topic(name)
        except PASSING:
            if name not in self._topics:
                raise
            return self._topics[name]
        return found

    def append(self, appends: Sequence[Append], acks: Acks = "all") -> Future[list[Appended]]:
        with self._lock:
            if self._spooling:
                return self._store(appends)
            try:
                return self._hand_on(appends, acks)
            except NotRunning:
                self._begin()
                return self._store(appends)

    def append_placed(self, appends: Sequence[Append], acks: Acks = "all") -> Future[list[Appended]]:
        with self._lock:
            if self._spooling:
                # Nor past what waits here: that came first.
                raise NotRunning("the log is away, and where records will be is not known yet", hint="send again later")
            return self._hand_on(appends, acks)

    def _hand_on(self, appends: Sequence[Append], acks: Acks) -> Future[list[Appended]]:
        """Under the lock."""
        future = self._log.append(appends, acks)
        self._in_flight += 1
        # Done already, it is called at once, in this thread.
        future.add_done_callback(self._landed)
        return future

    def _landed(self, done: Future[list[Appended]]) -> None:
        with self._lock:
            self._in_flight -= 1

    # To disk

    def _begin(self) -> None:
        if not self._spooling:
            logger.warning("the log is away: events are kept on disk until it is back")
            self._spooling = True

    def _store(self, appends: Sequence[Append]) -> Future[list[Appended]]:
        """Under the lock."""
        self._number += 1
        named = [
            Append(one.topic, with_ids(one.batch, f"{self._name}/{self._number}/{part}"), one.partition)
            for part, one in enumerate(appends)
        ]
        content = encode(named)
        if self.size + len(content) > self._max_bytes:
            raise Overloaded(
                f"the log is away, and the {self._max_bytes} bytes that may wait for it are used up",
                hint="send again later; [collect] buffer_bytes says how much may wait",
                retry_after=FULL_S,
            )
        future: Future[list[Appended]] = Future()
        self._waiting_bytes += len(content)
        self._queue.put((content, future, [Appended((), buffered=True)] * len(named)))
        return future

    def _write(self) -> None:
        """One sync for all that came meanwhile."""
        while (first := self._queue.get()) is not None:
            stored = [first]
            while not self._queue.empty():
                following = self._queue.get()
                if following is None:
                    self._queue.put(None)
                    break
                stored.append(following)
            error: Exception | None = None
            with self._lock:
                try:
                    self._files.write([content for content, _, _ in stored])
                except OSError as failure:
                    error = DiskFull("the log is away, and what comes cannot be kept here", detail=str(failure))
                except Exception as failure:
                    error = failure  # whoever waits must hear of it, and those who come next
                self._waiting_bytes -= sum(len(content) for content, _, _ in stored)
            for _, future, answer in stored:
                if error is not None:
                    future.set_exception(error)
                else:
                    future.set_result(answer)

    # To the log

    def _drain(self) -> None:
        due = 0.0
        while not self._stopping.wait(LOOK_S):
            try:
                if self._is_there():
                    self._hand_over()
                if not self._spooling and time.monotonic() >= due:
                    self._hand_over_others()
                    due = time.monotonic() + OTHERS_S
            except Exception:
                logger.exception("the spool cannot be handed over now; trying again")
            self._say()

    def _is_there(self) -> bool:
        """Whether the log is, and nothing is on its way to it that came before what is here."""
        there = self._log.owner_alive()
        with self._lock:
            if not there:
                self._begin()
            return there and self._spooling and self._in_flight == 0

    def _hand_over(self) -> None:
        """File by file, until there is nothing more; then events go straight to the log again."""
        while not self._stopping.is_set():
            with self._lock:
                if not self._files.numbers and not self._waiting_bytes:
                    self._spooling = False
                    logger.info("everything that was kept is in the log")
                    return
                number = self._files.numbers[0] if self._files.numbers else None
                if number is not None and number == self._files.numbers[-1]:
                    self._files.seal()  # what comes now goes into another
            if number is None:
                self._stopping.wait(0.01)  # it is being written
            elif self._hand_over_file(self._files, number):
                with self._lock:
                    self._files.drop(number)
            else:
                return

    def _hand_over_others(self) -> None:
        """What a killed process left, where fewer are started than there were; and what was set aside."""
        for files in left_behind(self._home, self._files.folder):
            logger.warning("`%s` was left by a process that ended: %d bytes are handed over", files.folder, files.size)
            try:
                while files.numbers and self._hand_over_file(files, files.numbers[0]):
                    files.drop(files.numbers[0])
                self._try_again(files.folder)
            finally:
                files.close()
        self._try_again(self._files.folder)

    def _hand_over_file(self, files: Files, number: int) -> bool:
        """Whether all of it is in the log."""
        path, size = files.path(number), files.sizes[number]
        bodies, read = frames(path, size), 0
        while batch := _some(bodies):
            read += sum(frame_bytes(len(body)) for body in batch)
            if not self._put_together(batch):
                # Something in it is not wanted any more: find out what, so that only that stays outside.
                for body in batch:
                    self._put_apart(path, body)
            if self._stopping.is_set():
                return False
        if read < size:
            keep_damage(path)
        return True

    def _put_together(self, bodies: Sequence[bytes]) -> bool:
        try:
            appends = joined([decode(body) for body in bodies])
        except Exception:
            return False  # such as a topic that was made anew meanwhile, with other columns
        return self._put(appends) is None

    def _put_apart(self, path: Path, body: bytes) -> bool:
        """One write; what of it the log refuses becomes dead letters. False if it was set aside."""
        try:
            appends = decode(body)
            if self._put(appends) is None:
                return True
            letters: list[DeadLetter] = []
            for one in appends:
                if (refusal := self._put([one])) is not None:
                    why = refusal.message if isinstance(refusal, HeadraceError) else str(refusal)
                    letters += letters_of(one, f"the log refused it after it was taken: {why}")
            buried = letters and self._put([bury(letters)])
        except Exception as error:
            buried = error  # whatever it is, those behind it must not wait for it
        if not buried:
            return True
        logger.error("what the log refuses cannot be a dead letter: %s", buried)
        self._set_aside(path, body)
        return False

    def _put(self, appends: Sequence[Append]) -> Exception | None:
        """Why the log never will; None if it did."""
        while not self._stopping.is_set():
            try:
                self._log.append(appends).result()
                return None
            except PASSING as error:
                logger.warning("what is kept cannot be handed over yet: %s", error)
                self._say(str(error))
                self._stopping.wait(PAUSE_S)
            except (HeadraceError, pa.ArrowException) as error:
                logger.warning("the log refuses what was kept: %s", error)
                return error
        return None

    def _set_aside(self, path: Path, body: bytes) -> None:
        if not path.suffix.startswith(ASIDE):
            # The same name whenever it is handed over.
            kept = path.with_suffix(f"{ASIDE}{hashlib.blake2b(body, digest_size=8).hexdigest()}")
            replace_file(kept, body)
            logger.error("%d bytes that nobody takes are kept aside in `%s`", len(body), kept)

    def _try_again(self, folder: Path) -> None:
        for kept in sorted(folder.glob(f"*{ASIDE}*")):
            if kept not in self._in_vain:
                # Once a process: nothing but a new version takes what no old one did.
                self._in_vain.add(kept)
                if self._put_apart(kept, kept.read_bytes()) and not self._stopping.is_set():
                    kept.unlink()

    def _say(self, problem: str = "") -> None:
        waiting = self.size
        if self._spooling:
            self.on_change(f"the log is away: {waiting} bytes wait on disk" + (f" ({problem})" if problem else ""))
        else:
            self.on_change("")

    def close(self) -> None:
        """What is on disk stays there for the next."""
        self._stopping.set()
        self._queue.put(None)
        self._writer.join()
        self._drainer.join()
        self._files.close()


def open_spool(project: Project, log: Log) -> Spool | None:
    """None if nothing may wait."""
    most = project.settings.collect.buffer_bytes
    return Spool(log, project.data / "spool", most) if most else None


def _some(bodies: Iterator[bytes]) -> list[bytes]:
    found: list[bytes] = []
    size = 0
    for body in islice(bodies, TOGETHER):
        found.append(body)
        size += len(body)
        if size >= TOGETHER_BYTES:
            break
    return found


def with_ids(batch: pa.RecordBatch, prefix: str) -> pa.RecordBatch:
    """Each row with an id: its own, or one that is the same whenever this is handed over."""
    made = pa.array([f"{prefix}/{row}" for row in range(batch.num_rows)], pa.string())
    if ID not in batch.schema.names:
        return batch.append_column(ID, made)
    at = batch.schema.get_field_index(ID)
    if not batch.column(at).null_count:
        return batch
    return batch.set_column(at, ID, pc.coalesce(batch.column(at), made))


def joined(writes: Sequence[Sequence[Append]]) -> list[Append]:
    """Several writes as one, rows of a topic in the order they came."""
    groups: dict[tuple[str, int | None], list[pa.RecordBatch]] = {}
    for append in (one for write in writes for one in write):
        groups.setdefault((append.topic, append.partition), []).append(append.batch)
    found = []
    for (topic, partition), batches in groups.items():
        tables = [pa.Table.from_batches([batch]) for batch in batches]
        whole = pa.concat_tables(tables, promote_options="default")
        found.append(Append(topic, whole.combine_chunks().to_batches()[0], partition))
    return found

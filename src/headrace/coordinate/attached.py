"""Runs the functions that are attached to topics, as the catalog's files say."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence

import msgspec

from headrace.clock import Clock
from headrace.coordinate.attached_worker import AttachedStatus, Worker
from headrace.errors import NotFound, UsageError
from headrace.functions.attach import Attached
from headrace.functions.batches import Caller, Made, Rejected, sent_records
from headrace.functions.compiled import Limits
from headrace.functions.files import FunctionFile
from headrace.log.base import Log

END_S = 10.0

logger = logging.getLogger("headrace.functions")


class AttachedFunctions:
    """Keeps the workers that the catalog's files ask for: new texts get new workers, the others go on."""

    def __init__(self, log: Log, clock: Clock, files: Callable[[], Mapping[str, FunctionFile]], limits: Limits) -> None:
        self._log, self._clock, self._files, self._limits = log, clock, files, limits
        self._syncing = threading.Lock()
        """Held by the one who ends and begins workers: a call that is under way may take its time."""
        self._lock = threading.Lock()
        self._workers: dict[str, Worker] = {}
        self._closed = False
        self._changed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="headrace-functions", daemon=True)

    def start(self) -> None:
        """From now on what the catalog says is what runs."""
        self._changed.set()
        self._thread.start()

    def wake(self) -> None:
        """The catalog has changed."""
        self._changed.set()

    def _run(self) -> None:
        while not self._closed:
            self._changed.wait()
            self._changed.clear()
            self.sync()

    def sync(self) -> None:
        with self._syncing:
            wanted = self._wanted()
            with self._lock:
                known = dict(self._workers)
            gone = {name: one for name, one in known.items() if (one.file, one.attached) != wanted.get(name)}
            self._end(list(gone.values()))
            with self._lock:
                if self._closed:
                    return
                for name in gone:
                    del self._workers[name]
                for name, (file, attached) in wanted.items():
                    if name not in self._workers:
                        self._workers[name] = self._begin(file, attached)

    def _wanted(self) -> dict[str, tuple[FunctionFile, Attached]]:
        found: dict[str, tuple[FunctionFile, Attached]] = {}
        for file in self._files().values():
            for attached in file.attached:
                if attached.topic and attached.name in found:
                    logger.warning("function `%s` of %s is defined twice: the first counts", attached.name, file.file)
                elif attached.topic:
                    found[attached.name] = (file, attached)
        return found

    def _begin(self, file: FunctionFile, attached: Attached) -> Worker:
        worker = Worker(self._log, self._clock, file, attached, self._limits)
        worker.thread = threading.Thread(target=worker.run, name=f"headrace-function-{attached.name}", daemon=True)
        worker.thread.start()
        return worker

    def _end(self, workers: Sequence[Worker]) -> None:
        for worker in workers:
            worker.stop.set()
        for worker in workers:
            if worker.thread is not None:
                worker.thread.join(END_S + (worker.attached.seconds or self._limits.seconds))

    def statuses(self) -> list[AttachedStatus]:
        with self._lock:
            return [worker.status() for _, worker in sorted(self._workers.items())]

    def find(self, name: str) -> tuple[FunctionFile, Attached]:
        """A function by name, transforms too. `NotFound` if there is none."""
        for file in self._files().values():
            for attached in file.attached:
                if attached.name == name:
                    return file, attached
        raise NotFound(
            f"there is no function `{name[:100]}` on a topic", hint="`headrace function list` shows those there are"
        )

    def attempt(self, name: str, limit: int, oldest: bool = False) -> tuple[list[Made], list[Rejected]]:
        """Call it with some records of its topic and write nothing: what it would make, and what it fails for."""
        file, attached = self.find(name)
        if not attached.topic:
            raise UsageError(f"function `{name}` is on no topic", hint="a delivery stream calls it")
        topic = self._log.topic(attached.topic)
        numbers = attached.partitions or range(topic.spec.partitions)
        caller = Caller(
            file,
            msgspec.structs.replace(attached, retries=0, to=attached.to or "-"),
            topic.spec.kind == "raw",
            self._limits,
            lambda: None,
        )
        made: list[Made] = []
        rejected: list[Rejected] = []
        try:
            ends = self._log.snapshot().ends[topic.name]
            for number in numbers:
                start = ends[number].start if oldest else max(ends[number].start, ends[number].end - limit)
                end = min(ends[number].end, start + limit)
                sent = [
                    one for part in self._log.read(topic.name, number, start, end) for one in sent_records(part, topic)
                ]
                for first in range(0, len(sent), attached.batch):
                    worked = caller.work(sent[first : first + attached.batch], threading.Event())
                    made += worked.made
                    rejected += worked.rejected
                if len(made) + len(rejected) >= limit:
                    break
        finally:
            caller.close()
        return made[:limit], rejected[:limit]

    def close(self) -> None:
        with self._lock:
            self._closed = True
            workers, self._workers = list(self._workers.values()), {}
        self._changed.set()
        self._end(workers)
        if self._thread.is_alive():
            self._thread.join()

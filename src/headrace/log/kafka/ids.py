"""Event ids on Kafka (contract 11): which a topic has, looked up before anything is written under one.

Kafka has no index, so every process that writes ids keeps its own (`topic_ids`), level with the topic. That nobody else
writes the same id meanwhile is not this module's: see `identified`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from headrace.clock import Clock
from headrace.config import LogSettings
from headrace.errors import HeadraceError, LogError, Overloaded
from headrace.log.base import Appended, Topic
from headrace.log.kafka.encode import Digests, Outgoing
from headrace.log.kafka.fetch import Fetcher
from headrace.log.kafka.id_folders import IdFolder
from headrace.log.kafka.offsets import Offsets
from headrace.log.kafka.topic_ids import TopicIds
from headrace.log.kafka.topics import Topics
from headrace.log.local.id_runs import Place
from headrace.log.local.ids import IdIndex
from headrace.log.local.retention import id_window
from headrace.log.writing.prepare import id_digest

PATIENCE_S = 5.0
"""How long a writer waits while a topic's ids are read; then it is told to come again."""
CARE_S, RETENTION_EVERY = 2.0, 30

logger = logging.getLogger("headrace.log.kafka")


@dataclass(frozen=True, slots=True)
class _Reading:
    """A topic that is made level, by another thread."""

    work: Future[None]
    turn: int | None
    """That of the writer it is done for; None if for somebody who has none."""
    until: float
    """How long writers wait for it."""


class KafkaIds:
    """Safe to use from several threads. Nothing is opened, and no folder taken, before the first id is written."""

    def __init__(
        self, home: Path, settings: LogSettings, topics: Topics, fetcher: Fetcher, offsets: Offsets, clock: Clock
    ) -> None:
        self._home, self._settings, self._clock = home, settings, clock
        self._topics, self._fetcher, self._offsets = topics, fetcher, offsets
        self._lock = threading.RLock()
        self._folder: IdFolder | None = None
        self._known: dict[str, TopicIds] = {}
        self._level: dict[str, int] = {}
        """The turn in which a topic was last made level with what others wrote."""
        self._reading: dict[str, _Reading] = {}
        self._turn = 0
        self._stopping = threading.Event()
        self._due = threading.Event()
        self._workers = ThreadPoolExecutor(2, "headrace-kafka-ids")
        self._carer: threading.Thread | None = None

    # Looking up

    def took_turn(self) -> None:
        """Others may have written ids until now: what they wrote has to be known before anything is decided."""
        with self._lock:
            self._turn += 1

    def sift(
        self, batches: Sequence[Outgoing], in_turn: bool, sent: Mapping[str, set[bytes]] | None = None
    ) -> list[tuple[int, ...]]:
        """For each batch the rows that are known already, or come a second time in it or in one before it. `sent` are
        those of each topic that are on their way. `Overloaded` while ids are being read."""
        here = {name: set(digests) for name, digests in (sent or {}).items()}
        with self._lock:
            # Asked for once, however many batches there are.
            topics = {batch.topic for batch in batches if batch.digests}
            indexes = {name: self._made_level(name, in_turn).index for name in topics}
        return [
            _known_rows(batch.digests, indexes[batch.topic], here.setdefault(batch.topic, set()))
            if batch.digests
            else ()
            for batch in batches
        ]

    def places(self, name: str, ids: Sequence[str]) -> list[Place | None]:
        if self._topics.get(name).spec.role != "events":
            return [None] * len(ids)
        digests = [id_digest(one) for one in ids]
        with self._lock:
            index = self._made_level(name, in_turn=False).index
        found = index.places(digests)
        return [found.get(digest) for digest in digests]

    # Being level with the topic

    def _made_level(self, name: str, in_turn: bool) -> TopicIds:
        """With all that can be read; in one's turn also with what the others wrote before it, readable or not."""
        if self._stopping.is_set():
            raise LogError("the log is closed")
        reading = self._reading.get(name) or self._read(name, in_turn)
        try:
            reading.work.result(max(0.0, reading.until - time.monotonic()))
        except TimeoutError:
            raise Overloaded(
                f"the event ids of topic `{name}` are being read",
                detail="an event with an id is looked up among all of the topic's, and others wrote many",
                hint="send it again in a moment",
                retry_after=PATIENCE_S,
            ) from None
        except HeadraceError:
            self._drop(name)
            raise
        del self._reading[name]
        if reading.turn is not None:
            self._level[name] = reading.turn
        if in_turn and self._level.get(name) != self._turn:
            return self._made_level(name, in_turn)
        return self._known[name]

    def _read(self, name: str, in_turn: bool) -> _Reading:
        ids = self._of(self._topics.get(name))
        settle = in_turn and self._level.get(name) != self._turn
        work = self._workers.submit(ids.read_on, settle, self._stopping.is_set)
        reading = _Reading(work, self._turn if settle else None, time.monotonic() + PATIENCE_S)
        self._reading[name] = reading
        return reading

    def _of(self, topic: Topic) -> TopicIds:
        found = self._known.get(topic.name)
        if found is not None and found.topic.id != topic.id:
            self.forget(topic.name)
            found = None
        if found is None:
            kafka = self._topics.kafka_name(topic.name)
            path = self._taken_folder().of_topic(topic.id)
            found = TopicIds(topic, kafka, path, self._clock, self._fetcher, self._offsets)
            found.open()
            self._known[topic.name] = found
        found.topic = topic
        return found

    def folder(self) -> Path:
        """What no other process has."""
        with self._lock:
            return self._taken_folder().path

    def _taken_folder(self) -> IdFolder:
        if self._folder is None:
            self._folder = IdFolder(self._home)
            self._folder.keep_only({topic.id for topic in self._topics.all()})
            self._carer = threading.Thread(target=self._care, name="headrace-kafka-id-care", daemon=True)
            self._carer.start()
        return self._folder

    # Learning and forgetting

    def wrote(self, batches: Sequence[Outgoing], appended: Sequence[Appended], marked: bool) -> None:
        """This process wrote these, all of them durable; `marked` if in a transaction."""
        with self._lock:
            for name in {batch.topic for batch in batches} & self._known.keys() - self._reading.keys():
                mine = [pair for pair in zip(batches, appended, strict=True) if pair[0].topic == name]
                if self._known[name].wrote([one for one, _ in mine], [done for _, done in mine], marked):
                    self._due.set()

    def forget(self, name: str) -> None:
        """The topic is gone."""
        with self._lock:
            self._wait_for(name)
            found = self._known.pop(name, None)
            self._level.pop(name, None)
            if found is not None:
                found.delete()

    def _drop(self, name: str) -> None:
        """It could not be made level: opened again the next time."""
        self._reading.pop(name, None)
        self._level.pop(name, None)
        if (found := self._known.pop(name, None)) is not None:
            found.index.close()

    def _wait_for(self, name: str) -> None:
        reading = self._reading.pop(name, None)
        if reading is not None:
            reading.work.exception()

    # Care

    def _care(self) -> None:
        """So that little has to be read after a crash, runs stay few, and what expired goes."""
        rounds = 0
        while not self._stopping.is_set():
            self._due.wait(CARE_S)
            self._due.clear()
            rounds += 1
            with self._lock:
                known = [ids for name, ids in self._known.items() if name not in self._reading]
            for ids in known:
                try:
                    self._look_after(ids, rounds % RETENTION_EVERY == 0)
                except (HeadraceError, OSError) as error:
                    if not self._stopping.is_set():
                        logger.warning("the index of event ids of `%s` cannot be kept: %s", ids.topic.name, error)

    def _look_after(self, ids: TopicIds, retention: bool) -> None:
        ids.index.window_ms = id_window(ids.topic, self._settings)
        ids.index.flush_if_due()
        if retention:
            ids.look_after(self._stopping.is_set)

    def close(self) -> None:
        self._stopping.set()
        self._due.set()
        if self._carer is not None:
            self._carer.join()
        self._workers.shutdown(cancel_futures=True)
        with self._lock:
            for ids in self._known.values():
                ids.index.close()
            self._known.clear()
            if self._folder is not None:
                self._folder.release()


def _known_rows(digests: Digests, index: IdIndex, here: set[bytes]) -> tuple[int, ...]:
    """Those that the index has, or `here` has; the others are noted there."""
    known = index.places([digest for digest in digests if digest is not None])
    duplicates = []
    for row, digest in enumerate(digests):
        if digest is None:
            continue
        if digest in known or digest in here:
            duplicates.append(row)
        here.add(digest)
    return tuple(duplicates)

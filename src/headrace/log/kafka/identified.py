"""Writing records with event ids to Kafka, each once, whoever else writes.

Every process of a project that writes ids does so in transactions of one transactional id, `headrace-ids`. Kafka lets
one producer at a time have it: whoever takes it fences the one before, whose open transaction is aborted and which can
commit no more. So the *turn* is a lock that needs no lease: who has it reads what the others wrote, decides which ids
are new, and commits; who has lost it finds out before anything is stored, and takes it again. After a crash, or when
Kafka did not say what became of a commit, taking the turn settles that too: the ids are in the topic then, or never.
They queue for it (`turns`); one who is alone keeps it.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Sequence
from dataclasses import replace

from headrace.errors import HeadraceError, Overloaded, OwnerLost
from headrace.log.base import Appended
from headrace.log.kafka.client import Connection
from headrace.log.kafka.delivery import Sender
from headrace.log.kafka.encode import Outgoing
from headrace.log.kafka.ids import KafkaIds
from headrace.log.kafka.offsets import Offsets
from headrace.log.kafka.table import Table
from headrace.log.kafka.transaction import Transactor
from headrace.log.kafka.turns import Turns, name_of

_TRANSACTION_S = 15.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 1.0
_WATCH_S, _SHARED_S = 0.5, 60.0
_HOLD_S = 0.25
"""How long a turn lasts when others wait: taking it costs about a tenth of a second."""


class IdentifiedWriter:
    """Written to by one thread; another looks whether somebody waits."""

    def __init__(self, connection: Connection, offsets: Offsets, ids: KafkaIds, table: Table) -> None:
        self._connection, self._table, self._ids = connection, table, ids
        self._patience_s = connection.settings.delivery_seconds
        name = f"{connection.settings.prefix}headrace-ids"
        self._transactor = Transactor(connection, offsets, name, _TRANSACTION_S, shared=True)
        self._lock = threading.Lock()
        self._turns: Turns | None = None
        self._turn: Sender | None = None
        self._taken: float | None = None
        """Since when it has the turn."""
        self._shared_until = 0.0
        self._stopping = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="headrace-kafka-turns", daemon=True)

    def write(self, batches: Sequence[Outgoing]) -> list[Appended]:
        """All in one transaction, but for rows whose id is known. Waits for its turn."""
        with self._lock:
            turns = self._opened()
            if not turns.is_mine():
                self._release()
                turns.take()
            self._taken = self._taken or time.monotonic()
            try:
                return self._write_in_turn(batches)
            finally:
                # What is written is written, whatever becomes of the turn.
                with contextlib.suppress(HeadraceError):
                    self._share(turns)

    def _opened(self) -> Turns:
        if self._turns is None:
            self._turns = Turns(self._connection, self._table, name_of(self._ids.folder()))
            self._watcher.start()
        return self._turns

    def _share(self, turns: Turns) -> None:
        """Who is alone keeps the turn; who was not, a while ago, gives it up before anybody waits."""
        now = time.monotonic()
        if self._taken is None or now - self._taken < _HOLD_S:
            return
        if turns.others_wait():
            self._shared_until = now + _SHARED_S
        if now < self._shared_until:
            self._release()
            turns.give_up()

    def _release(self) -> None:
        self._turn = self._taken = None
        self._transactor.close()

    def _watch(self) -> None:
        """For those who come while nothing is written here."""
        pause = _WATCH_S
        while not self._stopping.wait(pause):
            with contextlib.suppress(HeadraceError), self._lock:
                if self._turns is not None:
                    self._share(self._turns)
            pause = _HOLD_S / 5 if time.monotonic() < self._shared_until else _WATCH_S

    def _write_in_turn(self, batches: Sequence[Outgoing]) -> list[Appended]:
        deadline, pause = time.monotonic() + self._patience_s, _FIRST_PAUSE_S
        while True:
            try:
                return self._write(batches)
            except HeadraceError as error:
                # Somebody took it, and nothing is stored. `OwnerLost`, when nobody knows, is for the caller to know.
                lost = self._turn is not None and self._transactor.sender is None
                self._turn = self._transactor.sender
                if not lost or isinstance(error, OwnerLost):
                    raise
                if time.monotonic() > deadline:
                    raise Overloaded(
                        "other servers write so many events with ids that there was no turn for these",
                        detail=str(error),
                        hint="send them again in a moment",
                    ) from error
            # The other one has work to do, or it would not have taken the turn.
            time.sleep(pause * (0.5 + random.random()))
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    def _write(self, batches: Sequence[Outgoing]) -> list[Appended]:
        duplicates: list[tuple[int, ...]] = []
        kept: list[Outgoing] = []

        def decide() -> bool:
            if self._transactor.sender is not self._turn:
                self._turn = self._transactor.sender
                self._ids.took_turn()
            duplicates[:] = self._ids.sift(batches, in_turn=True)
            kept[:] = [batch.without(set(rows)) for batch, rows in zip(batches, duplicates, strict=True)]
            return any(map(len, kept))

        done = self._transactor.run(lambda: kept, "write", decide)
        if done is None:
            done = [Appended(()) for _ in batches]
        else:
            self._ids.wrote(kept, done, marked=True)
        return [replace(one, duplicates=rows) for one, rows in zip(done, duplicates, strict=True)]

    def close(self) -> None:
        self._stopping.set()
        if self._turns is None:
            return
        self._watcher.join()
        self._release()
        with contextlib.suppress(HeadraceError):
            self._turns.give_up()

"""Writing records with event ids to Kafka, each once, whoever else writes.

Every process of a project that writes ids does so in transactions of one transactional id, `headrace-ids`. Kafka lets
one producer at a time have it: whoever takes it fences the one before, whose open transaction is aborted and which can
commit no more. So the *turn* is a lock that needs no lease: who has it reads what the others wrote, decides which ids
are new, and commits; who has lost it finds out before anything is stored, and takes it again. After a crash, or when
Kafka did not say what became of a commit, taking the turn settles that too: the ids are in the topic then, or never.
"""

from __future__ import annotations

import random
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
from headrace.log.kafka.transaction import Transactor

_TRANSACTION_S = 15.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 1.0


class IdentifiedWriter:
    """For one thread."""

    def __init__(self, connection: Connection, offsets: Offsets, ids: KafkaIds) -> None:
        self._ids = ids
        self._patience_s = connection.settings.delivery_seconds
        name = f"{connection.settings.prefix}headrace-ids"
        self._transactor = Transactor(connection, offsets, name, _TRANSACTION_S, shared=True)
        self._turn: Sender | None = None

    def write(self, batches: Sequence[Outgoing]) -> list[Appended]:
        """All in one transaction, but for rows whose id is known. Waits for its turn."""
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
        self._transactor.close()

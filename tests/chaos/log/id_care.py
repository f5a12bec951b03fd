"""Ids through everything that moves records: retention, compaction, the archive, splits, deletions, and an index that
was lost. An id whose record is there is never taken again; a new one always is."""

from __future__ import annotations

import random
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

from headrace.clock import ManualClock
from headrace.config import ArchiveSettings
from headrace.log.base import TopicConfig
from headrace.log.local import LocalLog
from tests.chaos.log.kills import Say
from tests.chaos.log.ledger import Broken
from tests.chaos.log.workload import hurry
from tests.log.support import VIEWS, manual_clock, open_owner, put, rows

STEPS = 120
MOST_PARTITIONS = 6


def care_for_ids(folder: Path, rounds: int, seed: int, say: Say) -> None:
    hurry()
    for number in range(rounds):
        kept = _Round(folder / str(number), random.Random(seed + number)).run()
        say(f"seed {seed + number}: {kept} records are left, none of them twice")


class _Round:
    def __init__(self, folder: Path, chance: random.Random) -> None:
        self._folder, self._chance, self._clock = folder, chance, manual_clock()
        self._archive = ArchiveSettings(
            folder=str(folder / "archive"), after_hours=0.01, retention_hours=chance.choice((0, 1))
        )
        self._log = self._open(self._clock)
        retention = chance.choice((0, 60_000, 600_000))
        config = TopicConfig(retention_ms=retention, compacted=chance.random() < 0.3)
        self._log.create_topic(replace(VIEWS, config=config))
        self._sent = 0

    def _open(self, clock: ManualClock) -> LocalLog:
        settings: dict[str, Any] = {"segment_seconds": 10, "segment_bytes": 4_000, "archive": self._archive}
        return open_owner(self._folder / "log", clock, **settings)

    def run(self) -> int:
        deeds = {self._send: 12, self._wait: 2, self._log_cares: 2, self._archives: 1}
        deeds |= {self._splits: 1, self._deletes: 1, self._opens_again: 2}
        try:
            for deed in self._chance.choices(list(deeds), list(deeds.values()), k=STEPS):
                deed()
            there = self._there()
            if len(there) != len(set(there)):
                raise Broken("an id is there twice")
            return len(there)
        finally:
            self._log.close()

    def _there(self) -> list[str]:
        return [row["$id"] for row in rows(self._log, "pageviews", ["$id"])]

    def _send(self) -> None:
        new = [f"{self._sent + number}" for number in range(5)]
        again = [f"{self._chance.randrange(self._sent)}" for _ in range(3)] if self._sent else []
        there, ids = set(self._there()), [*new, *again]
        users = [f"u{self._chance.randrange(9)}" for _ in ids]
        refused = {ids[row] for row in put(self._log, "pageviews", USERID=users, id_=ids).duplicates}
        if taken := (set(again) & there) - refused:
            raise Broken(f"{taken} are in the log, and were taken again")
        if set(new) & refused:
            raise Broken(f"{set(new) & refused} are new, and were refused")
        self._sent += len(new)

    def _wait(self) -> None:
        self._clock.advance(self._chance.choice((1_000, 20_000, 200_000, 3_000_000)))

    def _log_cares(self) -> None:
        self._log.maintain()

    def _archives(self) -> None:
        self._log.archive_now(self._chance.random() < 0.5)

    def _splits(self) -> None:
        topic = self._log.topic("pageviews")
        live = [n for n in range(topic.spec.partitions) if not topic.ranges or not topic.ranges[n].closed]
        if len(live) < MOST_PARTITIONS:
            self._log.split_partition("pageviews", self._chance.choice(live))

    def _deletes(self) -> None:
        number, ends = self._chance.choice(list(enumerate(self._log.snapshot().ends["pageviews"])))
        self._log.delete_records("pageviews", number, self._chance.randrange(ends.start, ends.end + 1))

    def _opens_again(self) -> None:
        self._log.close()
        if self._chance.random() < 0.3:
            shutil.rmtree(self._folder / "log" / "ids", ignore_errors=True)
        self._log = self._open(self._clock)

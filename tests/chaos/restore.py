"""Restores at random moments under load: nothing that was committed before a backup is lost, nothing else is there, and
whoever was ahead of the backup is noticed.

A server process is played by an owner of the log with views that follow it. Writers go on while backups are made and
maintenance seals, rewrites, compacts and archives. Then the owner is closed, or its files are left as a kill leaves
them; the log is restored to a random backup, to a random moment between backups, or put back by hand; and all is
compared with what was acknowledged by then. A restore that says it is not complete is not made.

    python -m tests.chaos.restore --rounds 30 --seed 7
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from headrace.clock import SystemClock, wall_milliseconds
from headrace.config import ArchiveSettings, LogSettings
from headrace.errors import NotFound
from headrace.log.base import Append, TopicConfig, TopicSpec
from headrace.log.local import marks
from headrace.log.local.backup import back_up
from headrace.log.local.backup_store import BackupStore, Point
from headrace.log.local.cutting import Cut
from headrace.log.local.log import LocalLog
from headrace.log.local.moments import Target, choose_moment, read_marks
from headrace.log.local.restore import restore_log
from headrace.log.local.verify import verify_log
from headrace.sql.source import Source
from headrace.store.follow import Followers
from headrace.store.sqlite import SqliteStore
from headrace.types import BIGINT, VARCHAR, Column
from tests.support import let_pass, wait_for

SETTINGS = LogSettings(
    segment_bytes=20_000,
    min_free_bytes=0,
    archive=ArchiveSettings(folder="archive", after_hours=1e6),
)
KEY, VALUE = (Column("K", VARCHAR),), (Column("N", BIGINT),)
EVENTS = TopicSpec("events", key=KEY, value=VALUE, partitions=2)
TABLE = TopicSpec("table", key=KEY, value=VALUE, role="derived", config=TopicConfig(compacted=True))
KEYS = 7


@dataclass(slots=True)
class Outcome:
    rounds: int = 0
    restores: int = 0
    moments: int = 0
    exact: int = 0
    incomplete: int = 0
    copies: int = 0
    written: int = 0
    lost: int = 0
    wrong: int = 0
    unnoticed: int = 0
    damaged: int = 0

    @property
    def good(self) -> bool:
        return self.restores + self.moments + self.copies > 0 and not (
            self.lost or self.wrong or self.unnoticed or self.damaged
        )


@dataclass(slots=True)
class Branch:
    """What was acknowledged, in order, how far the log was after each, and when it was sent and acknowledged."""

    numbers: list[int] = field(default_factory=list)
    arrivals: list[int] = field(default_factory=list)
    times: list[tuple[int, int]] = field(default_factory=list)

    def until(self, arrival: int) -> Branch:
        kept = sum(one <= arrival for one in self.arrivals)
        return Branch(self.numbers[:kept], self.arrivals[:kept], self.times[:kept])

    def copy(self) -> Branch:
        return Branch(list(self.numbers), list(self.arrivals), list(self.times))


class Place:
    def __init__(self, folder: Path, random_: random.Random, outcome: Outcome) -> None:
        self.folder, self.random, self.outcome = folder, random_, outcome
        self.branch = Branch()
        self.points: list[tuple[Point, Branch]] = []
        self.copies: list[tuple[Path, Branch]] = []
        self.positions: list[tuple[str, int, Branch]] = []
        """Epoch, arrival and branch of clients that keep a place for themselves."""
        self.next = 0
        self.open()
        for spec in (EVENTS, TABLE):
            self.log.create_topic(spec)

    def open(self) -> None:
        self.log = LocalLog(self.folder / "log", SETTINGS, SystemClock(), serve=False)
        self.store = SqliteStore(self.folder / "views")
        self.followers = Followers(self.log, self.store)
        source = Source("TABLE", "table", "table", KEY, VALUE)
        self.followers.sync([_View()], lambda name: source)

    def close(self) -> None:
        self.followers.close()
        self.store.close()
        self.log.close()

    def write(self, count: int) -> None:
        for _ in range(count):
            number, self.next = self.next, self.next + 1
            key = f"k{number % KEYS}"
            rows = pa.RecordBatch.from_pydict({"K": [key], "N": [number], "$id": [f"id {number}"]})
            row = pa.RecordBatch.from_pydict({"K": [key], "N": [number]})
            sent = wall_milliseconds()
            self.log.append([Append("events", rows), Append("table", row)]).result()
            self.branch.times.append((sent, wall_milliseconds()))
            self.branch.numbers.append(number)
            self.branch.arrivals.append(self.log.snapshot().arrival)
            self.outcome.written += 1

    def load(self) -> None:
        """Write, seal, compact, archive, and back up meanwhile."""
        writer = threading.Thread(target=self.write, args=(self.random.randint(20, 80),))
        writer.start()
        while writer.is_alive():
            match self.random.randint(0, 3):
                case 0:
                    self.log.maintain()
                case 1:
                    self.log.archive_now(seal=self.random.random() < 0.3)
                case 2:
                    point = back_up(self.folder / "log", self.folder / "backups", SystemClock()).point
                    self.points.append((point, self.branch))
                case _:
                    let_pass(0.01)
        writer.join()
        self.positions.append((self.log.epochs().current.id, self.log.snapshot().arrival, self.branch))

    def check(self) -> None:
        """The log and the view hold exactly what was acknowledged on this branch."""
        found = [n for p in range(2) for r in self.log.read("events", p, 0) for n in r.batch.column("N").to_pylist()]
        wanted = set(self.branch.numbers)
        self.outcome.lost += len(wanted - set(found))
        self.outcome.wrong += len(set(found) - wanted) + len(found) - len(set(found))
        known = self.log.places("events", [f"id {number}" for number in range(self.next)])
        self.outcome.wrong += sum((place is not None) != (n in wanted) for n, place in enumerate(known))
        wait_for(lambda: self.followers.lag("TABLE", 1) == 0, 60, "the view")
        rows, _ = self.followers.view("TABLE").select(["K", "N"])
        newest = {f"k{number % KEYS}": number for number in self.branch.numbers}
        self.outcome.wrong += len(set(rows.rows) ^ set(newest.items()))

    def check_positions(self) -> None:
        """A place that is not on this branch is refused; one that is, is not."""
        arrivals = self.branch.arrivals
        for epoch, arrival, branch in self.positions:
            here = arrival in arrivals and branch.until(arrival).numbers == self.branch.until(arrival).numbers
            self.outcome.unnoticed += self.log.epochs().include(epoch, arrival) != here

    def restore(self) -> None:
        if self.copies and self.random.random() < 0.4:
            copy, branch = self.random.choice(self.copies)
            shutil.rmtree(self.folder / "log")
            shutil.copytree(copy / "log", self.folder / "log")
            shutil.rmtree(self.folder / "archive", ignore_errors=True)
            shutil.copytree(copy / "archive", self.folder / "archive", dirs_exist_ok=True)
            self.branch = branch.copy()
            self.outcome.copies += 1
        elif self.points and self.random.random() < 0.6:
            self.restore_moment()
        elif self.points:
            point, branch = self.random.choice(self.points)
            self.put_back(Target(point), branch)
            self.outcome.restores += 1

    def put_back(self, target: Target, branch: Branch) -> None:
        aside = restore_log(self.folder / "log", BackupStore(self.folder / "backups"), target, SystemClock()).aside
        if aside is not None:
            shutil.rmtree(aside)
        self.branch = branch.until(target.arrival)

    def restore_moment(self) -> None:
        """Restore what the log was when some record was sent, or a little later."""
        store = BackupStore(self.folder / "backups")
        point, branch = self.random.choice(self.points)
        times = [time_ms for both in branch.times for time_ms in both]
        times += [mark.last_ms for tier in read_marks(store, point).values() for mark in tier]
        asked = self.random.choice(times) + self.random.choice([0, 1, 20])
        try:
            target = choose_moment(store, asked)
        except NotFound:
            return  # before the first mark
        if target.mark is not None and Cut(store, target).losses:
            self.outcome.incomplete += 1
            return
        branch = next(branch for point, branch in self.points if point == target.point)
        there = set(branch.until(target.arrival).numbers)
        each = list(zip(branch.numbers, branch.times, strict=True))
        self.outcome.wrong += len(there - {number for number, (sent, _) in each if sent <= asked})
        if target.exact:
            self.outcome.lost += len({number for number, (_, known) in each if known <= asked} - there)
        self.put_back(target, branch)
        self.outcome.moments += 1
        self.outcome.exact += target.exact

    def lose_marks(self) -> None:
        """As a power cut may: the last marks were not written, or half."""
        for tier in marks.EVERY_S:
            for file in marks.list_files(self.folder / "log" / marks.FOLDER, tier)[-1:]:
                ends = [mark.length for mark, _, _ in marks.decode_marks(file.read_bytes(), "")]
                os.truncate(file, ends[0] + self.random.randint(0, ends[-1] - ends[0]))

    def copy(self) -> None:
        """By hand, of a project that is stopped."""
        to = self.folder / f"copy-{len(self.copies)}"
        shutil.copytree(self.folder / "log", to / "log")
        (self.folder / "archive").mkdir(exist_ok=True)
        shutil.copytree(self.folder / "archive", to / "archive")
        self.copies.append((to, self.branch.copy()))


@dataclass(frozen=True, slots=True)
class _View:
    name: str = "TABLE"
    version: int = 1
    topic: str = "table"


def run(folder: Path, rounds: int, seed: int) -> Outcome:
    outcome = Outcome()
    place = Place(folder, random.Random(seed), outcome)
    for _ in range(rounds):
        place.load()
        place.check()
        place.close()
        if place.random.random() < 0.3:
            place.lose_marks()
        outcome.damaged += len(verify_log(folder / "log").findings)
        if place.random.random() < 0.3:
            place.copy()
        if place.random.random() < 0.7:
            place.restore()
        if place.random.random() < 0.5:
            # Commands while the project is stopped: the log overtakes what was ahead, and nothing follows it.
            place.log = LocalLog(folder / "log", SETTINGS, SystemClock(), serve=False)
            place.write(place.random.randint(1, 100))
            place.log.close()
        place.open()
        place.check()
        place.check_positions()
        outcome.rounds += 1
    place.close()
    return outcome


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--seed", type=int, default=None)
    options = parser.parse_args(arguments)
    seed = random.randrange(1 << 32) if options.seed is None else options.seed
    marks.EVERY_S["seconds"] = 0.02  # rounds are short
    with tempfile.TemporaryDirectory() as folder:
        outcome = run(Path(folder), options.rounds, seed)
    print(f"seed {seed}: {outcome}")
    return 0 if outcome.good else 1


if __name__ == "__main__":
    sys.exit(main())

"""Kill -9 of the log's owner while others produce, consume and do transactions through it, and count.

A producer sends numbers; a worker in a group reads them and writes each one doubled in a transaction with the offsets
it has read; the owner is killed at random moments and started again. At the end every number must be there once and in
order, and every double once and in order: lost 0, duplicated 0.

    python -m tests.chaos.producers --kills 200 --seed 7
"""

from __future__ import annotations

import argparse
import contextlib
import random
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from headrace.errors import HeadraceError
from headrace.log.base import Log, TopicPartition, TopicSpec
from headrace.log.local import LocalClient
from headrace.types import BIGINT, VARCHAR, Column
from tests.log.owner_process import OwnerProcess
from tests.log.support import batch, numbers
from tests.support import let_pass, wait_for

NUMBERS = TopicSpec("numbers", key=(Column("K", VARCHAR),), value=(Column("N", BIGINT),), partitions=3)
DOUBLES = TopicSpec("doubles", value=(Column("N", BIGINT), Column("P", BIGINT)), role="derived")


@dataclass
class Outcome:
    sent: int = 0
    lost: int = 0
    duplicated: int = 0
    disordered: int = 0
    failed: set[int] = field(default_factory=set)
    kills: int = 0

    @property
    def good(self) -> bool:
        return self.sent > 0 and not (self.lost or self.duplicated or self.disordered or self.failed)


def run(folder: Path, kills: int, seed: int, say: Callable[[str], object] = print) -> Outcome:
    chance = random.Random(seed)
    owner = OwnerProcess(folder / "log")
    log = LocalClient(folder / "log")
    for spec in (NUMBERS, DOUBLES):
        log.create_topic(spec)
    outcome, stop = Outcome(), threading.Event()
    producing = threading.Thread(target=_produce, args=(log, stop, outcome))
    doubling = threading.Thread(target=_double, args=(folder / "log", stop))
    producing.start()
    doubling.start()
    for number in range(kills):
        _stored_more(log, number)
        let_pass(chance.uniform(0.0, 0.6))
        owner.kill()
        let_pass(chance.choice([0.0, 0.0, 0.2]))
        owner.start()
        outcome.kills += 1
        if number % 50 == 49:
            say(f"{number + 1} kills, {outcome.sent} sent")
    stop.set()
    producing.join()
    doubling.join()
    _count(log, outcome)
    log.close()
    owner.kill()
    return outcome


def _stored_more(log: Log, number: int) -> None:
    """Every other time, be killed only after the producer got on. On a slow machine its writes grow while the owner is
    away, until one takes longer than the owner lives; what nobody took for two minutes has rightly failed."""
    if number % 2:
        before = _stored(log)
        wait_for(lambda: _stored(log) > before, 100, "something to be written")


def _stored(log: Log) -> int:
    return sum(ends.end for ends in log.snapshot().ends["numbers"])


def _produce(log: Log, stop: threading.Event, outcome: Outcome) -> None:
    producer = log.producer(linger_ms=1.0)
    sent = []
    while not stop.is_set():
        sent.append(producer.send("numbers", batch(K=[f"k{outcome.sent % 11}"], N=[outcome.sent])))
        outcome.sent += 1
        stop.wait(0.0005)
    with contextlib.suppress(HeadraceError):
        producer.flush(120)
    outcome.failed = {number for number, future in enumerate(sent) if future.exception() is not None}
    with contextlib.suppress(HeadraceError):
        producer.close()


def _double(folder: Path, stop: threading.Event) -> None:
    """A worker that is started again whenever anything goes wrong."""
    idle = False
    while not (stop.is_set() and idle):
        try:
            idle = _double_until_trouble(folder, stop)
        except HeadraceError:
            let_pass(0.05)


def _double_until_trouble(folder: Path, stop: threading.Event) -> bool:
    log = LocalClient(folder)
    try:
        with log.producer("doubling") as producer, log.consumer("numbers", group="doubling") as consumer:
            while True:
                polled = consumer.poll(1.0, max_records=200)
                if not polled and stop.is_set() and log.group("doubling").lag == 0:
                    return True
                producer.begin()
                for records in polled:
                    read = records.batch.column("N").to_pylist()
                    producer.send("doubles", batch(N=[2 * n for n in read], P=[records.partition] * len(read)))
                offsets = {TopicPartition(one.topic, one.partition): one.next_offset for one in polled}
                producer.send_offsets("doubling", offsets, consumer)
                producer.commit()
    finally:
        log.close()


def _count(log: Log, outcome: Outcome) -> None:
    stored = [numbers(log, "numbers", number) for number in range(3)]
    doubles = [row for records in log.read("doubles", 0, 0, columns=["N", "P"]) for row in records.batch.to_pylist()]
    doubled = [[row["N"] // 2 for row in doubles if row["P"] == number] for number in range(3)]
    for found in (stored, doubled):
        everything = [n for one in found for n in one]
        outcome.lost += len(set(range(outcome.sent)) - set(everything) - outcome.failed)
        outcome.duplicated += len(everything) - len(set(everything))
        outcome.disordered += sum(one != sorted(one) for one in found)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    given = parser.parse_args()
    print(f"seed {given.seed}")
    with tempfile.TemporaryDirectory() as folder:
        outcome = run(Path(folder), given.kills, given.seed)
    print(outcome)
    return 0 if outcome.good else 1


if __name__ == "__main__":
    sys.exit(main())

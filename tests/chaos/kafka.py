"""Three brokers, killed and paused under load: what was acknowledged is there, once, in order; what failed is not. What
two servers were sent under the same ids is there once (`kafka_ids`).

python -m tests.chaos.kafka --kills 30 --pauses 10 --pause-seconds 30      (`make chaos-kafka`)
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import tempfile
import threading
import time
from collections import defaultdict
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace.clock import SystemClock
from headrace.errors import HeadraceError, OwnerLost
from headrace.log.base import Append, Appended, TopicSpec
from headrace.log.kafka import KafkaLog
from headrace.types import BIGINT, VARCHAR, Column
from scripts.kafka import Cluster
from tests.chaos.kafka_ids import Servers
from tests.kafka import kafka_settings, small_cluster
from tests.support import let_pass, wait_for

KEYS = 12
PARTITIONS = 3
_IN_FLIGHT = 8
TOPIC = TopicSpec(
    "ledger", key=(Column("K", VARCHAR),), value=(Column("N", BIGINT),), partitions=PARTITIONS, role="events"
)


@dataclass
class Ledger:
    """What became of every record: key and number."""

    acknowledged: set[tuple[str, int]] = field(default_factory=set)
    failed: set[tuple[str, int]] = field(default_factory=set)
    unsure: set[tuple[str, int]] = field(default_factory=set)
    """Nobody answered: it may be there or not, but at most once."""
    reasons: dict[str, int] = field(default_factory=lambda: defaultdict(int))


class Writer(threading.Thread):
    """Appends without pause, sometimes for one partition, sometimes atomically for several."""

    def __init__(self, log: KafkaLog, seed: int) -> None:
        super().__init__(name="writer", daemon=True)
        self.log, self.ledger = log, Ledger()
        self._random = random.Random(seed)
        self._stopped = threading.Event()
        self._next = 0

    def run(self) -> None:
        waiting: list[tuple[list[tuple[str, int]], Future[list[Appended]]]] = []
        while not self._stopped.is_set() or waiting:
            if not self._stopped.is_set():
                records = self._records()
                try:
                    waiting.append((records, self.log.append([Append("ledger", _batch(records))])))
                except HeadraceError as error:
                    self._note(records, error)
            while waiting and (len(waiting) >= _IN_FLIGHT or self._stopped.is_set()):
                records, future = waiting.pop(0)
                self._settle(records, future)

    def _records(self) -> list[tuple[str, int]]:
        keys = [f"k{number}" for number in range(KEYS)]
        chosen = keys if self._random.random() < 0.5 else [self._random.choice(keys)]
        self._next += 1
        return [(key, self._next) for key in chosen]

    def _settle(self, records: list[tuple[str, int]], future: Future[list[Appended]]) -> None:
        try:
            future.result(300)
            self.ledger.acknowledged |= set(records)
        except HeadraceError as error:
            self._note(records, error)

    def _note(self, records: list[tuple[str, int]], error: HeadraceError) -> None:
        self.ledger.reasons[f"{type(error).__name__}: {error.message}"] += 1
        (self.ledger.unsure if isinstance(error, OwnerLost) else self.ledger.failed).update(records)

    def stop(self) -> Ledger:
        self._stopped.set()
        self.join(600)
        return self.ledger


def _batch(records: list[tuple[str, int]]) -> pa.RecordBatch:
    return pa.record_batch({"K": [key for key, _ in records], "N": pa.array([n for _, n in records], pa.int64())})


def leader_of(log: KafkaLog, partition: int) -> int:
    metadata = log.admin.list_topics(log.kafka_name("ledger"), timeout=30)
    return int(metadata.topics[log.kafka_name("ledger")].partitions[partition].leader)


def wait_in_sync(log: KafkaLog, seconds: float = 120) -> None:
    """Until every partition has all its copies again: another kill before that may rightly stop all writing."""

    def in_sync() -> bool:
        found = log.admin.list_topics(timeout=30).topics
        return all(len(p.isrs) == 3 and p.leader >= 0 for topic in found.values() for p in topic.partitions.values())

    wait_for(in_sync, seconds, "the copies to catch up")


def disturb(cluster: Cluster, log: KafkaLog, chosen: random.Random, kills: int, pauses: int, pause_s: float) -> None:
    events = ["kill"] * kills + ["pause"] * pauses
    chosen.shuffle(events)
    for number, event in enumerate(events, 1):
        wait_in_sync(log)
        let_pass(chosen.uniform(1.0, 3.0))
        victim = leader_of(log, chosen.randrange(PARTITIONS))
        if victim < 1:
            continue
        print(f"  {number:>3}/{len(events)}  {event:<5} broker {victim}", flush=True)
        if event == "kill":
            cluster.kill(victim)
            let_pass(chosen.uniform(0.2, 3.0))
            cluster.launch(victim)
            cluster.wait_until_up(victim)
        else:
            cluster.signal(victim, signal.SIGSTOP)
            let_pass(pause_s)
            cluster.signal(victim, signal.SIGCONT)


def check(log: KafkaLog, ledger: Ledger) -> dict[str, Any]:
    seen: dict[tuple[str, int], int] = defaultdict(int)
    unordered = 0
    for partition in range(PARTITIONS):
        last: dict[str, int] = {}
        for records in log.read("ledger", partition, 0, columns=["K", "N"]):
            for key, number in zip(*(column.to_pylist() for column in records.batch.columns), strict=True):
                seen[key, number] += 1
                unordered += number < last.get(key, 0)
                last[key] = number
    return {
        "acknowledged": len(ledger.acknowledged),
        "unsure": len(ledger.unsure),
        "failed": len(ledger.failed),
        "lost": len(ledger.acknowledged - seen.keys()),
        "duplicated": sum(count > 1 for count in seen.values()),
        "failed but visible": len(ledger.failed & seen.keys()),
        "out of order": unordered,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--pauses", type=int, default=10)
    parser.add_argument("--pause-seconds", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    options = parser.parse_args()
    print(f"  seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="headrace-chaos-kafka-") as folder:
        cluster = small_cluster(Path(folder), 3)
        with cluster:
            settings = kafka_settings(cluster.bootstrap, "", delivery_seconds=90.0)
            log = KafkaLog(settings, SystemClock())
            log.create_topic(TOPIC)
            servers = Servers(settings, Path(folder))
            writer = Writer(log, options.seed)
            writer.start()
            started = time.monotonic()
            chosen = random.Random(options.seed)
            disturb(cluster, log, chosen, options.kills, options.pauses, options.pause_seconds)
            wait_in_sync(log)
            ledger = writer.stop()
            found = check(log, ledger) | servers.stop()
            log.close()
    for reason, count in sorted(ledger.reasons.items()):
        print(f"  {count:>6} × {reason}")
    print("  " + ", ".join(f"{name} {count:,}" for name, count in found.items()))
    print(f"  {time.monotonic() - started:.0f} s, seed {options.seed}")
    never = ("lost", "duplicated", "failed but visible", "out of order", "ids lost", "ids doubled")
    wrong = [name for name in never if found[name]]
    return 1 if wrong or not (found["acknowledged"] and found["events with ids"]) else 0


if __name__ == "__main__":
    sys.exit(main())

"""Kafka is paused while events come: they are kept on disk, and are in it afterwards, in order and each once.

python -m tests.chaos.spool --pauses 3
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from pathlib import Path

from headrace.collect.spool.spool import Spool
from headrace.log.base import Append
from tests.kafka import open_kafka, small_cluster
from tests.log.support import PLAIN, batch, numbers
from tests.support import wait_for


def run(folder: Path, pauses: int) -> list[int]:
    """What is in the topic at the end; the numbers from 0 on, if all is well."""
    with (
        small_cluster(folder / "kafka") as cluster,
        open_kafka(cluster.bootstrap, delivery_seconds=20.0, request_seconds=5.0) as log,
    ):
        log.create_topic(PLAIN)
        spool, number = Spool(log, folder / "spool", 10_000_000), 0

        def send(buffered: bool) -> None:
            nonlocal number
            [answer] = spool.append([Append("plain", batch(N=[number]))]).result(60)
            assert answer.buffered == buffered, (number, answer)
            number += 1

        for _ in range(pauses):
            for _ in range(20):
                send(buffered=False)
            cluster.signal(1, signal.SIGSTOP)
            wait_for(lambda: spool._spooling, 30, "the spool to notice")
            for _ in range(50):
                send(buffered=True)
            cluster.signal(1, signal.SIGCONT)
            wait_for(lambda: not spool._spooling, 30, "everything to be handed over")
        spool.close()
        return numbers(log)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pauses", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = run(Path(folder), options.pauses)
    good = found == list(range(70 * options.pauses))
    print(f"{len(found)} events", "in order, each once" if good else f"but not as they were sent: {found}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())

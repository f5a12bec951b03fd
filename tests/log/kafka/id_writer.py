"""A process that writes numbered events with ids to Kafka, three at a time, and says which were acknowledged.

python -m tests.log.kafka.id_writer BOOTSTRAP PREFIX FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.kafka import open_kafka
from tests.log.kafka.test_kafka_ids import send


def main(bootstrap: str, prefix: str, folder: Path) -> None:
    with open_kafka(bootstrap, prefix, ids=folder) as log:
        for first in range(0, 100_000, 3):
            send(log, range(first, first + 3))
            print(first + 2, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))

"""A server process whose view is switched again and again, for `tests.chaos.switch`.

    python -m tests.chaos.switching FOLDER

There is no Spark here: what the queries would write is written by this process, every version a round at a time, so
that whoever reads can tell of each number whose it is and whether one is missing. Prints its port, then how long each
switch took, and at the end how many rounds there were. It ends its rounds when FOLDER/stop appears.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace.log.base import Append
from headrace.server.services import Services
from tests.server.running import running_server
from tests.support import wait_for

SQL = """
CREATE STREAM clicks (userid VARCHAR KEY, page VARCHAR) WITH (KAFKA_TOPIC='clicks', PARTITIONS=1);
CREATE TABLE by_page AS SELECT page, COUNT(*) AS n FROM clicks GROUP BY page;
"""
# Rows that no query has written would be found to be wrong.
TOML = "[views]\ncheck_every_seconds = 0\n"
PAGES, BASE, ROUND_S = 5, 1_000_000, 0.25
"""Rows of version 3 count from three millions on, and so forth."""


def write_round(services: Services, number: int) -> None:
    """Write each version's rows as of this round, each in one commit. Not during a switch: what a query commits after
    its topic was forked goes to the fork, but these records are no query's."""
    with services.statements.lock:
        for version in services.catalog.versions("BY_PAGE"):
            counts = pa.array([version.number * BASE + number] * PAGES, pa.int64())
            pages = pa.array([f"/{page}" for page in range(PAGES)])
            batch = pa.record_batch({"PAGE": pages, "N": counts, "$time": pa.array([0] * PAGES, pa.int64())})
            services.log.append([Append(version.source.topic, batch)]).result()


def say(text: str) -> None:
    print(text, flush=True)


def timed(what: str, change: Callable[..., Any]) -> Callable[..., Any]:
    def run(*arguments: Any) -> Any:
        began, worked = time.monotonic(), time.thread_time()
        try:
            return change(*arguments)
        finally:
            took, work = time.monotonic() - began, time.thread_time() - worked
            say(f"{what} {1000 * took:.1f} {1000 * work:.1f}")

    return run


def main() -> None:
    folder, pause = Path(sys.argv[1]), threading.Event()
    with running_server(folder, TOML, SQL) as server:
        services, rounds = server.services, 0
        deployments: Any = services.deployments
        deployments.switch = timed("switched", deployments.switch)
        deployments.rollback = timed("rolled-back", deployments.rollback)
        write_round(services, rounds)
        say(f"port {server.port}")
        while not (folder / "stop").exists():
            pause.wait(ROUND_S)
            rounds += 1
            write_round(services, rounds)
        # The reader knows which is the last before it comes, and stays until it has seen it.
        say(f"rounds {rounds + 1}")
        wait_for((folder / "known").exists, 60, "the reader to know")
        write_round(services, rounds + 1)
        sys.stdin.read()


if __name__ == "__main__":
    main()

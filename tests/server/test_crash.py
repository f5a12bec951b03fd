"""The server is killed while queues and groups are used: the clients go on as if nothing had been."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headrace import Client
from tests.server.running import write_project
from tests.server.test_process import process
from tests.support import free_port, wait_for

pytestmark = pytest.mark.slow

KILLS = 2


class Restarted:
    """A server that is killed and started again on the same port."""

    def __init__(self, folder: Path, port: int) -> None:
        self._folder, self._port = folder, port
        self._ended = threading.Event()
        self.kills = 0
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._ended.is_set():
            with process(self._folder, self._port) as child:
                self._until_killed(child)

    def _until_killed(self, child: subprocess.Popen[bytes]) -> None:
        with Client(f"http://127.0.0.1:{self._port}", patience=30) as client:
            client.topics()
        if self.kills < KILLS:
            if not self._ended.wait(0.7 + 0.3 * self.kills):
                os.kill(child.pid, signal.SIGKILL)
                self.kills += 1
        else:
            self._ended.wait()

    def close(self) -> None:
        self._ended.set()
        self._thread.join()


@contextmanager
def restarted(folder: Path) -> Iterator[tuple[Client, Restarted]]:
    port = free_port()
    server = Restarted(write_project(folder, sql=""), port)
    try:
        with Client(f"http://127.0.0.1:{port}", patience=60) as client:
            yield client, server
    finally:
        server.close()


def test_a_queue_forgets_nothing_and_delivers_no_more_than_it_may(tmp_path: Path) -> None:
    with restarted(tmp_path) as (client, server):
        client.create_topic("jobs", "n INT", partitions=2)
        client.create_queue("work", "jobs", lease_s=1, max_deliveries=50)
        acknowledged: set[int] = set()
        deliveries: dict[int, int] = {}
        sent = 0
        while server.kills < KILLS or len(acknowledged) < sent:
            if server.kills < KILLS:
                client.produce("jobs", [{"n": number} for number in range(sent, sent + 5)])
                sent += 5
            for message in client.receive("work", limit=20, wait=1):
                number = message.record.fields["n"]
                assert number not in acknowledged, f"{number} was acknowledged and came again"
                assert message.deliveries > deliveries.get(number, 0), f"{number} forgot a delivery"
                deliveries[number] = message.deliveries
                # Every third is left to its lease.
                if (number + message.deliveries) % 3 and not client.ack("work", message).lost:
                    acknowledged.add(number)
        assert acknowledged == set(range(sent))
        stats = client.queue("work")
        assert (stats.ready, stats.leased, stats.dead) == (0, 0, 0)


def test_a_group_goes_on_where_it_committed(tmp_path: Path) -> None:
    with restarted(tmp_path) as (client, server):
        client.create_topic("events", "n INT", partitions=2)
        wait_for(lambda: server.kills >= 1, 30, "the first kill")
        client.produce("events", [{"n": number} for number in range(40)])
        with client.consumer("readers", "events") as consumer:
            seen = {record.fields["n"] for record in consumer.poll(limit=10, wait=10)}
            consumer.commit()
            committed = sum(offset.committed or 0 for offset in client.group("readers").offsets)
        wait_for(lambda: server.kills >= KILLS, 60, "the last kill")
        with client.consumer("readers", "events") as consumer:
            again: set[int] = set()
            while len(again) < 40 - committed:
                again |= {record.fields["n"] for record in consumer.poll(wait=10)}
        assert (committed, seen | again, seen & again) == (len(seen), set(range(40)), set())

"""The server is killed while queues and groups are used: the clients go on as if nothing had been."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from headrace import Client
from tests.server.running import write_project
from tests.server.test_process import process
from tests.support import free_port, wait_for

pytestmark = pytest.mark.slow


class Restarted:
    """A server that is started again on the same port when it was killed."""

    def __init__(self, folder: Path, port: int) -> None:
        self._folder, self._port = folder, port
        self._up, self._killed, self._ended = threading.Event(), threading.Event(), threading.Event()
        self._child: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._ended.is_set():
            with process(self._folder, self._port) as child:
                with Client(f"http://127.0.0.1:{self._port}", patience=60) as client:
                    client.topics()
                self._child = child
                self._up.set()
                self._killed.wait()
                self._killed.clear()

    def kill(self) -> None:
        """Now, whatever it is doing; it is up again soon."""
        assert self._up.wait(60)
        self._up.clear()
        assert self._child is not None
        os.kill(self._child.pid, signal.SIGKILL)
        self._killed.set()

    def kill_after(self, pauses: Sequence[float]) -> None:
        for pause in pauses:
            self._up.wait(60)
            self._ended.wait(pause)
            self.kill()

    def close(self) -> None:
        self._ended.set()
        self._killed.set()
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
        killer = threading.Thread(target=server.kill_after, args=((0.5, 0.8),))
        killer.start()
        acknowledged: set[int] = set()
        deliveries: dict[int, int] = {}
        sent = 0
        while killer.is_alive() or len(acknowledged) < sent:
            if killer.is_alive():
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
        server.kill()
        client.produce("events", [{"n": number} for number in range(40)])
        with client.consumer("readers", "events", session_timeout=3) as consumer:
            seen = {record.fields["n"] for record in consumer.poll(limit=10, wait=10)}
            consumer.commit()
            committed = sum(offset.committed or 0 for offset in client.group("readers").offsets)
        server.kill()
        with client.consumer("readers", "events", session_timeout=3) as consumer:
            again: set[int] = set()
            while len(again) < 40 - committed:
                again |= {record.fields["n"] for record in consumer.poll(wait=10)}
        assert (committed, seen | again, seen & again) == (len(seen), set(range(40)), set())


def test_a_job_is_killed_with_its_server_and_run_once_more(tmp_path: Path) -> None:
    rows = 20_000
    (tmp_path / "jobs").mkdir(parents=True)
    (tmp_path / "jobs" / "all.toml").write_text(
        '[[job]]\nname = "old"\nrun = "import"\ntopic = "sales"\nfiles = ["old.csv"]\n'
        '[[job]]\nname = "out"\nrun = "export"\ntopic = "sales"\nto = "out"\nformat = "json"\nafter = ["old"]\n'
    )
    (tmp_path / "old.csv").write_text("n\n" + "".join(f"{n}\n" for n in range(rows)))
    with restarted(tmp_path) as (client, server):
        client.create_topic("sales", "n INT", partitions=2)
        url = client.url

        def last(job: str) -> dict[str, Any]:
            try:
                body: dict[str, Any] = httpx.get(f"{url}/v1/jobs/{job}", timeout=20, trust_env=False).json()
            except httpx.HTTPError:
                return {}  # it is being started again
            return body.get("last") or {}

        httpx.post(f"{url}/v1/jobs/old/run", timeout=20, trust_env=False).raise_for_status()
        wait_for(lambda: last("old").get("state") in ("running", "done"), 60, "the job to begin")
        server.kill()
        wait_for(lambda: last("out").get("state") == "done", 120, "the jobs")
        numbers = [
            json.loads(line)["value"]["n"]
            for file in (tmp_path / "out").glob("*.ndjson")
            for line in file.read_text().splitlines()
        ]
        assert sorted(numbers) == list(range(rows)), "each once"

"""The server is killed while queues and groups are used: the clients go on as if nothing had been."""

from __future__ import annotations

import contextlib
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
                with Client(f"http://127.0.0.1:{self._port}", patience=240) as client:
                    client.topics()
                self._child = child
                self._up.set()
                self._killed.wait()
                self._killed.clear()

    def kill(self) -> None:
        """Now, whatever it is doing; it is up again soon."""
        assert self._up.wait(240)
        self._up.clear()
        assert self._child is not None
        os.kill(self._child.pid, signal.SIGKILL)
        self._killed.set()

    def kill_after(self, pauses: Sequence[float]) -> None:
        for pause in pauses:
            self._up.wait(240)
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
        with Client(f"http://127.0.0.1:{port}", patience=240) as client:
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
        with client.consumer("readers", "events") as consumer:
            seen = {record.fields["n"] for record in consumer.poll(limit=10, wait=10)}
            consumer.commit()
            committed = sum(offset.committed or 0 for offset in client.group("readers").offsets)
        server.kill()
        with client.consumer("readers", "events") as consumer:
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
                body: dict[str, Any] = httpx.get(f"{url}/v1/jobs/{job}", timeout=60, trust_env=False).json()
            except httpx.HTTPError:
                return {}  # it is being started again
            return body.get("last") or {}

        httpx.post(f"{url}/v1/jobs/old/run", timeout=60, trust_env=False).raise_for_status()
        wait_for(lambda: last("old").get("state") in ("running", "done"), 60, "the job to begin")
        server.kill()
        wait_for(lambda: last("out").get("state") == "done", 120, "the jobs")
        numbers = [
            json.loads(line)["value"]["n"]
            for file in (tmp_path / "out").glob("*.ndjson")
            for line in file.read_text().splitlines()
        ]
        assert sorted(numbers) == list(range(rows)), "each once"


def test_order_is_kept_and_tickets_are_honoured_over_kills(tmp_path: Path) -> None:
    """One client sends numbers of three keys, in batches that are retried; another takes tickets meanwhile. Each
    number is there once, each key's in their order, and each ticket knows what became of it."""
    keys, sent = ("a", "b", "c"), 0
    tickets: list[str] = []
    with restarted(tmp_path) as (client, server):
        client.create_topic("moves", "k VARCHAR KEY, n INT", partitions=2)
        client.create_topic("later", "n INT", partitions=1)
        killer = threading.Thread(target=server.kill_after, args=((0.5, 0.7),))
        killer.start()
        while killer.is_alive() or sent < 200:
            client.produce("moves", [{"k": keys[number % 3], "n": number} for number in range(sent, sent + 10)])
            sent += 10
            with contextlib.suppress(httpx.TransportError):
                answer = httpx.post(
                    f"{client.url}/v1/topics/later/events?wait=ticket", json={"n": len(tickets)}, timeout=60
                )
                if answer.status_code == 202:
                    tickets.append(answer.json()["result"])
        wait_for(lambda: httpx.get(f"{client.url}/healthz", timeout=20).status_code == 200, 60, "the server")
        found = [httpx.get(f"{client.url}{ticket}", params={"wait": 60}, timeout=120).json() for ticket in tickets]
        assert {ticket["state"] for ticket in found} == {"done"}
        assert all(ticket["result"]["accepted"] + ticket["result"]["duplicates"] == 1 for ticket in found)
        moves = read_all(client, "moves")
        for key in keys:
            assert [n for k, n in moves if k == key] == [n for n in range(sent) if keys[n % 3] == key]
        later = [number for _, number in read_all(client, "later")]
        # One that was taken, but whose ticket was lost with the answer, is written as well: under its number.
        assert set(later) == set(range(len(tickets))) or set(later) == set(range(len(tickets) + 1))
        assert later == sorted(later)


def read_all(client: Client, topic: str) -> list[tuple[str | None, int]]:
    """Key and number of each record, in order of arrival."""
    found: list[dict[str, Any]] = []
    place: dict[str, str | int] = {"from": "earliest", "limit": 10_000}
    while True:
        page = httpx.get(f"{client.url}/v1/topics/{topic}/records", params=place, timeout=60).json()
        found += page["records"]
        if not page["cut"]:
            return [((record["key"] or {}).get("k"), record["value"]["n"]) for record in found]
        place = {"at": page["next"], "limit": 10_000}

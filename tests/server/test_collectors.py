"""Collector processes: events through a port they share, with the owner and any of them killed."""

from __future__ import annotations

import itertools
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from headrace.clock import SystemClock
from headrace.collect.status import COLLECTORS_STATUS, Board, CollectorStatus
from headrace.config import load_project
from headrace.coordinate.catalog import create_internal_topics
from headrace.log.base import Append
from headrace.log.local import LocalLog
from headrace.log.local.gathering_client import GatheringClient
from tests.log.support import PLAIN, VIEWS, batch, numbers, open_owner
from tests.support import free_port, wait_for

ROOT = Path(__file__).parents[2]


def test_appends_of_one_moment_travel_together_and_land_once(tmp_path: Path) -> None:
    owner = open_owner(tmp_path / "log", serve=True, linger_ms=5)
    owner.create_topic(PLAIN)
    client = GatheringClient(tmp_path / "log")
    groups = owner.commits()
    futures = [client.append([Append("plain", batch(N=[n, n]))]) for n in range(200)]
    assert [future.result(120)[0].positions for future in futures] == [((0, 2 * n, 2 * n + 1),) for n in range(200)]
    assert owner.commits() - groups < 100
    owner.close()
    # While the owner is away an append waits for it.
    waiting = client.append([Append("plain", batch(N=[1000]))])
    owner = open_owner(tmp_path / "log", serve=True)
    assert waiting.result(120)[0].positions == ((0, 400, 400),)
    client.close()
    owner.close()


class Collectors:
    def __init__(self, folder: Path) -> None:
        (folder / "headrace.toml").write_text("[server]\nworkers = 3\n")
        self.folder, self.port = folder, free_port()
        self.project = load_project(folder)
        self.url = f"http://127.0.0.1:{self.port}"
        self.processes = [self.start() for _ in range(2)]

    def start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "headrace.server.collector"]
        return subprocess.Popen(
            [*command, "--project", str(self.folder), "--port", str(self.port)], cwd=ROOT, stderr=subprocess.DEVNULL
        )

    def close(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()


@pytest.fixture
def collectors(tmp_path: Path) -> Iterator[Collectors]:
    made = Collectors(tmp_path)
    yield made
    made.close()


def is_up(url: str) -> bool:
    return httpx.get(f"{url}/healthz", timeout=10).status_code == 200


@pytest.mark.slow
def test_what_a_killed_collector_acknowledged_is_there_once(collectors: Collectors) -> None:
    log = open_owner(collectors.project.log_folder, serve=True)
    create_internal_topics(log)
    log.create_topic(replace(VIEWS, name="events"))
    wait_for(lambda: is_up(collectors.url), 60, "the collectors")
    acknowledged: set[int] = set()
    counter, lock, stop = itertools.count(), threading.Lock(), threading.Event()

    def send() -> None:
        while not stop.is_set():
            with lock:
                number = next(counter)
            body = {"USERID": f"u{number % 7}", "N": number}
            while not stop.is_set():
                try:
                    # A new connection each time, so that everyone gets some.
                    answer = httpx.post(
                        f"{collectors.url}/v1/topics/events/events",
                        json=body,
                        headers={"Idempotency-Key": str(number)},
                        timeout=60,
                    )
                except httpx.HTTPError:
                    continue
                if answer.status_code == 200:
                    with lock:
                        acknowledged.add(number)
                    break

    senders = [threading.Thread(target=send) for _ in range(4)]
    for sender in senders:
        sender.start()
    for turn in range(3):
        before = len(acknowledged)
        wait_for(lambda before=before: len(acknowledged) > before + 20, 60, "events")  # type: ignore[misc]
        collectors.processes[turn % 2].kill()
        collectors.processes[turn % 2].wait()
        collectors.processes[turn % 2] = collectors.start()
    stop.set()
    for sender in senders:
        sender.join()
    found = [n for partition in range(2) for n in numbers(log, "events", partition)]
    assert len(found) == len(set(found))
    assert acknowledged <= set(found)
    wait_for(lambda: is_up(collectors.url), 60, "a collector")
    rejected = httpx.post(f"{collectors.url}/v1/topics/events/events", content=b'{"N": "no number"}', timeout=60)
    assert (rejected.status_code, log.stats("_dead_letters").records) == (422, 1)
    assert httpx.get(f"{collectors.url}/v1/topics", timeout=60).status_code == 404
    keep_the_rules_of_a_file_and_report(collectors, log)
    log.close()


def keep_the_rules_of_a_file_and_report(collectors: Collectors, log: LocalLog) -> None:
    """They notice a file by themselves, and what they count reaches whoever owns the log."""
    board = Board(SystemClock())
    log.register_call(COLLECTORS_STATUS, board.receive)
    (collectors.folder / "collectors").mkdir()
    (collectors.folder / "collectors" / "web.toml").write_text(
        'type = "http"\ntopic = "events"\n[validate]\nrequired = ["userid"]\n'
    )

    def send(event: dict[str, object]) -> int:
        return httpx.post(f"{collectors.url}/v1/topics/events/events", json=event, timeout=60).status_code

    wait_for(lambda: [send({"N": 1}) for _ in range(4)] == [422] * 4, 60, "the rule in both processes")
    assert [send({"N": 1, "UserId": "you"}) for _ in range(4)] == [200] * 4

    def counted() -> bool:
        status = board.status("web", CollectorStatus(name="web"))
        return status.accepted >= 4 and status.rejected >= 4

    wait_for(counted, 60, "the reports")


@pytest.mark.slow
def test_events_are_kept_while_the_owner_is_away_and_no_order_is_lost(collectors: Collectors) -> None:
    """One client, one connection: what it sends before, while and after the owner is away comes in its order."""
    log = open_owner(collectors.project.log_folder, serve=True)
    create_internal_topics(log)
    log.create_topic(replace(VIEWS, name="events", partitions=1))
    wait_for(lambda: is_up(collectors.url), 60, "the collectors")
    statuses: set[int] = set()
    with httpx.Client(base_url=collectors.url, timeout=60) as client:

        def send(number: int) -> int:
            headers = {"Idempotency-Key": str(number)}
            answer = client.post("/v1/topics/events/events", json={"USERID": "u", "N": number}, headers=headers)
            statuses.add(answer.status_code)
            return answer.status_code

        for number in range(20):
            send(number)
        log.close()
        number = 20
        # The first wait for the owner, until it is known to be away.
        while send(number) != 202 or number < 40:
            number += 1
        log = open_owner(collectors.project.log_folder, serve=True)
        while send(number := number + 1) != 200:
            pass
    assert statuses <= {200, 202, 503}
    found = list(dict.fromkeys(numbers(log, "events", 0)))
    assert found == sorted(found)
    assert len(numbers(log, "events", 0)) == len(found)
    assert 503 in statuses or found == list(range(number + 1))
    log.close()

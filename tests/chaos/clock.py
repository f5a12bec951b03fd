"""A server whose machine's clock jumps: python -m tests.chaos.clock --jumps 20

The server runs as a process of its own, with a wall clock that this one moves (`clock_shim.c`). After every jump events
are sent, with and without a time of their own. None may be lost, doubled or stamped with the wrong time, and the server
must report each jump, and its end.
"""

from __future__ import annotations

import argparse
import mmap
import os
import random
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from tests.server.running import write_project
from tests.support import free_port, wait_for

SHIM = Path(__file__).with_name("clock_shim.c")
SQL = "CREATE STREAM readings (device VARCHAR KEY, n INT) WITH (KAFKA_TOPIC='readings', PARTITIONS=1);"
FARTHEST_S = 30 * 86_400
CLOSE_S = 60.0
"""How far from the real time a stamp may be; jumps are larger."""


@contextmanager
def server_with_shim(folder: Path) -> Iterator[tuple[httpx.Client, mmap.mmap]]:
    library, moved = folder / "clock_shim.so", folder / "moved"
    subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-o", library, SHIM, "-ldl"], check=True)
    moved.write_bytes(bytes(8))
    project, port = write_project(folder / "project", sql=SQL), free_port()
    command = [sys.executable, "-m", "headrace.server.main", "--project", str(project), "--port", str(port)]
    environment = os.environ | {"LD_PRELOAD": str(library), "CLOCK_SHIM": str(moved)}
    with (
        moved.open("r+b") as file,
        mmap.mmap(file.fileno(), 8) as ahead,
        (folder / "server.log").open("wb") as log,
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as http,
    ):
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        try:
            wait_for(lambda: http.get("/v1/topics/readings").status_code == 200, 60, "the server")
            yield http, ahead
        finally:
            process.terminate()
            process.wait(60)


def problems(http: httpx.Client) -> list[str]:
    return [problem for problem in http.get("/readyz").json()["problems"] if "clock jumped" in problem]


def run(jumps: int, seed: int) -> None:
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder, server_with_shim(Path(folder)) as (http, ahead):
        sent = 0

        def send() -> None:
            nonlocal sent
            events = [{"device": "a", "n": sent}, {"device": "b", "n": sent + 1, "$time": int(time.time() * 1000)}]
            answer = http.post("/v1/topics/readings/events", json=events).json()
            assert answer["accepted"] == 2, answer
            sent += 2

        send()
        for number in range(jumps):
            seconds = chance.choice([-1, 1]) * chance.randint(600, FARTHEST_S)
            ahead[:] = struct.pack("q", seconds * 1_000_000_000)
            for _ in range(chance.randint(1, 5)):
                send()
            [problem] = problems(http)
            ahead[:] = bytes(8)
            send()
            assert problems(http) == []
            print(f"{number + 1:>4}  {seconds:>9} s  {problem.partition(':')[0]}", flush=True)
        pages = http.get("/v1/topics/readings/events", params={"from": "oldest", "limit": 1000}).json()["events"]
        assert [one["value"]["n"] for one in pages] == list(range(sent)), "lost or doubled"
        real = time.time()
        wrong = [one for one in pages if not -CLOSE_S * (1 + jumps) < one["time_ms"] / 1000 - real < CLOSE_S]
        assert not wrong, wrong[:3]
        text = http.get("/metrics").text
        assert f"headrace_clock_jumps_total {jumps}.0" in text
        print(f"{jumps} jumps, {sent} events: none lost, none doubled, no wrong time", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jumps", type=int, default=20)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    options = parser.parse_args()
    print(f"seed {options.seed}")
    run(options.jumps, options.seed)

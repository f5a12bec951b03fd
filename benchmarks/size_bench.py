"""Does the log stay as fast when it is large? Two logs beside each other, one twenty times the other, in turns.

One process fills both, measures, and is gone without a word; then each is opened again. At full length it needs 25 GB
of disk for some minutes.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.log_bench import EVENTS, FOR_LARGE, append_all, make_rows
from benchmarks.measure import Measure
from headrace.clock import SystemClock
from headrace.config import LogSettings
from headrace.log.local import LocalLog

SIZES, QUICK_SIZES = {"small": 1_000_000_000, "large": 20_000_000_000}, {"small": 5_000_000, "large": 100_000_000}
ROWS = 10_000
ROUNDS, BATCHES = 5, 50
"""A round appends so many batches to one log, then as many to the other."""
LOOKUPS = 200


def run(quick: bool = False) -> list[Measure]:
    sizes = QUICK_SIZES if quick else SIZES
    free = shutil.disk_usage(tempfile.gettempdir()).free
    if free < 1.5 * sum(sizes.values()):
        print(f"  left out: {free / 1e9:.0f} GB are free, {1.5 * sum(sizes.values()) / 1e9:.0f} are needed")
        return []
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        command = [sys.executable, "-m", "benchmarks.size_bench", folder, json.dumps(sizes)]
        found = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
        opening = {name: _open(Path(folder) / name) for name in sizes}
    detail = f"{found['large']['bytes'] / 1e9:.2f} GB stored"
    small = f"with {found['small']['bytes'] / 1e9:.2f} GB"
    return [
        Measure(name, found["large"][key], unit, found["small"][key], small, aim, detail)
        for name, key, unit, aim in (
            ("durable appends", "append", "records/s", "≥ 0.9 ×"),
            ("scan of the newest records", "scan", "rows/s", "≥ 0.9 ×"),
            ("reading one record at a random offset", "lookup", "ms", "≤ 2 ×"),
        )
    ] + [Measure("open after a crash", opening["large"], "s", opening["small"], small, "≤ 2 s", detail)]


def _open(folder: Path) -> float:
    started = time.perf_counter()
    log = LocalLog(folder, LogSettings(min_free_bytes=0), SystemClock())
    seconds = time.perf_counter() - started
    log.close()
    return seconds


def measure(folder: Path, sizes: dict[str, int]) -> dict[str, dict[str, float]]:
    """Leaves both logs as a crash does."""
    batch = make_rows(ROWS)
    logs = {name: LocalLog(folder / name, LogSettings(min_free_bytes=0), SystemClock(), serve=False) for name in sizes}
    for name, log in logs.items():
        log.create_topic(EVENTS)
        append_all(log, batch, sizes[name] // int(batch.nbytes), FOR_LARGE)
    rounds: dict[str, list[dict[str, float]]] = {name: [] for name in sizes}
    for _ in range(ROUNDS):
        for name, log in logs.items():
            rounds[name].append({"append": _append(log), "scan": _scan(log), "lookup": _look_up(log)})
    return {
        name: {"bytes": logs[name].stats("events").bytes}
        | {key: statistics.median(one[key] for one in rounds[name]) for key in ("append", "scan", "lookup")}
        for name in sizes
    }


def _append(log: LocalLog) -> float:
    return ROWS * BATCHES / append_all(log, make_rows(ROWS), BATCHES, FOR_LARGE)


def _scan(log: LocalLog) -> float:
    started, rows = time.perf_counter(), 0
    for partition, ends in enumerate(log.snapshot().ends["events"]):
        for records in log.read("events", partition, max(ends.start, ends.end - ROWS * BATCHES), columns=["N"]):
            rows += records.batch.num_rows
    return rows / (time.perf_counter() - started)


def _look_up(log: LocalLog) -> float:
    """Milliseconds, of the middle one."""
    ends, chance, took = log.snapshot().ends["events"], random.Random(7), []
    for _ in range(LOOKUPS):
        partition = chance.randrange(len(ends))
        offset = chance.randrange(ends[partition].end)
        started = time.perf_counter()
        [records] = log.read("events", partition, offset, offset + 1, ["N"])
        assert records.batch.num_rows == 1
        took.append(time.perf_counter() - started)
    return statistics.median(took) * 1000


if __name__ == "__main__":
    print(json.dumps(measure(Path(sys.argv[1]), json.loads(sys.argv[2]))), flush=True)
    os._exit(0)

"""Ten million event ids, as they come in ten minutes: how fast they are known, and in how much memory.

Beside it a dictionary, which knows them faster, and grows with every one, and is empty after a crash.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.measure import Measure
from headrace.log.local.id_runs import pack
from headrace.log.local.ids import IdIndex

IDS, BATCH = 10_000_000, 1000


def run(quick: bool = False) -> Iterator[Measure]:
    count = IDS // 20 if quick else IDS
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as name:
        folder = Path(name) / "ids"
        before = _private_megabytes()
        seconds = _fill(IdIndex(folder), count)
        grown = _private_megabytes() - before
        started = time.perf_counter()
        again = IdIndex(folder)
        assert again.watermarks() == {0: count}
        opened = time.perf_counter() - started
        size = sum(file.stat().st_size for file in folder.iterdir()) / 1e6
    known: dict[bytes, tuple[int, int]] = {}
    before, started = _private_megabytes(), time.perf_counter()
    for first in range(0, count, BATCH):
        digests = _digests()
        assert not any(digest in known for digest in digests)
        known.update({digest: (0, first + row) for row, digest in enumerate(digests)})
    plain = time.perf_counter() - started
    detail = f"{grown:.0f} MB of memory against {_private_megabytes() - before:.0f}, {size:.0f} MB on disk"
    yield Measure(
        f"{count:,} event ids looked up and remembered",
        count / seconds,
        "ids/s",
        count / plain,
        "a dictionary",
        detail=f"{detail}; opened again in {opened * 1000:.0f} ms",
    )


def _fill(index: IdIndex, count: int) -> float:
    """As the log does: the commit thread asks and tells, another one flushes and merges."""
    woken, stop = threading.Event(), threading.Event()

    def maintain() -> None:
        while not stop.is_set():
            woken.wait(1.0)
            woken.clear()
            index.flush_if_due()

    thread = threading.Thread(target=maintain)
    thread.start()
    started = time.perf_counter()
    for first in range(0, count, BATCH):
        digests = _digests()
        assert not index.known(digests)
        if index.remember({digest: pack(0, first + row) for row, digest in enumerate(digests)}, {0: first + BATCH}):
            woken.set()
    taken = time.perf_counter() - started
    stop.set()
    woken.set()
    thread.join()
    index.close()
    return taken


def _digests() -> list[bytes]:
    return [os.urandom(16) for _ in range(BATCH)]


def _private_megabytes() -> float:
    """Not what is mapped from files: the kernel takes that back when it needs room."""
    status = Path("/proc/self/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("RssAnon")).split()[1]) / 1024

"""A process that owns a log until it is killed:  python -m tests.log.owner_process FOLDER

Says `ready` once others can write through it.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from headrace.clock import SystemClock
from headrace.config import LogSettings
from headrace.log.local import LocalLog

ROOT = Path(__file__).parents[2]


def main(folder: Path) -> None:
    # Small segments, so that a crash also meets the change from one to the next.
    LocalLog(folder, LogSettings(linger_ms=0.2, segment_bytes=50_000, min_free_bytes=0), SystemClock())
    print("ready", flush=True)
    signal.pause()


class OwnerProcess:
    """Started, killed and started again by a test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "tests.log.owner_process", str(self.folder)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"ready\n"

    def kill(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        self._process.kill()
        self._process.wait()
        self._process.stdout.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))

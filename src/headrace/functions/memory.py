"""A bound for what functions may take of memory: of this process, once, beyond what it has now."""

from __future__ import annotations

import contextlib
import resource
from pathlib import Path


class MemoryBound:
    """Only a process that exists for functions may be bounded: another one must not be starved for their sake."""

    def __init__(self) -> None:
        self.expendable = False
        self._set = False

    def limit(self, more_bytes: int) -> None:
        """From now on, what would take the process further raises `MemoryError` in whoever asks for it."""
        if self._set or more_bytes <= 0 or not self.expendable:
            return
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + more_bytes
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        if hard != resource.RLIM_INFINITY:
            limit = min(limit, hard)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
            self._set = True


MEMORY = MemoryBound()

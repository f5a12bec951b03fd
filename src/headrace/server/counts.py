"""What collectors have counted, over restarts of the server: a small file, written when something was counted.

It is a figure to look at, not the truth, which is the log: nobody syncs it. After `kill -9` it lacks what was counted
in the last second.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from pathlib import Path

import msgspec

from headrace.collect.gates import Gates
from headrace.collect.status import Board, Kept
from headrace.structs import ready

COUNTS_FILE = "collector_counts.json"
SERVER = "server"
WRITE_S = 1.0

logger = logging.getLogger("headrace.server")


class Counts:
    """Taken up when made. Safe to use from several threads."""

    def __init__(self, file: Path, gates: Gates, board: Board) -> None:
        self._file, self._gates, self._board = file, gates, board
        self._lock = threading.Lock()
        self._written = b""
        try:
            board.take_up(msgspec.json.decode(file.read_bytes(), type=ready(Kept)), SERVER)
        except FileNotFoundError:
            return
        except (OSError, msgspec.MsgspecError) as error:
            logger.warning("what collectors had counted cannot be read, and begins anew: %s", error)

    def write(self) -> None:
        """If it has changed."""
        own = self._gates.report(SERVER, "http", "listen", "pull")
        content = msgspec.json.encode(self._board.keep(own))
        with self._lock:
            if content == self._written:
                return
            draft = self._file.with_suffix(".tmp")
            try:
                draft.write_bytes(content)
                draft.replace(self._file)
            except OSError as error:
                # A full disk is said by whoever has something to lose.
                logger.debug("what collectors have counted is not written: %s", error)
                return
            self._written = content

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(WRITE_S)
            try:
                await asyncio.to_thread(self.write)
            except Exception:
                # Nobody would begin it again.
                logger.exception("what collectors have counted is not written")

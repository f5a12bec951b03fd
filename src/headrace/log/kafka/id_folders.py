"""Where a process keeps what it knows of event ids.

Several processes of a project may write to Kafka, and each keeps an index of its own: the first of the numbered folders
that nobody else has. So a process that starts anew finds what the one before it knew, and reads only the rest.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Collection
from itertools import count
from pathlib import Path

from headrace.log.local.files import make_folder


class IdFolder:
    """Held from construction to `release`, or to the death of the process."""

    def __init__(self, home: Path) -> None:
        make_folder(home)
        for number in count():
            descriptor = os.open(home / f"{number}.lock", os.O_RDWR | os.O_CREAT, 0o644)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                continue
            self.path, self._descriptor = home / str(number), descriptor
            return

    def of_topic(self, topic_id: int) -> Path:
        return self.path / str(topic_id)

    def keep_only(self, topic_ids: Collection[int]) -> None:
        """Topics that are gone need no index."""
        kept = {str(one) for one in topic_ids}
        if self.path.is_dir():
            for folder in self.path.iterdir():
                if folder.name not in kept:
                    shutil.rmtree(folder, ignore_errors=True)

    def release(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

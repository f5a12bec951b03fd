"""Files for the project's user alone."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

UMASK = 0o077
"""Of every process that writes to the data folder."""


def keep_private() -> None:
    """From here on, files that this process and its children make are for their user alone."""
    os.umask(UMASK)


@contextlib.contextmanager
def private_files() -> Iterator[None]:
    """Make files for their user alone meanwhile."""
    before = os.umask(UMASK)
    try:
        yield
    finally:
        os.umask(before)


def make_private_folder(folder: Path) -> None:
    """Make a folder that only its user may enter, or close one that others may enter too."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if is_open_to_others(folder):
        # One that belongs to somebody else, such as a volume's, stays as it is; `headrace doctor` tells.
        with contextlib.suppress(PermissionError):
            folder.chmod(0o700)


def is_open_to_others(file: Path) -> bool:
    """Return whether others than the file's user may read or change it."""
    return bool(stat.S_IMODE(os.stat(file).st_mode) & UMASK)

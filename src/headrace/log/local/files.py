"""Writing files so that a crash leaves the old content or the new, never something between."""

from __future__ import annotations

import os
import resource
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_MANY_FILES = 65536
_MOST_BUFFERS = 512
"""The kernel takes at most 1024 buffers a call."""


def raise_file_limit() -> None:
    """An open file per partition adds up; the usual soft limit of 1024 is for programs that use select()."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < _MANY_FILES:
        wanted = _MANY_FILES if hard == resource.RLIM_INFINITY else min(hard, _MANY_FILES)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))


def sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_file(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_file(path: Path, content: bytes) -> None:
    """Temporary file, fsync, rename, fsync of the folder."""
    temporary = path.with_name(path.name + ".tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        write_all(descriptor, [content], 0)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.replace(temporary, path)
    sync_folder(path.parent)


def make_folder(folder: Path) -> None:
    """Make it, and sync every parent that got a new entry."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    sync_folder(folder.parent)


def write_all(descriptor: int, buffers: Sequence[Any], position: int) -> int:
    """Write all of it at `position`, however little the kernel takes at a time; returns the position after it."""
    if len(buffers) == 1 and isinstance(buffers[0], bytes):
        position += (written := os.pwrite(descriptor, buffers[0], position))
        if written == len(buffers[0]):
            return position
        buffers = [buffers[0][written:]]
    views = [memoryview(buffer).cast("B") for buffer in buffers]
    first = 0
    while first < len(views):
        written = os.pwritev(descriptor, views[first : first + _MOST_BUFFERS], position)
        position += written
        while first < len(views) and written >= len(views[first]):
            written -= len(views[first])
            first += 1
        if written:
            views[first] = views[first][written:]
    return position

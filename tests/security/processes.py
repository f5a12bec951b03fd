"""What a running project shows to others on the machine: the ports its processes listen on, and its files."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

LISTENING = "0A"


def listening_addresses(mark: str) -> set[str]:
    """The addresses on which processes listen that a supervisor of this mark started, or that those did."""
    inodes = {inode for process in _marked(mark) for inode in _sockets(process)}
    found = set()
    for table, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        for line in Path("/proc/net", table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == LISTENING and fields[9] in inodes:
                found.add(_address(fields[1].partition(":")[0], family))
    return found


def open_files(folder: Path) -> list[str]:
    """Files and folders that others than their user may read, write or enter."""
    return sorted(
        f"{stat.S_IMODE(found.st_mode):o} {file.relative_to(folder)}"
        for file, found in _files(folder)
        if stat.S_IMODE(found.st_mode) & 0o077
    )


def _files(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    for file in (folder, *folder.rglob("*")):
        try:
            found = file.lstat()
        except FileNotFoundError:
            continue  # it was deleted meanwhile
        if not stat.S_ISLNK(found.st_mode):
            yield file, found


def _marked(mark: str) -> Iterator[Path]:
    wanted = f"HEADRACE_SUPERVISED={mark}".encode()
    for process in Path("/proc").iterdir():
        try:
            if process.name.isdigit() and wanted in (process / "environ").read_bytes().split(b"\0"):
                yield process
        except OSError:
            continue


def _sockets(process: Path) -> Iterator[str]:
    try:
        for descriptor in (process / "fd").iterdir():
            target = os.readlink(descriptor)
            if target.startswith("socket:["):
                yield target[len("socket:[") : -1]
    except OSError:
        return


def _address(text: str, family: socket.AddressFamily) -> str:
    words = [bytes.fromhex(text[place : place + 8])[::-1] for place in range(0, len(text), 8)]
    return socket.inet_ntop(family, b"".join(words))

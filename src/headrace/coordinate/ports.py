"""Is the port free, and if not, who has it? Linux tells in /proc, except about other users' processes."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from headrace.errors import Conflict, UsageError

LISTENING = "0A"


@dataclass(frozen=True, slots=True)
class PortHolder:
    pid: int
    command: str
    project: Path | None
    """Set if it is a Headrace."""

    @property
    def display(self) -> str:
        if self.project is None:
            return f"pid {self.pid} ({self.command})"
        return f"pid {self.pid} (headrace, {short_path(self.project)})"


def choose_port(host: str, port: int) -> int:
    """The port to use: `port` itself, or any free one for 0. `Conflict`, saying who has it, if it is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            # Linux lets two sockets with SO_REUSEADDR bind as long as none listens.
            probe.listen(1)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise port_in_use(port) from None
            raise UsageError(
                f"cannot listen on `{host}:{port}`: {os.strerror(error.errno or 0).lower()}",
                hint="see [server] host and port in headrace.toml",
            ) from None
        return int(probe.getsockname()[1])


def port_in_use(port: int) -> Conflict:
    found = port_holder(port)
    by = f" by {found.display}" if found else ""
    hint = f"use another:  headrace up --port {port + 1}"
    if found and found.project:
        hint += f"      or stop it:  headrace down --project {short_path(found.project)}"
    return Conflict(f"port {port} is in use{by}", hint=hint, port=port, pid=found.pid if found else None)


def port_holder(port: int) -> PortHolder | None:
    inodes = set(_listening_inodes(port))
    if not inodes:
        return None
    for pid in _pids():
        if inodes & set(_socket_inodes(pid)):
            return _describe(pid)
    return None


def _listening_inodes(port: int) -> Iterator[str]:
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            lines = Path(table).read_text().splitlines()[1:]
        except OSError:
            continue
        for fields in map(str.split, lines):
            if fields[3] == LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
                yield fields[9]


def _pids() -> Iterator[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdigit())


def _socket_inodes(pid: int) -> Iterator[str]:
    folder = f"/proc/{pid}/fd"
    try:
        names = os.listdir(folder)
    except OSError:
        return
    for name in names:
        try:
            target = os.readlink(f"{folder}/{name}")
        except OSError:
            continue
        if target.startswith("socket:["):
            yield target[8:-1]


def _describe(pid: int) -> PortHolder:
    command = _command(pid)
    return PortHolder(pid, Path(command[0]).name if command else "?", _project_of(command))


def _command(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").rstrip("\0").split("\0")
    except OSError:
        return []


def _project_of(command: list[str]) -> Path | None:
    """The project of a Headrace server, from its `--project`."""
    if not any("headrace" in part for part in command) or "--project" not in command[:-1]:
        return None
    return Path(command[command.index("--project") + 1])


def short_path(path: Path) -> str:
    """
    >>> short_path(Path.home() / "shop")
    '~/shop'
    """
    try:
        return f"~/{path.relative_to(Path.home())}"
    except ValueError:
        return str(path)

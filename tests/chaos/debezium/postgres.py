"""A PostgreSQL of its own, on loopback, that tells its changes (`wal_level=logical`)."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support import free_port

USER, DATABASE = "headrace", "postgres"
SETTINGS = {
    "wal_level": "logical",
    "listen_addresses": "127.0.0.1",
    "timezone": "UTC",
    "fsync": "off",
    "wal_sender_timeout": "10s",
}


class Missing(Exception):
    """What is not installed, and how to install it."""


def _tool(name: str) -> str:
    places = [*sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True), *map(Path, os.get_exec_path())]
    found = shutil.which(name, path=os.pathsep.join(map(str, places)))
    if found is None:
        raise Missing("PostgreSQL is needed: `apt-get install postgresql`")
    return found


@dataclass(frozen=True)
class Postgres:
    port: int

    def run(self, *statements: str) -> str:
        """What `psql` says to them, in one connection; each is a transaction unless they say otherwise."""
        where = ["-h", "127.0.0.1", "-p", str(self.port), "-U", USER, "-d", DATABASE]
        command = [_tool("psql"), "-XqAt", "-v", "ON_ERROR_STOP=1", *where]
        done = subprocess.run(command, input="\n".join(statements), capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"psql: {done.stderr}")
        return done.stdout.strip()


@contextmanager
def postgres(folder: Path) -> Iterator[Postgres]:
    data, port = folder / "data", free_port()
    # PostgreSQL refuses to run as root, so whoever is root becomes the user that its package made.
    become = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
    folder.mkdir(parents=True, exist_ok=True)
    if become:
        shutil.chown(folder, "postgres")

    def run(*command: str | Path) -> None:
        subprocess.run([*become, *command], check=True, stdout=subprocess.DEVNULL, cwd=folder)

    run(_tool("initdb"), "-D", data, "-U", USER, "-A", "trust", "-N", "-E", "UTF8")
    options = " ".join(f"-c {name}={value}" for name, value in SETTINGS.items()) + f" -p {port} -k {folder}"
    control = (_tool("pg_ctl"), "-D", data, "-w", "-l", folder / "postgres.log")
    run(*control, "-o", options, "start")
    try:
        yield Postgres(port)
    finally:
        run(*control, "-m", "immediate", "stop")

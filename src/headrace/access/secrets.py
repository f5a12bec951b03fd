"""A project's own secrets: made once, kept in the data folder, readable by its user only."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path

from headrace.access.files import make_private_folder
from headrace.config import Project
from headrace.errors import ConfigError

FOLDER = "secrets"
SIZE = 32


def project_secret(project: Project, name: str) -> bytes:
    """The secret of this name, the same for all processes. Whoever is killed while it is made leaves none, or all of
    it."""
    file = project.data / FOLDER / name
    try:
        return _read(file)
    except FileNotFoundError:
        pass
    make_private_folder(project.data)
    make_private_folder(file.parent)
    draft = file.with_name(f".{name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as opened:
            opened.write(secrets.token_bytes(SIZE))
            opened.flush()
            os.fsync(opened.fileno())
        # Of several processes the first one's counts.
        with contextlib.suppress(FileExistsError):
            os.link(draft, file)
    finally:
        draft.unlink(missing_ok=True)
    _sync(file.parent)
    return _read(file)


def read_secret(project: Project, name: str) -> bytes:
    """The same without making one: `OSError` if there is none, or it is not for this user."""
    return _read(project.data / FOLDER / name)


def _read(file: Path) -> bytes:
    found = file.read_bytes()
    if len(found) != SIZE:
        raise ConfigError(
            f"`{file}` is not a secret of Headrace's: it has {len(found)} bytes",
            hint="restore it, or delete it to make another; hashes made with the old one then match no new ones",
        )
    return found


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

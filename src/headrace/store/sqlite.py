"""Views in SQLite: one file per view version, written by its follower, read by a few connections.

The log is the truth, so a file that cannot be trusted is thrown away and filled again, and a commit needs no sync of
its own (`synchronous=NORMAL`): after a power cut the file is whole, perhaps a little older, and so is the position in
it.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Collection
from hashlib import sha256
from pathlib import Path
from urllib.parse import quote

from headrace.errors import Conflict, StoreDamaged
from headrace.sql.source import Source
from headrace.store.base import Store, ViewStore
from headrace.store.snapshots import FOLDER, remove_snapshots
from headrace.store.sqlite_view import SqliteView, remove

__all__ = ["SqliteStore", "SqliteView", "file_name"]

logger = logging.getLogger("headrace.store")


class SqliteStore(Store):
    """A file for each version, `v1.sqlite`; one that is filled beside it by another definition has a number,
    `v1-2.sqlite`, and keeps it when it takes over."""

    def __init__(self, folder: Path, readers: int = 4) -> None:
        self._folder = folder
        self._readers = readers
        self._open: dict[tuple[str, int], SqliteView] = {}
        self._others: list[SqliteView] = []
        """Filled beside, or taken over from."""

    def open_view(self, source: Source, version: int) -> SqliteView:
        known = self._open.get((source.name, version))
        if known is not None and not known.closed:
            raise Conflict(f"view `{source.name}` version {version} is open already")
        self.path(source.name, version).parent.mkdir(parents=True, exist_ok=True)
        view = None
        for path in reversed(self._files(source.name, version)):
            # What was filled last, if it is of this definition.
            view = view or self._reopened(path, source, version)
            if view is None or view.path != path:
                remove(path)
        view = view or SqliteView(self.path(source.name, version), source, version, self._readers)
        self._open[source.name, version] = view
        return view

    def _reopened(self, path: Path, source: Source, version: int) -> SqliteView | None:
        try:
            return SqliteView(path, source, version, self._readers)
        except StoreDamaged as error:
            logger.warning("view `%s` v%d is thrown away and filled again: %s", source.name, version, error.message)
            return None

    def open_beside(self, source: Source, version: int) -> SqliteView:
        numbers = [_number(path) for path in self._files(source.name, version)]
        path = self.path(source.name, version).with_stem(f"v{version}-{max(numbers, default=1) + 1}")
        view = SqliteView(path, source, version, self._readers)
        self._others.append(view)
        return view

    def take_over(self, view: ViewStore) -> None:
        assert isinstance(view, SqliteView)
        self._others.append(self._open[view.source.name, view.version])
        self._open[view.source.name, view.version] = view
        self._others.remove(view)

    def discard(self, view: ViewStore) -> None:
        assert isinstance(view, SqliteView)
        view.close()
        remove(view.path)
        self._others.remove(view)

    def drop_view(self, name: str, version: int) -> None:
        view = self._open.pop((name, version), None)
        if view is not None:
            view.close()
        for path in self._files(name, version):
            remove(path)
        remove_snapshots(self.path(name, version), version)
        folder = self.path(name, version).parent
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()

    def keep_only(self, views: Collection[tuple[str, int]]) -> None:
        kept = {self.path(name, version) for name, version in views}
        for file in self._folder.glob("*/v*.sqlite"):
            if file.with_stem(file.stem.partition("-")[0]) not in kept and file.is_file():
                remove(file)
        for taken in self._folder.glob(f"*/{FOLDER}/v*"):
            if taken.parent.parent / f"{taken.name}.sqlite" not in kept:
                shutil.rmtree(taken, ignore_errors=True)
        for folder in self._folder.glob("*"):
            if folder not in {path.parent for path in kept}:
                shutil.rmtree(folder, ignore_errors=True)

    def close(self) -> None:
        for view in (*self._open.values(), *self._others):
            view.close()
        self._open.clear()
        self._others.clear()

    def path(self, name: str, version: int) -> Path:
        """Of the first."""
        return self._folder / file_name(name) / f"v{version}.sqlite"

    def _files(self, name: str, version: int) -> list[Path]:
        """Those there are, in the order they were made."""
        first = self.path(name, version)
        numbered = first.parent.glob(f"v{version}-*.sqlite")
        return [first] * first.exists() + sorted(numbered, key=_number)


def _number(path: Path) -> int:
    return int(path.stem.partition("-")[2] or 1)


def file_name(name: str) -> str:
    """A name as a folder's name: nothing in it can lead elsewhere.

    >>> file_name("VIEWS"), file_name("../a b")
    ('VIEWS', '%2E%2E%2Fa%20b')
    """
    safe = quote(name, safe="").replace(".", "%2E") or "%"
    return safe if len(safe) <= 200 else f"{safe[:160]}%{sha256(name.encode()).hexdigest()[:32]}"

"""The catalog as it was after some event of its topic, in a file: who opens the catalog begins there and not with the
first event there ever was.

The topic is the truth, and the file is only a shorter way to it. One that is not whole, that another Headrace wrote, or
that is of another log is passed over, and everything is read again. So it is never wrong to remove it.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from headrace.coordinate.base import ViewDefinition
from headrace.coordinate.events import (
    query_from_json,
    query_to_json,
    source_from_json,
    source_to_json,
    version_from_json,
    version_to_json,
)
from headrace.coordinate.fold import BUILT_IN, CatalogState
from headrace.coordinate.taking_over import History
from headrace.functions.files import FunctionFile
from headrace.log.local.files import replace_file
from headrace.structs import ready
from headrace.types import type_from_json, type_to_json
from headrace.views.versions import Deployment

FILE = "catalog.state"
EVERY = 1_000
"""Events between two savings: that many are read at most when it is opened, and about as many again while one is
being written."""
MADE_BY = (
    "headrace",
    "headrace.coordinate.base",
    "headrace.coordinate.catalog_file",
    "headrace.coordinate.events",
    "headrace.coordinate.fold",
    "headrace.coordinate.taking_over",
    "headrace.functions.files",
    "headrace.sql.source",
    "headrace.store.cuts",
    "headrace.types",
    "headrace.views.versions",
)
"""Whose text decides what the events come to."""

logger = logging.getLogger("headrace.catalog")


@dataclass(frozen=True, slots=True)
class Saved:
    state: CatalogState
    histories: dict[str, History]
    samples: dict[int, int]
    """By deployment: the offset of the event that has the samples of its comparisons."""
    last: int
    """The offset of the last event in it."""
    mark: str
    """What that event is, so that it can be seen whether the log still has it."""


class CatalogFile:
    """`keeps`: whether this process writes it. One does; others only read."""

    def __init__(self, path: Path, keeps: bool = False, every: int = EVERY) -> None:
        self._path, self._keeps, self._every = path, keeps, every
        self._events = 0
        """How many are in the file."""
        self._saving: threading.Thread | None = None

    def load(self, is_there: Callable[[int, str], bool]) -> Saved | None:
        """`is_there` says whether the log has such an event at that offset."""
        try:
            content = self._path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            logger.warning("%s cannot be read: %s", self._path, error)
            return None
        head, _, body = content.partition(b"\n")
        if head != _head(body):
            logger.info("%s is not whole, or of another Headrace: the catalog is read from the log", self._path)
            return None
        try:
            saved = _decode(body)
        except (ValueError, KeyError, TypeError):
            logger.exception("%s cannot be understood: the catalog is read from the log", self._path)
            return None
        if not is_there(saved.last, saved.mark):
            logger.info("%s is of another log: the catalog is read from this one", self._path)
            return None
        self._events = saved.state.events
        return saved

    def wants(self, state: CatalogState) -> bool:
        waits = self._saving is None or not self._saving.is_alive()
        return self._keeps and waits and state.events - self._events >= self._every

    def save(self, saved: Saved) -> None:
        """In a thread: nobody who changes the catalog waits for it."""
        self._events = saved.state.events
        self._saving = threading.Thread(target=self._write, args=(saved,), name="headrace-catalog", daemon=True)
        self._saving.start()

    def _write(self, saved: Saved) -> None:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            body = _encode(saved)
            replace_file(self._path, _head(body) + b"\n" + body)
        except OSError as error:
            # Tried again when there are as many events more.
            logger.warning("the catalog's state cannot be kept in %s: %s", self._path, error)

    def settle(self) -> None:
        """Until what is being written is there."""
        if self._saving is not None:
            self._saving.join()


@cache
def _code() -> str:
    texts = [Path(sys.modules[name].__file__ or "").read_bytes() for name in MADE_BY]
    return sha256(b"\0".join(texts)).hexdigest()


def _head(body: bytes) -> bytes:
    return f"headrace-catalog {_code()} {sha256(body).hexdigest()}".encode()


def _encode(saved: Saved) -> bytes:
    state = saved.state
    body = {
        "last": saved.last,
        "mark": saved.mark,
        "samples": list(saved.samples.items()),
        "histories": saved.histories,
        "sources": [source_to_json(source) for source in state.sources.values()],
        "queries": [query_to_json(query) for query in state.queries.values()],
        "views": [asdict(view) for view in state.views.values()],
        "last_query_number": state.last_query_number,
        "view_versions": state.view_versions,
        "doomed_topics": sorted(state.doomed_topics),
        "types": {name: type_to_json(type_) for name, type_ in state.types.items()},
        "function_files": msgspec.to_builtins(list(state.function_files.values())),
        "versions": [version_to_json(one) for versions in state.versions.values() for one in versions.values()],
        "serving": state.serving,
        "deployments": msgspec.to_builtins(list(state.deployments.values())),
        "filed": sorted(state.filed),
        "events": state.events,
    }
    return json.dumps(body, ensure_ascii=False).encode("utf-8", "surrogatepass")


def _decode(text: bytes) -> Saved:
    body = json.loads(text.decode("utf-8", "surrogatepass"))
    sources = [*(source_from_json(one) for one in body["sources"]), *BUILT_IN]
    files = msgspec.convert(body["function_files"], ready(list[FunctionFile]))
    versions: dict[str, dict[int, Any]] = {}
    for version in map(version_from_json, body["versions"]):
        versions.setdefault(version.name, {})[version.number] = version
    state = CatalogState(
        sources={source.name: source for source in sources},
        queries={query.id: query for query in map(query_from_json, body["queries"])},
        views={view["name"]: ViewDefinition(**view) for view in body["views"]},
        last_query_number=body["last_query_number"],
        view_versions=body["view_versions"],
        doomed_topics=frozenset(body["doomed_topics"]),
        types={name: type_from_json(type_) for name, type_ in body["types"].items()},
        function_files={file.file: file for file in files},
        versions=versions,
        serving=body["serving"],
        deployments={one.id: one for one in msgspec.convert(body["deployments"], ready(list[Deployment]))},
        filed=frozenset(body["filed"]),
        events=body["events"],
    )
    histories = {name: tuple((begun, number) for begun, number in one) for name, one in body["histories"].items()}
    return Saved(state, histories, dict(body["samples"]), body["last"], body["mark"])

"""A log, a store and followers in one folder, as a server has them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace.clock import SystemClock
from headrace.config import LogSettings
from headrace.log.base import Append, TopicSpec
from headrace.log.local.open import LocalLog
from headrace.log.schema import arrow_type
from headrace.sql.source import Source
from headrace.store.follow import Followers
from headrace.store.sqlite import SqliteStore
from headrace.types import BIGINT, BOOLEAN, DataType
from tests.support import wait_for

SYSTEM: dict[str, DataType] = {"$time": BIGINT, "$tombstone": BOOLEAN, "$window_start": BIGINT, "$window_end": BIGINT}


@dataclass(frozen=True)
class View:
    name: str
    version: int
    topic: str


def open_log(folder: Path, **settings: Any) -> LocalLog:
    return LocalLog(folder, LogSettings(linger_ms=0, **settings), SystemClock(), serve=False)


def create_topic(log: LocalLog, source: Source, partitions: int = 1) -> None:
    spec = TopicSpec(source.topic, source.key, source.value, partitions, role="derived")
    log.create_topic(replace(spec, windowed="time") if source.window else spec)


def batch_of(source: Source, rows: Sequence[dict[str, Any]]) -> pa.RecordBatch:
    types = {column.name: column.type for column in source.key + source.value} | SYSTEM
    names = [name for name in types if any(name in row for row in rows)]
    blank = {"$time": 0, "$tombstone": False}
    return pa.record_batch(
        {name: pa.array([row.get(name, blank.get(name)) for row in rows], arrow_type(types[name])) for name in names}
    )


def write(log: LocalLog, source: Source, *rows: dict[str, Any], partition: int | None = None) -> None:
    """As one atomic append, so as one batch of a query."""
    log.append([Append(source.topic, batch_of(source, rows), partition)]).result()


class Project:
    def __init__(self, folder: Path, **settings: Any) -> None:
        self.folder = folder
        self.log = open_log(folder / "log", **settings)
        self.store = SqliteStore(folder / "views")
        self.followers = Followers(self.log, self.store)
        self.sources: dict[str, Source] = {}

    def serve(self, *sources: Source, version: int = 1) -> None:
        self.sources = {source.name: source for source in sources}
        self.followers.sync([View(source.name, version, source.topic) for source in sources], self.sources.get)

    def caught_up(self, name: str) -> None:
        wait_for(lambda: self.followers.lag(name) == 0, 20, f"`{name}` to catch up")

    def close(self) -> None:
        self.followers.close()
        self.store.close()
        self.log.close()

"""One version of one view in a SQLite file: its rows, and its position in the same transactions."""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections import OrderedDict
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from headrace.errors import StoreDamaged
from headrace.log.base import Records
from headrace.sql.expressions import Expression
from headrace.sql.source import Source
from headrace.store.arrivals import BEGINNING, merge
from headrace.store.base import Key, Position, Scan, ViewStore
from headrace.store.changes import NetChanges, encoded_values, net_changes
from headrace.store.expiry import NEVER, expiry_of, newest_time
from headrace.store.pushdown import push
from headrace.store.readers import Readers, translate
from headrace.store.sqlite_sql import Layout
from headrace.store.sqlite_values import decoder, encode_constant
from headrace.types import type_to_json

FORMAT = 1
APPLICATION = 0x48524356  # "HRCV"
WAL_BYTES = 32 * 1024 * 1024
"""Above this the write-ahead log is brought into the file even if readers have to be waited for, a moment."""

CHECKPOINT_SECONDS = 1.0
FIND_SECONDS = 30.0
KEYS_PER_FIND = 500

logger = logging.getLogger("headrace.store")


def remove(path: Path) -> None:
    # The write-ahead log goes first: alone it is nothing, but left behind it would be taken for a new file's.
    for suffix in ("-wal", "-shm", ""):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


class SqliteView(ViewStore):
    def __init__(self, path: Path, source: Source, version: int, readers: int) -> None:
        self.source, self.version, self.closed = source, version, False
        self.path, self._layout, self._lock = path, Layout(source), threading.Lock()
        self._types = {name: column.type for name, column in self._layout.columns.items()}
        self._key = [self._layout.columns[name] for name in self._layout.key]
        self._statements: OrderedDict[Hashable, str] = OrderedDict()
        self._writer = open_writer(path, self._layout, _definition(source), _definition(_before_fork(source, version)))
        self._position = _read_position(self._writer)
        self.epoch = _read_epoch(self._writer)
        self._expiry = expiry_of(source)
        self._newest = _read_newest(self._writer) if self._expiry else NEVER
        self._readers = Readers(path, readers)
        self._counted: tuple[int, int] | None = None
        self._next_checkpoint = 0.0

    def position(self) -> Position:
        return self._position

    def stamp(self, epoch: str) -> None:
        with self._lock, _translated():
            self._writer.execute("INSERT OR REPLACE INTO epoch VALUES (0, ?)", (epoch,))
            self.epoch = epoch

    def apply(self, changes: Sequence[Records], position: Position) -> int:
        if position.arrival <= self._position.arrival:
            return 0
        batch = merge(changes, self._position)
        net = None if batch is None else net_changes(batch, self.source, self._key)
        newest = self._newest if batch is None else newest_time(batch, self._newest)
        with self._lock, _translated():
            try:
                self._writer.execute("BEGIN IMMEDIATE")
                if net is not None:
                    self._write(net)
                    self._expire(net, newest)
                self._writer.execute("UPDATE meta SET arrival = ?, offsets = ?", _position_row(position))
                self._writer.execute("COMMIT")
            except BaseException:
                self._writer.rollback()
                raise
            self._position, self._newest = position, newest
            self._checkpoint()
        return 0 if net is None else net.count

    def _write(self, net: NetChanges) -> None:
        # A unique index takes two nulls for two values, so a key with a null in it is removed first.
        stale = net.deleted + [key for key in net.keys if None in key]
        if stale:
            self._writer.executemany(self._layout.delete, stale)
        if net.keys:
            columns = (
                encoded_values(net.batch, self.source, self._layout.columns[name]) for name in self._layout.names
            )
            self._writer.executemany(self._layout.upsert, zip(*columns, strict=True))

    def _expire(self, net: NetChanges, newest: int) -> None:
        if self._expiry is None:
            return
        horizon = self._expiry.horizon(newest)
        if horizon > self._expiry.horizon(self._newest) or self._expiry.oldest(net.batch, self.source) <= horizon:
            self._writer.execute(self._layout.expire(self._expiry.column), (horizon,))
        if newest > self._newest:
            self._writer.execute("UPDATE newest SET time = ?", (newest,))

    def horizon(self) -> int | None:
        return None if self._expiry is None else self._expiry.horizon(self._newest)

    def _checkpoint(self) -> None:
        """SQLite brings its log into the file by itself, but starts it anew only when no reader is in it: under
        constant reading never. So above a size it is done while readers are waited for; they are short, and tried
        again in a second otherwise."""
        wal = self.path.with_name(self.path.name + "-wal")
        if time.monotonic() >= self._next_checkpoint and wal.exists() and wal.stat().st_size > WAL_BYTES:
            self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            self._next_checkpoint = time.monotonic() + CHECKPOINT_SECONDS

    def widen(self, source: Source) -> bool:
        """The file goes on saying what it was made of, so it is not taken for a whole one later."""
        wide = Layout(source)
        if any(wide.names.get(name, known) != known for name, known in self._layout.names.items()):
            return False
        with self._lock, _translated():
            there = {name for _, name, *_ in self._writer.execute("PRAGMA table_info(rows)")}
            for statement in wide.add(name for name, known in wide.names.items() if known not in there):
                self._writer.execute(statement)
            self._layout, self.source = wide, source
            self._types = {name: column.type for name, column in wide.columns.items()}
        return True

    def rebase(self, position: Position) -> None:
        with self._lock, _translated():
            self._writer.execute("UPDATE meta SET arrival = ?, offsets = ?", _position_row(position))
            self._position = position

    @contextmanager
    def scan(
        self,
        columns: Sequence[str],
        predicate: Expression | None = None,
        order: Sequence[tuple[str, bool]] = (),
        limit: int | None = None,
        deadline: float = 10.0,
    ) -> Iterator[Scan]:
        pushed = push(predicate, self._types, encode_constant)
        limited = limit is not None and pushed.residual is None
        shape = (tuple(columns), pushed.condition, tuple(order), limited)
        statement = self._statements.get(shape)
        if statement is None:
            statement = self._layout.select(columns, pushed.condition, order, limited)
            self._remember(shape, statement)
        parameters = {f"p{number}": value for number, value in enumerate(pushed.parameters)}
        if limited:
            parameters["limit"] = limit
        with self._noticing_damage(), self._readers.lend(deadline) as connection:
            position = _read_position(connection)
            cursor = connection.execute(statement, parameters)
            try:
                yield Scan(position, self._decoded(cursor, columns), pushed.residual)
            finally:
                cursor.close()

    def find(self, keys: Sequence[Key], columns: Sequence[str]) -> dict[Key, tuple[Any, ...]]:
        """In one statement per stretch of keys: one each would cost several times as much."""
        width, found = len(self._layout.key), {}
        with self._noticing_damage(), self._readers.lend(FIND_SECONDS) as connection:
            for first in range(0, len(keys), KEYS_PER_FIND):
                some = keys[first : first + KEYS_PER_FIND]
                statement = self._layout.find(columns, len(some))
                for row in connection.execute(statement, [part for key in some for part in key]):
                    found[row[:width]] = row[width:]
        return dict(zip(found, self._decoded(iter(found.values()), columns), strict=True))

    @contextmanager
    def _noticing_damage(self) -> Iterator[None]:
        try:
            yield
        except StoreDamaged:
            self.damaged = True
            raise

    def _remember(self, shape: Hashable, statement: str) -> None:
        self._statements[shape] = statement
        if len(self._statements) > 200:
            self._statements.popitem(last=False)

    def statements(self) -> list[str]:
        """What is remembered, for EXPLAIN QUERY PLAN."""
        return list(self._statements.values())

    def _decoded(self, rows: Iterator[tuple[Any, ...]], columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        decoders = [decoder(self._types[name]) for name in columns]
        if not any(decoders):
            return rows
        return (
            tuple(
                value if convert is None or value is None else convert(value)
                for convert, value in zip(decoders, row, strict=True)
            )
            for row in rows
        )

    def count(self) -> int:
        arrival = self._position.arrival
        if self._counted is None or self._counted[0] != arrival:
            with self._readers.lend(10.0) as connection:
                [rows] = connection.execute("SELECT count(*) FROM rows").fetchone()
            self._counted = (arrival, rows)
        return self._counted[1]

    def close(self) -> None:
        with self._lock:
            if not self.closed:
                self.closed = True
                self._readers.close()
                self._writer.close()


def open_writer(path: Path, layout: Layout, definition: bytes, before: bytes = b"") -> sqlite3.Connection:
    """`StoreDamaged` if what is there is not this view's."""
    fresh = not path.exists()
    if fresh:
        remove(path)
    with _translated():
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        try:
            if fresh:
                _create(connection, layout, definition)
            _check(connection, definition, before)
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute("PRAGMA busy_timeout = 100")
        except BaseException:
            connection.close()
            raise
    return connection


def _create(connection: sqlite3.Connection, layout: Layout, definition: bytes) -> None:
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("BEGIN IMMEDIATE")
    connection.execute(f"PRAGMA application_id = {APPLICATION}")
    connection.execute(f"PRAGMA user_version = {FORMAT}")
    for statement in layout.create():
        connection.execute(statement)
    connection.execute("CREATE TABLE meta (definition BLOB, arrival INTEGER, offsets TEXT)")
    connection.execute("INSERT INTO meta VALUES (?, ?, ?)", (definition, *_position_row(BEGINNING)))
    connection.execute("COMMIT")


def _check(connection: sqlite3.Connection, definition: bytes, before: bytes) -> None:
    [application] = connection.execute("PRAGMA application_id").fetchone()
    [version] = connection.execute("PRAGMA user_version").fetchone()
    if application != APPLICATION:
        raise StoreDamaged("the file is not a whole view's")
    if version != FORMAT:
        raise StoreDamaged(f"the file has format {version}, not {FORMAT}")
    try:
        [found] = connection.execute("SELECT definition FROM meta").fetchone() or [None]
        connection.execute("SELECT * FROM rows LIMIT 1").fetchone()
    except sqlite3.OperationalError as error:
        raise StoreDamaged(f"the file is not a whole view's: {error}") from error
    if found not in (definition, before):
        raise StoreDamaged("the file is of another definition")


def _before_fork(source: Source, version: int) -> Source:
    """As the source was before its topic was forked: its records are the same at the same places."""
    return replace(source, topic=source.topic.removesuffix(f".v{version}"))


def _definition(source: Source) -> bytes:
    """What must not change for the rows to be right."""
    key, value = ([[column.name, type_to_json(column.type)] for column in part] for part in (source.key, source.value))
    definition = [source.name, source.topic, key, value, source.window and source.window.kind]
    kept = source.window.retention_ms if source.window else source.row_ttl_ms
    # Of what is kept for ever, as an older Headrace wrote it.
    return msgspec.json.encode(definition if kept is None else [*definition, kept])


def _position_row(position: Position) -> tuple[int, bytes]:
    return position.arrival, msgspec.json.encode({str(number): offset for number, offset in position.offsets.items()})


_offsets = msgspec.json.Decoder(dict[int, int])


def _read_position(connection: sqlite3.Connection) -> Position:
    arrival, offsets = connection.execute("SELECT arrival, offsets FROM meta").fetchone()
    return Position(arrival, _offsets.decode(offsets))


def _read_epoch(connection: sqlite3.Connection) -> str | None:
    """Return the epoch that was stamped last. A file of an older Headrace has no such table."""
    with _translated():
        connection.execute("CREATE TABLE IF NOT EXISTS epoch (one INTEGER PRIMARY KEY, id TEXT)")
        found = connection.execute("SELECT id FROM epoch").fetchone()
    return None if found is None else str(found[0])


def _read_newest(connection: sqlite3.Connection) -> int:
    """A file of an older Headrace has no such table: what it holds expires with what comes."""
    with _translated():
        connection.execute("CREATE TABLE IF NOT EXISTS newest (time INTEGER)")
        found = connection.execute("SELECT time FROM newest").fetchone()
        if found is None:
            connection.execute("INSERT INTO newest VALUES (?)", (NEVER,))
    return NEVER if found is None else int(found[0])


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise translate(error) from error

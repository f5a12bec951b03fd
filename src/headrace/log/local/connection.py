"""Connections to the owner: one that asks and waits, one that appends without waiting."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from headrace.errors import LogError, NotRunning, OwnerLost, UsageError, error_from_json
from headrace.log.base import Appended
from headrace.log.local import wire
from headrace.log.local.lock import read_holder


class Connection:
    """One request at a time."""

    def __init__(self, folder: Path, timeout: float | None = None) -> None:
        holder = read_holder(folder)
        if holder is None or not holder.socket:
            raise not_running(folder)
        try:
            self._socket = wire.connect(holder.socket, timeout)
        except OSError:
            raise not_running(folder) from None
        self._file: IO[bytes] = self._socket.makefile("rb")

    def ask(self, request: dict[str, Any], batches: Iterator[pa.RecordBatch] | None = None) -> dict[str, Any]:
        try:
            self._socket.sendall(wire.encode_line(request))
            if batches is not None:
                self._send(batches)
            answer = wire.read_line(self._file)
        except OSError as error:
            raise lost() from error
        if answer is None:
            raise lost()
        return answer

    def _send(self, batches: Iterator[pa.RecordBatch]) -> None:
        first = next(batches)
        sink = self._socket.makefile("wb", buffering=1024 * 1024)
        # Closed only when all of it was sent: a stream that ends because its maker failed would be taken as whole.
        stream = pa.ipc.new_stream(sink, first.schema)
        if first.num_columns:
            stream.write_batch(first)
        for batch in batches:
            stream.write_batch(batch)
        stream.close()
        sink.flush()

    def is_open(self) -> bool:
        """An idle connection has nothing to say; if it is readable, the other side has hung up."""
        poll = select.poll()
        try:
            poll.register(self._socket, select.POLLIN)
            return not poll.poll(0)
        except (OSError, ValueError):
            return False

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(OSError):
            self._file.close()
        self._socket.close()


class AppendChannel:
    """The connection for appends: sent one after the other without waiting, answered in the same order."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._waiting: deque[Future[list[Appended]]] = deque()
        self._closed = False

    def send(self, request: dict[str, Any], streams: Sequence[pa.Buffer]) -> Future[list[Appended]]:
        future: Future[list[Appended]] = Future()
        future.set_running_or_notify_cancel()
        with self._lock:
            if self._closed:
                raise LogError("the log is closed")
            connection = self._socket or self._connect()
            self._waiting.append(future)
            try:
                connection.sendall(wire.encode_line(request))
                for stream in streams:
                    connection.sendall(memoryview(stream))
            except OSError:
                # The receiver notices too, and tells everyone who waits.
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
        return future

    def _connect(self) -> socket.socket:
        holder = read_holder(self._folder)
        if holder is None or not holder.socket:
            raise not_running(self._folder)
        try:
            connection = wire.connect(holder.socket)
        except OSError:
            raise not_running(self._folder) from None
        self._socket, self._waiting = connection, deque()
        threading.Thread(
            target=self._receive, args=(connection, self._waiting), name="log-appends", daemon=True
        ).start()
        return connection

    def _receive(self, connection: socket.socket, waiting: deque[Future[list[Appended]]]) -> None:
        try:
            with connection.makefile("rb") as file:
                while (answer := wire.read_line(file)) is not None:
                    _resolve(waiting.popleft(), answer)
        except (OSError, IndexError, UsageError):
            pass
        finally:
            with self._lock:
                if self._socket is connection:
                    self._socket = None
                left = list(waiting)
            connection.close()
            for future in left:
                future.set_exception(lost())

    def close(self) -> None:
        """No more appends; those that were sent are still answered."""
        with self._lock:
            self._closed = True
            if self._socket is not None:
                with contextlib.suppress(OSError):
                    self._socket.shutdown(socket.SHUT_WR)


def _resolve(future: Future[list[Appended]], answer: dict[str, Any]) -> None:
    if not answer["ok"]:
        future.set_exception(error_from_json(answer["error"]))
        return
    future.set_result(
        [
            Appended(tuple((p, first, last) for p, first, last in one["positions"]), tuple(one["duplicates"]))
            for one in answer["results"]
        ]
    )


def not_running(folder: Path) -> NotRunning:
    return NotRunning(f"nobody owns the log in `{folder}`", hint="start it:  headrace up")


def lost() -> OwnerLost:
    return OwnerLost(
        "the log's owner went away before it answered",
        hint="the write may or may not be stored; an event id makes a repeat harmless",
    )

"""A process for functions, as the server sees it: pickled requests on its standard input, pickled answers on its
standard output."""

from __future__ import annotations

import pickle
import select
import struct
import subprocess
import sys
from typing import Any, BinaryIO

MODULE = "headrace.functions.host"
START_SECONDS = 30.0
_LENGTH = struct.Struct("<Q")


class ChildDied(Exception):
    """It ended in the middle of a call."""


class ChildHung(Exception):
    """It did not answer in time."""


class Child:
    """One process for functions, asked by one thread at a time."""

    def __init__(self) -> None:
        self._process = subprocess.Popen([sys.executable, "-m", MODULE], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.prepared: dict[Any, int] = {}

    def ask(self, request: Any, seconds: float) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            send(self._process.stdin, request)
            # Not `select`, which cannot wait for what a server with a thousand clients opens.
            answers = select.poll()
            answers.register(self._process.stdout, select.POLLIN)
            if not answers.poll(seconds * 1000):
                raise ChildHung
            return receive(self._process.stdout)
        except (EOFError, OSError) as error:
            raise ChildDied from error

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()


def send(stream: BinaryIO | Any, value: Any) -> None:
    data = pickle.dumps(value)
    stream.write(_LENGTH.pack(len(data)) + data)
    stream.flush()


def receive(stream: BinaryIO | Any) -> Any:
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        raise EOFError
    [length] = _LENGTH.unpack(head)
    data = stream.read(length)
    if len(data) < length:
        raise EOFError
    return pickle.loads(data)

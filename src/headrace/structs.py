"""What msgspec reads into, made ready by one thread at a time."""

from __future__ import annotations

import threading
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

_making = threading.RLock()
_ready: set[Any] = set()


def ready(type_: T) -> T:
    """The type itself, once msgspec knows what is in it. It finds that out when it first reads one, and shows it to
    other threads before it is whole: a second thread that reads one at that moment ends the process (msgspec 0.22,
    signal 11). So every type of ours that anything is read into goes through here.

    >>> msgspec.json.decode(b'["a", 1]', type=ready(tuple[str, int]))
    ('a', 1)
    """
    if type_ not in _ready:
        with _making:
            msgspec.msgpack.Decoder(type_)
            _ready.add(type_)
    return type_

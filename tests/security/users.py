"""Connections as another user of this machine, without another process: the kernel takes a socket's owner from the
file system user of the thread that opens it."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

NOBODY = 65534
_libc = ctypes.CDLL(None, use_errno=True)

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can open connections as somebody else")


@contextmanager
def acting_as(uid: int) -> Iterator[None]:
    """Sockets that this thread opens belong to the user."""
    _libc.setfsuid(uid)
    try:
        assert _libc.setfsuid(-1) == uid
        yield
    finally:
        _libc.setfsuid(os.geteuid())

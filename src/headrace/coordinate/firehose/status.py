"""How a delivery stream is."""

from __future__ import annotations

from typing import Literal

import msgspec

from headrace.coordinate.attached_worker import State


class DeliveryStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How a delivery stream is. What is about files is nothing for one that writes to a topic."""

    name: str
    source: str
    """The stream it reads; empty where records are put into it."""
    topic: str
    """Where its records wait."""
    to: str
    """A bucket's folder, or a topic."""
    format: Literal["plain", "gzip", "parquet", "topic"]
    transform: str
    state: State
    records: int
    """Delivered: in files ever, into a topic since the server started."""
    rejected: int
    """Dead letters."""
    files: int = 0
    buffered: int = 0
    """Records that wait for their file."""
    buffered_bytes: int = 0
    buffered_since_ms: int | None = None
    file_bytes: int = 0
    file_seconds: float = 0.0
    """A file is written when so much is there, or so old."""
    last_file: str | None = None
    last_file_ms: int | None = None
    error: str | None = None
    error_ms: int | None = None

"""A streamed answer in Arrow's format: batches as they come, and the error if it ends with one."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from headrace.errors import Disconnected, error_from_json

if TYPE_CHECKING:
    import pyarrow as pa

ARROW = "application/vnd.apache.arrow.stream"
METADATA = b"headrace"
"""The key of a batch's metadata that holds an event: header, progress, end or error."""


class ArrowReading:
    """What has come of a streamed answer: its schema and header, then its batches."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        import pyarrow as pa

        self._reader = pa.ipc.open_stream(io.BufferedReader(_Pieces(pieces)))
        self.schema: pa.Schema = self._reader.schema
        self.header: dict[str, Any] = {}
        self.rows = 0
        self.end: dict[str, Any] | None = None

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield batches. `Disconnected` if the answer broke off."""
        import pyarrow as pa

        try:
            for batch, metadata in iter(self._reader.iter_batches_with_custom_metadata()):
                self._hear(metadata)
                if batch.num_rows:
                    self.rows += batch.num_rows
                    yield batch
        except (pa.ArrowInvalid, OSError) as error:
            raise Disconnected(f"the answer broke off after {self.rows:,} rows", detail=str(error)) from None
        if self.end is None:
            raise Disconnected(f"the answer broke off after {self.rows:,} rows", hint="ask again")

    def _hear(self, metadata: Any) -> None:
        if metadata is None or METADATA not in metadata:
            return
        event = json.loads(metadata[METADATA])
        match event["event"]:
            case "error":
                raise error_from_json(event["data"]["error"])
            case "header":
                self.header = event["data"]
            case "end":
                self.end = event["data"]


class _Pieces(io.RawIOBase):
    """Pieces of bytes as a file."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces, self._left = pieces, b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._left:
            try:
                self._left = next(self._pieces)
            except StopIteration:
                return 0
        count = min(len(buffer), len(self._left))
        buffer[:count] = self._left[:count]
        self._left = self._left[count:]
        return count

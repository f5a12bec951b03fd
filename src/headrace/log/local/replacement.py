"""A segment written anew: beside the old one, synced, renamed over it. Who has the old file open goes on in it."""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType
from typing import Self

import pyarrow as pa

from headrace.log.local.files import sync_file, sync_folder, write_all
from headrace.log.local.frame import FrameHeader, encode_frame
from headrace.log.local.index import Index, encode_entries, encode_index_header
from headrace.log.local.segment import HEADER_SIZE, NO_TIME, encode_segment_header, index_path, segment_path


class Replacement:
    """Takes frames in order; nothing is replaced before `finish`. Left without it, the new file goes."""

    def __init__(self, folder: Path, topic_id: int, partition: int, base: int, generation: int) -> None:
        self._folder, self._base, self._generation = folder, base, generation
        self._path = segment_path(folder, base)
        self._temporary = self._path.with_name(self._path.name + ".tmp")
        self._index, self._max_time = Index(), NO_TIME
        self._descriptor = os.open(self._temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        header = encode_segment_header(topic_id, partition, base, generation)
        self._position = write_all(self._descriptor, [header], 0)
        assert self._position == HEADER_SIZE

    def add(self, header: FrameHeader, body: pa.Buffer) -> None:
        if self._index.wants(self._position):
            self._index.add(header, self._position, self._max_time)
        self._max_time = max(self._max_time, header.max_time)
        self._position = write_all(self._descriptor, encode_frame(header, body), self._position)

    def finish(self, modified_ns: int) -> bool:
        """Put it in place, with the time its records came. False if the topic was deleted meanwhile."""
        os.fsync(self._descriptor)
        os.utime(self._temporary, ns=(modified_ns, modified_ns))
        try:
            os.rename(self._temporary, self._path)
            # Between the two the old index is of another generation, so it is not used.
            replace_index(self._folder, self._base, self._generation, self._index)
            sync_folder(self._folder)
        except FileNotFoundError:
            return False
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        os.close(self._descriptor)
        self._temporary.unlink(missing_ok=True)


def replace_index(folder: Path, base: int, generation: int, index: Index) -> None:
    """A new index file, whole or not at all; the folder is left to the caller to sync."""
    path = index_path(folder, base)
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_bytes(encode_index_header(generation, base) + encode_entries(index))
    sync_file(temporary)
    os.rename(temporary, path)

"""Rows that are kept for a while only: windows with a RETENTION, and tables with a ROW_TTL_MS.

Time is the view's own: the largest event time among the changes it has applied. So what is gone depends on the log and
on nothing else, and a view that is filled again ends with the same rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from headrace.log.base import TIME
from headrace.sql.source import Source
from headrace.store.columns import batch_column

STEPS = 100
"""Rows are looked for this often in the time that they are kept: one may stay a hundredth longer."""
NEVER = -(2**63)


@dataclass(frozen=True, slots=True)
class Expiry:
    column: str
    """A row's age is told from it."""
    keep_ms: int

    def horizon(self, newest_ms: int) -> int:
        """Rows at or before it are gone.

        >>> Expiry("ROWTIME", 1000).horizon(5_009), Expiry("ROWTIME", 1000).horizon(5_010)
        (4000, 4010)
        """
        if newest_ms == NEVER:
            return NEVER
        at, step = newest_ms - self.keep_ms, max(1, self.keep_ms // STEPS)
        return at - at % step

    def oldest(self, batch: pa.RecordBatch, source: Source) -> int:
        """Of the rows in a batch."""
        found = pc.min(batch.column(batch_column(source, self.column)).cast(pa.int64())).as_py()
        return -NEVER if found is None else int(found)


def expiry_of(source: Source) -> Expiry | None:
    """None if rows stay until they are deleted."""
    if source.window is None:
        return None if source.row_ttl_ms is None else Expiry("ROWTIME", source.row_ttl_ms)
    if source.window.retention_ms is None:
        return None
    return Expiry("WINDOWEND" if source.window.kind == "session" else "WINDOWSTART", source.window.retention_ms)


def has_expired(source: Source, horizon: int | None, time_ms: int, window: tuple[int, int] | None) -> bool:
    """Whether a view whose rows end at `horizon` has let go of a row, as it was told to."""
    expiry = expiry_of(source)
    if expiry is None or horizon is None:
        return False
    known = {"ROWTIME": time_ms} | dict(zip(("WINDOWSTART", "WINDOWEND"), window or (), strict=False))
    return known[expiry.column] <= horizon


def newest_time(batch: pa.RecordBatch, before: int) -> int:
    found = pc.max(batch.column(TIME).cast(pa.int64())).as_py()
    return before if found is None else max(before, int(found))

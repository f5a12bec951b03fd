"""What one operator hands to the next."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

PLACE = "$place"
"""Which row it is of those that one record has become: they share their arrival number."""
LATE_ROW = "$late"


@dataclass(frozen=True, slots=True)
class Rows:
    """A DataFrame with the plan node's columns by their names and, beside them, system columns: always `$time` and
    `$tombstone`; until an aggregate also `$stream_time`, `$arrival`, `$partition` and `$offset`; where the key has a
    window, `$window_start` and `$window_end`; where they are to be written, `$headers`."""

    frame: DataFrame
    changelog: bool = False
    """The rows are a table's changes: one that is filtered out must still say that its key is gone."""
    tombstones: bool = False
    """May `$tombstone` be true? If not, nobody has to look."""
    late: bool = False
    """Is there a column `$late`, which is set for rows that came too late and belong into the ledger only? No operator
    may drop those, or look at anything else of them."""

    def with_frame(self, frame: DataFrame) -> Rows:
        return replace(self, frame=frame)

    def has(self, name: str) -> bool:
        return name in self.frame.columns

    def carried(self, *names: str) -> list[Column]:
        """Those of the named system columns that are there."""
        return [column(name) for name in names if self.has(name)]


def column(name: str) -> Column:
    """A column by its exact name, whatever characters that has."""
    return F.col("`" + name.replace("`", "``") + "`")

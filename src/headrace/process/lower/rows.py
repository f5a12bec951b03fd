"""What one operator hands to the next."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F


@dataclass(frozen=True, slots=True)
class Rows:
    """A DataFrame with the plan node's columns by their names and, beside them, system columns: always `$time` and
    `$tombstone`; until an aggregate also `$stream_time`, `$arrival`, `$partition` and `$offset`; where the key has a
    window, `$window_start` and `$window_end`."""

    frame: DataFrame
    changelog: bool = False
    """The rows are a table's changes: one that is filtered out must still say that its key is gone."""
    tombstones: bool = False
    """May `$tombstone` be true? If not, nobody has to look."""

    def with_frame(self, frame: DataFrame) -> Rows:
        return replace(self, frame=frame)


def column(name: str) -> Column:
    """A column by its exact name, whatever characters that has."""
    return F.col("`" + name.replace("`", "``") + "`")

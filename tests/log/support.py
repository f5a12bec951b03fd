"""What the log's tests share: small settings, batches, and the whole content of a topic as plain rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace.clock import Clock, ManualClock, SystemClock
from headrace.config import LogSettings
from headrace.log.base import Append, Appended, Log, TopicSpec
from headrace.log.local import LocalLog
from headrace.types import BIGINT, VARCHAR, Column

HEADERS = pa.map_(pa.utf8(), pa.binary())
VIEWS = TopicSpec(
    "pageviews", key=(Column("USERID", VARCHAR),), value=(Column("PAGEID", VARCHAR), Column("N", BIGINT)), partitions=2
)
PLAIN = TopicSpec("plain", value=(Column("N", BIGINT),))
DERIVED = TopicSpec("counts", key=(Column("K", VARCHAR),), value=(Column("N", BIGINT),), role="derived")


def settings(**changes: Any) -> LogSettings:
    """No linger, no minimum of free disk: tests are quick and run anywhere."""
    return LogSettings(**({"linger_ms": 0.0, "min_free_bytes": 0} | changes))


def open_owner(folder: Path, clock: Clock | None = None, *, serve: bool = False, **changes: Any) -> LocalLog:
    return LocalLog(folder, settings(**changes), clock or SystemClock(), serve=serve)


def manual_clock() -> ManualClock:
    return ManualClock(1_700_000_000_000)


def batch(**columns: list[Any]) -> pa.RecordBatch:
    """System columns are written with a trailing underscore: `time_` is `$time`."""
    named = {f"${name[:-1]}" if name.endswith("_") else name: values for name, values in columns.items()}
    arrays = {name: pa.array(values, HEADERS) if name == "$headers" else values for name, values in named.items()}
    return pa.RecordBatch.from_pydict(arrays)


def put(log: Log, topic: str, partition: int | None = None, **columns: list[Any]) -> Appended:
    [appended] = log.append([Append(topic, batch(**columns), partition)]).result(120)
    return appended


def numbers(log: Log, topic: str = "plain", partition: int = 0, start: int = 0, end: int | None = None) -> list[int]:
    """The column N."""
    return [n for records in log.read(topic, partition, start, end, ["N"]) for n in records.batch.column(0).to_pylist()]


def rows(log: Log, topic: str, columns: list[str] | None = None) -> list[dict[str, Any]]:
    """Everything in a topic, partition by partition, each row with its place."""
    found = []
    for number, ends in enumerate(log.snapshot().ends[topic]):
        for records in log.read(topic, number, ends.start, columns=columns):
            listed = records.batch.to_pylist(maps_as_pydicts="strict")
            for offset, row in zip(records.each_offset(), listed, strict=True):
                found.append({"partition": number, "offset": offset} | row)
    return found


def segments(folder: Path, topic: str = "plain", partition: int = 0) -> list[Path]:
    return sorted((folder / "topics" / topic / str(partition)).glob("*.seg"))

"""Out of a project into files: the answer of a question as one file, a topic as files that grow in number.

A file appears as a whole or not at all. Which records of a topic are in a file stands in its name, and how far the
export is in a file beside them: so it goes on where it was, whatever happened to it, and also if files were taken away.
"""

from __future__ import annotations

import csv
import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.client.rows import RowReading
from headrace.clock import SystemClock
from headrace.config import Project
from headrace.log.base import OFFSET, PARTITION, Log, Topic

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.cli.api import Api

GROUP_BATCHES = 100
"""Batches of a streamed answer in one row group of a Parquet file: about 100,000 rows."""
TELL_ROWS = 100_000
"""Rows between two words of progress."""
FILE_ROWS = 500_000
"""Records of one file of a topic: what has to be done again after a kill."""
OTHER_LOG = "its files have records that are not in the log any more: export to another folder, or move them away"
ENDINGS = {"parquet": "parquet", "csv": "csv", "json": "ndjson"}


def export_query(api: Api, sql: str, folder: Path, to: str, say: Callable[[str], None]) -> str:
    """Write the answer of a SELECT to a file, however many rows it has: they are streamed, and never held together."""
    now = datetime.now(UTC)
    name = to.replace("{date}", now.strftime("%Y-%m-%d")).replace("{time}", now.strftime("%H%M%S"))
    write = {".parquet": _query_to_parquet, ".csv": _query_to_csv}.get(Path(name).suffix, _query_to_json)
    with whole_file(folder / name) as new:
        rows = write(api, sql, new, say)
    return f"{rows:,} rows in {name}"


def _query_to_parquet(api: Api, sql: str, file: Path, say: Callable[[str], None]) -> int:
    import pyarrow as pa
    import pyarrow.parquet as pq

    with api.query_batches({"sql": sql}) as reading, pq.ParquetWriter(file, reading.schema) as writer:
        held: list[pa.RecordBatch] = []
        for batch in reading.batches():
            held.append(batch)
            # Batches are small as they come, and row groups should not be.
            if len(held) >= GROUP_BATCHES:
                writer.write_table(pa.Table.from_batches(held))
                held = []
                say(f"{reading.rows:,} rows")
        writer.write_table(pa.Table.from_batches(held, reading.schema))
        return reading.rows


def _query_to_csv(api: Api, sql: str, file: Path, say: Callable[[str], None]) -> int:
    reading = RowReading()
    with file.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        for number, rows in enumerate(_named_rows(api, sql, reading, say)):
            if number == 0:
                writer.writerow(_names(reading))
            writer.writerows([_plain(value) for value in row] for row in rows)
    return reading.rows


def _query_to_json(api: Api, sql: str, file: Path, say: Callable[[str], None]) -> int:
    """An array of objects, one a line."""
    reading, before = RowReading(), "["
    with file.open("w", encoding="utf-8") as stream:
        for rows in _named_rows(api, sql, reading, say):
            names = _names(reading)
            for row in rows:
                stream.write(before)
                json.dump(dict(zip(names, row, strict=True)), stream, ensure_ascii=False)
                before = ",\n"
        stream.write("[]" if before == "[" else "]")
    return reading.rows


def _named_rows(api: Api, sql: str, reading: RowReading, say: Callable[[str], None]) -> Iterator[list[list[Any]]]:
    """Yield rows once the header has come, at least once."""
    told = 0
    for rows in api.query_rows({"sql": sql}, reading):
        if reading.header is not None:
            yield rows
        if reading.rows - told >= TELL_ROWS:
            told = reading.rows
            say(f"{told:,} rows")


def _names(reading: RowReading) -> list[str]:
    assert reading.header is not None
    return [column["name"] for column in reading.header["columns"]]


@contextmanager
def whole_file(file: Path) -> Iterator[Path]:
    """A place to write to, which becomes the file once everything is on disk."""
    file.parent.mkdir(parents=True, exist_ok=True)
    new = file.with_name(f".{file.name}.new")
    try:
        yield new
        _sync(new)
        new.replace(file)
        _sync(file.parent)
    finally:
        new.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _plain(value: Any) -> Any:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict) else value


def export_topic(project: Project, topic: str, folder: Path, form: str, say: Callable[[str], None]) -> str:
    """What a topic has that is not in the folder's files yet."""
    from headrace.log.open import open_log

    log = open_log(project, SystemClock())
    try:
        known = log.topic(topic)
        rows = files = gone = 0
        for partition, ends in enumerate(log.snapshot().ends[known.name]):
            reached, epoch = _reached(folder, known.name, partition, form)
            what = f"the export to `{folder}`"
            log.check_offsets(known.name, {partition: reached}, epoch, what, OTHER_LOG)
            start = max(reached, ends.start)
            gone += start - reached if reached else 0
            while start < ends.end:
                until = min(ends.end, start + FILE_ROWS)
                name = f"{known.name}-{partition}-{start:020d}-{until:020d}.{ENDINGS[form]}"
                with whole_file(folder / name) as new:
                    rows += write_records(log, known, partition, (start, until), new, form)
                with whole_file(_mark(folder, known.name, partition, form)) as new:
                    new.write_text(f"{until} {log.current_epoch() or ''}".strip())
                start, files = until, files + 1
                say(_counted(rows, "record", files, "file"))
    finally:
        log.close()
    missing = f"; retention had taken {gone:,} records before" if gone else ""
    return f"{_counted(rows, 'record', files, 'new file')}{missing}"


def _counted(rows: int, what: str, files: int, into: str) -> str:
    return f"{rows:,} {what}{'' if rows == 1 else 's'} in {files:,} {into}{'' if files == 1 else 's'}"


def _mark(folder: Path, topic: str, partition: int, form: str) -> Path:
    return folder / f".{topic}-{partition}.{ENDINGS[form]}.next"


def _reached(folder: Path, topic: str, partition: int, form: str) -> tuple[int, str | None]:
    """The offset after the last record that was exported, and the epoch of the log then. A file may be there before the
    mark says so."""
    pattern = re.compile(rf"{re.escape(topic)}-{partition}-\d{{20}}-(\d{{20}})\.{ENDINGS[form]}")
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    ends = [int(found[1]) for name in names if (found := pattern.fullmatch(name))]
    mark = _mark(folder, topic, partition, form)
    text, _, epoch = (mark.read_text().strip() if mark.is_file() else "").partition(" ")
    return max([*ends, int(text) if text.isdecimal() else 0]), epoch or None


def write_records(log: Log, topic: Topic, partition: int, between: tuple[int, int], file: Path, form: str) -> int:
    """The records of a range, in one of the formats. Returns how many they are."""
    batches = log.read(topic.name, partition, *between)
    if form == "parquet":
        return _write_parquet(
            (_addressed(records.batch, partition, records.each_offset()) for records in batches), file
        )
    from headrace.log.codecs.event_json import records_to_json
    from headrace.log.codecs.json_encode import to_json

    rows = 0
    events = (event for records in batches for event in records_to_json(records, topic))
    with file.open("wb") as stream:
        if form == "csv":
            rows = _write_csv(stream, topic, events)
        else:
            for event in events:
                stream.write(to_json(event) + b"\n")
                rows += 1
    return rows


def _addressed(batch: pa.RecordBatch, partition: int, offsets: Any) -> pa.RecordBatch:
    import pyarrow as pa

    places = pa.array(list(offsets), pa.int64())
    batch = batch.append_column(PARTITION, pa.array([partition] * batch.num_rows, pa.int32()))
    return batch.append_column(OFFSET, places)


def _write_parquet(batches: Iterator[pa.RecordBatch], file: Path) -> int:
    """A file has one schema; records from before a column was added have none of it."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    tables = [pa.Table.from_batches([batch]) for batch in batches]
    table = pa.concat_tables(tables, promote_options="default") if tables else pa.table({})
    pq.write_table(table, file, compression="zstd")
    return int(table.num_rows)


def _write_csv(stream: Any, topic: Topic, events: Iterator[dict[str, Any]]) -> int:
    import io

    from headrace.types import display_name

    names = [display_name(column.name) for column in (*topic.spec.key, *topic.spec.value)]
    text = io.TextIOWrapper(stream, encoding="utf-8", newline="", write_through=True)
    writer = csv.writer(text)
    writer.writerow(["$partition", "$offset", "$time_ms", *names])
    rows = 0
    for event in events:
        fields = (event["key"] or {}) | (event["value"] or {})
        place = [event["partition"], event["offset"], event["time_ms"]]
        writer.writerow([*place, *(_plain(fields.get(name)) for name in names)])
        rows += 1
    text.detach()
    return rows

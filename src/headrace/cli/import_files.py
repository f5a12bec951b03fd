"""`headrace import`: files of history into a topic."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from headrace.cli.backend import Backend, open_backend
from headrace.cli.options import JsonOption, KeyOption, ProjectOption, TopicArgument, UrlOption, open_project
from headrace.cli.output import print_json
from headrace.cli.sending import SHOWN_ERRORS, Found, Sender
from headrace.types import quote_name

if TYPE_CHECKING:
    from headrace.cli.history_files import Row
    from headrace.log.codecs.json_values import Reader

BATCH = 5000
RECORD = "imports.json"


class Imported(msgspec.Struct):
    """How far a file is in a topic. A file that is another one by size or time begins anew; ids keep it harmless."""

    size: int
    modified_ns: int
    rows: int = 0
    complete: bool = False


class Records:
    """What was imported, in the project's data folder: so that nothing is sent twice only to be told that it is there.
    Losing it loses nothing."""

    def __init__(self, file: Path | None, topic: str) -> None:
        self._file, self._topic = file, topic
        self._all: dict[str, dict[str, Imported]] = {}
        if file is not None and file.exists():
            try:
                self._all = msgspec.json.decode(file.read_bytes(), type=dict[str, dict[str, Imported]])
            except msgspec.DecodeError:
                self._all = {}

    def of(self, file: Path) -> Imported:
        status = file.stat()
        ours = self._all.setdefault(self._topic, {})
        known = ours.get(str(file.resolve()))
        if known is None or (known.size, known.modified_ns) != (status.st_size, status.st_mtime_ns):
            known = ours[str(file.resolve())] = Imported(status.st_size, status.st_mtime_ns)
        return known

    def save(self) -> None:
        if self._file is None:
            return
        self._file.parent.mkdir(parents=True, exist_ok=True)
        new = self._file.with_suffix(".new")
        with new.open("wb") as stream:
            stream.write(msgspec.json.encode(self._all))
            stream.flush()
            os.fsync(stream.fileno())
        new.replace(self._file)


def register(app: typer.Typer) -> None:
    app.command("import", epilog='Example:  headrace import pageviews "history/*.parquet" --dry-run')(import_files)


def import_files(
    topic: TopicArgument,
    files: Annotated[list[str], typer.Argument(metavar="FILE…", help="Files, folders, or globs in quotes.")],
    form: Annotated[str, typer.Option("--format", help="parquet, csv, ndjson or json; by the ending.")] = "auto",
    time: Annotated[
        str | None, typer.Option(help="The field with the event time, if it is not the topic's own.", metavar="FIELD")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Read and check everything, send nothing.")] = False,
    again: Annotated[bool, typer.Option("--again", help="Also files that were imported already.")] = False,
    project: ProjectOption = None,
    url: UrlOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Bring files of history into a topic: Parquet, CSV, NDJSON, JSON; also .gz, .zst, .bz2, .lz4. Stopped, it goes on
    where it was; done again, it adds nothing. Rows that do not fit become dead letters."""
    with open_backend(project, url, key) as backend:
        if dry_run:
            from headrace.cli.history_files import find_files

            body = _check(find_files(files), form, backend.topic(topic)["columns"], time)
        else:
            data = None if url else open_project(project).data
            body = bring_in(backend, data, topic, files, form, time, again, quiet=as_json)
    _report(body, topic, as_json, dry_run)


def bring_in(
    backend: Backend,
    data: Path | None,
    topic: str,
    files: Sequence[str],
    form: str,
    time: str | None,
    again: bool,
    quiet: bool,
    say: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Import, and say what became of the rows. `data` is the folder that remembers how far each file is; `say` is told
    how far all of it is."""
    # Arrow is not for every command to wait for.
    from headrace.cli.history_files import Row, find_files

    found = find_files(files)
    columns = backend.topic(topic)["columns"]
    records = Records(None if data is None else data / RECORD, topic)
    # As they are now: what is written to a file meanwhile makes it another one, the next time.
    started = {file: records.of(file) for file in found}
    sender = Sender(backend, topic, BATCH, None, quiet=quiet)

    def acknowledged(batch: Sequence[Found]) -> None:
        for file, number in {row.file: row.number for row in batch if isinstance(row, Row)}.items():
            started[file].rows = number
        records.save()
        say(f"{sender.sent:,} rows sent")

    sender.acknowledged, sender.share = acknowledged, _shares({file: known.size for file, known in started.items()})
    try:
        sender.send(_rows(started, form, columns, time, again))
    except KeyboardInterrupt:
        print(f"stopped after {sender.sent:,} rows; the same command goes on", file=sys.stderr)
        raise
    for imported in started.values():
        imported.complete = True
    records.save()
    return {
        "files": len(found),
        "rows": sender.sent,
        "accepted": sender.accepted,
        "duplicates": sender.duplicates,
        "rejected": len(sender.rejected),
    }


def _shares(sizes: dict[Path, int]) -> Callable[[Found], float | None]:
    """How much of all files is read with a row."""
    from headrace.cli.history_files import Row

    before = dict(zip(sizes, itertools.accumulate(sizes.values(), initial=0), strict=False))
    everything = max(1, sum(sizes.values()))

    def share(row: Found) -> float | None:
        return (before[row.file] + row.part * sizes[row.file]) / everything if isinstance(row, Row) else None

    return share


def _rows(
    files: dict[Path, Imported], form: str, columns: list[dict[str, Any]], time: str | None, again: bool
) -> Iterator[Row]:
    from headrace.cli.history_files import read_rows

    for file, known in files.items():
        if known.complete and not again:
            print(f"  {file} was imported already ({known.rows:,} rows)", file=sys.stderr)
            continue
        skip = 0 if again else known.rows
        yield from (row for row in read_rows(file, form, columns, time) if row.number > skip)


def _check(files: list[Path], form: str, columns: list[dict[str, Any]], time: str | None) -> dict[str, Any]:
    """Every row against the topic's columns, as the server would."""
    from headrace.cli.history_files import read_rows
    from headrace.log.codecs.json_values import Reader
    from headrace.sql.api import parse_columns

    types = parse_columns(", ".join(f"{quote_name(c['name'].upper())} {c['type']}" for c in columns)) if columns else ()
    readers = {element.column.name.lower(): Reader(element.type) for element in types}
    rows = bad = 0
    unknown: set[str] = set()
    for file in files:
        for row in read_rows(file, form, columns, time):
            rows += 1
            problem = _problem(row, readers, unknown)
            if problem is not None:
                bad += 1
                if bad <= SHOWN_ERRORS:
                    print(f"  {row.place} would be rejected: {problem}", file=sys.stderr)
    return {"files": len(files), "rows": rows, "would_be_rejected": bad, "fields_without_column": sorted(unknown)}


def _problem(row: Row, readers: dict[str, Reader], unknown: set[str]) -> str | None:
    from headrace.log.codecs.json_values import Mismatch

    try:
        fields = msgspec.json.decode(row.text)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return f"not JSON: {error}"
    if not isinstance(fields, dict):
        return "not an object"
    for name, value in fields.items():
        reader = readers.get(name.lower())
        if reader is None:
            unknown |= {name} if not name.startswith("$") else set()
        elif value is not None:
            try:
                reader.convert(value)
            except Mismatch as mismatch:
                return f"`{name}` {mismatch}"
    return None


def _report(body: dict[str, Any], topic: str, as_json: bool, dry_run: bool) -> None:
    if as_json:
        print_json(body)
    elif dry_run:
        print(f"{body['rows']:,} rows in {body['files']} files; {body['would_be_rejected']:,} would be rejected")
        if body["fields_without_column"]:
            print(f"kept as they are, without a column: {', '.join(body['fields_without_column'])}")
    else:
        print(
            f"{body['accepted']:,} accepted, {body['duplicates']:,} were there already, {body['rejected']:,} rejected"
        )
        if body["rejected"]:
            print(f"rejected rows are dead letters:  headrace dlq list {topic}")
    if body.get("rejected") or body.get("would_be_rejected"):
        raise typer.Exit(1)

"""`headrace import`: files of history into a topic."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.backend import Backend, open_backend
from headrace.cli.import_record import Imported, Records
from headrace.cli.options import JsonOption, KeyOption, ProjectOption, TopicArgument, UrlOption, open_api, open_project
from headrace.cli.output import print_json
from headrace.cli.refreshing import check_refreshable, refresh_now
from headrace.errors import HeadraceError, UsageError

if TYPE_CHECKING:
    # Arrow is not for every command to wait for.
    from headrace.cli.history_files import FileBatch, Piece, Reading

FORMATS = ("auto", "parquet", "csv", "ndjson", "json")
BATCH = 10_000
BATCH_BYTES = 2_000_000
NAMED = 3
"""Places in the one line that a job leaves."""


def register(app: typer.Typer) -> None:
    app.command("import", epilog='Example:  headrace import pageviews "history/*.parquet" --dry-run')(import_files)


def import_files(
    topic: TopicArgument,
    files: Annotated[list[str], typer.Argument(metavar="FILE…", help="Files, folders, or globs in quotes.")],
    form: Annotated[str, typer.Option("--format", help="parquet, csv, ndjson or json; by the ending.")] = "auto",
    time: Annotated[
        str | None, typer.Option(help="The field with the event time, if it is not the topic's own.", metavar="FIELD")
    ] = None,
    delimiter: Annotated[
        str | None, typer.Option(help="What separates CSV's fields; found in the heading.", metavar="CHARACTER")
    ] = None,
    encoding: Annotated[str | None, typer.Option(help="Of CSV files; UTF-8.", metavar="NAME")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Read and check everything, show fields and first rows, send nothing.")
    ] = False,
    again: Annotated[bool, typer.Option("--again", help="Also files that were imported already.")] = False,
    copies: Annotated[
        bool, typer.Option("--copies", help="A file with another's content is not the same one: take its rows, too.")
    ] = False,
    refresh: Annotated[
        list[str] | None,
        typer.Option(
            help="Then compute this Lambda view's batch layer again, with them; may be repeated.", metavar="VIEW"
        ),
    ] = None,
    project: ProjectOption = None,
    url: UrlOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Bring files of history into a topic: Parquet, CSV, NDJSON, JSON; also .gz, .zst, .bz2, .lz4. Stopped, it goes on
    where it was; done again, it adds nothing. Rows that do not fit become dead letters."""
    from headrace.cli.history_files import Reading

    if form not in FORMATS:
        raise typer.BadParameter(f"one of {', '.join(FORMATS)}", param_hint="--format")
    how = Reading(form, time, _character(delimiter), _known(encoding))
    with open_backend(project, url, key) as backend:
        if dry_run:
            _dry_run(backend, topic, files, how, as_json)
            return
        if refresh:
            # Whoever waited for hours is not to hear then that it cannot be.
            with open_api(project, url, key) as api:
                check_refreshable(api, refresh)
        data = None if url else open_project(project).data
        body = bring_in(backend, data, topic, files, how, again, quiet=as_json, copies=copies)
    if refresh:
        with open_api(project, url, key) as api:
            body["refreshed"] = [refresh_now(api, view, as_json) for view in refresh]
    _report(body, topic, as_json)


def _character(delimiter: str | None) -> str | None:
    given = {"\\t": "\t", "tab": "\t"}.get(delimiter or "", delimiter)
    if given is not None and len(given) != 1:
        raise typer.BadParameter("one character, such as ';', or tab", param_hint="--delimiter")
    return given


def _known(encoding: str | None) -> str | None:
    try:
        "".encode(encoding or "utf-8")
    except (LookupError, ValueError):
        raise typer.BadParameter(f"no encoding is called {encoding}", param_hint="--encoding") from None
    return encoding


@dataclass(slots=True)
class Progress:
    """The files of one import, and what has become of them."""

    files: dict[Path, Imported]
    timestamp: str | None
    records: Records
    failures: dict[Path, str] = field(default_factory=dict)
    held: dict[Path, int] = field(default_factory=dict)
    """Rows before one that was not sent: the next import goes on from there."""
    without_rows: list[Path] = field(default_factory=list)

    @classmethod
    def begin(cls, files: Sequence[Path], timestamp: str | None, records: Records, copies: bool) -> Progress:
        """With the files as they are now: what is written to one meanwhile makes it another, the next time."""
        progress = cls({}, timestamp, records)
        for file in files:
            try:
                progress.files[file] = records.of(file, copies)
            except OSError as error:
                progress._failed(file, UsageError(f"`{file}` cannot be read: {error.strerror or error}"))
        return progress

    def _failed(self, file: Path, error: HeadraceError) -> None:
        print(error, file=sys.stderr)
        self.failures[file] = error.message

    def pieces(self, how: Reading, again: bool) -> Iterator[Piece]:
        """Of all files. One that cannot be read is said, and does not stop the others."""
        from headrace.cli.history_files import read_pieces

        for file, known in self.files.items():
            if known.copy_of:
                meant = "its rows are the same ones (--copies takes them, too)"
                print(f"  {file} has the content of {known.copy_of}: {meant}", file=sys.stderr)
            if known.complete and not again:
                alias = f" as `{known.name}`" if known.name not in ("", file.name) else ""
                print(f"  {file} was imported already{alias} ({known.rows:,} rows)", file=sys.stderr)
                continue
            skip = 0 if again else known.rows
            try:
                first = True
                for piece in read_pieces(file, how, known.name, skip):
                    if first:
                        self._look(file, piece, how)
                    first = False
                    yield piece
                if first and not skip:
                    print(f"  {file} has no rows", file=sys.stderr)
                    self.without_rows.append(file)
            except HeadraceError as error:
                self._failed(file, error)

    def _look(self, file: Path, piece: Piece, how: Reading) -> None:
        from headrace.cli.import_check import check_time

        check_time(file, piece.fields, how.time)
        known = {name.lower() for name in piece.fields or ()}
        if known and not how.time and not known & {(self.timestamp or "$time").lower(), "$time"}:
            missing = (
                f"has no `{self.timestamp}`" if self.timestamp else "is for a topic without a column for event times"
            )
            print(
                f"  {file} {missing}: its events get the time of their arrival (--time names a field)", file=sys.stderr
            )

    def acknowledged(self, batch: FileBatch) -> None:
        last = batch.pieces[-1].file
        for piece in batch.pieces:
            rows = piece.first + len(piece.texts) - 1
            self.files[piece.file].rows = min(rows, self.held.get(piece.file, rows))
        self._complete(itertools.takewhile(lambda file: file != last, self.files))
        self.records.save(now=False)

    def refused(self, batch: FileBatch, index: int) -> None:
        piece, within = batch.find(index)
        self.held.setdefault(piece.file, piece.first + within - 1)

    def ended(self) -> None:
        self._complete(self.files)

    def _complete(self, files: Any) -> None:
        for file in files:
            self.files[file].complete = file not in self.failures and file not in self.held

    def share(self) -> Callable[[FileBatch], float | None]:
        """How much of all files is sent with a batch."""
        sizes = {file: known.size for file, known in self.files.items()}
        before = dict(zip(sizes, itertools.accumulate(sizes.values(), initial=0), strict=False))
        everything = max(1, sum(sizes.values()))

        def share(batch: FileBatch) -> float | None:
            piece = batch.pieces[-1]
            return (before[piece.file] + piece.part * sizes[piece.file]) / everything

        return share


def bring_in(
    backend: Backend,
    data: Path | None,
    topic: str,
    files: Sequence[str],
    how: Reading,
    again: bool,
    quiet: bool,
    say: Callable[[str], None] = lambda text: None,
    copies: bool = False,
) -> dict[str, Any]:
    """Import, and say what became of the rows. `data` is the folder that remembers how far each file is; `say` is told
    how far all of it is."""
    from headrace.cli.history_files import cut_batches, find_files
    from headrace.cli.sending import Sender, ahead

    found = find_files(files)
    described = backend.topic(topic)
    records = Records(data, topic)
    progress = Progress.begin(found, described["timestamp"], records, copies)
    sender: Sender[FileBatch] = Sender(backend, topic, None, quiet=quiet, keeps=False)

    def acknowledged(batch: FileBatch) -> None:
        progress.acknowledged(batch)
        say(f"{sender.sent:,} rows sent")

    sender.acknowledged, sender.refused, sender.share = acknowledged, progress.refused, progress.share()
    pieces = progress.pieces(replace(how, columns=described["columns"]), again)
    try:
        sender.send(ahead(cut_batches(pieces, BATCH, BATCH_BYTES)))
        progress.ended()
    except BaseException:
        print(f"stopped after {sender.sent:,} rows; the same command goes on", file=sys.stderr)
        raise
    finally:
        records.save()
    return {
        "files": len(found),
        "rows": sender.sent,
        "accepted": sender.accepted,
        "duplicates": sender.duplicates,
        "rejected": sender.rejections,
        "not_sent": sender.unsent,
        "left_out": sender.not_sent,
        "shed": sender.shed,
        "without_rows": [str(file) for file in progress.without_rows],
        "copies": [{"file": str(file), "of": one.copy_of} for file, one in progress.files.items() if one.copy_of],
        "unreadable": [{"file": str(file), "problem": reason} for file, reason in progress.failures.items()],
    }


def is_whole(body: dict[str, Any]) -> bool:
    return not (body["rejected"] or body["not_sent"] or body["unreadable"])


def summary(body: dict[str, Any]) -> str:
    """
    >>> body = {"accepted": 7, "duplicates": 0, "rejected": 1, "not_sent": 2, "shed": 0, "unreadable": [{}]}
    >>> summary(body | {"left_out": [{"place": "a.csv:7"}, {"place": "a.csv:9"}]})
    '7 accepted, 0 were there already, 1 rejected, 2 too large to send (a.csv:7, a.csv:9), 1 file could not be read'
    """
    text = f"{body['accepted']:,} accepted, {body['duplicates']:,} were there already, {body['rejected']:,} rejected"
    if body["shed"]:
        text += f", {body['shed']:,} shed by the topic's collector"
    if body["not_sent"]:
        places = [one["place"] for one in body["left_out"][:NAMED]] + ["…"] * (body["not_sent"] > NAMED)
        text += f", {body['not_sent']:,} too large to send ({', '.join(places)})"
    files = len(body["unreadable"])
    return f"{text}, {files} file{'s' * (files != 1)} could not be read" if files else text


def _dry_run(backend: Backend, topic: str, files: Sequence[str], how: Reading, as_json: bool) -> None:
    from headrace.cli.history_files import find_files
    from headrace.cli.import_check import Check, print_check

    described = backend.topic(topic)
    check = Check(replace(how, columns=described["columns"]), described["timestamp"])
    for file in find_files(files):
        check.file(file)
    body = check.body
    print_json(body) if as_json else print_check(body, described["columns"])
    if body["would_be_rejected"] or body["unreadable"]:
        raise typer.Exit(1)


def _report(body: dict[str, Any], topic: str, as_json: bool) -> None:
    if as_json:
        print_json(body)
    else:
        print(summary(body))
        if body["rejected"]:
            print(f"rejected rows are dead letters:  headrace dlq list {topic}")
    if not is_whole(body):
        raise typer.Exit(1)

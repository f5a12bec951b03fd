"""`headrace topic records`, `tail` and `put`: what is in a topic, what comes, and what goes in."""

from __future__ import annotations

import csv
import io
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from headrace.cli.backend import Backend, open_backend
from headrace.cli.event_texts import read_events
from headrace.cli.options import JsonOption, KeyOption, ProjectOption, TopicArgument, UrlOption
from headrace.cli.output import data_text, local_time, print_json
from headrace.cli.sending import FoundBatch, Sender, batches
from headrace.errors import UsageError

FORMATS = ("table", "json", "csv", "raw")
LONG_POLL_S = 20.0
PAGE = 500

Where = Annotated[
    str | None, typer.Option(help="Only records for which this holds: a SQL condition over the columns.", metavar="SQL")
]
Form = Annotated[str, typer.Option("--format", help="table, json, csv or raw (as it was sent).", metavar="FORMAT")]
Partition = Annotated[int | None, typer.Option(help="Only this partition.", min=0)]
From = Annotated[
    str | None,
    typer.Option("--from", help="earliest, latest, an offset (with --partition), a time, or -10m for ten minutes ago."),
]


def register(app: typer.Typer) -> None:
    examples = {
        "records": 'headrace topic records orders --from=-1h --where "total > 10"',
        "tail": "headrace topic tail pageviews --where \"pageid LIKE '/shop%'\"",
        "put": """headrace topic put pageviews '{"userid":"you","pageid":"/hello"}'   or   --file orders.csv""",
    }
    app.command("records", epilog=f"Example:  {examples['records']}")(show_records)
    app.command("tail", epilog=f"Example:  {examples['tail']}")(tail_topic)
    app.command("put", epilog=f"Example:  {examples['put']}")(put_events)


def show_records(
    topic: TopicArgument,
    start: From = None,
    partition: Partition = None,
    limit: Annotated[int, typer.Option("--limit", "-n", help="At most this many.", min=1)] = 50,
    where: Where = None,
    form: Form = "table",
    project: ProjectOption = None,
    url: UrlOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Records of a topic, oldest first, from a place on. Ends at the end."""
    shown = Printer("json" if as_json else form)
    with open_backend(project, url, key) as backend:
        shown.begin(backend.topic(topic))
        place = place_of(start or "earliest", partition)
        for records, _ in pages(backend, topic, where, place, limit, follow=False):
            shown.print(records)


def tail_topic(
    topic: TopicArgument,
    lines: Annotated[int, typer.Option("--lines", "-n", help="How many of the newest first.", min=0, max=10_000)] = 10,
    follow: Annotated[bool, typer.Option("--follow/--no-follow", "-f", help="Go on with what arrives.")] = True,
    start: From = None,
    partition: Partition = None,
    where: Where = None,
    form: Form = "table",
    project: ProjectOption = None,
    url: UrlOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """The newest records, or those from a place on, and what arrives, until Ctrl-C."""
    shown = Printer("json" if as_json else form)
    with open_backend(project, url, key) as backend:
        shown.begin(backend.topic(topic))
        try:
            if start is not None:
                place = place_of(start, partition)
            else:
                place = _newest(backend, topic, where, partition, lines, shown)
            if start is not None or follow:
                for records, _ in pages(backend, topic, where, place, None, follow):
                    shown.print(records)
        except KeyboardInterrupt:
            return


def _newest(
    backend: Backend, topic: str, where: str | None, partition: int | None, lines: int, shown: Printer
) -> dict[str, Any]:
    """Print the last records; where what follows begins."""
    only = {} if partition is None else {"partition": partition}
    newest = backend.page(topic, where, before="latest", limit=max(1, lines), **only)
    if lines:
        shown.print(newest["records"])
    return {"at": newest["next"]}


def pages(
    backend: Backend, topic: str, where: str | None, place: dict[str, Any], limit: int | None, follow: bool
) -> Iterator[tuple[list[dict[str, Any]], str]]:
    """Page after page; with `follow`, for ever."""
    left = limit
    waits = {"wait": LONG_POLL_S} if follow else {}
    while left is None or left > 0:
        page = backend.page(topic, where, **place, limit=PAGE if left is None else min(PAGE, left), **waits)
        yield page["records"], page["next"]
        left = None if left is None else left - len(page["records"])
        if not page["cut"] and not (follow and backend.live):
            return
        place = {"at": page["next"]}


def place_of(text: str, partition: int | None) -> dict[str, Any]:
    """
    >>> place_of("latest", None), place_of("17", 0)
    ({'from': 'latest'}, {'offset': 17, 'partition': 0})
    """
    only: dict[str, Any] = {} if partition is None else {"partition": partition}
    if text in ("earliest", "latest"):
        return {"from": text} | only
    ago = re.fullmatch(r"-(\d{1,9})([smhd])", text)
    if ago:
        seconds = int(ago[1]) * {"s": 1, "m": 60, "h": 3600, "d": 86400}[ago[2]]
        return {"time": max(0, int((time.time() - seconds) * 1000))} | only
    if text.isdecimal() and len(text) < 19:
        return {"offset": int(text)} | only
    return {"time": text} | only


class Printer:
    """Records in one of the formats."""

    def __init__(self, form: str) -> None:
        if form not in FORMATS:
            raise UsageError(f"`{form}` is not a format", hint=f"one of {', '.join(FORMATS)}")
        self._form = form
        self._columns: list[str] = []

    def begin(self, topic: dict[str, Any]) -> None:
        self._columns = [column["name"] for column in topic["columns"]]
        self._raw = topic["kind"] == "raw"
        if self._form == "csv":
            self._csv(["partition", "offset", "time", *self._columns, *([] if self._raw else ["rest"])])

    def print(self, records: list[dict[str, Any]]) -> None:
        for record in records:
            match self._form:
                case "json":
                    print_json(record)
                case "csv":
                    self._csv(self._row(record))
                case "raw":
                    self._as_sent(record)
                case _:
                    print(line(record), flush=True)

    def _row(self, record: dict[str, Any]) -> list[Any]:
        from headrace.cli.output import iso_time

        fields = record["key"] | (record["value"] or {})
        rest = [] if self._raw else [record.get("rest")]
        place = [record["partition"], record["offset"], iso_time(record["time_ms"])]
        values = [fields.get(name) for name in self._columns]
        return place + [_csv_value(value) for value in [*values, *rest]]

    def _csv(self, row: list[Any]) -> None:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerow(row)
        print(text.getvalue(), end="", flush=True)

    def _as_sent(self, record: dict[str, Any]) -> None:
        import base64
        import json

        if not self._raw:
            print(json.dumps(record["key"] | (record["value"] or {}) | (record.get("rest") or {}), ensure_ascii=False))
            return
        value = (record["value"] or {}).get("value")
        sys.stdout.flush()
        sys.stdout.buffer.write(b"" if value is None else base64.b64decode(value))
        sys.stdout.buffer.write(b"\n")
        sys.stdout.buffer.flush()


def _csv_value(value: Any) -> Any:
    import json

    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else value


def line(event: dict[str, Any]) -> str:
    """A record as a line for people."""
    value = event["value"]
    columns = event["key"] | (value or {}) | (event.get("rest") or {})
    shown = "  ".join(f"{name}={data_text(item)}" for name, item in columns.items() if item is not None)
    place = f"{event['partition']}:{event['offset']}"
    return f"{local_time(event['time_ms'])}  {place:<10} {shown}{'  (deleted)' if value is None else ''}"


def put_events(
    topic: TopicArgument,
    events: Annotated[
        list[str] | None, typer.Argument(metavar="[JSON]…", help="Events; standard input by default.")
    ] = None,
    files: Annotated[
        list[Path] | None, typer.Option("--file", "-f", help="Read events from a file; `-` is standard input.")
    ] = None,
    form: Annotated[
        str, typer.Option("--format", help="json, ndjson or csv; by default by the file's name.", metavar="FORMAT")
    ] = "auto",
    batch: Annotated[int, typer.Option(help="How many to send at once.", min=1, max=10_000)] = 1000,
    idempotency_key: Annotated[
        str | None, typer.Option(help="Makes sending the same again harmless.", metavar="KEY")
    ] = None,
    project: ProjectOption = None,
    url: UrlOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Send events: JSON objects, arrays, one object a line, or CSV with a heading."""
    if events and files:
        raise UsageError("events are given, and files too", hint="leave out one of them")
    with open_backend(project, url, key) as backend:
        described = backend.topic(topic)
        sender: Sender[FoundBatch] = Sender(backend, topic, idempotency_key, quiet=as_json)
        sender.send(batches(read_events(events, files, form, described["columns"]), batch))
    if not sender.sent:
        raise UsageError("nothing to send", hint="give events as JSON, in a --file, or on standard input")
    if as_json:
        print_json(sender.answer)
    else:
        duplicates = f", {sender.duplicates:,} were there already" if sender.duplicates else ""
        shed = f", {sender.shed:,} were shed" if sender.shed else ""
        unsent = f", {sender.unsent:,} too large to send" if sender.unsent else ""
        print(f"{sender.accepted:,} accepted{duplicates}{shed}{unsent}")
    raise typer.Exit(1 if sender.failed else 0)

"""`headrace sql`: statements from the command line, a file or a prompt."""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.formats import Format, JsonDocument, Writer, open_writer
from headrace.cli.options import JsonOption, KeyOption, ProjectOption, UrlOption, open_api
from headrace.cli.output import Progress, iso_time, print_json, print_table
from headrace.errors import LimitReached, SqlError, UsageError, error_from_json

if TYPE_CHECKING:
    from headrace.cli.api import Api
    from headrace.sql.statements import Define, Print, SelectStatement, SetProperty, Statement


def register(app: typer.Typer) -> None:
    app.command(epilog='Example:  headrace sql -e "SELECT * FROM views_by_page LIMIT 5;"')(sql)


def sql(
    execute: Annotated[
        list[str] | None, typer.Option("-e", "--execute", help="Run this; may be given again.", metavar="SQL")
    ] = None,
    file: Annotated[
        Path | None, typer.Option("-f", "--file", help="Run this file; `-` is standard input.", metavar="FILE")
    ] = None,
    limit: Annotated[int | None, typer.Option(help="At most this many rows of a query.", min=1)] = None,
    format_: Annotated[
        Format, typer.Option("--format", help="How a query's rows are shown; Arrow and CSV are for other programs.")
    ] = Format.table,
    wait: Annotated[
        bool, typer.Option("--wait", help="Answer queries when they include everything written before.")
    ] = False,
    after: Annotated[
        list[str] | None,
        typer.Option(
            "--after",
            help="Answer queries when they include this: a write's token or a feed's event id.",
            metavar="POSITION",
        ),
    ] = None,
    wait_seconds: Annotated[
        float, typer.Option("--wait-seconds", help="How long --wait and --after wait.", min=0.001, max=600)
    ] = 60.0,
    project: ProjectOption = None,
    url: UrlOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run SQL; without -e or -f, at a prompt with history and completion."""
    texts = [*(execute or []), *([_read(file)] if file else [])]
    if not texts and not sys.stdin.isatty():
        texts = [sys.stdin.read()]
    with open_api(project, url, key) as api:
        session = SqlSession(api, as_json, limit, format_)
        if positions := [*(after or []), *(["now"] if wait else [])]:
            session.waiting = {"after": positions, "wait_ms": max(1, round(wait_seconds * 1000))}
        if texts:
            for text in texts:
                session.run(text)
            return
        from headrace.cli.repl import repl

        repl(session)


def _read(file: Path) -> str:
    try:
        return sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read `{file}`: {error}") from None


class SqlSession:
    """Runs texts of SQL through the API and prints what comes back."""

    def __init__(
        self, api: Api, as_json: bool = False, limit: int | None = None, format_: Format = Format.table
    ) -> None:
        self.api = api
        self.format = format_
        self._as_json = as_json
        self._limit = limit
        self.waiting: dict[str, Any] = {}
        """What answers have to include, and how long they are waited for."""
        self._variables: dict[str, str] = {}
        self._settings: dict[str, str] = {}
        """Of SET: for what follows, as long as the session lasts."""
        self._scripts: list[Path] = []
        """Files that are being run, the innermost last."""

    def run(self, text: str) -> None:
        """One statement after the other, each printed before the next runs. Raises at the first that fails."""
        from headrace.sql.api import parse
        from headrace.sql.statements import Define, Print, RunScript, SelectStatement, SetProperty, Show

        for statement in parse(text, self._variables, self._settings):
            match statement:
                case SetProperty():
                    self._set(statement)
                case Print():
                    self._print_topic(statement)
                case SelectStatement():
                    self._select(statement)
                case RunScript():
                    self._run_script(Path(statement.path))
                case Define():
                    self._define(statement)
                case Show(subject="VARIABLES"):
                    variables = [[name.lower(), value] for name, value in sorted(self._variables.items())]
                    self._print_result({"columns": ["NAME", "VALUE"], "rows": variables})
                case _:
                    self._execute(statement)

    def _set(self, statement: SetProperty) -> None:
        name = statement.property.lower()
        self._settings.pop(name, None)
        if statement.value is not None:
            self._settings[name] = statement.value
        is_now = "no longer set" if statement.value is None else f"'{statement.value}' for what follows"
        self._print_result({"message": f"{name} is {is_now}"})

    def _print_topic(self, statement: Print) -> None:
        """Records as they come, until the limit or Ctrl-C; every n-th with INTERVAL."""
        from headrace.cli.backend import ServerBackend
        from headrace.cli.topic_records import Printer, pages

        backend = ServerBackend(self.api)
        plain = self.format if self.format in (Format.json, Format.csv) else Format.table
        shown = Printer(Format.json if self._as_json else plain)
        shown.begin(backend.topic(statement.topic))
        place = {"from": "earliest" if statement.from_beginning or self._from_beginning else "latest"}
        step, seen, left = statement.interval or 1, 0, statement.limit or self._limit
        try:
            for records, _ in pages(backend, statement.topic, None, place, None, follow=True):
                wanted = [record for number, record in enumerate(records, seen) if number % step == 0][:left]
                shown.print(wanted)
                seen += len(records)
                left = None if left is None else left - len(wanted)
                if left == 0:
                    return
        except KeyboardInterrupt:
            print("^C stopped", file=sys.stderr)

    @property
    def _from_beginning(self) -> bool:
        return self._settings.get("auto.offset.reset", "").lower() == "earliest"

    def _define(self, statement: Define) -> None:
        """For what is typed next; the rest of this text has seen it already."""
        name = statement.variable.name.upper()
        self._variables.pop(name, None)
        if statement.value is not None:
            self._variables[name] = statement.value

    def _run_script(self, file: Path) -> None:
        path = file.resolve()
        if path in self._scripts:
            raise UsageError(f"`{file}` runs itself")
        self._scripts.append(path)
        try:
            self.run(_read(file))
        except SqlError as error:
            raise SqlError(**error_fields(error) | {"message": f"{error.message} (in `{file}`)"}) from None
        finally:
            self._scripts.pop()

    def _execute(self, statement: Statement) -> None:
        try:
            body = self.api.post("/v1/statements", {"sql": terminated(statement.text), "settings": self._settings})
        except SqlError as error:
            raise moved(error, statement) from None
        for result in body["results"]:
            self._print_result(result)

    def _select(self, statement: SelectStatement) -> None:
        try:
            if statement.push:
                self._push(terminated(statement.text))
            else:
                self._pull(terminated(statement.text), statement.query.limit)
        except SqlError as error:
            raise moved(error, statement) from None

    def _pull(self, text: str, limit: int | None) -> None:
        """Print rows as they come, however many. A table is made of all its rows at once, so without a limit it has at
        most `[server] query_rows`: on a terminal a note says so, for a script it is an error."""
        wanted = {"sql": text} | ({"limit": self._limit} if self._limit else {}) | self.waiting
        from headrace.client.rows import RowReading

        reading = RowReading(exact=True)
        form = JsonDocument() if self._as_json else None
        capped = form is None and not self._limit and limit is None and self.format in (Format.table, Format.vertical)
        writer: Writer | None = None
        progress, more, shown = Progress(), False, 0
        # Ctrl-C closes the connection, and that cancels the query.
        with closing(self.api.query_rows(wanted, reading)) as chunks:
            for rows in chunks:
                if reading.header is None:
                    continue
                if writer is None:
                    writer = form.open(reading.header) if form else self._writer(reading.header)
                room = reading.header["query_rows"] - shown if capped else len(rows)
                more = len(rows) > room
                progress.clear()
                writer.write(rows[:room])
                shown += len(rows[:room])
                progress.show(reading.read)
                if more:
                    break
        progress.clear()
        assert writer is not None, "the header came"
        if form is not None:
            form.end = reading.end or {}
        writer.close()
        self._say_moments(reading.header or {})
        if not more and reading.end and reading.end["truncated"] and form is None:
            print(f"… the first {shown:,} rows, as --limit says; there are more", file=sys.stderr)
        if more:
            self._say_capped(shown)

    def _say_moments(self, header: dict[str, Any]) -> None:
        """Say of rows AS OF a moment if they are of an earlier one."""
        for read in header.get("reads", ()):
            as_of = read.get("as_of")
            if as_of and not as_of["exact"]:
                then = "before its first row" if as_of["represents_ms"] is None else iso_time(as_of["represents_ms"])
                print(
                    f"… `{read['name']}` as of {iso_time(as_of['asked_ms'])} is shown as it was at {then}, its newest "
                    f"state that is not later{': ' + as_of['hint'] if as_of['hint'] else ''}",
                    file=sys.stderr,
                )

    def _writer(self, header: dict[str, Any]) -> Writer:
        return open_writer(self.format, header["columns"], live=False)

    def _say_capped(self, shown: int) -> None:
        how = "LIMIT or --limit shows as many as it says; --format csv writes all"
        if sys.stdout.isatty():
            print(f"… only the first {shown:,} rows ([server] query_rows). {how}")
            return
        raise LimitReached(f"only the first {shown:,} rows were printed: [server] query_rows", hint=how)

    def _push(self, text: str) -> None:
        """Rows as they come, until the query ends or Ctrl-C."""
        count, writer = 0, None
        try:
            for event in self.api.stream("POST", "/v1/query", {"sql": text, "settings": self._settings}, exact=True):
                if event.event == "error":
                    raise error_from_json(event.data.get("error", event.data))
                if self._as_json:
                    print_json({"event": event.event} | event.data)
                elif event.event == "header":
                    writer = open_writer(self.format, event.data["columns"], live=True)
                elif event.event == "row" and writer is not None:
                    writer.write([event.data["row"]])
                count += event.event == "row"
                if count == self._limit:
                    return
        except KeyboardInterrupt:
            print("^C stopped", file=sys.stderr)
        finally:
            if writer is not None:
                writer.close()

    def _print_result(self, result: dict[str, Any]) -> None:
        if self._as_json:
            print_json(result)
        elif result.get("rows") is not None:
            columns = [c["name"] if isinstance(c, dict) else c for c in result.get("columns") or []]
            print_table(columns, result["rows"], empty=result.get("message") or "none")
            if result.get("text"):
                print(f"\n{result['text']}")
        else:
            print(result.get("text") or result.get("message") or "done")


def terminated(text: str) -> str:
    """
    >>> terminated("SHOW STREAMS")
    'SHOW STREAMS;'
    """
    stripped = text.rstrip()
    return stripped if stripped.endswith(";") else stripped + ";"


def error_fields(error: SqlError) -> dict[str, Any]:
    """What the error was made of."""
    return {
        "message": error.message,
        "line": error.line,
        "column": error.column,
        "length": error.length,
        "source_line": error.source_line,
        "detail": error.detail,
        "hint": error.hint,
    }


def moved(error: SqlError, statement: Statement) -> SqlError:
    """The error with its place in the whole text: the server saw only one statement of it."""
    if not error.line:
        return error
    place = statement.script.span(statement.start, statement.end)
    line = error.line + place.line - 1
    column = error.column + (place.column - 1 if error.line == 1 else 0)
    place_in_whole = {"line": line, "column": column, "source_line": statement.script.line(line)}
    return SqlError(**error_fields(error) | place_in_whole)

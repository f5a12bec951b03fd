"""`headrace topic`: the log's topics. `list`, `show` and `put` also work while the project is not running."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import typer

from headrace.cli.options import JsonOption, KeyOption, ProjectOption, UrlOption, open_api, open_project
from headrace.cli.output import bytes_text, cell, local_time, print_json, print_pairs, print_table
from headrace.coordinate.local import is_held
from headrace.errors import UsageError

if TYPE_CHECKING:
    from headrace.cli.api import Api

app = typer.Typer(name="topic", help="The log's topics: what they are, what is in them.", no_args_is_help=True)
TopicArgument = Annotated[str, typer.Argument(metavar="TOPIC", help="A topic's name, in its own case.")]


class Topics(Protocol):
    """What `list`, `show` and `put` need, of a server or of the log itself."""

    def topics(self, internal: bool) -> list[dict[str, Any]]: ...
    def topic(self, name: str) -> dict[str, Any]: ...
    def put(self, name: str, body: bytes, idempotency_key: str | None) -> dict[str, Any]: ...


class ServerTopics:
    def __init__(self, api: Api) -> None:
        self._api = api

    def topics(self, internal: bool) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._api.get("/v1/topics", internal="true" if internal else None)["topics"]
        return found

    def topic(self, name: str) -> dict[str, Any]:
        return self._api.get(f"/v1/topics/{name}")

    def put(self, name: str, body: bytes, idempotency_key: str | None) -> dict[str, Any]:
        headers = {"Content-Type": "application/x-ndjson"}
        if idempotency_key:
            headers["Idempotency-Key"] = idempotency_key
        return self._api.request("POST", f"/v1/topics/{name}/events", content=body, headers=headers)


@contextmanager
def _topics(project: Path | None, url: str | None, key: str | None) -> Iterator[Topics]:
    """The server's topics if one runs, else the log's own."""
    if url is None:
        found = open_project(project)
        if not is_held(found.data):
            from headrace.cli.offline import open_offline

            with open_offline(found) as offline:
                yield offline
            return
    with open_api(project, url, key) as api:
        yield ServerTopics(api)


@app.command("list", epilog="Example:  headrace topic list")
def list_topics(
    internal: Annotated[bool, typer.Option("--internal", help="Headrace's own topics too.")] = False,
    project: ProjectOption = None,
    url: UrlOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """All topics: those that events are sent to first, then those that queries write."""
    with _topics(project, url, key) as topics:
        found = sorted(topics.topics(internal), key=lambda topic: (topic["role"] != "events", topic["name"]))
    if as_json:
        print_json({"topics": found})
        return
    print_table(
        ["topic", "role", "partitions", "records", "size", "records/s", "dead letters"],
        [
            [
                t["name"],
                t["role"],
                len(t["partitions"]),
                t["records"],
                bytes_text(t["bytes"]),
                round(t["rate"]),
                t["dead_letters"],
            ]
            for t in found
        ],
        empty="no topics; CREATE STREAM makes one, or:  headrace topic create NAME",
    )


@app.command("show", epilog="Example:  headrace topic show pageviews")
def show_topic(
    topic: TopicArgument,
    project: ProjectOption = None,
    url: UrlOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """One topic: columns, partitions, size."""
    with _topics(project, url, key) as topics:
        found = topics.topic(topic)
    if as_json:
        print_json(found)
        return
    print_pairs(
        [
            ("topic", f"{found['name']}  ({found['kind']}, {found['role']})"),
            ("records", f"{found['records']:,}  ({bytes_text(found['bytes'])} in {found['segments']:,} segments)"),
            ("stream time", local_time(found["stream_time_ms"])),
            ("time from", found["timestamp"] or "arrival"),
            ("kept", _retention(found)),
            ("declared", ", ".join(found["sources"]) or "by no stream or table"),
            ("dead letters", found["dead_letters"]),
        ]
    )
    print()
    print_table(["column", "type", ""], [[c["name"], c["type"], "key" if c["key"] else ""] for c in found["columns"]])
    print()
    print_table(["partition", "from", "to"], [[p["partition"], p["start"], p["end"]] for p in found["partitions"]])


def _retention(topic: dict[str, Any]) -> str:
    limits = []
    if topic["retention_ms"]:
        limits.append(f"{topic['retention_ms'] / 3_600_000:g} hours")
    if topic["retention_bytes"]:
        limits.append(f"{bytes_text(topic['retention_bytes'])} a partition")
    return ", ".join(limits) or "for ever"


@app.command("create", epilog='Example:  headrace topic create orders --columns "id VARCHAR KEY, total DOUBLE"')
def create_topic(
    topic: TopicArgument,
    columns: Annotated[str | None, typer.Option(help="Columns as in CREATE STREAM.", metavar="COLUMNS")] = None,
    partitions: Annotated[int | None, typer.Option(help="How many partitions.", min=1)] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Records are bytes: key and value.")] = False,
    retention_hours: Annotated[float | None, typer.Option(help="Delete what is older.", min=0)] = None,
    project: ProjectOption = None,
    url: UrlOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make a topic, without a stream over it."""
    if raw and columns:
        raise UsageError("a raw topic has no columns of its own", hint="leave out --raw or --columns")
    body: dict[str, Any] = {
        "name": topic,
        "kind": "raw" if raw else "typed",
        "columns": columns,
        "partitions": partitions,
        "retention_ms": int(retention_hours * 3_600_000) if retention_hours is not None else None,
    }
    with open_api(project, url, key) as api:
        made = api.post("/v1/topics", {name: value for name, value in body.items() if value is not None})
    if as_json:
        print_json(made)
    else:
        print(f"topic `{made['name']}` has {len(made['partitions'])} partitions")


@app.command("delete", epilog="Example:  headrace topic delete orders --yes")
def delete_topic(
    topic: TopicArgument,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    project: ProjectOption = None,
    url: UrlOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Delete a topic and all its records, for good."""
    with open_api(project, url, key) as api:
        records = api.get(f"/v1/topics/{topic}")["records"]
        if not yes:
            typer.confirm(f"delete `{topic}` with {records:,} records?", abort=True)
        api.delete(f"/v1/topics/{topic}")
    if as_json:
        print_json({"deleted": topic, "records": records})
    else:
        print(f"deleted `{topic}`")


@app.command("put", epilog="""Example:  headrace topic put pageviews '{"userid":"you","pageid":"/hello"}'""")
def put_events(
    topic: TopicArgument,
    events: Annotated[
        list[str] | None, typer.Argument(metavar="[JSON]…", help="Events; standard input by default.")
    ] = None,
    idempotency_key: Annotated[
        str | None, typer.Option(help="Makes sending the same again harmless.", metavar="KEY")
    ] = None,
    project: ProjectOption = None,
    url: UrlOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Send events: JSON objects, arrays, or one object a line on standard input."""
    body = "\n".join(events).encode() if events else sys.stdin.buffer.read()
    if not body.strip():
        raise UsageError("nothing to send", hint="give events as JSON, or on standard input")
    with _topics(project, url, key) as topics:
        answer = topics.put(topic, body, idempotency_key)
    if as_json:
        print_json(answer)
    else:
        _print_put(answer)
    raise typer.Exit(1 if answer.get("rejected") else 0)


def _print_put(answer: dict[str, Any]) -> None:
    duplicates = f", {answer['duplicates']:,} were there already" if answer.get("duplicates") else ""
    print(f"{answer.get('accepted', 0):,} accepted{duplicates}")
    for rejected in answer.get("rejected", []):
        print(f"  event {rejected['index']} was rejected: {rejected['reason']}", file=sys.stderr)


@app.command("tail", epilog="Example:  headrace topic tail pageviews")
def tail_topic(
    topic: TopicArgument,
    lines: Annotated[int, typer.Option("--lines", "-n", help="How many of the newest first.", min=0, max=1000)] = 10,
    follow: Annotated[bool, typer.Option("--follow/--no-follow", "-f", help="Go on with what arrives.")] = True,
    project: ProjectOption = None,
    url: UrlOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """The newest events, and what arrives, until Ctrl-C."""
    with open_api(project, url, key) as api:
        seen: dict[int, int] = {}
        if lines:
            newest = api.get(f"/v1/topics/{topic}/events", limit=lines, **{"from": "newest"})["events"]
            for event in reversed(newest):
                _print_event(event, as_json)
                seen[event["partition"]] = max(seen.get(event["partition"], -1), event["offset"])
        if not follow:
            return
        try:
            for message in api.stream("GET", f"/v1/topics/{topic}/tail"):
                # What arrived between the two requests may come twice.
                if message.event == "event" and message.data["offset"] > seen.get(message.data["partition"], -1):
                    _print_event(message.data, as_json)
        except KeyboardInterrupt:
            return


def _print_event(event: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(event)
        return
    value = event["value"]
    columns = event["key"] | (value or {}) | (event.get("rest") or {})
    shown = "  ".join(f"{name}={cell(item)}" for name, item in columns.items() if item is not None)
    place = f"{event['partition']}:{event['offset']}"
    print(f"{local_time(event['time_ms'])}  {place:<10} {shown}{'  (deleted)' if value is None else ''}", flush=True)

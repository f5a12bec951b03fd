"""`headrace topic`: the log's topics. All of it also works while the project is not running."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from headrace.cli import topic_records
from headrace.cli.backend import open_backend
from headrace.cli.options import JsonOption, KeyOption, ProjectOption, TopicArgument, UrlOption
from headrace.cli.output import bytes_text, cell, local_time, print_json, print_pairs, print_table
from headrace.errors import UsageError

app = typer.Typer(name="topic", help="The log's topics: what they are, what is in them.", no_args_is_help=True)
RetentionHours = Annotated[float | None, typer.Option(help="Delete what is older.", min=0)]
RetentionBytes = Annotated[int | None, typer.Option(help="Keep about so much of each partition.", min=0)]
Compacted = Annotated[bool | None, typer.Option("--compacted/--not-compacted", help="Keep the newest of each key.")]
Compression = Annotated[str | None, typer.Option(help="none, lz4 or zstd.", metavar="CODEC")]
SegmentBytes = Annotated[int | None, typer.Option(help="Size of a file of the log.", min=0)]


@app.command("list", epilog="Example:  headrace topic list")
def list_topics(
    internal: Annotated[bool, typer.Option("--internal", help="Headrace's own topics too.")] = False,
    project: ProjectOption = None,
    url: UrlOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """All topics: those that events are sent to first, then those that queries write."""
    with open_backend(project, url, key) as backend:
        found = sorted(backend.topics(internal), key=lambda topic: (topic["role"] != "events", topic["name"]))
    if as_json:
        print_json({"topics": found})
        return
    counts = found[0]["counts"] if found else "records"
    print_table(
        ["topic", "role", "partitions", counts, "size", f"{counts}/s", "dead letters"],
        [
            [
                t["name"],
                t["role"],
                len(t["partitions"]),
                t["records"],
                _size(t),
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
    with open_backend(project, url, key) as backend:
        found = backend.topic(topic)
    if as_json:
        print_json(found)
        return
    print_pairs(
        [
            ("topic", f"{found['name']}  ({found['kind']}, {found['role']})"),
            (found["counts"], f"{found['records']:,}{_stored(found)}"),
            ("stream time", local_time(found["stream_time_ms"])),
            ("time from", found["timestamp"] or "arrival"),
            ("kept", _retention(found)),
            ("configured", _configured(found["config"])),
            ("formats", f"key {found['key_format']}, value {found['value_format']}"),
            ("declared", ", ".join(found["sources"]) or "by no stream or table"),
            ("dead letters", found["dead_letters"]),
        ]
    )
    print()
    print_table(["column", "type", ""], [[c["name"], c["type"], "key" if c["key"] else ""] for c in found["columns"]])
    print()
    print_table(["partition", "from", "to"], [[p["partition"], p["start"], p["end"]] for p in found["partitions"]])


def _configured(config: dict[str, Any]) -> str:
    """What differs from the log's own settings, besides retention."""
    plain = {"compression": "none", "tombstone_ms": 86_400_000}
    shown = [
        f"{name} {cell(value)}"
        for name, value in config.items()
        if value and plain.get(name) != value and not name.startswith("retention")
    ]
    return ", ".join(shown) or "as the log"


def _size(topic: dict[str, Any]) -> str:
    """Brokers do not say."""
    return bytes_text(topic["bytes"]) if topic["counts"] == "records" else "?"


def _stored(topic: dict[str, Any]) -> str:
    if topic["counts"] == "offsets":
        return "  (with marks of transactions and gaps; SELECT COUNT(*) counts records)"
    return f"  ({bytes_text(topic['bytes'])} in {topic['segments']:,} segments)"


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
    retention_hours: RetentionHours = None,
    retention_bytes: RetentionBytes = None,
    compacted: Compacted = None,
    compression: Compression = None,
    segment_bytes: SegmentBytes = None,
    project: ProjectOption = None,
    url: UrlOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make a topic, without a stream over it."""
    if raw and columns:
        raise UsageError("a raw topic has no columns of its own", hint="leave out --raw or --columns")
    body = {"name": topic, "kind": "raw" if raw else "typed", "columns": columns, "partitions": partitions}
    body |= _config(retention_hours, retention_bytes, compacted, compression, segment_bytes)
    with open_backend(project, url, key) as backend:
        made = backend.create_topic({name: value for name, value in body.items() if value is not None})
    if as_json:
        print_json(made)
    else:
        print(f"topic `{made['name']}` has {len(made['partitions'])} partition{'s' * (len(made['partitions']) != 1)}")


@app.command("alter", epilog='Example:  headrace topic alter orders --add-columns "note VARCHAR" --retention-hours 48')
def alter_topic(
    topic: TopicArgument,
    add_columns: Annotated[str | None, typer.Option(help="More value columns.", metavar="COLUMNS")] = None,
    retention_hours: RetentionHours = None,
    retention_bytes: RetentionBytes = None,
    compacted: Compacted = None,
    compression: Compression = None,
    segment_bytes: SegmentBytes = None,
    project: ProjectOption = None,
    url: UrlOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Add columns to a topic, or change how it is kept. What is not named stays."""
    body: dict[str, Any] = {"add_columns": add_columns}
    body |= _config(retention_hours, retention_bytes, compacted, compression, segment_bytes)
    body = {name: value for name, value in body.items() if value is not None}
    if not body:
        raise UsageError("nothing to change", hint="see  headrace topic alter --help")
    with open_backend(project, url, key) as backend:
        altered = backend.alter_topic(topic, body)
    if as_json:
        print_json(altered)
    else:
        print(f"altered `{topic}`")


def _config(
    retention_hours: float | None,
    retention_bytes: int | None,
    compacted: bool | None,
    compression: str | None,
    segment_bytes: int | None,
) -> dict[str, Any]:
    return {
        "retention_ms": None if retention_hours is None else int(retention_hours * 3_600_000),
        "retention_bytes": retention_bytes,
        "compacted": compacted,
        "compression": compression,
        "segment_bytes": segment_bytes,
    }


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
    with open_backend(project, url, key) as backend:
        found = backend.topic(topic)
        records = found["records"]
        if not yes:
            typer.confirm(f"delete `{topic}` with {records:,} {found['counts']}?", abort=True)
        backend.delete_topic(topic)
    if as_json:
        print_json({"deleted": topic, "records": records})
    else:
        print(f"deleted `{topic}`")


@app.command("forget", epilog="Example:  headrace topic forget orders --partition 0 --before 48000 --yes")
def forget_records(
    topic: TopicArgument,
    partition: Annotated[int | None, typer.Option(help="Only of this partition.", min=0)] = None,
    before: Annotated[int | None, typer.Option(help="The oldest offset to keep; all by default.", min=0)] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    project: ProjectOption = None,
    url: UrlOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Delete a topic's oldest records, for good. The topic stays, and so do all offsets."""
    with open_backend(project, url, key) as backend:
        what = "all records" if before is None else f"the records before offset {before:,}"
        if not yes:
            typer.confirm(f"forget {what} of `{topic}`?", abort=True)
        left = backend.delete_records(topic, partition, before)
    if as_json:
        print_json(left)
    else:
        rows = [[p["partition"], p["start"], p["end"]] for p in left["partitions"]]
        print_table(["partition", "from", "to"], rows)


topic_records.register(app)

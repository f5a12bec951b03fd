"""`headrace group`: who reads what together, and how far they are. Also works while the project is not running."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from headrace.cli.backend import open_backend
from headrace.cli.options import JsonOption, KeyOption, ProjectOption, UrlOption, in_terminal
from headrace.cli.output import print_json, print_pairs, print_table
from headrace.errors import UsageError

app = typer.Typer(name="group", help="Groups of consumers: members, offsets, lag.", no_args_is_help=True)
GroupArgument = Annotated[str, typer.Argument(metavar="GROUP", help="A group's name.")]
WATCH_S = 1.0


@app.command("list", epilog="Example:  headrace group list")
def list_groups(
    project: ProjectOption = None, url: UrlOption = None, key: KeyOption = None, as_json: JsonOption = False
) -> None:
    """All groups."""
    with open_backend(project, url, key) as backend:
        found = backend.groups()
    if as_json:
        print_json({"groups": found})
        return
    print_table(
        ["group", "state", "members", "topics", "lag"],
        [
            [g["name"], g["state"], len(g["members"]), ", ".join(sorted({o["topic"] for o in g["offsets"]})), g["lag"]]
            for g in found
        ],
        empty="no groups; a consumer that joins one makes it (see docs/howto/consume-with-groups.md)",
    )


@app.command("show", epilog="Example:  headrace group show billing --watch")
def show_group(
    group: GroupArgument,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Again every second, until Ctrl-C.")] = False,
    project: ProjectOption = None,
    url: UrlOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """One group: its members, and its lag by partition."""
    with open_backend(project, url, key) as backend:
        before = None
        try:
            while True:
                found = backend.group(group)
                if as_json:
                    print_json(found)
                else:
                    if watch and in_terminal():
                        print("\x1b[2J\x1b[H", end="")
                    _print_group(found, before)
                if not watch:
                    return
                before = found
                time.sleep(WATCH_S)
        except KeyboardInterrupt:
            return


def _print_group(group: dict[str, Any], before: dict[str, Any] | None) -> None:
    pairs: list[tuple[str, Any]] = [("group", group["name"]), ("state", group["state"]), ("lag", group["lag"])]
    if before is not None:
        change = group["lag"] - before["lag"]
        pairs.append(("lag's change", f"{change:+,} since a second ago"))
    print_pairs(pairs)
    print()
    print_table(
        ["member", "client", "partitions"],
        [
            [m["id"], m["client"], ", ".join(f"{p['topic']}/{p['partition']}" for p in m["partitions"])]
            for m in group["members"]
        ],
        empty="no members",
    )
    print()
    print_table(
        ["topic", "partition", "committed", "end", "lag", "member"],
        [[o["topic"], o["partition"], o["committed"], o["end"], o["lag"], o["member"]] for o in group["offsets"]],
        empty="no offsets committed",
    )


@app.command("reset", epilog="Example:  headrace group reset billing --to earliest")
def reset_group(
    group: GroupArgument,
    to: Annotated[str | None, typer.Option(help="earliest or latest.", metavar="PLACE")] = None,
    at_time: Annotated[
        str | None, typer.Option("--time", help="The first record of that time or later.", metavar="TIME")
    ] = None,
    offset: Annotated[
        list[str] | None, typer.Option(help="Exactly there; may be repeated.", metavar="TOPIC:PARTITION:OFFSET")
    ] = None,
    topic: Annotated[
        list[str] | None, typer.Option(help="Only this topic's offsets; may be repeated.", metavar="TOPIC")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Even if it has members: they are sent away.")] = False,
    project: ProjectOption = None,
    url: UrlOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Let a group begin elsewhere. Refused while it has members, unless forced."""
    if sum(way is not None for way in (to, at_time, offset)) != 1:
        raise UsageError(
            "say where to: one of --to, --time and --offset", hint=f"headrace group reset {group} --to earliest"
        )
    if to not in (None, "earliest", "latest"):
        raise UsageError(f"`--to` is earliest or latest, got `{to}`")
    body: dict[str, Any] = {"to": to, "time": at_time, "topics": topic, "force": force}
    body["offsets"] = None if offset is None else [_offset(text) for text in offset]
    with open_backend(project, url, key) as backend:
        found = backend.reset_group(group, body)
    if as_json:
        print_json(found)
    else:
        _print_group(found, None)


def _offset(text: str) -> dict[str, Any]:
    topic, partition, offset = [*text.rsplit(":", 2), "", ""][:3]
    if not topic or not partition.isdecimal() or not offset.isdecimal():
        raise UsageError(f"`{text}` is not TOPIC:PARTITION:OFFSET", hint="such as orders:0:48211")
    return {"topic": topic, "partition": int(partition), "offset": int(offset)}


@app.command("delete", epilog="Example:  headrace group delete billing --yes")
def delete_group(
    group: GroupArgument,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    project: ProjectOption = None,
    url: UrlOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Forget a group that has no members, and its offsets."""
    with open_backend(project, url, key) as backend:
        backend.group(group)
        if not yes:
            typer.confirm(f"forget the offsets of `{group}`?", abort=True)
        backend.delete_group(group)
    if as_json:
        print_json({"deleted": group})
    else:
        print(f"deleted `{group}`")

"""`headrace collector`: what takes events in besides the plain endpoint, how it is doing, and a test event."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.options import JsonOption, KeyOption, ProjectOption, UrlOption, open_api, open_project
from headrace.cli.output import bytes_text, local_time, print_json, print_pairs, print_table
from headrace.errors import UsageError

if TYPE_CHECKING:
    from headrace.collect.definitions import Definition

app = typer.Typer(
    name="collector", help="Collectors, collectors/*.toml: states, counts, a test event.", no_args_is_help=True
)
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="A collector's name: its file's, without `.toml`.")]


@app.command("list", epilog="Example:  headrace collector list")
def list_collectors(
    project: ProjectOption = None, url: UrlOption = None, key: KeyOption = None, as_json: JsonOption = False
) -> None:
    """All collectors with their states and counts."""
    with open_api(project, url, key) as api:
        found = api.get("/v1/collectors")["collectors"]
    if as_json:
        print_json({"collectors": found})
        return
    print_table(
        ["collector", "type", "state", "topic", "events/s", "accepted", "rejected", "shed", "refused"],
        [
            [c["name"], c["type"], c["state"], c["topic"], c["rate"]]
            + [c[count] for count in ("accepted", "rejected", "shed", "refused")]
            for c in found
        ],
        empty="no collectors; a file in collectors/ makes one (headrace collector kinds lists the types)",
    )
    for one in found:
        if one["problem"]:
            print(one["problem"])


@app.command("show", epilog="Example:  headrace collector show clicks")
def show_collector(
    name: NameArgument,
    project: ProjectOption = None,
    url: UrlOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """One collector: counts, errors, settings, and what to send to it."""
    with open_api(project, url, key) as api:
        found = api.get(f"/v1/collectors/{name}")
    if as_json:
        print_json(found)
        return
    print_pairs(_pairs(found))
    if found["problem"]:
        print(f"\n{found['problem']}")
    for warning in found["warnings"]:
        print(f"\nwarning: {warning}")
    if found["components"]:
        print()
        print_table(["component", "counter", "value"], _counted(found["components"]), empty="nothing happened")
    elif found["example"]:
        print(f"\nsend to it:\n{found['example']}")


def _counted(components: dict[str, dict[str, Any]]) -> list[list[Any]]:
    """What an agent's parts have counted, without what did not happen."""
    return [
        [component, counter, value]
        for component, counters in components.items()
        for counter, value in counters.items()
        if value
    ]


def _pairs(found: dict[str, Any]) -> list[tuple[str, Any]]:
    pairs: list[tuple[str, Any]] = [
        ("collector", found["name"]),
        ("type", found["type"]),
        ("file", found["file"]),
        ("topic", found["topic"]),
        ("state", f"{found['state']}: {found['detail']}" if found["detail"] else found["state"]),
        ("events/s", found["rate"]),
        ("received", f"{found['received']:,} events, {bytes_text(found['bytes'])}"),
    ]
    pairs += [(count, f"{found[count]:,}") for count in ("accepted", "duplicates", "rejected", "shed", "refused")]
    if found["last_error_ms"]:
        pairs.append(("last error", f"{local_time(found['last_error_ms'])}  {found['last_error']}"))
    if found["last_event_ms"]:
        pairs.append(("last event", local_time(found["last_event_ms"])))
    if found["connections"]:
        pairs.append(("connections", found["connections"]))
    settings = {name: value for name, value in found["settings"].items() if name not in ("type", "topic")}
    return [*pairs, ("settings", json.dumps(settings, ensure_ascii=False))] if settings else pairs


@app.command("test", epilog='Example:  headrace collector test clicks --event \'{"userid": "you"}\'')
def try_collector(
    name: NameArgument,
    event: Annotated[
        str | None, typer.Option(help="The event, as JSON; by default one that is made up.", metavar="JSON")
    ] = None,
    project: ProjectOption = None,
    url: UrlOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Send a test event through a collector's rules into its topic. It is a real record, with the header
    `headrace-test`."""
    body: dict[str, Any] = {} if event is None else {"event": _event(event)}
    with open_api(project, url, key) as api:
        found = api.post(f"/v1/collectors/{name}/test", body)
    if as_json:
        print_json(found)
    else:
        print(json.dumps(found["event"], ensure_ascii=False))
        if found["outcome"] == "accepted":
            place = "" if found["offset"] is None else f" at {found['partition']}:{found['offset']}"
            print(f"accepted: it is in topic {found['topic']}{place}")
        else:
            reasons = "; ".join(one["reason"] for one in found["rejected"])
            print(f"{found['outcome']}{': ' if reasons else ''}{reasons}")
    if found["outcome"] not in ("accepted", "duplicate"):
        raise typer.Exit(1)


@app.command("reset", epilog="Example:  headrace collector reset orders --to beginning")
def reset_collector(
    name: NameArgument,
    to: Annotated[
        str,
        typer.Option(
            help="beginning or end of what the source has; PARTITION:OFFSET,… of kafka and headrace; "
            "cursor:VALUE of sse, websocket and poll.",
            metavar="PLACE",
        ),
    ] = "beginning",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    project: ProjectOption = None,
    url: UrlOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Let a collector that pulls go on elsewhere in its source, also while it runs. What it has taken stays; what it
    takes again is there twice, unless its events have ids."""
    with open_api(project, url, key) as api:
        found = api.get(f"/v1/collectors/{name}")
        if not yes:
            typer.confirm(f"let `{name}` ({found['type']}) go on at `{to}`, and forget where it was?", abort=True)
        answer = api.post(f"/v1/collectors/{name}/reset", {"to": to})
    if as_json:
        print_json(answer)
    else:
        print(f"`{name}` goes on at {to}")


def _event(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise UsageError(f"the event is not valid JSON: {error}") from None
    if not isinstance(found, dict):
        raise UsageError("an event is a JSON object", hint='such as {"userid": "you"}')
    return found


@app.command("check", epilog="Example:  headrace collector check")
def check_collectors(project: ProjectOption = None, as_json: JsonOption = False) -> None:
    """Read the files of collectors/, without a server, and say what is wrong with them, by line; and where another way
    leads past what one hides."""
    from headrace.collect.definitions import load_definitions
    from headrace.collect.gaps import privacy_gaps

    found, problems = load_definitions(open_project(project))
    warnings = {one.name: privacy_gaps(one, found) for one in found}
    if as_json:
        print_json(
            {
                "ok": not problems,
                "collectors": [
                    {"name": one.name, "type": one.kind.name, "does": _does(one), "warnings": warnings[one.name]}
                    for one in found
                ],
                "problems": [
                    {"file": one.file, "line": one.line, "message": one.message, "hint": one.hint} for one in problems
                ],
            }
        )
    else:
        for one in found:
            print(f"{one.where}: {_does(one)}")
            for warning in warnings[one.name]:
                print(f"  warning: {warning}")
        for problem in problems:
            print(problem)
        if not found and not problems:
            print("no collectors; a file in collectors/ makes one (headrace collector kinds lists the types)")
    raise typer.Exit(1 if problems else 0)


def _does(definition: Definition) -> str:
    """What the file says, in words."""
    settings = definition.settings
    words = [f"{definition.kind.name} into topic {settings.topic}" if settings.topic else definition.kind.name]
    if not settings.enabled:
        words.append("disabled")
    if settings.keys:
        words.append(f"{len(settings.keys)} key{'s' * (len(settings.keys) != 1)}")
    enrich, privacy, validate = settings.enrich, settings.privacy, settings.validate
    added = [*filter(None, (enrich.arrival_time, enrich.address, enrich.user_agent, enrich.collector)), *enrich.fields]
    checked = {*validate.required, *validate.fields}
    for verb, names in (
        ("adds", added),
        ("checks", sorted(checked)),
        ("converts", validate.coerce),
        ("drops", privacy.drop),
        ("hashes", privacy.hash),
        ("cuts", list(privacy.truncate)),
    ):
        if names:
            words.append(f"{verb} {', '.join(names)}")
    if validate.unknown != "keep":
        words.append(f"unknown fields: {validate.unknown}")
    return "; ".join(words)


@app.command("kinds", epilog="Example:  headrace collector kinds")
def list_kinds(as_json: JsonOption = False) -> None:
    """The types of collectors there are."""
    from headrace.collect.kinds import KINDS

    if as_json:
        print_json(
            {
                "kinds": [
                    {"name": k.name, "where": k.where, "summary": k.summary, "page": k.page} for k in KINDS.values()
                ]
            }
        )
        return
    print_table(["type", "where", "what"], [[kind.name, kind.where, kind.summary] for kind in KINDS.values()])

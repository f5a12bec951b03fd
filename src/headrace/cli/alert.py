"""`headrace alert`: the files of alerts/, which of them fire, and a test of who is told."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import quote

import typer

from headrace.cli.options import JsonOption, KeyOption, ProjectOption, UrlOption, open_api, open_project
from headrace.cli.output import local_time, print_json, print_pairs, print_table

EMPTY = 'no alerts; a file in alerts/ makes one:  watch = "drift"'

app = typer.Typer(name="alert", help="Alerts of alerts/*.toml: which fire, who was told, a test.", no_args_is_help=True)
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="An alert's name: its file's, without `.toml`.")]


@app.command("list", epilog="Example:  headrace alert list")
def list_alerts(
    project: ProjectOption = None, url: UrlOption = None, key: KeyOption = None, as_json: JsonOption = False
) -> None:
    """All alerts, which fire and since when."""
    with open_api(project, url, key) as api:
        found = api.get("/v1/alerts")
    if as_json:
        print_json(found)
        return
    print_table(
        ["alert", "state", "since", "fires when", "told"],
        [[one["name"], one["state"], _when(one["since_ms"]), one["rule"], _told(one)] for one in found["alerts"]],
        empty="" if found["problems"] else EMPTY,
    )
    for one in found["alerts"]:
        if one["problem"]:
            print(f"{one['name']}: {one['problem']}")
    for problem in found["problems"]:
        print(f"{problem['file']}:{problem['line']}: {problem['message']}")


def _when(since_ms: int | None) -> str:
    return local_time(since_ms) if since_ms else ""


def _told(alert: dict[str, Any]) -> str:
    """All of its destinations in a word."""
    places = alert["destinations"]
    waiting = sum(place["waiting"] for place in places)
    if not places:
        return "nobody"
    if waiting:
        return f"{waiting} waiting"
    if any(place["error"] for place in places):
        return "failed"
    return _when(max((place["told_ms"] or 0 for place in places), default=0)) or "not yet"


@app.command("show", epilog="Example:  headrace alert show drift")
def show_alert(
    name: NameArgument,
    project: ProjectOption = None,
    url: UrlOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """One alert: what it watches, what of that is too much, and how telling went."""
    with open_api(project, url, key) as api:
        found = api.get(f"/v1/alerts/{quote(name, safe='')}")
    if as_json:
        print_json(found)
        return
    pairs = [("alert", found["name"]), ("file", found["file"]), ("fires when", found["rule"])]
    pairs += [("says", found["description"])] if found["description"] else []
    state = found["state"] + (f" since {_when(found['since_ms'])}" if found["since_ms"] else "")
    print_pairs([*pairs, ("state", state)])
    if found["problem"]:
        print(f"\n{found['problem']}")
    for one in found["subjects"]:
        value = "" if one["value"] is None else f"{one['value']:g} now"
        parts = (one["state"], _when(one["since_ms"]), value, f"fired {one['fired']} times" if one["fired"] else "")
        print(f"\n{one['subject']}   {'   '.join(filter(None, parts))}")
        if one["detail"]:
            print(f"  {one['detail']}")
    for place in found["destinations"]:
        told = f"told {_when(place['told_ms'])}" if place["told_ms"] else "not told yet"
        waiting = f"{place['waiting']} waiting" if place["waiting"] else ""
        print(f"\n{place['to']}   {'   '.join(filter(None, (told, waiting, place['error'])))}")


@app.command("test", epilog="Example:  headrace alert test drift")
def try_alert(
    name: NameArgument,
    project: ProjectOption = None,
    url: UrlOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Tell an alert's destinations, once and at once, that this is a test. Exits with 1 if one did not take it."""
    with open_api(project, url, key) as api:
        found = api.post(f"/v1/alerts/{quote(name, safe='')}/test", {})
    if as_json:
        print_json(found)
    for one in [] if as_json else found["told"]:
        print(f"{one['to']}: {one['error'] or 'taken'}")
    if not found["told"] and not as_json:
        print("it tells nobody: [[to]] in its file says who is told")
    raise typer.Exit(1 if any(one["error"] for one in found["told"]) else 0)


@app.command("check", epilog="Example:  headrace alert check")
def check_alerts(project: ProjectOption = None, as_json: JsonOption = False) -> None:
    """Read the files of alerts/, without a server, and say what is wrong with them, by line."""
    from headrace.deliver.alerts.definitions import load_alerts

    found, problems = load_alerts(open_project(project))
    if as_json:
        wrong = [{"file": one.file, "line": one.line, "message": one.message, "hint": one.hint} for one in problems]
        alerts = [{"name": one.name, "rule": one.rule, "to": [p.shown for p in one.settings.to]} for one in found]
        print_json({"ok": not problems, "alerts": alerts, "problems": wrong})
    else:
        for one in found:
            told = ", ".join(place.shown for place in one.settings.to) or "nobody"
            print(f"{one.where}: {one.rule}; tells {told}{'' if one.settings.enabled else '; disabled'}")
        for problem in problems:
            print(problem)
        if not found and not problems:
            print(EMPTY)
    raise typer.Exit(1 if problems else 0)

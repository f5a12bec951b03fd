"""`headrace plan`: what the project's files would change."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from headrace.cli.deployment import RUNNING
from headrace.cli.options import JsonOption, KeyOption, ProjectOption, UrlOption, open_api, open_project
from headrace.cli.output import console, duration, print_json

EXIT_CHANGES = 2
MARKS = {"nothing": " ", "creates": "+", "drops": "-", "refused": "!"}
STYLES = {"creates": "green", "drops": "red", "refused": "red", "rebuilds": "yellow"}

InPlaceOption = Annotated[
    bool,
    typer.Option("--in-place", help="Go on in place where that can be: what is written stays as it is."),
]


StrategyOption = Annotated[
    str,
    typer.Option(
        help="kappa: replay the log into a second version. lambda: compute a batch up to now, stream from there, and "
        "merge both when the view is read.",
    ),
]


def register(app: typer.Typer) -> None:
    app.command(epilog="Example:  headrace plan --json")(plan)


def plan(
    in_place: InPlaceOption = False,
    strategy: StrategyOption = "kappa",
    whole: Annotated[bool, typer.Option("--all", help="Also what stays as it is.")] = False,
    project: ProjectOption = None,
    url: UrlOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """What the project's files would change, statement by statement. Exit code 0: nothing, 2: changes, 1: refused."""
    with open_api(project, url, key) as api:
        asked = {"files": files_of(project, url), "in_place": in_place, "strategy": strategy, "from_scratch": True}
        body = api.post("/v1/plan", asked)
        newest = api.get("/v1/deployments", limit=1)["deployments"]
        failed = [query for query in api.get("/v1/queries")["queries"] if query["state"] == "failed"]
    if as_json:
        print_json(body | {"failed_queries": [{"id": one["id"], "error": one["last_error"]} for one in failed]})
    else:
        options = [" --strategy lambda"] * (strategy == "lambda") + [" --in-place"] * in_place
        print_plan(body, whole, "headrace deploy" + "".join(options))
        print_from_scratch(body.get("from_scratch", ()))
        if body["pending"] and newest and newest[0]["stage"] in (*RUNNING, "waiting"):
            print(_in_the_way(newest[0]))
        for query in failed:
            print(f"query {query['id']} has failed: {(query['last_error'] or {}).get('message', 'no reason given')}")
        if failed:
            print("compute again from the log what cannot go on:  headrace view rebuild")
    changes = body["pending"] or body["functions"]
    raise typer.Exit(1 if body["refused"] else EXIT_CHANGES if changes else 0)


def files_of(project: Path | None, url: str | None) -> dict[str, str] | None:
    """The project's files as they are here; a server that is named without a project has its own."""
    from headrace.coordinate.changes import project_files

    if url is not None and project is None:
        return None
    return project_files(open_project(project))


def print_plan(body: dict[str, Any], whole: bool, command: str) -> None:
    out = console()
    shown = [change for change in body["changes"] if whole or change["verdict"] != "nothing" or change["warnings"]]
    for function in body["functions"]:
        out.print(_function_line(function), markup=False, highlight=False)
    for change in shown:
        if change["because"]:
            continue
        out.print(_headline(change), style=STYLES.get(change["verdict"], ""), markup=False, highlight=False)
        for line in _lines(change, [one["name"] for one in shown if one["because"] == change["name"]]):
            out.print(f"      {line}", markup=False, highlight=False, style="dim")
    if not body["pending"]:
        if body["functions"]:
            out.print(f"\nnothing has to be computed again\ndo it:  {command}", markup=False)
        else:
            out.print("nothing to do: what runs is what the files say", markup=False)
        return
    refused = f", {body['refused']} refused" if body["refused"] else ""
    changes = f"{body['pending']} change{'s' * (body['pending'] != 1)}"
    out.print(f"\n{changes}{refused}; {cost(body)}", markup=False, highlight=False)
    if not body["refused"]:
        out.print(f"do it:  {command}{_agreed(body)}", markup=False)


def print_from_scratch(problems: Sequence[str]) -> None:
    """Say what of the files only works here, where somebody has run other statements before."""
    if problems:
        target = console(stderr=True)
        target.print("\na fresh clone of these files would not start:", style="yellow", markup=False)
        for problem in problems:
            target.print(f"  {problem}", style="yellow", markup=False, highlight=False)
        target.print("put what they need into a file of pipelines/ too", markup=False, highlight=False)


def _in_the_way(deployment: dict[str, Any]) -> str:
    """
    >>> _in_the_way({"id": 3, "stage": "waiting"})
    'but first:  headrace deploy approve 3, or cancel 3; it is waiting'
    >>> _in_the_way({"id": 3, "stage": "building"})
    'but first:  headrace deploy follow 3, or cancel 3; it is building'
    """
    number, stage = deployment["id"], deployment["stage"]
    wanted = "approve" if stage == "waiting" else "follow"
    return f"but first:  headrace deploy {wanted} {number}, or cancel {number}; it is {stage}"


def _agreed(body: dict[str, Any]) -> str:
    """What a deployment has to be told, or it refuses.

    >>> _agreed({"changes": [{"verdict": "creates"}]}), _agreed({"changes": [{"verdict": "drops"}]})
    ('', ' --approve')
    """
    return " --approve" if any(change["verdict"] == "drops" for change in body["changes"]) else ""


def _function_line(function: dict[str, Any]) -> str:
    """
    >>> tax = {"name": "tax", "file": "functions/tax.py", "verdict": "changed", "used_by": ["bills"], "topic": ""}
    >>> _function_line(tax)
    '  ~ function tax: changed, called by bills   functions/tax.py'
    >>> _function_line(tax | {"verdict": "new", "topic": "HOT"})
    '  + function tax: new, is started on topic HOT   functions/tax.py'
    """
    verdict = function["verdict"]
    mark = {"new": "+", "changed": "~", "gone": "-"}[verdict]
    what = f"called by {', '.join(function['used_by']) or 'nothing'}"
    if function["topic"]:
        does = {"new": "is started", "changed": "goes on where it is", "gone": "is stopped"}[verdict]
        what = f"{does} on topic {function['topic']}"
    return f"  {mark} function {function['name']}: {verdict}, {what}   {function['file']}"


def _headline(change: dict[str, Any]) -> str:
    """
    >>> new = {"kind": "table", "name": "a", "verdict": "creates", "replays": 0, "strategy": "lambda", "file": ""}
    >>> _headline(new), _headline(new | {"verdict": "drops"})
    ('  + table a: creates as a batch, then a stream from there', '  - table a: drops, if you say --approve')
    """
    place = f"   {change['file']}:{change['line']}" if change["file"] else ""
    verdict = change["verdict"]
    if verdict == "rebuilds":
        verdict = f"rebuilds as version {change['version']}, {cost(change)}"
    elif verdict == "serves again":
        state = f"once it has read {change['replays']:,} more events" if change["replays"] else "it is up to date"
        verdict = f"serves version {change['version']} again, which is kept: {state}"
    elif verdict == "continues":
        offsets = ", ".join(f"{number}:{offset}" for number, offset in change["offsets"].items())
        verdict = f"continues from offset {offsets or 0}"
    elif verdict == "creates" and change["replays"]:
        verdict = f"creates, {cost(change)}"
    elif verdict == "drops":
        verdict = "drops, if you say --approve"
    if change["strategy"] == "lambda" and change["verdict"] in ("creates", "rebuilds"):
        verdict = "creates as a batch" if verdict == "creates" else verdict.replace("replaying", "as a batch over")
        verdict += ", then a stream from there"
    return f"  {MARKS.get(change['verdict'], '~')} {change['kind']} {change['name']}: {verdict}{place}"


def _lines(change: dict[str, Any], refused_too: Sequence[str] = ()) -> list[str]:
    lines = [change["reason"]] if change["reason"] else []
    lines += [f"instead: {change['hint']}"] if change["hint"] else []
    lines += [f"so are refused, because they read it: {', '.join(refused_too)}"] if refused_too else []
    lines += [f"note: {warning}" for warning in change["warnings"]]
    if change["dependents"]:
        lines.append(f"read by {', '.join(change['dependents'])}")
    if change["alerts"]:
        lines.append(f"watched by the alert {', '.join(change['alerts'])}")
    return lines + definition_diff(change["old_statement"], change["statement"], change["verdict"])


def definition_diff(old: str, new: str, verdict: str) -> list[str]:
    if not old or not new or old == new or verdict == "nothing":
        return []
    found = difflib.unified_diff(old.splitlines(), new.splitlines(), lineterm="", n=1)
    return [line for line in found if not line.startswith(("---", "+++", "@@"))]


def cost(body: dict[str, Any]) -> str:
    """
    >>> cost({"replays": 1200, "seconds": 90.0}), cost({"replays": 1, "seconds": None})
    ('replaying 1,200 events (about 2 minutes)', 'replaying 1 event')
    """
    replays = body["replays"]
    if not replays:
        return "nothing to replay"
    about = "" if body["seconds"] is None else f" (about {duration(body['seconds'])})"
    return f"replaying {replays:,} event{'s' * (replays != 1)}{about}"

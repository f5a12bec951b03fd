"""`headrace function`: Python functions on topics."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import quote

import typer

from headrace.cli.options import JsonOption, KeyOption, ProjectOption, UrlOption, open_api
from headrace.cli.output import print_json, print_table

app = typer.Typer(
    name="function", help="Functions that are called with a topic's records: functions/*.py.", no_args_is_help=True
)


@app.command("list", epilog="Example:  headrace function list")
def list_functions(
    project: ProjectOption = None, url: UrlOption = None, key: KeyOption = None, as_json: JsonOption = False
) -> None:
    """Functions on topics: how they are, and how far."""
    with open_api(project, url, key) as api:
        body = api.get("/v1/functions")
    if as_json:
        print_json(body)
        return
    columns = ("name", "topic", "to", "state", "records", "written", "rejected")
    print_table(
        ["function", *columns[1:], "lag", "error"],
        [
            [*(one["status"][column] for column in columns), one["lag"], _first_line(one["status"].get("error"))]
            for one in body["functions"]
        ],
        empty="no functions on topics; write one:  docs/howto/functions-on-topics.md",
    )


def _first_line(error: str | None) -> str:
    return (error or "").partition("\n")[0][:60]


@app.command("run", epilog="Example:  headrace function run enrich --limit 5")
def run_function(
    function: Annotated[str, typer.Argument(metavar="FUNCTION", help="A function's name.")],
    limit: Annotated[int, typer.Option(help="How many records at most.", min=1, max=1000)] = 10,
    oldest: Annotated[bool, typer.Option("--oldest", help="The oldest records, not the newest.")] = False,
    project: ProjectOption = None,
    url: UrlOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Call a function with some records of its topic, print what it makes, and write nothing. Exits with 1 if it
    fails."""
    with open_api(project, url, key) as api:
        body = api.post(f"/v1/functions/{quote(function, safe='')}/try", {"limit": limit, "oldest": oldest})
    if as_json:
        print_json(body)
    else:
        for made in body["made"]:
            text = made.get("text")
            print(made["base64"] if text is None else text)
        for failed in body["failed"]:
            typer.echo(f"record {failed['partition']}:{failed['offset']} failed: {failed['error']}", err=True)
    if body["failed"]:
        raise typer.Exit(1)

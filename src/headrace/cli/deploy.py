"""`headrace deploy`: making what runs what the files say; and what was deployed."""

from __future__ import annotations

import getpass
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.deployment import finish, follow, print_deployment
from headrace.cli.options import JsonOption, KeyOption, ProjectOption, UrlOption, open_api
from headrace.cli.output import local_time, print_json, print_table
from headrace.cli.plan import InPlaceOption, StrategyOption, definition_diff, files_of
from headrace.errors import NotFound

if TYPE_CHECKING:
    from headrace.cli.api import Api

app = typer.Typer(
    name="deploy",
    help="Make what runs what the files say: built beside it, compared, switched.",
    epilog="Example:  headrace deploy --gate max_changed=0.1%",
)
NumberArgument = Annotated[int, typer.Argument(metavar="NUMBER", help="A deployment's number.", min=1)]
NewestArgument = Annotated[
    int | None, typer.Argument(metavar="[NUMBER]", help="A deployment's number; by default the newest.", min=1)
]


@app.callback(invoke_without_command=True)
def deploy(
    context: typer.Context,
    strategy: StrategyOption = "kappa",
    gate: Annotated[
        str | None,
        typer.Option(help="Switch by itself if no more rows differ, such as max_changed=0.1%.", metavar="GATE"),
    ] = None,
    approve: Annotated[bool, typer.Option("--approve", help="Switch whatever differs; drop what no file has.")] = False,
    in_place: InPlaceOption = False,
    start: Annotated[
        str, typer.Option("--from", help="Replay from the beginning, now, an offset or a time.", metavar="PLACE")
    ] = "beginning",
    rows_per_second: Annotated[
        int, typer.Option("--throttle", help="Rows a second the build may read; 0 is all it can.", min=0)
    ] = 0,
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Start it and return.")] = False,
    project: ProjectOption = None,
    url: UrlOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Build what changed beside what serves, compare both, switch. Exit code 0: done, 2: waits for you, 1: not."""
    if context.invoked_subcommand is not None:
        return
    request = {
        "files": files_of(project, url),
        "strategy": strategy,
        "gate": gate,
        "approve": approve,
        "in_place": in_place,
        "from": start,
        "rows_per_second": rows_per_second,
        "who": who(),
    }
    with open_api(project, url, key) as api:
        started = api.post("/v1/deployments", request)["deployment"]
        if started is None:
            print_json({"deployment": None}) if as_json else print("nothing to do: what runs is what the files say")
            return
        finish(api, started if detach else follow(api, started, as_json), as_json)


def who() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""


@app.command("show", epilog="Example:  headrace deploy show")
def show(
    number: NewestArgument = None,
    project: ProjectOption = None,
    url: UrlOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """One deployment: stage, progress, what differed."""
    with open_api(project, url, key) as api:
        body = api.get(f"/v1/deployments/{_newest(api, number)}")
    print_json(body) if as_json else print_deployment(body)


@app.command("follow", epilog="Example:  headrace deploy follow")
def follow_deployment(
    number: NewestArgument = None,
    project: ProjectOption = None,
    url: UrlOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Watch one until it is over or waits for somebody, as deploy does. Exits as deploy does."""
    with open_api(project, url, key) as api:
        started = api.get(f"/v1/deployments/{_newest(api, number)}")
        finish(api, follow(api, started, as_json), as_json)


def _newest(api: Api, number: int | None) -> int:
    """There is one under way at a time, so that is mostly the one that is meant."""
    if number is not None:
        return number
    found = api.get("/v1/deployments", limit=1)["deployments"]
    if not found:
        raise NotFound("nothing was deployed yet", hint="see what would be:  headrace plan")
    newest: int = found[0]["id"]
    return newest


def _changing(action: str, example: str, text: str) -> None:
    def change(
        number: NewestArgument = None,
        project: ProjectOption = None,
        url: UrlOption = None,
        key: KeyOption = None,
        as_json: JsonOption = False,
    ) -> None:
        with open_api(project, url, key) as api:
            body = api.post(f"/v1/deployments/{_newest(api, number)}/{action}")
            if action == "approve":
                finish(api, follow(api, body, as_json), as_json)
                return
        print_json(body) if as_json else print_deployment(body)

    change.__doc__ = text
    app.command(action, epilog=f"Example:  {example}")(change)


_changing("pause", "headrace deploy pause", "Stop building for now; what is built stays.")
_changing("resume", "headrace deploy resume", "Go on building.")
_changing("approve", "headrace deploy approve", "Switch although the versions differ.")
_changing("cancel", "headrace deploy cancel", "Throw away what was built; what served, serves.")


@app.command("throttle", epilog="Example:  headrace deploy throttle 3 50000")
def throttle(
    number: NumberArgument,
    rows_per_second: Annotated[int, typer.Argument(help="Rows a second; 0 is all it can.", min=0)],
    project: ProjectOption = None,
    url: UrlOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """How much a build may read, so that what is live has room."""
    with open_api(project, url, key) as api:
        body = api.post(f"/v1/deployments/{number}/throttle", {"rows_per_second": rows_per_second})
    print_json(body) if as_json else print_deployment(body)


@app.command("restore", epilog="Example:  headrace deploy restore 3 --before")
def restore(
    number: NumberArgument,
    before: Annotated[bool, typer.Option("--before", help="What there was before it, not what it defined.")] = False,
    gate: Annotated[str | None, typer.Option(help="As of deploy.", metavar="GATE")] = None,
    approve: Annotated[bool, typer.Option("--approve", help="Switch whatever differs.")] = False,
    project: ProjectOption = None,
    url: UrlOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Deploy again what a deployment defined. The files are left as they are."""
    request = {"before": before, "gate": gate, "approve": approve, "who": who()}
    with open_api(project, url, key) as api:
        started = api.post(f"/v1/deployments/{number}/restore", request)["deployment"]
        if started is None:
            print_json({"deployment": None}) if as_json else print("nothing to do: that is what runs")
            return
        finish(api, follow(api, started, as_json), as_json)


def register(parent: typer.Typer) -> None:
    parent.add_typer(app)
    parent.command(epilog="Example:  headrace history")(history)


def history(
    number: Annotated[
        int | None, typer.Argument(metavar="[NUMBER]", help="Only this one, with its definitions.")
    ] = None,
    project: ProjectOption = None,
    url: UrlOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Every deployment: who, when, what it changed, and how it went."""
    with open_api(project, url, key) as api:
        body = api.get(f"/v1/deployments/{number}") if number else api.get("/v1/deployments")
    if as_json:
        print_json(body)
    elif number:
        print_deployment(body)
        for item in body["items"]:
            print(f"\n{item['name']}:")
            for line in definition_diff(item["old_statement"], item["statement"], item["verdict"]) or [
                item["statement"] or item["old_statement"]
            ]:
                print(f"  {line}")
    else:
        print_table(
            ["number", "when", "who", "stage", "what", "why"],
            [
                [
                    one["id"],
                    local_time(one["started_ms"]),
                    one["who"],
                    one["stage"],
                    ", ".join(f"{item['name']} {item['verdict']}" for item in one["items"]),
                    one["detail"],
                ]
                for one in body["deployments"]
            ],
            empty="nothing was deployed yet",
        )

"""`headrace view`: the live tables."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.deploy import who
from headrace.cli.deployment import AWAY_S, finish, follow, is_away
from headrace.cli.options import JsonOption, KeyOption, ProjectOption, UrlOption, columns_given, open_api, view_path
from headrace.cli.output import data_text, duration, local_time, place_text, print_json, print_rows, print_table
from headrace.errors import HeadraceError, NotRunning, UsageError

if TYPE_CHECKING:
    from headrace.cli.api import Api, ServerEvent

app = typer.Typer(name="view", help="The live tables: what they hold, and how they change.", no_args_is_help=True)
ViewArgument = Annotated[str, typer.Argument(metavar="VIEW", help="A table's name, in any case.")]


@app.command("list", epilog="Example:  headrace view list")
def list_views(
    project: ProjectOption = None, url: UrlOption = None, key: KeyOption = None, as_json: JsonOption = False
) -> None:
    """All views."""
    with open_api(project, url, key) as api:
        body = api.get("/v1/views")
    if as_json:
        print_json(body)
        return
    print_table(
        ["view", "version", "rows", "lag", "changes/s", "written by"],
        [[v["name"], v["version"], v["rows"], v["lag"], round(v["rate"]), v["query_id"]] for v in body["views"]],
        empty="no views; CREATE TABLE … AS SELECT makes one",
    )


@app.command("get", epilog="Example:  headrace view get views_by_page pageid=/home")
def get_view(
    view: ViewArgument,
    where: Annotated[
        list[str] | None, typer.Argument(metavar="[COLUMN=VALUE]…", help="Only rows with these values.")
    ] = None,
    limit: Annotated[int, typer.Option(help="At most this many rows.", min=1)] = 100,
    order: Annotated[
        str | None, typer.Option(help="A column; with `-` before it, descending.", metavar="COLUMN")
    ] = None,
    project: ProjectOption = None,
    url: UrlOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """The rows of a view, now."""
    with open_api(project, url, key) as api:
        given = columns_given(dict(map(condition, where or ())), "limit", "order")
        body = api.get_exactly(f"{view_path(view)}/rows", limit=limit, order=order, **given)
    if as_json:
        print_json(body)
        return
    print_rows(body["columns"], body["rows"])
    if body.get("truncated"):
        print(f"… only the first {len(body['rows']):,}; --limit gives more")


@app.command("show", epilog="Example:  headrace view show views_by_page")
def show_view(
    view: ViewArgument,
    project: ProjectOption = None,
    url: UrlOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """A view's versions: which serves, which are built or kept."""
    with open_api(project, url, key) as api:
        body = api.get(f"{view_path(view)}/versions")
    if as_json:
        print_json(body)
        return
    print_table(
        ["version", "state", "since", "kept until", "rows", "lag", "query", "deployment"],
        [
            [
                v["version"],
                v["state"],
                local_time(v["since_ms"] or None),
                local_time(v["kept_until_ms"]),
                v["rows"],
                v["lag"],
                v["query_id"],
                v["deployment"] or None,
            ]
            for v in body["versions"]
        ],
    )
    for version in body["versions"]:
        if version["layers"] is not None:
            print(f"\nversion {version['version']}: {layers_line(version['layers'], time.time() * 1000)}")
            print("who reads its topic by name does not get its rows: layers are merged where the view is read")
    for version in body["versions"]:
        if version["state"] == "serving":
            print(f"\n{version['statement']}")


def layers_line(layers: dict[str, Any], now_ms: float) -> str:
    """
    >>> made = {"cut": 40, "batch_rows": 1200, "made_ms": 1000, "refresh_ms": 3_600_000, "speed_query": "CTAS_A_2"}
    >>> layers_line(made, 91_000)
    'a batch layer of 1,200 rows up to arrival 40, 2 minutes old, refreshed every 1.0 hours; then CTAS_A_2'
    """
    place = place_text(layers["cut"], layers.get("inputs", {}))
    if layers["made_ms"] is None:
        return f"its batch layer, up to {place}, is being computed by {layers['batch_query']}"
    age = duration(max(0.0, now_ms - layers["made_ms"]) / 1000)
    every = f", refreshed every {duration(layers['refresh_ms'] / 1000)}" if layers["refresh_ms"] else ""
    rows = f"a batch layer of {layers['batch_rows']:,} rows up to {place}"
    return f"{rows}, {age} old{every}; then {layers['speed_query']}"


@app.command("refresh", epilog="Example:  headrace view refresh views_by_page")
def refresh_view(
    view: ViewArgument,
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Start it and return.")] = False,
    project: ProjectOption = None,
    url: UrlOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compute the batch layer of a Lambda view again, up to now; both layers take over in one step."""
    with open_api(project, url, key) as api:
        started = api.post(f"{view_path(view)}/refresh", {"who": who()})
        finish(api, started if detach else follow(api, started, as_json), as_json)


@app.command("rebuild", epilog="Example:  headrace view rebuild views_by_page")
def rebuild_views(
    views: Annotated[
        list[str] | None,
        typer.Argument(metavar="[VIEW]…", help="Tables or streams; by default those whose queries have failed."),
    ] = None,
    accept_loss: Annotated[
        bool, typer.Option("--accept-loss", help="Compute from what is left where the log no longer holds everything.")
    ] = False,
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Start it and return.")] = False,
    project: ProjectOption = None,
    url: UrlOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compute views again from the log, as they are defined; what they show now is served until then."""
    with open_api(project, url, key) as api:
        wanted = {"names": views or [], "accept_loss": accept_loss, "who": who()}
        started = api.post("/v1/rebuild", wanted)
        finish(api, started if detach else follow(api, started, as_json), as_json)


@app.command("rollback", epilog="Example:  headrace view rollback views_by_page")
def roll_back(
    view: ViewArgument,
    project: ProjectOption = None,
    url: UrlOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Let the version before serve again, and with it all that was deployed together. At once."""
    with open_api(project, url, key) as api:
        body = api.post(f"{view_path(view)}/rollback")
    if as_json:
        print_json(body)
    else:
        back = ", ".join(f"{item['name']} {item['before'] or 'gone'}" for item in body["items"])
        print(f"deployment {body['id']} is rolled back; these serve: {back}")
        print("the files still say otherwise:  headrace plan")
        print(f"undo:  headrace deploy restore {body['id']} --approve")


@app.command("forget", epilog="Example:  headrace view forget views_by_page")
def forget_versions(
    view: ViewArgument,
    project: ProjectOption = None,
    url: UrlOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Give up the versions kept for a rollback, and what they cost."""
    with open_api(project, url, key) as api:
        body = api.post(f"{view_path(view)}/forget")
    if as_json:
        print_json(body)
    else:
        left = ", ".join(f"{v['version']} ({v['state']})" for v in body["versions"])
        print(f"versions of {body['name']} there are: {left or 'none'}")


@app.command("watch", epilog="Example:  headrace view watch views_by_page --snapshot")
def watch_view(
    view: ViewArgument,
    snapshot: Annotated[bool, typer.Option("--snapshot", help="First the rows as they are.")] = False,
    limit: Annotated[int | None, typer.Option(help="Stop after this many changes.", min=1)] = None,
    project: ProjectOption = None,
    url: UrlOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """The changes of a view as they happen, until Ctrl-C. Goes on without a gap when the server comes back."""
    with open_api(project, url, key) as api:
        seen = 0
        try:
            for event in changes(api, view, snapshot):
                print_change(event, as_json)
                seen += 1
                if seen == limit:
                    return
        except KeyboardInterrupt:
            return


def changes(api: Api, view: str, snapshot: bool) -> Iterator[ServerEvent]:
    """The feed, continued from the last event's id when the connection breaks."""
    last: str | None = None
    broken_since: float | None = None
    while True:
        first = "true" if snapshot and last is None else None
        try:
            feed = f"{view_path(view)}/feed"
            for event in api.stream("GET", feed, exact=True, snapshot=first, last_event_id=last):
                broken_since = None
                if event.event == "change":
                    last = event.id or last
                    yield event
        except HeadraceError as error:
            never_there = isinstance(error, NotRunning) and broken_since is None and last is None
            if never_there or not is_away(error):
                raise
        broken_since = broken_since or time.monotonic()
        if time.monotonic() - broken_since > AWAY_S:
            raise NotRunning(f"the server has not come back for {AWAY_S:.0f} s")
        time.sleep(0.3)


def print_change(event: ServerEvent, as_json: bool) -> None:
    data: dict[str, Any] = event.data
    if as_json:
        print_json({"id": event.id} | data)
        return
    window = data.get("window")
    since = f"  [{local_time(window['start'])} …]" if window else ""
    key = ", ".join(data_text(value) for value in data["key"].values())
    value = data["value"]
    shown = "deleted" if value is None else "  ".join(f"{name}={data_text(item)}" for name, item in value.items())
    print(f"{local_time(data['time_ms'])}  {key}{since}  {shown}", flush=True)


def condition(text: str) -> tuple[str, str]:
    column, equals, value = text.partition("=")
    if not equals or not column:
        raise UsageError(f"`{text}` is not COLUMN=VALUE", hint="such as pageid=/home")
    return column, value

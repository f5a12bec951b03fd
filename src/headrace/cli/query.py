"""`headrace query`: the queries that run."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from headrace.cli.options import JsonOption, KeyOption, ProjectOption, UrlOption, open_api
from headrace.cli.output import bytes_text, local_time, print_json, print_pairs, print_table

app = typer.Typer(name="query", help="The queries that run: how they are, stopping and starting.", no_args_is_help=True)
IdArgument = Annotated[str, typer.Argument(metavar="ID", help="A query's id, as `query list` shows it.")]


@app.command("list", epilog="Example:  headrace query list")
def list_queries(
    project: ProjectOption = None, url: UrlOption = None, key: KeyOption = None, as_json: JsonOption = False
) -> None:
    """All queries, with state and lag."""
    with open_api(project, url, key) as api:
        body = api.get("/v1/queries")
    if as_json:
        print_json(body)
        return
    rows = _rows(body["queries"][0]) if body["queries"] else "rows"
    print_table(
        ["id", "writes", "reads", "state", "lag", f"{rows}/s", rows, "late"],
        [
            [
                q["id"],
                sink_of(q),
                ", ".join(q["sources"]),
                state_of(q),
                q["lag"],
                round(q["rows_per_second"]),
                q["rows"],
                q["late_rows"],
            ]
            for q in body["queries"]
        ],
        empty="no queries; CREATE TABLE … AS SELECT makes one",
    )


@app.command("show", epilog="Example:  headrace query show CTAS_VIEWS_BY_PAGE_2")
def show_query(
    query_id: IdArgument,
    spark_plan: Annotated[bool, typer.Option("--spark-plan", help="Also how Spark runs it.")] = False,
    project: ProjectOption = None,
    url: UrlOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """One query: progress, lag, last error, plan."""
    with open_api(project, url, key) as api:
        body = api.get(f"/v1/queries/{query_id}")
    if as_json:
        print_json(body)
    else:
        _print_query(body, spark_plan)


@app.command("stop", epilog="Example:  headrace query stop CTAS_VIEWS_BY_PAGE_2")
def stop_query(
    query_id: IdArgument,
    project: ProjectOption = None,
    url: UrlOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Stop a query after its batch. Its state stays; `query start` goes on from there."""
    _change(query_id, "stop", project, url, key, as_json)


@app.command("start", epilog="Example:  headrace query start CTAS_VIEWS_BY_PAGE_2")
def start_query(
    query_id: IdArgument,
    project: ProjectOption = None,
    url: UrlOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Start a stopped query where it was."""
    _change(query_id, "start", project, url, key, as_json)


def _change(query_id: str, action: str, project: Any, url: str | None, key: str | None, as_json: bool) -> None:
    with open_api(project, url, key) as api:
        body = api.post(f"/v1/queries/{query_id}/{action}")
    if as_json:
        print_json(body)
    else:
        print(f"{query_id} is to be {body['wanted']}; it is {body['state']}")


def _rows(query: dict[str, Any]) -> str:
    """What its numbers count."""
    return "offsets" if query["counts"] == "offsets" else "rows"


def sink_of(query: dict[str, Any]) -> str:
    """
    >>> sink_of({"sink": "a", "version": 2, "version_state": "building"})
    'a (version 2, building)'
    >>> sink_of({"sink": "a", "version": 2, "version_state": "serving"})
    'a'
    """
    serves = query["version_state"] == "serving"
    return str(query["sink"]) if serves else f"{query['sink']} (version {query['version']}, {query['version_state']})"


def state_of(query: dict[str, Any]) -> str:
    error = query.get("last_error")
    trouble = error and query["state"] in ("failed", "restarting", "stalled")
    return f"{query['state']}: {error['message']}" if error and trouble else str(query["state"])


def _error_text(error: dict[str, Any]) -> str:
    recovered = f"; recovered {local_time(error['recovered_ms'])}" if error.get("recovered_ms") else ""
    return f"{error['message']}  ({local_time(error['time_ms'])}{recovered})"


def _print_query(query: dict[str, Any], spark_plan: bool) -> None:
    error = query["last_error"]
    print_pairs(
        [
            ("id", query["id"]),
            ("writes", f"{query['sink']}, version {query['version']}, {query['version_state']}"),
            ("reads", ", ".join(query["sources"])),
            ("state", f"{query['state']} (wanted: {query['wanted']}, {query['restarts']} restarts)"),
            ("batch", f"{query['batch']:,}  ({query['batch_ms']:,} ms)"),
            (_rows(query), f"{query['rows']:,} in, {query['changed_rows']:,} out  ({query['rows_per_second']:,.0f}/s)"),
            ("lag", query["lag"]),
            ("stream time", local_time(query["stream_time_ms"])),
            ("late rows", query["late_rows"]),
            ("state kept", f"{query['state_rows']:,} rows, {bytes_text(query['state_bytes'])}"),
            ("last error", _error_text(error) if error else "none"),
        ]
    )
    print(f"\n{query['statement']}")
    for text in (query.get("plan"), query.get("spark_plan") if spark_plan else None):
        if text:
            print(f"\n{text}")

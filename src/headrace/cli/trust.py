"""`headrace view why`: where a number comes from."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Annotated, Any

import typer

from headrace.cli.options import JsonOption, KeyOption, ProjectOption, UrlOption, open_api
from headrace.cli.output import cell, local_time, print_json
from headrace.errors import UsageError

ViewArgument = Annotated[str, typer.Argument(metavar="VIEW", help="A table's name, in any case.")]
WindowArgument = Annotated[
    str | None,
    typer.Argument(metavar="[WINDOW]", help="When the window begins, or a moment in it; the newest by default."),
]


def register(app: typer.Typer) -> None:
    app.command("why", epilog='Example:  headrace view why views_per_minute /pricing "2026-11-15 13:59"')(why)


def why(
    view: ViewArgument,
    key: Annotated[str, typer.Argument(metavar="KEY", help="The row's key; of several columns a JSON array.")],
    window: WindowArgument = None,
    records: Annotated[int, typer.Option(help="How many of the records to list.", min=0, max=1000)] = 0,
    skip: Annotated[int, typer.Option(help="How many to leave out before those.", min=0)] = 0,
    order: Annotated[str, typer.Option(help="newest, oldest or largest first.")] = "newest",
    version: Annotated[int | None, typer.Option(help="Of the view; the one that serves by default.")] = None,
    project: ProjectOption = None,
    url: UrlOption = None,
    api_key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """The records that made a row, and the row computed again from them. Exits with 1 if both differ."""
    with open_api(project, url, api_key) as api:
        columns = [column["name"] for column in api.get(f"/v1/views/{view}")["columns"] if column["key"]]
        body = api.get(
            f"/v1/views/{view}/why",
            window=None if window is None else parse_moment(window),
            version=version,
            limit=records,
            skip=skip,
            order=order,
            **key_columns(columns, key),
        )
    if as_json:
        print_json(body)
    else:
        print_why(body)
    if body["verdict"] == "different":
        raise typer.Exit(1)


def key_columns(columns: list[str], text: str) -> dict[str, str]:
    """
    >>> key_columns(["a", "b"], '["x", 1]')
    {'a': 'x', 'b': '1'}
    """
    if len(columns) == 1:
        return {columns[0]: text}
    try:
        parts = json.loads(text)
    except ValueError:
        parts = None
    if not isinstance(parts, list) or len(parts) != len(columns):
        raise UsageError(
            f"the key has {len(columns)} columns, got `{text}`",
            hint=f"as a JSON array:  '{json.dumps([f'<{name}>' for name in columns])}'",
        )
    return {
        name: part if isinstance(part, str) else json.dumps(part) for name, part in zip(columns, parts, strict=True)
    }


def parse_moment(text: str) -> int | str:
    """In the user's zone, unless it names one."""
    if text.isdecimal():
        return int(text)
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"`{text}` is not a time", hint='such as "2026-11-15 13:59"') from None
    return int(found.astimezone().timestamp() * 1000)


def print_why(body: dict[str, Any]) -> None:
    window = body["window"]
    print(
        f"{body['view']} {cell(', '.join(cell(v) for v in body['key'].values()))}"
        + (f"  {local_time(window['start_ms'])} to {local_time(window['end_ms'])}" if window else "")
    )
    shown = "no row" if body["row"] is None else _row(body["row"])
    print(f"  {shown}          version {body['version']}, through arrival {body['through']['arrival']:,}")
    _print_records(body)
    _print_late(body)
    for letter in body["dead"][-3:]:
        print(f"  dead        a letter would have belonged here: {letter['reason']}   {letter['text'][:80]}")
    if body["dead_total"] > 3:
        print(f"              and {body['dead_total'] - 3} more; headrace dlq list shows them")
    _print_verdict(body)


def _row(row: dict[str, Any]) -> str:
    return "   ".join(f"{name} = {cell(value)}" for name, value in row.items())


def _print_records(body: dict[str, Any]) -> None:
    first, last = body["first"], body["last"]
    if first is None:
        print("  made of     no records")
        return
    ends = f"first {_place(first)}   last {_place(last)}" if body["records"] > 1 else _place(first)
    hint = "   (--records 20 lists them)" if not body["page"] else ""
    print(f"  made of     {_count(body['records'], 'record')}   {ends}{hint}")
    for record in body["page"]:
        _print_record(record, "    ")


def _print_record(record: dict[str, Any], indent: str) -> None:
    print(f"{indent}{record['topic']} {_place(record)}  {_row(record['value'])}")
    below = record.get("below")
    if below is not None:
        said = "gives the same again" if below["same"] else "DOES NOT GIVE THE SAME AGAIN"
        print(f"{indent}  by {below['query_id']} from {_count(below['records'], 'record')}: {said}")
        for one in below["newest"]:
            _print_record(one, indent + "    ")


def _print_late(body: dict[str, Any]) -> None:
    if not body["late_total"]:
        return
    by = [entry["late_by_ms"] / 1000 for entry in body["late"]]
    print(
        f"  late        {_count(body['late_total'], 'record')} arrived {min(by):g} to {max(by):g} s after the window "
        f"closed: not counted (repair:  headrace view repair {body['view']})"
    )


def _print_verdict(body: dict[str, Any]) -> None:
    took = f"{body['looked_at']:,} records looked at, {body['took_ms'] / 1000:.2f} s"
    match body["verdict"]:
        case "equal":
            print(f"  recomputed from the log just now: the same ✓   ({took})")
        case "unknown":
            gone = ", ".join(body["missing"])
            print(f"  cannot be computed again: retention has removed records of {gone}   ({took})")
        case _:
            again = "no row" if body["recomputed"] is None else _row(body["recomputed"])
            print(f"  RECOMPUTED FROM THE LOG JUST NOW: {again}")
            print(f"  THIS IS NOT WHAT IS SERVED: {', '.join(body['differs'])}   ({took})")


def _place(record: dict[str, Any]) -> str:
    return f"{record['partition']}:{record['offset']}  {local_time(record['time_ms'])}"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"

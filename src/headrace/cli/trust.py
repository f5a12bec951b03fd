"""`headrace view why`, `repair` and `check`: where a number comes from, and whether it is right."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Annotated, Any

import typer

from headrace.cli.care_jobs import check_outcome, follow_job, say_cancelled
from headrace.cli.options import JsonOption, KeyOption, ProjectOption, UrlOption, columns_given, open_api, view_path
from headrace.cli.output import data_text, local_time, place_text, print_json
from headrace.errors import UsageError

ViewArgument = Annotated[str, typer.Argument(metavar="VIEW", help="A table's name, in any case.")]
CancelOption = Annotated[bool, typer.Option("--cancel", help="Stop the one that is under way; what was done stays.")]
WindowArgument = Annotated[
    str | None,
    typer.Argument(metavar="[WINDOW]", help="When the window begins, or a moment in it; the newest by default."),
]


def register(app: typer.Typer) -> None:
    app.command("why", epilog='Example:  headrace view why views_per_minute /pricing "2026-11-15 13:59"')(why)
    app.command("repair", epilog="Example:  headrace view repair views_per_minute --dry-run")(repair)
    app.command("check", epilog="Example:  headrace view check views_per_minute --rows 500")(check)


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
    with open_api(project, url, api_key, timeout=120.0) as api:
        columns = [column["name"] for column in api.get(view_path(view))["columns"] if column["key"]]
        job = api.post_exactly(
            f"{view_path(view)}/why",
            None,
            window=None if window is None else parse_moment(window),
            version=version,
            limit=records,
            skip=skip,
            order=order,
            **columns_given(key_columns(columns, key), "window", "version", "limit", "skip", "order"),
        )
        job = follow_job(api, job)
        check_outcome(job)
        body = job["why"]
    if as_json:
        print_json(body)
    else:
        print_why(body)
    if body["verdict"] == "different":
        raise typer.Exit(1)


def repair(
    view: ViewArgument,
    window: Annotated[str | None, typer.Option(help="Only windows that contain this moment.")] = None,
    start: Annotated[str | None, typer.Option("--from", help="Only windows that end at or after this.")] = None,
    end: Annotated[str | None, typer.Option("--to", help="Only windows that begin at or before this.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would change, and change nothing.")] = False,
    cancel: CancelOption = False,
    project: ProjectOption = None,
    url: UrlOption = None,
    api_key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compute closed windows again with what came too late for them. It runs in the server, also when Ctrl-C ends this
    command: the same command then follows it again."""
    body = {
        "start": _moment_text(start or window),
        "end": _moment_text(end or window),
        "dry_run": dry_run,
        "job": True,
    }
    with open_api(project, url, api_key) as api:
        if cancel:
            say_cancelled(api, view, "repair")
            return
        job = follow_job(api, api.post_exactly(f"{view_path(view)}/repair", body))
    done = job.get("repair")
    if done is not None:
        _print_repaired(done, dry_run, as_json)
    check_outcome(job)


def _print_repaired(done: dict[str, Any], dry_run: bool, as_json: bool) -> None:
    if as_json:
        print_json(done)
        return
    for one in done["revisions"]:
        key = ", ".join(data_text(value) for value in one["key"].values())
        print(f"  {local_time(one['window']['start_ms'])}  {key}   {_or_none(one['old'])}  →  {_or_none(one['new'])}")
    verb = "would be revised" if dry_run else "revised"
    late, windows = _count(done["late"], "late record"), _count(done["windows"], "window")
    print(f"{_count(done['revised'], 'row')} {verb}: {late} in {windows}")
    if done["waiting"]:
        print(f"{done['waiting']} not closed yet: repair again later")
    if done["missing"]:
        print(f"some could not be computed: retention has removed records of {', '.join(done['missing'])}")


def check(
    view: ViewArgument,
    rows: Annotated[int, typer.Option(help="How many rows to compute again.", min=1, max=1_000_000)] = 50,
    cancel: CancelOption = False,
    project: ProjectOption = None,
    url: UrlOption = None,
    api_key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compute some rows again from the log and compare. Exits with 1 if a row differs, or none could be computed. It
    runs in the server, also when Ctrl-C ends this command: the same command then follows it again."""
    with open_api(project, url, api_key) as api:
        if cancel:
            say_cancelled(api, view, "check")
            return
        job = follow_job(api, api.post_exactly(f"{view_path(view)}/check", None, rows=rows, job="true"))
    check_outcome(job)
    body = job["check"]
    if as_json:
        print_json(body)
    else:
        for one in body["drift"]:
            key = ", ".join(data_text(value) for value in one["key"].values())
            since = f"{local_time(one['window']['start_ms'])}  " if one["window"] else ""
            print(f"  {since}{key}   served {_or_none(one['served'])}   the log says {_or_none(one['recomputed'])}")
        print(checked_text(body))
    if body["drifted"] or nothing_checked(body):
        raise typer.Exit(1)


def nothing_checked(body: dict[str, Any]) -> bool:
    """There was something to look at, and none of it could be computed again."""
    return body["skipped"] > 0 and not body["rows"]


def checked_text(body: dict[str, Any]) -> str:
    """
    >>> checked_text({"rows": 50, "skipped": 1, "drifted": 0})
    '50 rows checked so far, 1 check given up: all as the log says ✓'
    >>> checked_text({"rows": 0, "skipped": 2, "drifted": 0})
    'no row could be checked, 2 checks given up: too much to read in the time allowed, or gone from the log'
    """
    skipped = f", {_count(body['skipped'], 'check')} given up" if body["skipped"] else ""
    if nothing_checked(body):
        return f"no row could be checked{skipped}: too much to read in the time allowed, or gone from the log"
    said = "all as the log says ✓" if not body["drifted"] else f"{_count(body['drifted'], 'row')} DIFFER"
    return f"{_count(body['rows'], 'row')} checked so far{skipped}: {said}"


def _moment_text(text: str | None) -> str | None:
    return None if text is None else str(parse_moment(text))


def _or_none(row: dict[str, Any] | None) -> str:
    return "no row" if row is None else _row(row)


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
        f"{body['view']} {data_text(', '.join(data_text(v) for v in body['key'].values()))}"
        + (f"  {local_time(window['start_ms'])} to {local_time(window['end_ms'])}" if window else "")
    )
    shown = "no row" if body["row"] is None else _row(body["row"])
    through = place_text(body["through"]["arrival"], body["through"]["inputs"])
    print(f"  {shown}          version {body['version']}, through {through}")
    if body["unread"]:
        unread = ", ".join(f"{_count(records, 'record')} of {topic}" for topic, records in body["unread"].items())
        print(f"  behind      {unread} yet to be read: this is how it was before them")
    _print_records(body)
    revision = body["revision"]
    if revision:
        was = _or_none(revision["old"])
        print(f"  revised     {local_time(revision['time_ms'])}, with {revision['late']} late; before: {was}")
    _print_left_out(body)
    _print_keyless(body["keyless"])
    _print_late(body)
    for letter in body["dead"][-3:]:
        print(f"  dead        a letter would have belonged here: {letter['reason']}   {letter['text'][:80]}")
    if body["dead_total"] > 3:
        print(f"              and {body['dead_total'] - 3} more; headrace dlq list shows them")
    _print_verdict(body)


def _row(row: dict[str, Any]) -> str:
    return "   ".join(f"{name} = {data_text(value)}" for name, value in row.items())


def _print_records(body: dict[str, Any]) -> None:
    first, last = body["first"], body["last"]
    if first is None:
        print(f"  made of     no records{' that were read so far' if body['unread'] else ''}")
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


def _print_left_out(body: dict[str, Any]) -> None:
    found = body["left_out"]
    if not found:
        return
    how_many = _count(body["left_out_total"], "record")
    print(f"  left out    {how_many} by WHERE {body['condition']}   newest {_place(found[0])}")
    for record in found[: len(body["page"]) or 1]:
        _print_record(record, "    ")


def _print_keyless(found: dict[str, Any] | None) -> None:
    if found is None:
        return
    who = "a GROUP BY counts none without it" if found["grouped"] else "no table has a row without it"
    newest = f"   newest {_place(found['newest'])}" if found["newest"] else ""
    print(
        f"  no key      {_count(found['records'], 'record')} without `{'`, `'.join(found['columns'])}`: {who}{newest}"
    )


def _print_late(body: dict[str, Any]) -> None:
    if not body["late_total"]:
        return
    by = [entry["late_by_ms"] / 1000 for entry in body["late"]]
    span = f"{min(by):g} to {max(by):g} s" if min(by) < max(by) else f"{max(by):g} s"
    print(
        f"  late        {_count(body['late_total'], 'record')} arrived {span} after the window "
        f"closed: not counted (repair:  headrace view repair {body['view']})"
    )


def _print_verdict(body: dict[str, Any]) -> None:
    took = f"{body['looked_at']:,} records looked at, {body['took_ms'] / 1000:.2f} s"
    match body["verdict"]:
        case "equal" if body["expired"]:
            print(f"  expired: it was {_or_none(body['recomputed'])}, and its view keeps no row that long   ({took})")
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

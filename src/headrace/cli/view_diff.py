"""`headrace view diff`: how versions of a view differ: as a deployment found, or any two of them as they are now."""

from __future__ import annotations

import sys
import time
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.deployment import ProgressLine, print_comparison, print_samples, row_text
from headrace.cli.options import JsonOption, KeyOption, ProjectOption, UrlOption, open_api, view_path
from headrace.cli.output import data_text, local_time, place_text, print_json, print_table
from headrace.cli.trust import ViewArgument, parse_moment
from headrace.cli.view import condition
from headrace.errors import UsageError, error_from_json

if TYPE_CHECKING:
    from headrace.cli.api import Api

POLL_S = 0.2
ENDINGS = {".csv": "csv", ".parquet": "parquet", ".json": "json"}


class Kind(StrEnum):
    changed = "changed"
    only_old = "only_old"
    only_new = "only_new"


KINDS = {"changed": "changed", "only_old": "only before", "only_new": "only now"}


def register(app: typer.Typer) -> None:
    app.command("diff", epilog="Example:  headrace view diff views_by_page --versions 1 2 --kind changed")(diff)


def diff(
    view: ViewArgument,
    where: Annotated[
        list[str] | None, typer.Argument(metavar="[COLUMN=VALUE]…", help="Only rows whose key has these values.")
    ] = None,
    versions: Annotated[
        tuple[int, int] | None, typer.Option(help="Compare these two, as they are now.", metavar="OLD NEW")
    ] = None,
    now: Annotated[
        bool, typer.Option("--now", help="Compare what serves with what did before it, or is to, as they are now.")
    ] = False,
    kind: Annotated[list[Kind] | None, typer.Option(help="Only rows of this kind; may be repeated.")] = None,
    prefix: Annotated[
        str | None, typer.Option(help="Only rows whose key, in its first column not given, begins so.", metavar="TEXT")
    ] = None,
    window: Annotated[str | None, typer.Option(help="Only windows that contain this moment.")] = None,
    start: Annotated[str | None, typer.Option("--from", help="Only windows that end at or after this.")] = None,
    end: Annotated[str | None, typer.Option("--to", help="Only windows that begin at or before this.")] = None,
    column: Annotated[str | None, typer.Option(help="Only rows in which this column changed.")] = None,
    min_delta: Annotated[
        float | None, typer.Option(help="Only rows in which a number, or that of --column, changed by this.", min=0)
    ] = None,
    limit: Annotated[int, typer.Option(help="How many rows to show.", min=1, max=1000)] = 50,
    after: Annotated[int | None, typer.Option(help="Go on after these, as the page before says.", min=0)] = None,
    difference: Annotated[
        int | None, typer.Option(help="Look at a comparison that was made before.", metavar="NUMBER")
    ] = None,
    export: Annotated[
        Path | None, typer.Option(help="Write all rows that differ into a .csv, .parquet or .json.", metavar="FILE")
    ] = None,
    project: ProjectOption = None,
    url: UrlOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """How the versions of a view differed, at the same records, when they were last compared; or, with --now,
    --versions or a filter, how any two that are kept differ now, row by row."""
    filters = {
        "kind": ",".join(kind) if kind else None,
        "prefix": prefix,
        "window": _moment(window),
        "from": _moment(start),
        "to": _moment(end),
        "column": column,
        "min_delta": min_delta,
        **{f"key.{name}": value for name, value in map(condition, where or ())},
    }
    ending = None if export is None else _ending(export)
    wanted = now or any(one is not None for one in (versions, after, difference, export, *filters.values()))
    with open_api(project, url, key) as api:
        if not wanted:
            _print_last(api, view, as_json)
            return
        made = _made(api, view, versions, difference, as_json)
        path = f"{view_path(view)}/diff/{made['id']}"
        if export is not None:
            size = _export(api, f"{path}/export", export, {"format": ending, **filters})
            found = {"difference": made, "file": str(export), "bytes": size}
        else:
            page = {"limit": limit, "after": after or 0}
            found = {"difference": made, **api.get_exactly(f"{path}/rows", **filters, **page)}
    if as_json:
        print_json(found)
    elif export is not None:
        print_comparison(made["comparison"])
        print(f"{size:,} bytes in {export}")
    else:
        _print_rows(view, found)


def _print_last(api: Api, view: str, as_json: bool) -> None:
    body = api.get_exactly(f"{view_path(view)}/diff")
    found = body["comparison"]
    if as_json:
        print_json(body)
    elif found is None:
        print(f"its versions were never compared; compare them:  headrace view diff {view} --now")
    else:
        print(f"deployment {body['deployment']}:")
        print_comparison(found)
        if found["samples"]:
            print()
            print_samples(found)
        if len(found["samples"]) < found["changed"] + found["only_old"] + found["only_new"]:
            print(f"… only some of them; all, as they are now:  headrace view diff {view} --now")


def _made(
    api: Api, view: str, versions: tuple[int, int] | None, difference: int | None, as_json: bool
) -> dict[str, Any]:
    """A comparison that is done: a new one, or one of before."""
    shown, path = ProgressLine(quiet=as_json), f"{view_path(view)}/diff"
    if difference is None:
        body = {} if versions is None else {"old": versions[0], "new": versions[1]}
        found = api.post_exactly(path, body)
    else:
        found = api.get_exactly(f"{path}/{difference}")
    try:
        while found["state"] in ("waiting", "comparing"):
            so_far = f", {found['found']:,} rows differ so far" if found["found"] else ""
            shown.show(f"{found['view']}: version {found['old']} → {found['new']} is {found['state']}{so_far}")
            time.sleep(POLL_S)
            found = api.get_exactly(f"{path}/{found['id']}")
    except KeyboardInterrupt:
        # It changes nothing, so there is nothing to go on with.
        api.post(f"{path}/{found['id']}/cancel")
        shown.clear()
        print("^C the comparison was cancelled", file=sys.stderr)
        raise
    finally:
        shown.clear()
    if found["error"] is not None:
        raise error_from_json(found["error"])
    return found


def _export(api: Api, path: str, file: Path, query: dict[str, Any]) -> int:
    from headrace.cli.export_files import whole_file

    with whole_file(file) as new, new.open("wb") as stream:
        return api.download(path, stream, **query)


def _print_rows(view: str, found: dict[str, Any]) -> None:
    made, rows = found["difference"], found["rows"]
    comparison = made["comparison"]
    print_comparison(comparison)
    print(f"    at the same records: before {place_text(comparison['cut'], comparison['inputs'])}")
    if comparison["changed"] + comparison["only_old"] + comparison["only_new"] == 0:
        return
    print()
    windowed = made["windowed"]
    print_table(
        ["key", *["window"] * windowed, "what", f"version {made['old']}", f"version {made['new']}", "by"],
        [
            [
                ", ".join(data_text(value) for value in row["key"].values()),
                *[local_time((row["window"] or {}).get("start"))] * windowed,
                KINDS[row["kind"]],
                row_text(row["old"]),
                row_text(row["new"]),
                _deltas_text(row["deltas"]),
            ]
            for row in rows
        ],
        empty="no row that differs is like that",
    )
    if found["next"] is not None:
        more = f"headrace view diff {view} --difference {made['id']} --after {found['next']}"
        print(f"{found['matching']:,} in all, {len(rows):,} shown; more, with the same filters:  {more}")


def _deltas_text(deltas: dict[str, Any]) -> str:
    """
    >>> _deltas_text({"n": 3.0, "name": None, "total": -0.5})
    'n +3  total -0.5'
    """
    return "  ".join(f"{name} {float(by):+,g}" for name, by in deltas.items() if by is not None)


def _ending(file: Path) -> str:
    if file.suffix not in ENDINGS:
        raise UsageError(f"`{file}` is none of {', '.join(ENDINGS)}", hint="the file's ending says its format")
    if file.is_dir():
        raise UsageError(f"`{file}` is a folder")
    return ENDINGS[file.suffix]


def _moment(text: str | None) -> int | str | None:
    return None if text is None else parse_moment(text)

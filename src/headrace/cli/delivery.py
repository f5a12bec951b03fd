"""`headrace delivery`: Firehose's delivery streams."""

from __future__ import annotations

from typing import Any

import typer

from headrace.cli.options import JsonOption, KeyOption, ProjectOption, UrlOption, open_api
from headrace.cli.output import bytes_text, local_time, print_json, print_table

app = typer.Typer(
    name="delivery", help="Delivery streams, which Firehose's clients make: how they are.", no_args_is_help=True
)


@app.callback()
def delivery() -> None:
    """Delivery streams, which Firehose's clients make, deliver records as files or into a topic."""


@app.command("list", epilog="Example:  headrace delivery list")
def list_deliveries(
    project: ProjectOption = None, url: UrlOption = None, key: KeyOption = None, as_json: JsonOption = False
) -> None:
    """Delivery streams: how they are, what waits for its file, and the last one."""
    with open_api(project, url, key) as api:
        body = api.get("/v1/deliveries")
    if as_json:
        print_json(body)
        return
    print_table(
        ["delivery", "from", "to", "state", "records", "rejected", "lag", "buffered", "files", "last file"],
        [_row(one) for one in body["deliveries"]],
        empty="no delivery streams; make one with an AWS client:  docs/howto/firehose.md",
    )
    for one in body["deliveries"]:
        if one["status"]["error"]:
            print(f"{one['status']['name']}: {one['status']['error']}")


def _row(one: dict[str, Any]) -> list[Any]:
    status = one["status"]
    source = status["source"] or "puts"
    buffered = f"{status['buffered']:,}, {bytes_text(status['buffered_bytes'])}" if status["buffered"] else ""
    last = local_time(status["last_file_ms"]) if status["last_file_ms"] else ""
    return [
        *(status["name"], source, status["to"], status["state"], status["records"], status["rejected"]),
        *(one["lag"], buffered, status["files"], last),
    ]

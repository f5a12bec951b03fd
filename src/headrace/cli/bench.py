"""`headrace bench`: the repository's benchmarks in a clone; elsewhere, how fast the running server takes events."""

from __future__ import annotations

import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import headrace
from headrace.cli.options import JsonOption, KeyOption, ProjectOption, UrlOption, open_api
from headrace.cli.output import print_json, print_table
from headrace.errors import Overloaded, UsageError

if TYPE_CHECKING:
    from headrace.cli.api import Api

TOPIC = "headrace_bench"
COLUMNS = "userid VARCHAR KEY, pageid VARCHAR, n BIGINT"
BATCHES = (1, 100, 1000)


def register(app: typer.Typer) -> None:
    app.command(epilog="Example:  headrace bench --seconds 5")(bench)


def bench(
    areas: Annotated[list[str] | None, typer.Argument(metavar="[AREA]…", help="In a clone: which benchmarks.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="In a clone: small sizes.")] = False,
    seconds: Annotated[float, typer.Option(help="How long to measure each batch size.", min=0.1)] = 2.0,
    project: ProjectOption = None,
    url: UrlOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Measure. In a clone all of it (as `make bench`); else the running server, through its API."""
    checkout = Path(headrace.__file__).parents[2]
    if url is None and project is None and (checkout / "benchmarks" / "__main__.py").is_file():
        command = [sys.executable, "-m", "benchmarks", *(areas or []), *(["--quick"] if quick else [])]
        raise typer.Exit(subprocess.run(command, cwd=checkout).returncode)
    if areas:
        raise UsageError("areas are for a clone's benchmarks", hint="without them the running server is measured")
    with open_api(project, url, key) as api:
        measures = measure_server(api, seconds)
    if as_json:
        print_json({"measures": measures})
        return
    print_table(
        ["events a request", "events/s", "requests/s", "p50 ms", "p99 ms"],
        [
            [m["batch"], round(m["events_per_second"]), round(m["requests_per_second"]), m["p50_ms"], m["p99_ms"]]
            for m in measures
        ],
    )


def measure_server(api: Api, seconds: float) -> list[dict[str, Any]]:
    """Durable events a second over one connection, in a topic of its own that is deleted afterwards."""
    api.post("/v1/topics", {"name": TOPIC, "columns": COLUMNS})
    try:
        return [_measure(api, batch, seconds) for batch in BATCHES]
    finally:
        api.delete(f"/v1/topics/{TOPIC}")


def _measure(api: Api, batch: int, seconds: float) -> dict[str, Any]:
    run = uuid.uuid4().hex
    times: list[float] = []
    started = time.perf_counter()
    while time.perf_counter() - started < seconds:
        events = [{"userid": f"u{i % 97}", "pageid": f"/p{i % 13}", "n": i, "run": run} for i in range(batch)]
        before = time.perf_counter()
        try:
            api.post(f"/v1/topics/{TOPIC}/events", events)
        except Overloaded as error:
            time.sleep(error.retry_after)
            continue
        times.append(time.perf_counter() - before)
    took = time.perf_counter() - started
    times.sort()
    return {
        "batch": batch,
        "events_per_second": batch * len(times) / took,
        "requests_per_second": len(times) / took,
        "p50_ms": round(times[len(times) // 2] * 1000, 2),
        "p99_ms": round(times[int(len(times) * 0.99)] * 1000, 2),
    }

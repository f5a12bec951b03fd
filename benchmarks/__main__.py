"""`make bench`: every measure with its baseline, from the same run. Prints a table, keeps JSON in benchmarks/results/.

python -m benchmarks              all
python -m benchmarks log http     some
python -m benchmarks --quick      small sizes, to see that everything runs
python -m benchmarks operators --only join     of an area that takes parts, those with this in their name
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import os
import platform
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.measure import Measure

AREAS = {
    "log": "benchmarks.log_bench",
    "ids": "benchmarks.ids_bench",
    "produce": "benchmarks.produce_bench",
    "size": "benchmarks.size_bench",
    "queue": "benchmarks.queue_bench",
    "codec": "benchmarks.codec_bench",
    "kafka": "benchmarks.kafka_bench",
    "http": "benchmarks.http_bench",
    "collect": "benchmarks.collect_bench",
    "rules": "benchmarks.rules_bench",
    "subscribers": "benchmarks.subscribers_bench",
    "patterns": "benchmarks.patterns_bench",
    "protocols": "benchmarks.protocols_bench",
    "agent": "benchmarks.agent_bench",
    "listen": "benchmarks.listen_bench",
    "kinesis": "benchmarks.kinesis_bench",
    "pull": "benchmarks.pull_bench",
    "why": "benchmarks.why_bench",
    "spark": "benchmarks.spark_bench",
    "kafka_spark": "benchmarks.kafka_spark_bench",
    "process": "benchmarks.process_bench",
    "operators": "benchmarks.operator_bench",
    "views": "benchmarks.views_bench",
    "replay": "benchmarks.replay_bench",
    "system": "benchmarks.system_bench",
}
RESULTS = Path(__file__).parent / "results"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("areas", nargs="*", metavar="AREA", help=", ".join(AREAS))
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", default="", metavar="TEXT", help="parts with this in their name")
    options = parser.parse_args()
    if unknown := set(options.areas) - set(AREAS):
        parser.error(f"no area {', '.join(sorted(unknown))}; there are {', '.join(AREAS)}")
    console = Console()
    measures: list[Measure] = []
    try:
        for area in options.areas or AREAS:
            console.print(f"[bold]{area}[/bold]")
            started = time.monotonic()
            found: list[Measure] = []
            for measure in measured(area, options.quick, options.only):
                # At once, for whoever waits, and kept if the rest is interrupted.
                print("  " + "  ".join(cell for cell in measure.cells() if cell), flush=True)
                found.append(measure)
                measures.append(measure)
            console.print(table_of(found), f"  took {time.monotonic() - started:.0f} s\n")
    finally:
        if measures:
            keep(measures, options.quick)
    return 0


def measured(area: str, quick: bool, only: str) -> Iterable[Measure]:
    run = importlib.import_module(AREAS[area]).run
    parts = {"only": only} if "only" in inspect.signature(run).parameters else {}
    found: Iterable[Measure] = run(quick=quick, **parts)
    return found


def table_of(measures: list[Measure]) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in ("measure", "value", "baseline", "ratio", "aim"):
        table.add_column(heading, justify="left" if heading in ("measure", "aim") else "right")
    for measure in measures:
        table.add_row(*measure.cells())
    return table


def keep(measures: list[Measure], quick: bool) -> None:
    RESULTS.mkdir(exist_ok=True)
    stamp = time.strftime("%Y%m%d-%H%M%S")
    body: dict[str, Any] = {
        "time": stamp,
        "quick": quick,
        "machine": {"cores": os.cpu_count(), "python": platform.python_version(), "system": platform.system()},
        "measures": [measure.to_json() for measure in measures],
    }
    file = RESULTS / f"{stamp}.json"
    file.write_text(json.dumps(body, indent=2) + "\n")
    print(f"kept in {file.relative_to(Path.cwd()) if file.is_relative_to(Path.cwd()) else file}")


if __name__ == "__main__":
    sys.exit(main())

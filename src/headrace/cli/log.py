"""`headrace log`: the files the log is kept in. All of it works with a running server and without one."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from headrace.cli.options import JsonOption, ProjectOption, open_project
from headrace.cli.output import bytes_text, console, local_time, print_json, print_table
from headrace.errors import UsageError

if TYPE_CHECKING:
    from headrace.config import Project
    from headrace.log.local.client import LocalClient
    from headrace.log.local.inspect import Finding
    from headrace.log.local.log import LocalLog
    from headrace.log.local.statistics import PartitionStatistics
    from headrace.log.local.verify import Progress, Report

app = typer.Typer(name="log", help="The log's files: their state, their damage, its repair.", no_args_is_help=True)
TopicOption = Annotated[str | None, typer.Option("--topic", help="This topic only.", metavar="TOPIC")]


def local_project(folder: Path | None) -> Project:
    project = open_project(folder)
    if project.settings.log.backend != "local":
        raise UsageError(
            f"the log is kept in {project.settings.log.backend}, not in files of ours",
            hint="use that log's own tools",
        )
    return project


@contextmanager
def show_progress(what: str) -> Iterator[Progress]:
    """A bar on a terminal, nothing elsewhere."""
    target = console(stderr=True)
    if not target.is_terminal:
        yield lambda done, total: None
        return
    from rich.progress import Progress as Bars

    with Bars(console=target, transient=True) as bars:
        bar = bars.add_task(what, total=None)
        yield lambda done, total: bars.update(bar, completed=done, total=total)


@app.command(epilog="Example:  headrace log verify --topic pageviews")
def verify(topic: TopicOption = None, project: ProjectOption = None, as_json: JsonOption = False) -> None:
    """Read every frame and check it: checksums, offsets, arrival numbers, indexes, the journal. Changes nothing.
    Exit code 1 if anything is damaged."""
    report = _verify(local_project(project), topic)
    if as_json:
        print_json(asdict(report) | {"findings": msgspec.to_builtins(report.findings)})
    else:
        _print_report(report)
    if report.findings:
        raise typer.Exit(1)


def _verify(project: Project, topic: str | None) -> Report:
    from headrace.log.local.verify import verify_log

    with show_progress("reading") as progress:
        return verify_log(project.log_folder, topic, progress)


def _print_report(report: Report) -> None:
    print(
        f"{report.records:,} records in {report.frames:,} frames, {report.segments:,} segments, "
        f"{report.partitions:,} partitions: {bytes_text(report.bytes)}"
    )
    if report.set_aside:
        print(f"{report.set_aside:,} offsets are in quarantine")
    _print_findings(report.findings)
    if report.findings:
        print("\nset damage aside and rebuild indexes:  headrace log repair")
    else:
        print("nothing is damaged")


def _print_findings(findings: Sequence[Finding]) -> None:
    for finding in findings:
        partition = f", partition {finding.partition}" if finding.partition >= 0 else ""
        place = f"topic `{finding.topic}`{partition}: " if finding.topic else ""
        offsets = f", offsets {finding.first_offset} to {finding.next_offset - 1}" if finding.next_offset else ""
        print(f"{finding.kind}: {place}{finding.message}{offsets}")
        print(f"  `{finding.file}`, position {finding.position}")


@app.command(epilog="Example:  headrace log repair --yes")
def repair(
    topic: TopicOption = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Verify, then set damaged records aside and write indexes anew. Damaged bytes go to the log's quarantine folder;
    nothing is deleted. Exit code 1 if something is left."""
    from headrace.log.local.repair import repair_log

    found = local_project(project)
    report = _verify(found, topic)
    aside = sum(part.next_offset - part.first_offset for part in report.findings if part.repair == "quarantine")
    if aside and not yes:
        if as_json:
            raise UsageError(f"{aside:,} offsets would be set aside", hint="with --json nobody is asked: add --yes")
        _print_findings(report.findings)
        typer.confirm(f"set {aside:,} offsets aside? readers will pass over them", abort=True)
    repaired = []
    if report.findings:
        with _opened(project) as log:
            repaired = repair_log(log, report.findings)
    left = [one for one in repaired if not one.done]
    if as_json:
        print_json({"repaired": msgspec.to_builtins(repaired), "left": len(left)})
    else:
        for one in repaired:
            _print_findings([one.finding])
            print(f"  {'done' if one.done else 'left'}: {one.message}")
        print(f"{len(repaired) - len(left)} repaired, {len(left)} left" if repaired else "nothing is damaged")
    if left:
        raise typer.Exit(1)


@app.command(epilog="Example:  headrace log archive --seal")
def archive(
    seal: Annotated[bool, typer.Option("--seal", help="Also what is in segments that are still written to.")] = False,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Archive now what is sealed, without waiting for its time. Needs `folder` in [log.archive]."""
    found = local_project(project)
    with _opened(project) as log:
        segments = log.archive_now(seal)
    if as_json:
        print_json({"segments": segments})
    else:
        print(f"{segments:,} segments archived to `{found.data / found.settings.log.archive.folder}`")


@contextmanager
def _opened(project: Path | None) -> Iterator[LocalLog | LocalClient]:
    from headrace.clock import SystemClock
    from headrace.log.local.open import open_log

    found = local_project(project)
    log = open_log(found.log_folder, found.settings.log, SystemClock())
    try:
        yield log
    finally:
        log.close()


@app.command(epilog="Example:  headrace log split pageviews 0")
def split(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="A topic's name, in its own case.")],
    partition: Annotated[int, typer.Argument(metavar="PARTITION", help="The partition that is closed.")],
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Close a partition and open two, each for half of its keys. What it holds stays readable."""
    with _opened(project) as log:
        first, second = log.split_partition(topic, partition)
    if as_json:
        print_json({"topic": topic, "closed": [partition], "opened": [first, second]})
    else:
        print(f"partition {partition} of `{topic}` is closed; its keys go to {first} and {second}")


@app.command(epilog="Example:  headrace log merge pageviews 2 3")
def merge(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="A topic's name, in its own case.")],
    one: Annotated[int, typer.Argument(metavar="ONE", help="A partition.")],
    other: Annotated[int, typer.Argument(metavar="OTHER", help="Its neighbour.")],
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Close two partitions with neighbouring keys and open one for both. What they hold stays readable."""
    with _opened(project) as log:
        joined = log.merge_partitions(topic, one, other)
    if as_json:
        print_json({"topic": topic, "closed": [one, other], "opened": [joined]})
    else:
        print(f"partitions {one} and {other} of `{topic}` are closed; their keys go to {joined}")


@app.command(epilog="Example:  headrace log stats --topic pageviews")
def stats(topic: TopicOption = None, project: ProjectOption = None, as_json: JsonOption = False) -> None:
    """What each partition takes: records, bytes, segments, compression, times, how far it is compacted."""
    from headrace.log.local.statistics import log_statistics

    found = list(log_statistics(local_project(project).log_folder, topic))
    if as_json:
        print_json({"partitions": msgspec.to_builtins(found)})
        return
    headings = ["topic", "partition", "records", "size", "segments", "rewritten", "compressed", "from", "to", ""]
    print_table(headings, [_row(part) for part in found], empty="no topics")


def _row(part: PartitionStatistics) -> list[Any]:
    ratio = f"{part.compression_ratio:g} times" if part.compression_ratio else ""
    remarks = []
    if part.compacted_to is not None:
        remarks.append(f"compacted to {part.compacted_to:,}")
    if part.archived_to is not None:
        remarks.append(f"archived to {part.archived_to:,} ({bytes_text(part.archived_bytes)})")
    if part.quarantined:
        remarks.append(f"{part.quarantined:,} in quarantine")
    if part.damaged:
        remarks.append("damaged")
    size, from_, to = bytes_text(part.bytes), local_time(part.oldest_ms), local_time(part.newest_ms)
    return [
        part.topic,
        part.partition,
        part.records,
        size,
        part.segments,
        part.rewritten,
        ratio,
        from_,
        to,
        ", ".join(remarks),
    ]


@app.command(epilog="Example:  headrace log copy --to kafka")
def copy(
    to: Annotated[
        str,
        typer.Option(
            "--to",
            help="Where to: `kafka`, as [log.kafka] in headrace.toml says, or `local`, a new log here.",
        ),
    ],
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Copy all topics, groups and queues, and note where everything is now, so that views, queries, groups and feeds
    continue where they were. Interrupted, or with more to copy, it goes on when called again."""
    if to not in ("kafka", "local"):
        raise UsageError(f"a log cannot be copied to `{to}`", hint="--to kafka or --to local")
    from headrace.clock import SystemClock
    from headrace.coordinate.move import move_to_kafka, move_to_local, put_checkpoints_aside, require_backend
    from headrace.log.local.open import open_log
    from headrace.log.open import open_kafka_log
    from headrace.log.registry.schemas import RegistrySchemas

    found = open_project(project)
    require_backend(found, "local" if to == "kafka" else "kafka")
    local = open_log(found.log_folder, found.settings.log, SystemClock())
    try:
        kafka = open_kafka_log(found, SystemClock())
        kafka.schemas, local.schemas = RegistrySchemas.of_log(kafka), RegistrySchemas.of_log(local)
        try:
            with _resumable(), _copy_progress() as progress:
                if to == "kafka":
                    moved = move_to_kafka(local, kafka, found.checkpoints_folder, progress)
                else:
                    put_checkpoints_aside(found, local)
                    moved = move_to_local(kafka, local, found.checkpoints_folder, progress)
        finally:
            kafka.close()
    finally:
        local.close()
    if as_json:
        print_json(asdict(moved))
        return
    print(f"{moved.records:,} records of {moved.topics} topics copied; {moved.queries} queries, {moved.groups} groups")
    if moved.behind:
        print(f"  not caught up yet, and cannot go on there: {', '.join(moved.behind)}")
    print(f'  when nothing is written any more:  copy once more, then set  [log] backend = "{to}"  and  headrace up')


@contextmanager
def _resumable() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        print("interrupted: what was copied stays; call it again to go on", file=sys.stderr)
        raise


@contextmanager
def _copy_progress() -> Iterator[Progress]:
    """A bar with rate and time left on a terminal, nothing elsewhere."""
    target = console(stderr=True)
    if not target.is_terminal:
        yield lambda done, total: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    rate = TextColumn("{task.fields[rate]}")
    columns = (
        TextColumn("copying"),
        BarColumn(),
        TaskProgressColumn(),
        MofNCompleteColumn(),
        rate,
        TimeRemainingColumn(),
    )
    with Bars(*columns, console=target, transient=True) as bars:
        bar = bars.add_task("copying", total=None, rate="")

        def show(done: int, total: int) -> None:
            speed = bars.tasks[0].speed
            bars.update(bar, completed=done, total=total, rate=f"{speed:,.0f} records/s" if speed else "")

        yield show

"""`headrace backup` and `headrace restore`: the log, elsewhere and back."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from headrace.cli.log import local_project, show_progress
from headrace.cli.options import JsonOption, ProjectOption
from headrace.cli.output import bytes_text, duration, print_json, print_table
from headrace.errors import Conflict, UsageError

if TYPE_CHECKING:
    from headrace.config import Project
    from headrace.coordinate.rebuilding import Aftermath
    from headrace.log.local.backup_store import BackupStore
    from headrace.log.local.cutting import Loss
    from headrace.log.local.moments import Target
    from headrace.log.local.restore import Restored

FolderArgument = Annotated[Path, typer.Argument(metavar="FOLDER", help="A folder of backups, best on another disk.")]


def register(app: typer.Typer) -> None:
    app.command(epilog="Example:  headrace backup /mnt/backups/shop")(backup)
    app.command(epilog='Example:  headrace restore /mnt/backups/shop --to "2026-11-18 09:30"')(restore)


def backup(
    folder: FolderArgument,
    keep: Annotated[
        int, typer.Option(help="Keep only this many moments to restore to, the newest; 0 keeps all.", min=0)
    ] = 0,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Back up the log, while the project runs or not, to a moment that `restore` can go back to. Copies only what is
    new since the last backup to the same folder; checkpoints and views are computed again by a restore."""
    from headrace.clock import SystemClock
    from headrace.log.local.backup import back_up

    found = local_project(project)
    with show_progress("copying") as progress:
        made = back_up(found.log_folder, folder, SystemClock(), keep, progress)
    point = made.point
    if as_json:
        size = sum(one.bytes for one in point.stored)
        print_json(
            {"moment": point.moment, "arrival": point.arrival, "records": point.records, "bytes": size}
            | {"copied_bytes": made.copied, "removed_moments": made.pruned, "folder": str(folder)}
        )
        return
    print(f"backed up to {folder}: {point.records:,} records as of {point.moment}, {bytes_text(made.copied)} copied")
    if made.pruned:
        print(f"{made.pruned} older moment{'s' * (made.pruned != 1)} removed")


def restore(
    folder: FolderArgument,
    to: Annotated[
        str,
        typer.Option(help="`latest`, or a time (UTC unless it has a zone): the log as it was then.", metavar="MOMENT"),
    ] = "latest",
    to_arrival: Annotated[
        int | None, typer.Option(help="In place of --to: the records below this arrival number.", min=0)
    ] = None,
    list_only: Annotated[bool, typer.Option("--list", help="Show which moments there are, and do nothing.")] = False,
    accept_loss: Annotated[
        bool, typer.Option("--accept-loss", help="Restore also where no backup has everything that was there then.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Put the log back as it was at a moment: that of a backup, or any before one that is known to the second or the
    minute. The project must be stopped. The log and the checkpoints of now are set aside, not deleted; views are
    computed again from the log when the project is started."""
    from headrace.access.files import make_private_folder, private_files
    from headrace.cli.import_record import RECORD
    from headrace.clock import SystemClock
    from headrace.log.local.backup_store import BackupStore
    from headrace.log.local.cutting import Cut
    from headrace.log.local.restore import restore_log

    store = BackupStore(folder)
    if list_only:
        print_moments(store, as_json)
        return
    found = local_project(project)
    check_stopped(found)
    target = choose_target(store, to, to_arrival)
    cut = Cut(store, target) if target.mark is not None else None
    if cut is not None and cut.losses and not accept_loss:
        raise _incomplete(cut.losses)
    records = cut.records if cut is not None else target.point.records
    if not yes:
        if as_json:
            raise UsageError("the log would be replaced", hint="with --json nobody is asked: add --yes")
        kept = "" if not found.log_folder.exists() else "; the log of now is set aside"
        typer.confirm(f"restore {records:,} records as of {_described(target)}{kept}?", abort=True)
    make_private_folder(found.data)
    with show_progress("restoring") as progress, private_files():
        restored = restore_log(found.log_folder, store, cut or target, SystemClock(), progress)
    aside = set_checkpoints_aside(found)
    # What files were imported into the log of before; without it they are sent again, and known ids are left out.
    (found.data / RECORD).unlink(missing_ok=True)
    _report(restored, aside, rebuild_restored(found), as_json)
    if (found.data / "agents").is_dir() and not as_json:
        print(
            f"agents of this project do not send again what they sent after that moment: their positions are in "
            f"{found.data / 'agents'}"
        )


def choose_target(store: BackupStore, to: str, to_arrival: int | None) -> Target:
    from headrace.log.codecs.times import moment
    from headrace.log.local.moments import Target, choose_arrival, choose_moment, choose_point

    if to_arrival is not None:
        if to != "latest":
            raise UsageError("--to and --to-arrival name two moments", hint="leave one out")
        return choose_arrival(store, to_arrival)
    return Target(choose_point(store, None)) if to == "latest" else choose_moment(store, moment(to, "--to"))


def print_moments(store: BackupStore, as_json: bool) -> None:
    from headrace.log.local.moments import iso_moment, list_spans

    spans = list_spans(store)
    if as_json:
        print_json(
            [
                {"backup": span.point.moment, "arrival": span.point.arrival, "records": span.point.records}
                | {"from": None if span.first_ms is None else iso_moment(span.first_ms), "moments": span.marks}
                for span in spans
            ]
        )
        return
    print_table(
        ["backup", "arrival", "records", "also any moment from", "known"],
        [
            (
                span.point.moment,
                span.point.arrival,
                span.point.records,
                "" if span.first_ms is None else iso_moment(span.first_ms),
                span.marks,
            )
            for span in spans
        ],
    )


def _described(target: Target) -> str:
    """Say which moment it is, and how far that is from the one that was asked for."""
    if target.exact:
        return target.moment
    if target.asked_ms is None:
        return f"{target.moment}, at arrival number {target.arrival}, the last mark not after {target.asked_arrival}"
    return f"{target.moment}, {duration((target.asked_ms - target.time_ms) / 1000)} before the moment asked for"


def _incomplete(losses: Sequence[Loss]) -> Conflict:
    lines = [f"topic `{one.topic}`, partition {one.partition}: up to {one.records:,}: {one.why}" for one in losses[:20]]
    if len(losses) > 20:
        lines.append(f"and {len(losses) - 20} more partitions")
    return Conflict(
        "no backup has all records that were there at that moment",
        detail="\n".join(lines),
        hint="restore the moment of a backup (--list shows them), or do without these records:  --accept-loss",
        losses=[msgspec.to_builtins(one) for one in losses],
    )


def check_stopped(project: Project) -> None:
    from headrace.coordinate.local import is_held

    if is_held(project.data):
        raise Conflict("this project is up, and its log is in use", hint="stop it first:  headrace down")


def set_checkpoints_aside(project: Project) -> Path | None:
    """They are of the log of before. The catalog's file and the rows of views are found to be, too, by whoever opens
    them."""
    from headrace.log.local.restore import aside_name

    folder = project.checkpoints_folder
    if not folder.exists():
        return None
    aside = aside_name(folder)
    os.rename(folder, aside)
    return aside


def rebuild_restored(project: Project) -> Aftermath:
    from headrace.clock import SystemClock
    from headrace.coordinate.catalog import Catalog
    from headrace.coordinate.deployments import Deployments
    from headrace.coordinate.rebuilding import rebuild_all
    from headrace.coordinate.statements import StatementExecutor
    from headrace.log.open import open_log

    clock = SystemClock()
    log = open_log(project, clock)
    try:
        catalog = Catalog(log)
        executor = StatementExecutor(log, catalog, clock, project.settings)
        return rebuild_all(Deployments(executor, log, catalog, clock), catalog, log)
    finally:
        log.close()


def _report(restored: Restored, checkpoints: Path | None, after: Aftermath, as_json: bool) -> None:
    target = restored.target
    if as_json:
        answer: dict[str, Any] = {
            "moment": target.moment,
            "exact": target.exact,
            "arrival": target.arrival,
            "records": restored.records,
            "later_records": target.later,
            "losses": [msgspec.to_builtins(one) for one in restored.losses],
            "log_before": str(restored.aside) if restored.aside else None,
            "checkpoints_before": str(checkpoints) if checkpoints else None,
            "archive_replaced": list(restored.replaced),
            "deployments_cancelled": list(after.cancelled),
            "rebuilt": list(after.rebuilt),
            "left": dict(after.left),
        }
        print_json(answer)
        return
    print(f"restored {restored.records:,} records as of {_described(target)}")
    if target.later:
        print(f"not included: {target.later:,} record{'s' * (target.later != 1)} of the backup that came later")
    for loss in restored.losses:
        print(f"not restored: topic `{loss.topic}`, partition {loss.partition}: up to {loss.records:,}: {loss.why}")
    for what, where in (("log", restored.aside), ("checkpoints", checkpoints)):
        if where is not None:
            print(f"the {what} of before: {where}")
    for number in after.cancelled:
        print(f"deployment {number} was under way and is cancelled")
    if after.rebuilt:
        print(f"computed again from the log with the next `headrace up`: {', '.join(after.rebuilt)}")
    for name, why in after.left.items():
        print(f"not computed again: {name}: {why}")
    if after.left:
        print("decide:  headrace view rebuild NAME --accept-loss")

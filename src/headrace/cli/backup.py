"""`headrace backup` and `headrace restore`: the log, elsewhere and back."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.log import local_project, show_progress
from headrace.cli.options import JsonOption, ProjectOption
from headrace.cli.output import bytes_text, print_json
from headrace.errors import Conflict, UsageError

if TYPE_CHECKING:
    from headrace.config import Project
    from headrace.coordinate.rebuilding import Aftermath
    from headrace.log.local.restore import Restored

FolderArgument = Annotated[Path, typer.Argument(metavar="FOLDER", help="A folder of backups, best on another disk.")]


def register(app: typer.Typer) -> None:
    app.command(epilog="Example:  headrace backup /mnt/backups/shop")(backup)
    app.command(epilog="Example:  headrace restore /mnt/backups/shop --to 2026-11-18T03:00Z")(restore)


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
        str, typer.Option(help="`latest`, or a time: the newest backup that is not after it.", metavar="MOMENT")
    ] = "latest",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Put the log back as it was when it was backed up. The project must be stopped. The log and the checkpoints of now
    are set aside, not deleted; views are computed again from the log when the project is started."""
    from headrace.cli.import_record import RECORD
    from headrace.log.local.backup_store import BackupStore
    from headrace.log.local.restore import choose_point, restore_log

    found = local_project(project)
    check_stopped(found)
    store = BackupStore(folder)
    point = choose_point(store, read_moment(to))
    if not yes:
        if as_json:
            raise UsageError("the log would be replaced", hint="with --json nobody is asked: add --yes")
        kept = "" if not found.log_folder.exists() else "; the log of now is set aside"
        typer.confirm(f"restore {point.records:,} records as of {point.moment}{kept}?", abort=True)
    with show_progress("restoring") as progress:
        restored = restore_log(found.log_folder, store, point, progress)
    aside = set_checkpoints_aside(found)
    # What files were imported into the log of before; without it they are sent again, and known ids are left out.
    (found.data / RECORD).unlink(missing_ok=True)
    _report(restored, aside, rebuild_restored(found), as_json)
    if (found.data / "agents").is_dir() and not as_json:
        print(
            f"agents of this project do not send again what they sent after the backup: their positions are in "
            f"{found.data / 'agents'}"
        )


def check_stopped(project: Project) -> None:
    from headrace.coordinate.local import is_held

    if is_held(project.data):
        raise Conflict("this project is up, and its log is in use", hint="stop it first:  headrace down")


def read_moment(text: str) -> int | None:
    from headrace.log.codecs.times import moment

    return None if text == "latest" else moment(text, "--to")


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
    point = restored.point
    if as_json:
        answer: dict[str, Any] = {
            "moment": point.moment,
            "arrival": point.arrival,
            "records": point.records,
            "log_before": str(restored.aside) if restored.aside else None,
            "checkpoints_before": str(checkpoints) if checkpoints else None,
            "archive_replaced": list(restored.replaced),
            "deployments_cancelled": list(after.cancelled),
            "rebuilt": list(after.rebuilt),
            "left": dict(after.left),
        }
        print_json(answer)
        return
    print(f"restored {point.records:,} records as of {point.moment}")
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

"""What a deployment remembers so that it, or what there was before it, can be deployed again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.coordinate.fold import CatalogState
from headrace.coordinate.functions import FunctionChanges, of_folder
from headrace.functions.files import FunctionFile
from headrace.views.versions import ChangedFile, Deployment


def changed_files(changes: FunctionChanges | None, known: Mapping[str, FunctionFile]) -> list[ChangedFile]:
    """The files of functions that a deployment changes, as they are before and after it."""
    if changes is None:
        return []
    after = changes.after(known)
    names = [*(file.file for file in changes.changed), *changes.removed]
    return [ChangedFile(name, _text(known.get(name)), _text(after.get(name))) for name in names]


def _text(file: FunctionFile | None) -> str | None:
    return None if file is None else file.text


def restored(deployment: Deployment, before: bool, state: CatalogState) -> tuple[dict[str, str], dict[str, Any]]:
    """The files to deploy, functions too, and what else was asked for then, as fields of `Options`."""
    texts = [item.old_statement if before else item.statement for item in deployment.items]
    files = {name: file.text for name, file in state.function_files.items() if of_folder(name)}
    for changed in deployment.functions:
        text = changed.old if before else changed.new
        files = {name: known for name, known in files.items() if name != changed.file}
        files |= {} if text is None else {changed.file: text}
    statements = "\n".join(f"{text.rstrip().removesuffix(';')};" for text in texts if text)
    files[f"deployment {deployment.id}"] = statements
    if not before:
        return files, {"functions": True, "strategy": deployment.strategy, "start": deployment.start}
    strategies = {item.name: item.old_strategy for item in deployment.items}
    return files, {"functions": True, "strategies": strategies, "start": _start_before(deployment, state)}


def _start_before(deployment: Deployment, state: CatalogState) -> str:
    """Where the replays of the versions before it began, if that was one place for all of them."""
    numbers = {(item.name, item.before) for item in deployment.items}
    starts = {
        made.start
        for made in state.deployments.values()
        for item in made.items
        if item.number != item.before and (item.name, item.number) in numbers
    }
    return starts.pop() if len(starts) == 1 else "beginning"

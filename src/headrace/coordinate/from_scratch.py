"""Whether a project's files alone are enough: what runs may depend on statements that are in no file."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from headrace.clock import Clock
from headrace.config import LogSettings
from headrace.coordinate.catalog import Catalog
from headrace.coordinate.events import FunctionsChanged
from headrace.coordinate.functions import of_folder
from headrace.coordinate.project import Problem, apply_pipelines
from headrace.coordinate.statements import StatementExecutor
from headrace.functions.files import FunctionFile
from headrace.log.local.open import LocalLog
from headrace.log.registry.schemas import RegistrySchemas

MEMORY = Path("/dev/shm")
"""A file system that needs no disk, where there is one: the log that is made here is thrown away."""


def check_from_scratch(files: Mapping[str, str], functions: Iterable[FunctionFile], clock: Clock) -> list[Problem]:
    """Create what the files define on an empty log, and return what fails. `files`: texts by their paths in the
    project; `functions`: those of its folder, described."""
    folder = Path(tempfile.mkdtemp(prefix="headrace-plan-", dir=MEMORY if MEMORY.is_dir() else None))
    try:
        log = LocalLog(folder / "log", LogSettings(linger_ms=0, min_free_bytes=0), clock)
        try:
            log.schemas = RegistrySchemas.of_log(log)
            executor = StatementExecutor(log, Catalog(log), clock)
            own = tuple(file for file in functions if of_folder(file.file))
            if own:
                executor.catalog.append([FunctionsChanged(own)])
            pipelines = {Path(name): text for name, text in sorted(files.items()) if not of_folder(name)}
            return [problem for file in apply_pipelines(executor, pipelines) for problem in file.problems]
        finally:
            log.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)

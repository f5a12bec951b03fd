"""Which files of a project are collectors. Light, for whoever only asks whether there are any."""

from __future__ import annotations

from pathlib import Path

from headrace.config import Project

FOLDER = "collectors"
FLUME = ".properties"


def collector_files(project: Project) -> list[Path]:
    """One collector each; a `.properties` file is one of Flume's agents as it stands."""
    folder = project.folder / FOLDER
    return sorted([*folder.glob("*.toml"), *folder.glob(f"*{FLUME}")])

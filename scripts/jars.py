"""Jars from Maven, once, into `.cache/`: Kafka, Spark's Kafka connector, Flume, Debezium. Standard library only."""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".cache"


class JarsMissing(Exception):
    """What went wrong and how to mend it."""


@dataclass(frozen=True)
class JarSet:
    """Artifacts that are fetched together into one folder."""

    folder: str
    artifacts: tuple[str, ...]
    """`group:artifact:version`."""
    transitive: bool = True


KAFKA = JarSet(
    "kafka",
    (
        "org.apache.kafka:kafka_2.13:4.1.1",
        "org.apache.kafka:kafka-tools:4.1.1",
        "org.apache.logging.log4j:log4j-slf4j-impl:2.24.3",
    ),
)
# All four are named and nothing is followed: the connector's parent pom names a repository that is often unreachable,
# and Spark's own jars hold the rest.
SPARK_KAFKA = JarSet(
    "spark-kafka",
    (
        "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
        "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.1.0-preview1",
        "org.apache.kafka:kafka-clients:3.9.1",
        "org.apache.commons:commons-pool2:2.12.1",
    ),
    transitive=False,
)
# Flume's own client and protocol, which our agents are tried with.
FLUME = JarSet("flume", ("org.apache.flume:flume-ng-sdk:1.11.0",))
# Debezium Server as its makers pack it, which our collectors are tried with; with all its sinks it is large.
DEBEZIUM = "io.debezium:debezium-server-dist:3.0.0.Final:tar.gz"
SETS = {jars.folder: jars for jars in (KAFKA, SPARK_KAFKA, FLUME)}

_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>headrace</groupId><artifactId>jars</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>{dependencies}</dependencies>
</project>
"""
_ALONE = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"


def jar_files(jars: JarSet) -> list[Path]:
    """The jars, fetched first if they are not there. Safe to call from several processes at once."""
    folder, wanted = CACHE / jars.folder, _pom(jars)
    stamp = folder / "fetched"
    content = hashlib.sha256(wanted.encode()).hexdigest()
    CACHE.mkdir(exist_ok=True)
    with (CACHE / f"{jars.folder}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not stamp.exists() or stamp.read_text() != content:
            _fetch(folder, wanted)
            stamp.write_text(content)
    return sorted(folder.glob("*.jar"))


def archive(artifact: str) -> Path:
    """The folder that an archive of Maven's holds, `group:artifact:version:tar.gz`, unpacked once."""
    _, name, version, _ = artifact.split(":")
    folder = CACHE / f"{name}-{version}"
    CACHE.mkdir(exist_ok=True)
    with (CACHE / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            _unpack(artifact, folder)
    return folder


def _unpack(artifact: str, folder: Path) -> None:
    plugin = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1"
    made = Path(tempfile.mkdtemp(prefix=f"{folder.name}.", dir=CACHE))
    try:
        # Two steps: the first does not read what the archive was made of, which names other archives.
        command = [_maven(), "--batch-mode"]
        _run_maven([*command, f"{plugin}:get", f"-Dartifact={artifact}", "-Dtransitive=false"], made)
        _run_maven([*command, f"{plugin}:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={made}"], made)
        [packed] = made.glob("*.tar.gz")
        with tarfile.open(packed) as tar:
            tar.extractall(made, filter="data")
        packed.unlink()
        [inner] = made.iterdir()
        inner.rename(folder)
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _maven() -> str:
    maven = shutil.which("mvn")
    if maven is None:
        raise JarsMissing("Maven is needed to fetch jars: `apt-get install maven`, or see maven.apache.org")
    return maven


def _pom(jars: JarSet) -> str:
    dependencies = []
    for artifact in jars.artifacts:
        group, name, version = artifact.split(":")
        dependencies.append(
            f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version>"
            f"{'' if jars.transitive else _ALONE}</dependency>"
        )
    return _POM.format(dependencies="".join(dependencies))


def _fetch(folder: Path, pom: str) -> None:
    maven = _maven()
    # Made beside its place and moved there whole, so that a folder that exists is complete.
    made = Path(tempfile.mkdtemp(prefix=f"{folder.name}.", dir=CACHE))
    try:
        (made / "pom.xml").write_text(pom)
        goal = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
        command = [maven, "--batch-mode", "--file", str(made / "pom.xml"), goal]
        _run_maven([*command, f"-DoutputDirectory={made}", "-DincludeScope=runtime"], made)
        (made / "pom.xml").unlink()
        shutil.rmtree(folder, ignore_errors=True)
        made.chmod(0o755)
        made.rename(folder)
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _run_maven(command: list[str], made: Path) -> None:
    """Shows how many jars have come: a first fetch takes a while."""
    live = sys.stderr.isatty()
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT, env=os.environ | {"MAVEN_OPTS": ""})
        started = time.monotonic()
        while process.poll() is None:
            if live:
                count, took = len(list(made.glob("*.jar"))), time.monotonic() - started
                print(f"\r  fetching jars  {count} so far, {took:.0f} s ", end="", file=sys.stderr, flush=True)
            try:
                process.wait(0.5)
            except subprocess.TimeoutExpired:
                continue
        if live:
            print("\r" + " " * 50 + "\r", end="", file=sys.stderr)
        if process.returncode != 0:
            said.seek(0)
            errors = [line for line in said.read().splitlines() if line.startswith("[ERROR]")]
            raise JarsMissing("Maven could not fetch the jars:\n" + "\n".join(errors[:12]))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sets", nargs="*", help=f"which to fetch: {', '.join(SETS)}; all by default")
    wanted = parser.parse_args().sets or list(SETS)
    if unknown := set(wanted) - set(SETS):
        parser.error(f"no such jars: {', '.join(sorted(unknown))}")
    for name in wanted:
        try:
            files = jar_files(SETS[name])
        except JarsMissing as missing:
            print(f"  {name:<13} ✗ {missing}")
            return 1
        size = sum(file.stat().st_size for file in files) / 1e6
        print(f"  {name:<13} ✓ {len(files)} jars, {size:.0f} MB, in {(CACHE / name).relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""What `headrace doctor` looks at. Each check finds out one thing and says how to mend it."""

from __future__ import annotations

import os
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import metadata, resources
from pathlib import Path
from typing import Literal

from headrace import __version__
from headrace.access.files import is_open_to_others
from headrace.access.keys import FROM_FILE, HASHED, read_keys
from headrace.cli.output import bytes_text
from headrace.config import PROJECT_FILE, Project, load_project
from headrace.coordinate.local import holder
from headrace.coordinate.ports import choose_port
from headrace.coordinate.supervisor import check_binding
from headrace.errors import HeadraceError, SqlError
from headrace.toml_files import FROM_ENVIRONMENT, Problem

NEEDED_FILES = 4096
SLOW_SYNC_MS = 20.0
NOT_THE_KEY = (HASHED, FROM_FILE, FROM_ENVIRONMENT)
"""How a key is written that is not told by it."""


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    state: Literal["ok", "warning", "wrong"]
    text: str
    hint: str | None = None


def machine_checks() -> list[Check]:
    return [check() for check in (_python, _packages, _java, _connector, _console, _memory, _open_files)]


def project_checks(folder: Path) -> list[Check]:
    try:
        project = load_project(folder)
    except HeadraceError as error:
        return [Check("project", "wrong", error.message, error.hint)]
    checks: tuple[Callable[[Project], Check], ...] = (
        _project,
        _pipelines,
        _collectors,
        _alerts,
        _disk,
        _sync,
        _binding,
        _port,
    )
    if project.settings.log.backend == "local":
        checks += (_checkpoints,)
    if project.settings.log.backend == "kafka":
        checks += (_kafka_client, _kafka_jars, _brokers)
    return [check(project) for check in checks]


def _python() -> Check:
    version = ".".join(map(str, sys.version_info[:3]))
    return Check("python", "ok", f"{version}  ({sys.executable})")


def _packages() -> Check:
    found, missing = [f"headrace {__version__}"], []
    for name in ("pyspark", "pyarrow", "granian", "starlette", "msgspec"):
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            missing.append(name)
    if missing:
        return Check("packages", "wrong", f"missing: {', '.join(missing)}", "pip install --force-reinstall headrace")
    if os.environ.get("SPARK_HOME"):
        where = os.environ["SPARK_HOME"]
        return Check(
            "packages", "warning", f"SPARK_HOME is set to `{where}`", "unset SPARK_HOME: Headrace brings its own Spark"
        )
    return Check("packages", "ok", ", ".join(found))


def _java() -> Check:
    from headrace.process.java import LEAST_VERSION, find_java

    found = find_java()
    if found is None:
        hint = "install one (Debian: apt install openjdk-17-jre-headless), or:  pip install 'headrace[java]'"
        return Check("java", "wrong", f"there is none of version {LEAST_VERSION} or newer", hint)
    return Check("java", "ok", f"{found.version}  ({found.command})")


def _connector() -> Check:
    jar = resources.files("headrace") / "process" / "jars" / "headrace-spark.jar"
    if not jar.is_file():
        return Check("connector", "wrong", "headrace-spark.jar is not built", "in a clone:  make setup")
    return Check("connector", "ok", "headrace-spark.jar")


def _console() -> Check:
    page = resources.files("headrace") / "console" / "index.html"
    if not page.is_file():
        return Check("console", "warning", "not built; the API works without", "in a clone:  make setup")
    return Check("console", "ok", "built")


def _memory() -> Check:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        return Check("memory", "warning", "cannot be found out")
    if free < 2 << 30:
        return Check("memory", "warning", f"{bytes_text(free)} free", '2 GiB are better; or [spark] memory = "1g"')
    return Check("memory", "ok", f"{bytes_text(free)} free, {os.cpu_count()} cores")


def _open_files() -> Check:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= soft < NEEDED_FILES:
        state: Literal["warning", "wrong"] = "warning" if soft >= 1024 else "wrong"
        return Check("open files", state, f"at most {soft:,}", f"ulimit -n {min(hard, 65536) if hard > 0 else 65536}")
    return Check("open files", "ok", f"at most {soft:,}")


def _project(project: Project) -> Check:
    running = holder(project.data)
    state = f"running at {running.url} (pid {running.pid})" if running else "not running"
    return Check("project", "ok", f"{project.name}  ({project.folder}), {state}")


def _pipelines(project: Project) -> Check:
    from headrace.fluent.pipeline import pipeline_text
    from headrace.sql.api import parse

    count = 0
    for file in project.pipelines:
        name = file.relative_to(project.folder)
        try:
            count += len(parse(pipeline_text(file)))
        except SqlError as error:
            return Check("pipelines", "wrong", f"{name}:{error.line}:{error.column}: {error.message}", error.hint)
        except (OSError, UnicodeDecodeError) as error:
            return Check("pipelines", "wrong", f"{name}: {error}")
    if not count:
        return Check("pipelines", "warning", "there are none", "write CREATE STREAM … into pipelines/NAME.sql")
    return Check("pipelines", "ok", f"{count} statements in {len(project.pipelines)} files")


def _collectors(project: Project) -> Check:
    from headrace.collect.definitions import load_definitions

    return _files("collectors", *load_definitions(project))


def _alerts(project: Project) -> Check:
    from headrace.deliver.alerts.definitions import load_alerts

    return _files("alerts", *load_alerts(project))


def _files(folder: str, found: Sequence[object], problems: Sequence[Problem]) -> Check:
    if problems:
        first = problems[0]
        return Check(folder, "wrong", f"{first.file}:{first.line}: {first.message}", first.hint)
    return Check(folder, "ok", f"{len(found)} in {folder}/")


def _disk(project: Project) -> Check:
    folder = _existing(project.data)
    usage = shutil.disk_usage(folder)
    needed = project.settings.log.min_free_bytes
    if not os.access(folder, os.W_OK):
        return Check("disk", "wrong", f"`{folder}` cannot be written to", f"chown or chmod it:  ls -ld {folder}")
    if usage.free < needed:
        text = f"{bytes_text(usage.free)} free, below [log] min_free_bytes ({bytes_text(needed)}): writes are refused"
        return Check("disk", "wrong", text, "free some, or set [log] retention_hours")
    if usage.free < 4 * needed:
        return Check("disk", "warning", f"{bytes_text(usage.free)} free", "free some soon")
    return Check("disk", "ok", f"{bytes_text(usage.free)} free")


def _sync(project: Project) -> Check:
    """How long a durable write takes, which bounds how fast single events can be acknowledged."""
    try:
        with tempfile.NamedTemporaryFile(dir=_existing(project.data)) as file:
            started = time.perf_counter()
            for _ in range(10):
                file.write(b"x" * 4096)
                file.flush()
                os.fdatasync(file.fileno())
            took = (time.perf_counter() - started) * 100
    except OSError as error:
        return Check("sync", "wrong", f"a durable write failed: {error}", "look at the disk: dmesg")
    if took > SLOW_SYNC_MS:
        return Check(
            "sync", "warning", f"a durable write takes {took:.1f} ms", "a local SSD is better than a network disk"
        )
    return Check("sync", "ok", f"a durable write takes {took:.2f} ms")


def _binding(project: Project) -> Check:
    try:
        check_binding(project)
    except HeadraceError as error:
        return Check("access", "wrong", error.message, error.hint)
    keys = project.settings.auth.keys
    try:
        read_keys(keys, project.folder)
    except HeadraceError as error:
        return Check("access", "wrong", error.message, error.hint)
    file = project.folder / PROJECT_FILE
    if any(not key.key.startswith(NOT_THE_KEY) for key in keys) and is_open_to_others(file):
        return Check("access", "wrong", f"others can read the keys in {PROJECT_FILE}", f"chmod 600 {file}")
    if project.data.exists() and is_open_to_others(project.data):
        return Check("access", "wrong", f"others can read the data in `{project.data}`", f"chmod 700 {project.data}")
    return Check("access", "ok", f"{len(keys)} keys" if keys else "for your user on this machine only, without keys")


def _port(project: Project) -> Check:
    running = holder(project.data)
    if running is not None:
        return Check("port", "ok", f"{running.port}, held by this project")
    server = project.settings.server
    try:
        choose_port(server.host, server.port)
    except HeadraceError as error:
        return Check("port", "wrong", error.message, error.hint)
    return Check("port", "ok", f"{server.port} is free")


def _checkpoints(project: Project) -> Check:
    """Whether every query can go on from its checkpoint."""
    name = "checkpoints"
    if not (project.log_folder / "journal").exists():
        return Check(name, "ok", "no query has run yet")
    try:
        problems = _failed_queries(project) if holder(project.data) else _lost_checkpoints(project)
    except HeadraceError as error:
        return Check(name, "warning", f"not looked at: {error.message}", error.hint)
    if not problems:
        return Check(name, "ok", "fit the log")
    return Check(name, "wrong", "; ".join(problems), "compute again from the log:  headrace view rebuild")


def _failed_queries(project: Project) -> list[str]:
    from headrace.cli.options import open_api

    with open_api(project.folder, None, None) as api:
        queries = api.get("/v1/queries")["queries"]
    failed = [query for query in queries if query["state"] == "failed"]
    return [f"{query['id']}: {(query['last_error'] or {}).get('message', 'failed')}" for query in failed]


def _lost_checkpoints(project: Project) -> list[str]:
    from headrace.clock import SystemClock
    from headrace.coordinate.catalog import Catalog
    from headrace.coordinate.planning import checkpoint_name
    from headrace.log.open import open_log
    from headrace.process.checkpoints import find_problem, read_checkpoint

    log = open_log(project, SystemClock())
    try:
        catalog, found = Catalog(log), []
        catalog.refresh()
        for query in catalog.queries():
            if query.wanted == "running" and query.layer != "batch" and not query.transient:
                checkpoint = read_checkpoint(project.checkpoints_folder / checkpoint_name(query))
                if problem := find_problem(checkpoint, log.last_identity(query.id, query.version)):
                    found.append(f"{query.id}: {problem}")
        return found
    finally:
        log.close()


def _existing(folder: Path) -> Path:
    while not folder.exists():
        folder = folder.parent
    return folder


def _kafka_client(project: Project) -> Check:
    try:
        return Check("kafka client", "ok", f"confluent-kafka {metadata.version('confluent-kafka')}")
    except metadata.PackageNotFoundError:
        return Check("kafka client", "wrong", "confluent-kafka is not installed", "pip install 'headrace[kafka]'")


def _kafka_jars(project: Project) -> Check:
    from headrace.process.jvm import kafka_jars

    found = kafka_jars()
    if not found:
        fetch = "fetch it:  python -m headrace.process.kafka.jars"
        return Check("kafka jars", "wrong", "Spark's Kafka source is not there", fetch)
    return Check("kafka jars", "ok", f"{len(found)} in {found[0].parent}")


def _brokers(project: Project) -> Check:
    from headrace.coordinate.links import is_there

    settings = project.settings.log.kafka
    try:
        if is_there(project, 5.0):
            return Check("brokers", "ok", f"{settings.bootstrap} answer")
    except (HeadraceError, ImportError) as error:
        return Check("brokers", "wrong", str(error), "see [log.kafka] in headrace.toml")
    return Check(
        "brokers", "wrong", f"`{settings.bootstrap}` does not answer", "start it, or set [log.kafka] bootstrap"
    )

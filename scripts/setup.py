"""Prepare a clone: environment, packages, connector, console. Standard library only; run by `make setup`.

Each step is skipped when nothing it depends on has changed since it last succeeded, so calling it again is cheap.
`--tests` adds what only the tests need: a browser, strace, Maven and with it Kafka's jars.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
STAMPS = VENV / ".setup"


class SetupFailed(Exception):
    """What went wrong and how to mend it."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tests", action="store_true", help="also install what the tests need")
    options = parser.parse_args()
    steps: list[tuple[str, Callable[[], str]]] = [
        ("environment", check_environment),
        ("packages", install_packages),
        ("connector", build_connector),
        ("console", build_console),
    ]
    if options.tests:
        steps += [("test tools", install_test_tools), ("kafka", fetch_kafka), ("classes", archive_classes)]
    for name, step in steps:
        if not run_step(name, step):
            return 1
    return 0


def run_step(name: str, step: Callable[[], str]) -> bool:
    started = time.monotonic()
    live = sys.stdout.isatty()
    if live:
        print(f"  {name:<13} …", end="", flush=True)
    try:
        said = step()
    except SetupFailed as failure:
        print(f"{chr(13) if live else ''}  {name:<13} ✗ {failure}")
        return False
    took = time.monotonic() - started
    print(f"{chr(13) if live else ''}  {name:<13} ✓ {said:<45} {f'{took:.0f} s' if took >= 1 else ''}".rstrip())
    return True


# Steps: each returns what to say when it is done.


def check_environment() -> str:
    wrong: list[str] = []
    if sys.version_info < (3, 11):  # noqa: UP036  (an older Python may well run this file)
        wrong.append(f"Python 3.11 or newer is needed, this is {sys.version.split()[0]}")
    java = version_of(["javac", "-version"])
    if java < 17:
        wrong.append("a JDK 17 or newer is needed (javac), e.g. `apt-get install openjdk-17-jdk-headless`")
    node = version_of(["node", "--version"])
    if node < 20:
        wrong.append("Node.js 20 or newer is needed (node, npm), see nodejs.org or your package manager")
    if wrong:
        raise SetupFailed("\n                  ".join(wrong))
    return f"python {sys.version_info[0]}.{sys.version_info[1]}, java {java}, node {node}"


def install_packages() -> str:
    if not PYTHON.exists():
        run([sys.executable, "-m", "venv", str(VENV)], "making .venv (on Debian: apt-get install python3-venv)")
    lock = ROOT / "requirements" / "dev.lock"
    done = Stamp("packages", [lock, ROOT / "pyproject.toml"])
    if not done.valid:
        run([str(PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "uv"], "installing uv")
        uv = [str(PYTHON), "-m", "uv", "pip"]
        # As pip does: where a network has certificates of its own, the system knows them.
        certificates = os.environ | {"UV_SYSTEM_CERTS": "true"}
        run([*uv, "sync", "--quiet", str(lock), "--python", str(PYTHON)], "installing packages", env=certificates)
        here = [*uv, "install", "--quiet", "--no-deps", "--python", str(PYTHON), "-e", str(ROOT)]
        run(here, "installing headrace", env=certificates)
        done.keep()
    count = len(list((VENV / "lib").glob("python*/site-packages/*.dist-info")))
    return f"{count} installed"


def build_connector() -> str:
    run([str(PYTHON), str(ROOT / "jvm" / "build.py")], "building the Spark connector")
    return "headrace-spark.jar"


def build_console() -> str:
    web = ROOT / "web"
    built = ROOT / "src" / "headrace" / "console"
    sources = [path for path in files_below(web) if "node_modules" not in path.parts]
    done = Stamp("console", sources)
    if done.valid and (built / "index.html").exists():
        return "up to date"
    packages = Stamp("node_modules", [web / "package-lock.json"])
    if not packages.valid or not (web / "node_modules").exists():
        run(["npm", "ci", "--no-audit", "--no-fund", "--loglevel=error"], "installing the console's packages", cwd=web)
        packages.keep()
    run(["npm", "run", "build", "--silent"], "building the console", cwd=web)
    done.keep()
    return "built"


def install_test_tools() -> str:
    wanted = {
        "chromium": find_chromium(),
        "strace": shutil.which("strace"),
        "maven": shutil.which("mvn"),
        "mosquitto": find_daemon("mosquitto"),
        "rsyslog": find_daemon("rsyslogd"),
        "bsdutils": shutil.which("logger"),
    }
    missing = [name for name, found in wanted.items() if not found]
    if missing:
        if not shutil.which("apt-get") or os.geteuid() != 0:
            raise SetupFailed(f"install {' and '.join(missing)} (Debian: apt-get install {' '.join(missing)})")
        environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
        run(["apt-get", "update", "-qq"], "apt-get update", env=environment)
        run(["apt-get", "install", "-y", "-qq", *missing], f"installing {' '.join(missing)}", env=environment)
    clients = ROOT / "tests" / "clients" / "node"
    packages = Stamp("clients", [clients / "package-lock.json"])
    if not packages.valid or not (clients / "node_modules").exists():
        run(["npm", "ci", "--no-audit", "--no-fund", "--loglevel=error"], "installing real clients", cwd=clients)
        packages.keep()
    return "chromium, strace, maven, mosquitto, rsyslog, node clients"


def fetch_kafka() -> str:
    run([str(PYTHON), "-m", "scripts.jars"], "fetching Kafka's jars")
    return "its jars, and those of Spark's connector"


def archive_classes() -> str:
    """What Spark loads at its start, as the JVM has it in memory: the tests start dozens, and each needs a third less
    processor time with it. A JVM with another class path, or another Java, passes it over."""
    jars = [
        *(ROOT / "src" / "headrace" / "process" / "jars").glob("*.jar"),
        *(ROOT / ".cache").glob("spark-kafka/*.jar"),
    ]
    archive, done = ROOT / ".cache" / "spark.jsa", Stamp("classes", sorted(jars))
    if done.valid and archive.exists():
        return "up to date"
    archive.unlink(missing_ok=True)
    recorded = os.environ | {"SPARK_SUBMIT_OPTS": f"-XX:+UseSerialGC -XX:ArchiveClassesAtExit={archive}"}
    project = ROOT / "examples" / "pageviews"
    run([str(VENV / "bin" / "headrace"), "test", "late"], "recording Spark's classes", cwd=project, env=recorded)
    done.keep()
    return "archived"


# Helpers


def find_daemon(name: str) -> str | None:
    """Daemons are where not everybody looks."""
    return shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin")


def find_chromium() -> str | None:
    names = (os.environ.get("CHROMIUM", ""), "chromium", "chromium-browser", "google-chrome")
    return next((found for name in names if name and (found := shutil.which(name))), None)


def version_of(command: list[str]) -> int:
    """The major version a tool prints, 0 if there is no such tool."""
    try:
        answer = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError:
        return 0
    found = re.search(r"(\d+)", answer.stdout + answer.stderr)
    return int(found.group(1)) if found else 0


def run(command: list[str], doing: str, cwd: Path = ROOT, env: dict[str, str] | None = None) -> None:
    try:
        answer = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True)
    except FileNotFoundError:
        raise SetupFailed(f"{doing}: `{command[0]}` is not installed") from None
    if answer.returncode != 0:
        tail = "\n".join((answer.stdout + answer.stderr).strip().splitlines()[-30:])
        raise SetupFailed(f"{doing} failed:\n{tail}")


def files_below(folder: Path) -> list[Path]:
    return sorted(
        path for path in folder.rglob("*") if path.is_file() and not {"node_modules", "test-results"} & set(path.parts)
    )


class Stamp:
    """Remembers the content of the files a step was done for."""

    def __init__(self, name: str, inputs: Iterable[Path]) -> None:
        self.file = STAMPS / name
        digest = hashlib.sha256()
        for path in inputs:
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
        self.content = digest.hexdigest()

    @property
    def valid(self) -> bool:
        return self.file.exists() and self.file.read_text() == self.content

    def keep(self) -> None:
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.file.write_text(self.content)


if __name__ == "__main__":
    sys.exit(main())

"""Debezium Server, from the archive its makers publish: one process, killed and started again."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from scripts.jars import DEBEZIUM, archive
from tests.chaos.debezium.postgres import DATABASE, USER, Missing, Postgres
from tests.support import free_port

NEEDS_JAVA = 21
FORMATS = {
    "json": {"debezium.format.value": "json"},
    "plain": {"debezium.format.value": "json", "debezium.format.schemas.enable": "false"}
    | {"debezium.source.decimal.handling.mode": "string", "debezium.source.time.precision.mode": "connect"},
    "cloudevents": {"debezium.format.value": "cloudevents"},
}
"""With Connect's schema; without, so that values must say by themselves what they are; as CloudEvents."""


def java() -> str:
    """A Java that Debezium Server runs on."""
    homes = [Path(os.environ["JAVA_HOME"])] if os.environ.get("JAVA_HOME") else []
    found = [str(home / "bin" / "java") for home in [*homes, *sorted(Path("/usr/lib/jvm").glob("*"), reverse=True)]]
    for each in [*found, shutil.which("java")]:
        if each and Path(each).exists():
            said = subprocess.run([each, "-version"], capture_output=True, text=True).stderr
            version = re.search(r'version "(\d+)', said)
            if version and int(version[1]) >= NEEDS_JAVA:
                return each
    raise Missing(f"Debezium Server needs Java {NEEDS_JAVA} or newer, in /usr/lib/jvm or as JAVA_HOME")


class Debezium:
    def __init__(self, folder: Path, database: Postgres, url: str, form: str, source: Mapping[str, str]) -> None:
        self.folder, self.home = folder, archive(DEBEZIUM)
        self.java = java()
        properties = FORMATS[form] | {
            "debezium.sink.type": "http",
            "debezium.sink.http.url": url,
            "debezium.sink.http.retries": "1000000",
            "debezium.source.connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "debezium.source.database.hostname": "127.0.0.1",
            "debezium.source.database.port": str(database.port),
            "debezium.source.database.user": USER,
            "debezium.source.database.password": "",
            "debezium.source.database.dbname": DATABASE,
            "debezium.source.plugin.name": "pgoutput",
            "debezium.source.topic.prefix": "shop",
            "debezium.source.offset.storage.file.filename": str(folder / "offsets.dat"),
            "debezium.source.offset.flush.interval.ms": "1000",
            "quarkus.http.host": "127.0.0.1",
            "quarkus.http.port": str(free_port()),
            "quarkus.log.console.json": "false",
        }
        properties |= {f"debezium.source.{name}": value for name, value in source.items()}
        (folder / "config").mkdir(parents=True, exist_ok=True)
        text = "".join(f"{name}={value}\n" for name, value in properties.items())
        (folder / "config" / "application.properties").write_text(text)
        self.log = folder / "debezium.log"
        self.start()

    def start(self) -> None:
        runner = next(self.home.glob("debezium-server-*runner.jar"))
        path = os.pathsep.join([str(runner), str(self.folder / "config"), str(self.home / "lib" / "*")])
        command = [self.java, "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", path]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*command, "io.debezium.server.Main"], cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

"""`python -m headrace.process.kafka.jars`: fetch Spark's Kafka source with Maven, once, for this user.

Spark's wheel does not have it, and `spark.jars.packages` follows the connector's parent pom to a repository that is
often unreachable. So the four jars are named and nothing is followed; Spark's own jars hold the rest.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from headrace.errors import HeadraceError, NotFound
from headrace.process.jvm import KAFKA_JARS, kafka_jars

COMMAND = "python -m headrace.process.kafka.jars"
ARTIFACTS = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.1.0-preview1",
    "org.apache.kafka:kafka-clients:3.9.1",
    "org.apache.commons:commons-pool2:2.12.1",
)
_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>headrace</groupId><artifactId>jars</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>{dependencies}</dependencies>
</project>
"""
_DEPENDENCY = (
    "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version><exclusions><exclusion>"
    "<groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions></dependency>"
)
_GOAL = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"


def require_kafka_jars() -> list[Path]:
    found = kafka_jars()
    if not found:
        raise NotFound("Spark's Kafka source is not there: fetch its jars", hint=COMMAND)
    return found


def fetch(folder: Path) -> list[Path]:
    """Into a folder that is there as a whole or not at all."""
    maven = shutil.which("mvn")
    if maven is None:
        raise NotFound("Maven is needed to fetch the jars", hint="install it (Debian: apt-get install maven)")
    folder.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix=f"{folder.name}.", dir=folder.parent))
    try:
        pom = made / "pom.xml"
        pom.write_text(_POM.format(dependencies="".join(_DEPENDENCY.format(*one.split(":")) for one in ARTIFACTS)))
        command = [maven, "--batch-mode", "--quiet", "--file", str(pom), _GOAL, f"-DoutputDirectory={made}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            errors = [line for line in done.stdout.splitlines() if line.startswith("[ERROR]")]
            raise HeadraceError("Maven could not fetch the jars", detail="\n  ".join(errors[:8]))
        pom.unlink()
        shutil.rmtree(folder, ignore_errors=True)
        made.chmod(0o755)
        made.rename(folder)
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return sorted(folder.glob("*.jar"))


def main() -> int:
    try:
        found = fetch(KAFKA_JARS[0])
    except HeadraceError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{len(found)} jars in {KAFKA_JARS[0]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

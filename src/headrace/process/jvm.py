"""The bridge to the Java connector: where its jar is, and the Spark it needs around it."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from headrace.config import SparkSettings
from headrace.errors import NotFound
from headrace.process.java import use_java

JAR = Path(__file__).parent / "jars" / "headrace-spark.jar"
KAFKA_JARS = (
    Path.home() / ".cache" / "headrace" / "spark-kafka",
    Path(__file__).parents[3] / ".cache" / "spark-kafka",
)
"""Where they may be: fetched by a user, or in a clone."""
_JAVA_OPTIONS = (
    "-Dlog4j2.configurationFile=classpath:headrace-log4j2.properties",
    # Spark asks whether a value is null before it asks for it; Arrow need not look again.
    "-Darrow.enable_null_check_for_get=false",
)
_AUTHENTICATED = {
    # Spark's RPC and block manager listen on loopback, where every user of the machine can connect. For a local master
    # Spark makes a random secret at each start and keeps it in its own memory: it is in no file and on no command line.
    "spark.authenticate": "true",
    "spark.network.crypto.enabled": "true",
}
_A_MONTH_MS = 30 * 24 * 3_600_000
_STREAMING = "spark.sql.streaming."
_CHECKPOINT_FILES = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def connector_jar() -> Path:
    if not JAR.is_file():
        raise NotFound("the Spark connector is not built", hint="in a clone:  make setup")
    return JAR


def kafka_jars() -> list[Path]:
    """Spark's own Kafka source and what it needs, if they were fetched: `headrace kafka jars`, in a clone `make
    kafka-jars`."""
    for folder in KAFKA_JARS:
        found = sorted(folder.glob("*.jar"))
        if any(jar.name.startswith("spark-sql-kafka") for jar in found):
            return found
    return []


def connector_conf() -> dict[str, str]:
    """The settings under which `format("headrace")` works and micro-batches are quick. They must be there when the JVM
    starts: give them to `SparkSession.builder`. Python workers are started with this interpreter, unless
    `PYSPARK_PYTHON` says otherwise: the first `python3` on the path may know nothing of Headrace."""
    # Spark takes it from the environment of whoever makes the session, rather than from its settings.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    return {
        # On the class path from the start: the file system below is asked for before `spark.jars` would be added.
        "spark.driver.extraClassPath": os.pathsep.join(map(str, [connector_jar(), *kafka_jars()])),
        "spark.driver.extraJavaOptions": " ".join(_JAVA_OPTIONS),
        "spark.pyspark.python": sys.executable,
        "spark.pyspark.driver.python": sys.executable,
        # Nothing listens beyond this machine.
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # Checkpoints: synced, and without the child processes of Hadoop's own file system (half of a batch's time).
        "spark.hadoop.fs.file.impl": "dev.headrace.spark.SyncedLocalFileSystem",
        _STREAMING + "checkpointFileManagerClass": _CHECKPOINT_FILES,
        # State in RocksDB, of which each batch writes only what changed.
        _STREAMING + "stateStore.providerClass": _ROCKSDB,
        _STREAMING + "stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        # A snapshot starts a child process (Spark's own `rm -rf`); without one, changes are replayed at the start.
        _STREAMING + "stateStore.minDeltasForSnapshot": "30",
        # Sources have names in the checkpoint, so that a query can change; one made without refuses them later.
        _STREAMING + "queryEvolution.enableSourceEvolution": "true",
        # The source itself waits for new data (up to 100 ms), better than Spark's sleeping between looks.
        _STREAMING + "pollingDelay": "1ms",
        # Only the last batch is ever repeated; the rest of the log of batches is dead weight to list and delete.
        _STREAMING + "minBatchesToRetain": "10",
        _STREAMING + "numRecentProgressUpdates": "5",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.ansi.enabled": "false",
        "spark.sql.caseSensitive": "true",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # Results leave a Python worker with a batch of rows, once its buffer is full. With Spark's 10,000 rows, 64 KB,
        # a function of 4 ms a row gave no sign for 40 s; one of 12 ms looked stalled after `stall_seconds`, 120 s.
        "spark.sql.execution.arrow.maxRecordsPerBatch": "2000",
        "spark.sql.execution.pandas.udf.buffer.size": "4096",
        # PySpark would ask Java three times with each call on a column, and look for IPython, to note which line of
        # ours made it: half of what it takes to build a query.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        # Many queries share one session; none may hold up the others.
        "spark.scheduler.mode": "FAIR",
    }


def spark_session(settings: SparkSettings, app_name: str) -> SparkSession:
    """The session of a Headrace process. Settings the user gave win. `NotFound` if there is no Java."""
    use_java(Path.home() / ".cache" / "headrace" / "java")
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    conf = connector_conf() | {
        "spark.driver.memory": settings.memory,
        "spark.sql.shuffle.partitions": str(settings.shuffle_partitions),
    }
    if settings.master.startswith("local"):
        conf |= _AUTHENTICATED
        # A laptop that slept: Spark would take its own process for an executor that died, and never get over it.
        conf["spark.storage.blockManagerHeartbeatTimeoutMs"] = str(_A_MONTH_MS)
    builder = SparkSession.builder.appName(app_name).master(settings.master)
    for name, value in (conf | settings.conf).items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    _keep_class_lookups(session)
    take_turns(session)
    return session


def _keep_class_lookups(session: SparkSession) -> None:
    """PySpark asks Java for these with every call. For a simple name Java searches hundreds of jars, once for each
    package that PySpark imports as a whole."""
    jvm: Any = session.sparkContext._jvm
    functions, active = "org.apache.spark.sql.functions", "org.apache.spark.sql.classic.SparkSession"
    for name in ("PythonUtils", "PythonSQLUtils", "functions", "java", "dev", functions, active):
        vars(jvm).setdefault(name, getattr(jvm, name))


def take_turns(session: SparkSession) -> None:
    """So that FAIR is fair to every query (docs/decisions: queries take turns by who has waited longest)."""
    context = session.sparkContext
    if context.getConf().get("spark.scheduler.mode") == "FAIR":
        jvm: Any = context._jvm
        jvm.dev.headrace.spark.Turns.take(context._jsc.sc())

"""Checkpoints are synced and cost no child process: seen with strace, on a Spark of its own."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.slow]

QUERY = """
import sys
from pathlib import Path
from headrace.config import SparkSettings
from headrace.process.jvm import spark_session
from headrace.spark import read_topic
from tests.log.support import VIEWS, open_owner, put

folder = Path(sys.argv[1])
log = open_owner(folder / "log")
log.create_topic(VIEWS)
put(log, "pageviews", USERID=list("abcdefghijkl"))
spark = spark_session(SparkSettings(master="local[2]", memory="1g"), "checkpoints")


def write(frame, number):
    frame.write.format("noop").mode("append").save()
    if number in (2, 10):
        (folder / f"marker-{number}").touch()


counts = read_topic(spark, log.folder, "pageviews", stream=True, max_rows=1).groupBy("USERID").count()
writer = counts.writeStream.foreachBatch(write).outputMode("update")
writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
writer.trigger(availableNow=True).start().awaitTermination(120)
spark.stop()
log.close()
"""


def test_a_stateful_batch_is_synced_and_starts_no_process(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    calls = "trace=execve,fsync,rename,openat,close"
    strace = ["strace", "-f", "-qq", "-y", "-s", "200", "-e", calls, "-o", str(trace)]
    subprocess.run([*strace, sys.executable, "-c", QUERY, str(tmp_path)], check=True, timeout=240, capture_output=True)
    text = trace.read_text(errors="replace")
    begin, end = (text.index(f'"{tmp_path}/marker-{batch}"') for batch in (2, 10))
    batches = text[begin:end].splitlines()

    # Spark asks for the page size once, with its first heartbeat, whenever that falls.
    heartbeat = {line.split()[0] for line in batches if '"getconf"' in line}
    assert [line for line in batches if "execve(" in line and line.split()[0] not in heartbeat] == []
    renamed = [match for line in batches if (match := re.search(r'rename\("([^"]+)", "([^"]+)"', line))]
    checkpoint = [(match[1], match[2]) for match in renamed if match[2].startswith(str(tmp_path / "checkpoint"))]
    # Offsets, commit and state of eight batches.
    assert len(checkpoint) >= 3 * 8
    for temporary, final in checkpoint:
        wanted = [
            rf"fsync\(\d+<{re.escape(temporary)}>",
            re.escape(f'"{final}"'),
            rf"fsync\(\d+<{re.escape(str(Path(final).parent))}>",
        ]
        # The file, then its new name, then the folder that holds the name.
        position = -1
        for pattern in wanted:
            position = next(i for i, line in enumerate(batches) if i > position and re.search(pattern, line))

"""Whether a checkpoint belongs to the log: decided before Spark reads it."""

from __future__ import annotations

import json
import shutil
from hashlib import sha256
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.clock import ManualClock
from headrace.config import LogSettings
from headrace.coordinate.catalog import Catalog
from headrace.coordinate.planning import query_spec
from headrace.coordinate.statements import StatementExecutor
from headrace.errors import CheckpointOfAnotherLog
from headrace.log.base import Append, BatchIdentity
from headrace.log.local.open import LocalLog
from headrace.process.base import QuerySpec
from headrace.process.checkpoints import check_checkpoint, read_checkpoint, relocate_checkpoint
from headrace.process.failures import describe_failure, is_permanent

SQL = """
CREATE STREAM clicks (page VARCHAR KEY, n BIGINT) WITH (KAFKA_TOPIC='clicks');
CREATE TABLE counted AS SELECT page, COUNT(*) AS n FROM clicks GROUP BY page;
"""
CLICK = pa.RecordBatch.from_pydict({"PAGE": ["/"], "N": [1]})


class Running:
    """A query whose checkpoint and identities are written as Spark and the connector write them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.open()
        StatementExecutor(self.log, Catalog(self.log), ManualClock(0)).execute(SQL)

    def open(self) -> None:
        self.log = LocalLog(self.folder / "log", LogSettings(), ManualClock(0), serve=False)

    @property
    def spec(self) -> QuerySpec:
        catalog = Catalog(self.log)
        catalog.refresh()
        [query] = catalog.queries()
        return query_spec(query, catalog, self.folder / "checkpoints")

    def plan_batch(self, number: int) -> str:
        """Send an event, and plan the batch that reads it."""
        self.log.append([Append("clicks", CLICK)]).result()
        folder, topic = self.spec.checkpoint, self.log.topic("clicks")
        for name in ("offsets", "commits"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        if not (folder / "metadata").exists():
            (folder / "metadata").write_text(json.dumps({"id": "0123"}))
        [ends] = self.log.snapshot().ends["clicks"]
        place = {"topic": topic.id, "arrival": self.log.snapshot().arrival, "partitions": {"0": ends.end}}
        text = f'v1\n{{"batchWatermarkMs":0,"batchTimestampMs":{number}}}\n{json.dumps(place)}'
        (folder / "offsets" / str(number)).write_text(text)
        return text

    def run_batch(self, number: int) -> None:
        text, spec = self.plan_batch(number), self.spec
        offsets = json.dumps({"digest": sha256(text.encode()).hexdigest()})
        self.log.commit("t", [], BatchIdentity(spec.id, spec.version, "0123", number, offsets))
        (spec.checkpoint / "commits" / str(number)).write_text("v1\n{}")

    def check(self) -> None:
        check_checkpoint(self.log, self.spec)

    def refused(self, why: str) -> None:
        with pytest.raises(CheckpointOfAnotherLog, match=why) as refused:
            self.check()
        assert refused.value.hint == "compute it again from the log:  headrace view rebuild counted"
        assert is_permanent(refused.value)
        assert why in describe_failure(refused.value, self.spec, 0).message

    def restored(self, change: Path) -> None:
        self.log.close()
        shutil.rmtree(self.folder / "log")
        shutil.copytree(change, self.folder / "log")
        self.open()


@pytest.fixture
def running(tmp_path: Path) -> Running:
    return Running(tmp_path)


def test_a_query_goes_on_from_its_own_checkpoint_wherever_it_was_killed(running: Running) -> None:
    running.check()
    running.plan_batch(0)
    running.check()
    for number in range(3):
        running.run_batch(number)
        running.check()
    running.plan_batch(3)
    running.check()
    # Committed in the log, and not yet in the checkpoint.
    (running.spec.checkpoint / "commits" / "2").unlink()
    (running.spec.checkpoint / "offsets" / "3").unlink()
    running.check()


def test_a_log_that_was_copied_back_is_noticed_at_once_and_after_it_has_overtaken(running: Running) -> None:
    running.run_batch(0)
    running.log.close()
    shutil.copytree(running.folder / "log", running.folder / "copy")
    running.open()
    for number in (1, 2, 3):
        running.run_batch(number)
    running.restored(running.folder / "copy")
    running.refused("its checkpoint is at batch 3, and the log ends with batch 0")
    for _ in range(10):
        running.log.append([Append("clicks", CLICK)]).result()
    running.refused("its checkpoint is at batch 3, and the log ends with batch 0")


def test_a_batch_that_was_planned_with_records_that_are_gone_is_not_run(running: Running) -> None:
    running.run_batch(0)
    running.log.close()
    shutil.copytree(running.folder / "log", running.folder / "copy")
    running.open()
    running.plan_batch(1)
    running.restored(running.folder / "copy")
    running.refused("its checkpoint has read topic `clicks` further than the log goes")


def test_a_checkpoint_that_is_missing_replaced_old_or_damaged_is_noticed(running: Running) -> None:
    for number in range(3):
        running.run_batch(number)
    folder = running.spec.checkpoint
    shutil.copytree(folder, running.folder / "kept")

    def changed(why: str) -> None:
        running.refused(why)
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(running.folder / "kept", folder)
        running.check()

    (folder / "metadata").unlink()
    changed("the file `metadata` is missing")
    (folder / "metadata").write_text(json.dumps({"id": "4567"}))
    changed("its checkpoint was replaced")
    for name in ("offsets/2", "commits/2", "offsets/1", "commits/1"):
        (folder / name).unlink()
    changed("its checkpoint is older than the log: it has no batch 2")
    (folder / "offsets" / "2").write_text((folder / "offsets" / "2").read_text() + " ")
    changed("batch 2 of its checkpoint is not the one that the log has")
    shutil.rmtree(folder)
    changed("its checkpoint is missing, and the log has 3 batches of it")


def test_a_checkpoint_of_a_query_that_the_log_does_not_know_is_noticed(running: Running) -> None:
    running.log.close()
    shutil.copytree(running.folder / "log", running.folder / "copy")
    running.open()
    running.run_batch(0)
    running.restored(running.folder / "copy")
    running.refused("its checkpoint has batch 0, and the log has none of it")


def test_a_checkpoint_that_was_moved_with_its_project_names_its_own_files(tmp_path: Path) -> None:
    metadata = tmp_path / "new" / "CTAS_A_1-v1" / "state" / "1" / "_metadata" / "v2" / "0"
    metadata.parent.mkdir(parents=True)
    metadata.write_text('v2\n{"paths":["file:/old place/checkpoints/CTAS_A_1-v1/state/1/_stateSchema/default/0_x"]}')
    checkpoint = tmp_path / "new" / "CTAS_A_1-v1"
    relocate_checkpoint(checkpoint)
    expected = f'v2\n{{"paths":["file:{checkpoint}/state/1/_stateSchema/default/0_x"]}}'
    assert metadata.read_text() == expected
    relocate_checkpoint(checkpoint)
    assert metadata.read_text() == expected
    assert read_checkpoint(checkpoint) is None

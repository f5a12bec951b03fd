"""Checkpoints of dropped queries go; all others are sacred."""

from __future__ import annotations

from pathlib import Path

from headrace.clock import ManualClock
from headrace.coordinate.catalog import Catalog
from headrace.coordinate.planning import query_spec
from headrace.coordinate.reconcile import sweep_checkpoints
from headrace.coordinate.statements import StatementExecutor
from headrace.log.local.open import LocalLog
from headrace.sql.plan import Aggregate, walk

SQL = """
CREATE STREAM clicks (page VARCHAR KEY, n BIGINT) WITH (KAFKA_TOPIC='clicks');
CREATE TABLE gone AS SELECT page, COUNT(*) AS n FROM clicks GROUP BY page;
CREATE TABLE per_minute AS SELECT page, COUNT(*) AS n FROM clicks WINDOW TUMBLING (SIZE 1 MINUTE) GROUP BY page;
DROP TABLE gone DELETE TOPIC;
"""


def test_only_what_the_catalog_has_known_and_dropped_goes(tmp_path: Path, log: LocalLog, clock: ManualClock) -> None:
    before = Catalog(log)
    executor = StatementExecutor(log, Catalog(log), clock)
    executor.execute(SQL)
    folder = tmp_path / "checkpoints"
    names = {"CTAS_GONE_1-v1", "CTAS_PER_MINUTE_2-v1", "CTAS_FUTURE_3-v1", "somebody else's"}
    for name in names:
        (folder / name / "offsets").mkdir(parents=True)
    # A catalog that has not seen the events yet must not take anything.
    sweep_checkpoints(before, folder)
    assert {found.name for found in folder.iterdir()} == names
    sweep_checkpoints(executor.catalog, folder)
    assert {found.name for found in folder.iterdir()} == names - {"CTAS_GONE_1-v1"}
    sweep_checkpoints(executor.catalog, tmp_path / "nowhere")


def test_a_query_of_the_catalog_is_planned_again(tmp_path: Path, log: LocalLog, clock: ManualClock) -> None:
    executor = StatementExecutor(log, Catalog(log), clock)
    executor.execute(SQL)
    [query] = executor.catalog.queries()
    spec = query_spec(query, executor.catalog, tmp_path)
    assert (spec.id, spec.version, spec.late_topic) == ("CTAS_PER_MINUTE_2", 1, "_late.CTAS_PER_MINUTE_2")
    assert spec.checkpoint == tmp_path / "CTAS_PER_MINUTE_2-v1"
    assert spec.plan.sink == executor.catalog.source("PER_MINUTE")
    assert [source.name for source in spec.plan.inputs] == ["CLICKS"]
    assert any(isinstance(node, Aggregate) for node in walk(spec.plan.root))

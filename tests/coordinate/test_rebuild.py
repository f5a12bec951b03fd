"""Computing views again from the log, because their checkpoints are lost or of another log."""

from __future__ import annotations

import pyarrow as pa
import pytest

from headrace.clock import ManualClock
from headrace.coordinate.deployments import Deployments
from headrace.coordinate.rebuilding import rebuilt_versions
from headrace.coordinate.statements import StatementExecutor
from headrace.errors import Refused, UsageError
from headrace.log.base import Append
from headrace.log.local.open import LocalLog
from tests.coordinate.deploying import reads

CLICK = pa.RecordBatch.from_pydict({"USERID": ["ann"], "PAGE": ["/"]})


def test_a_view_is_computed_again_with_all_that_reads_it(deployments: Deployments, executor: StatementExecutor) -> None:
    started = deployments.rebuild(["BY_USER"])
    assert {item.name: (item.verdict, item.before, item.number) for item in started.items} == {
        "BY_USER": ("rebuilds", 1, 2),
        "TOP": ("rebuilds", 1, 2),
    }
    assert (started.approved, started.again) == (True, True)
    deployments.switch(started)
    assert reads(executor, "TOP") == ["BY_USER.v2"]
    # They are not kept for a rollback: their queries cannot go on.
    assert {(one.name, one.number) for one in rebuilt_versions(executor.catalog)} == {("BY_USER", 1), ("TOP", 1)}


def test_what_the_log_no_longer_holds_is_only_left_out_if_that_is_accepted(
    deployments: Deployments, log: LocalLog, clock: ManualClock
) -> None:
    for _ in range(3):
        log.append([Append("clicks", CLICK)]).result()
    log.delete_records("clicks", 0, 2)
    with pytest.raises(Refused, match="no longer holds all that `by_user` is made of") as refused:
        deployments.rebuild(["BY_USER"])
    assert "2 earlier records of topic `clicks` are gone" in str(refused.value.detail)
    assert "--accept-loss" in str(refused.value.hint)
    assert deployments.rebuild(["BY_USER"], accept_loss=True).stage == "building"


def test_what_no_query_writes_cannot_be_computed_again(deployments: Deployments) -> None:
    with pytest.raises(UsageError, match="`clicks` is declared over topic `clicks`"):
        deployments.rebuild(["CLICKS"])

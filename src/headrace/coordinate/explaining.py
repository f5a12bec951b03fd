"""EXPLAIN EXTENDED of a statement: Spark's plan is the engine's to make, of a query that nobody starts."""

from __future__ import annotations

import time

from headrace.coordinate.status import EngineStatus

LOOK_S, MOST_S = 0.05, 30.0
NOT_RUNNING = "Spark's plan is made by the engine, which is not running: `headrace up` starts it"
ANSWERED_HERE = "Spark has no part in it: the server answers it from the table's store, or from the log"


def asked_plan(status: EngineStatus, query_id: str) -> str:
    """What the engine says, once it does."""
    end = time.monotonic() + MOST_S
    while time.monotonic() < end:
        found = status.status(query_id)
        if found is not None and found.state == "failed":
            return f"Spark cannot plan it: {found.last_error.message if found.last_error else 'it does not say why'}"
        if found is not None and found.spark_plan is not None:
            return found.spark_plan
        if status.state()["state"] != "running":
            return NOT_RUNNING
        time.sleep(LOOK_S)
    return f"the engine has not planned it within {MOST_S:g} s: it is busy, ask again"

"""A project whose queries a thread of the test computes instead of Spark: each of its tables counts the clicks there
are, in the row `all`, beside rows that never change; a stream `home` is a copy of them. It commits as the engine does,
with what it has read."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import msgspec
import pyarrow as pa

from headrace.clock import Clock, SystemClock
from headrace.config import load_project
from headrace.coordinate.base import QueryDefinition
from headrace.coordinate.deployments import Options
from headrace.coordinate.how_far import lag_of
from headrace.coordinate.status import EngineReport
from headrace.errors import HeadraceError
from headrace.log.base import Append, BatchIdentity, Route
from headrace.log.schema import arrow_type
from headrace.process.base import QueryError, QueryStatus
from headrace.server.assemble import open_services
from headrace.server.services import Services
from headrace.store.cuts import Cut, Places
from headrace.views.versions import Deployment
from tests.support import wait_for

PATIENCE = 30.0
QUIET = "[views]\ncheck_every_seconds = 0\n"
SQL = """
CREATE STREAM clicks (userid VARCHAR KEY, page VARCHAR) WITH (KAFKA_TOPIC='clicks', PARTITIONS=1);
CREATE TABLE by_page AS SELECT page, COUNT(*) AS n FROM clicks GROUP BY page;
"""
SAME = SQL.replace("FROM clicks GROUP", "FROM clicks WHERE page IS NOT NULL GROUP")


class ByHand:
    """`pause_s` is what lies between two commits."""

    def __init__(self, services: Services, rows: int = 0, pause_s: float = 0.002) -> None:
        self.services, self._rows, self._pause_s = services, rows, pause_s
        self._stop = threading.Event()
        self.held: set[str] = set()
        """Topics that are written no more until they are let go."""
        self.left_out: set[str] = set()
        """Of these topics clicks are read, and not written, as a WHERE would have it."""
        self.more: dict[str, int] = {}
        """By topic: how much more it counts than there is."""
        self.failed: dict[str, str] = {}
        """By query: why it cannot go on, as the engine says again and again."""
        self._thread = threading.Thread(target=self._work, name="queries-by-hand")

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._thread.join()

    def _work(self) -> None:
        while not self._stop.wait(self._pause_s):
            if self.failed:
                self._report()
            for query in self.services.catalog.queries():
                held = query.sink_topic in self.held or not query.sink.startswith(("BY_PAGE", "HOME"))
                if query.wanted == "running" and not held and query.id not in self.failed:
                    self._compute(query)

    def _compute(self, query: QueryDefinition) -> None:
        log = self.services.log
        before = log.last_identity(query.id, 1)
        batch = 0 if before is None else before.batch + 1
        found = self._new(query, before)
        if found is None:
            return
        done, read, offsets = found
        if query.sink == "HOME":
            columns = self._clicks(0 if query.sink_topic in self.left_out else read - done)
        else:
            type_ = arrow_type(log.topic(query.sink_topic).spec.value[0].type)
            columns = self._counted(type_, read + self.more.get(query.sink_topic, 0), self._rows if not batch else 0)
        route = Route(query.sink_topic, {name: name for name in columns})
        transaction = f"{query.id}-{batch}"
        identity = BatchIdentity(query.id, 1, "by hand", batch, msgspec.json.encode(offsets).decode())
        try:
            log.stage(transaction, 0, 0, [route], iter([pa.record_batch(columns)]))
            log.commit(transaction, [(0, 0)], identity)
        except HeadraceError:
            # What it writes to may go while it writes, or the test's clock jump: as the engine does, it tries again.
            log.abort(transaction)

    def _new(self, query: QueryDefinition, before: BatchIdentity | None) -> tuple[int, int, dict[str, Any]] | None:
        """From where and up to where a query reads clicks, and what its batch says of that. None if none are new: what
        others write, it included, is no reason for a batch."""
        log = self.services.log
        [topic] = query.reads.values()
        said = None if before is None else msgspec.json.decode(before.offsets)
        if "arrival" not in log.capabilities:
            [ends] = log.snapshot().ends[topic]
            until = ends.end if query.until is None else cast(Places, query.until)[topic][0]
            done, read = 0 if said is None else int(said["topics"][topic]["0"]), min(ends.end, until)
            new = said is None or read > done
            return (done, read, {"partitions": {"0": read}, "topics": {topic: {"0": read}}}) if new else None
        arrival = log.snapshot().arrival
        cut = arrival if query.until is None else min(arrival, int(str(query.until)))
        last = 0 if said is None else int(said["arrival"])
        if last >= cut:
            return None
        done, read = (log.offset_at_arrival(topic, 0, one) for one in (last, cut))
        return (done, read, {"arrival": cut}) if said is None or read > done else None

    @staticmethod
    def _counted(type_: pa.DataType, clicks: int, others: int) -> dict[str, pa.Array]:
        rows = [("all", clicks), *((f"row {n}", n) for n in range(others))]
        return {
            "PAGE": pa.array([page for page, _ in rows]),
            "N": pa.array([count for _, count in rows], type_),
            "$time": pa.array([0] * len(rows), pa.int64()),
        }

    @staticmethod
    def _clicks(count: int) -> dict[str, pa.Array]:
        times = pa.array([0] * count, pa.int64())
        return {"USERID": pa.array(["ann"] * count), "PAGE": pa.array(["/"] * count), "$time": times}

    def click(self, count: int = 1) -> None:
        self.services.log.append([Append("clicks", pa.record_batch(self._clicks(count)))]).result()

    def fails(self, query: QueryDefinition, why: str) -> None:
        self.failed[query.id] = why
        self._report()

    def _report(self) -> None:
        statuses = [
            QueryStatus(query, "failed", last_error=QueryError(why, 0, ""), updated_ms=0)
            for query, why in list(self.failed.items())
        ]
        self.services.engine.receive(
            msgspec.to_builtins(EngineReport("running", 1, statuses, None, self.services.catalog.state.events))
        )

    def deploy(self, sql: str, **options: Any) -> Deployment:
        started = self.services.deployments.start({"all.sql": sql}, Options(**options))
        assert started is not None
        return started

    def reaches(self, deployment: Deployment, stage: str) -> Deployment:
        def there() -> bool:
            found = self.services.deployments.get(deployment.id)
            assert found.stage == stage or found.stage not in ("waiting", "failed") or found.approved, found.detail
            return found.stage == stage

        wait_for(there, PATIENCE, f"deployment {deployment.id} to be {stage}")
        return self.services.deployments.get(deployment.id)

    def serving(self, name: str = "BY_PAGE") -> int:
        return self.services.catalog.state.serving[name]

    def lag(self, topic: str) -> int:
        """What the query that writes a topic has yet to read."""
        return lag_of(self.services.log, self._writer(topic))

    def until(self, topic: str) -> Cut | None:
        """Up to where it may read."""
        return self._writer(topic).until

    def _writer(self, topic: str) -> QueryDefinition:
        [query] = [query for query in self.services.catalog.queries() if query.sink_topic == topic]
        return query

    def shown(self) -> int:
        """The clicks that are served."""
        rows = self.services.followers.view("BY_PAGE").select(["PAGE", "N"])[0].rows
        return int(dict(rows).get("all", 0))


@contextmanager
def by_hand(folder: Path, sql: str = SQL, rows: int = 0, clock: Clock | None = None, log: str = "") -> Iterator[ByHand]:
    """`log`: settings of the log, if it is not a local one."""
    (folder / "headrace.toml").write_text(QUIET + log)
    with open_services(load_project(folder), clock or SystemClock()) as services:
        services.deployments.start({"all.sql": sql}, Options())
        engine = ByHand(services, rows)
        engine.start()
        try:
            yield engine
        finally:
            engine.close()

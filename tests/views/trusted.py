"""A real server whose queries are run by the test: until they have read what is there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from headrace.config import SparkSettings
from headrace.coordinate.planning import query_spec
from headrace.log.base import Append
from headrace.log.schema import arrow_type
from headrace.process.session import query_session
from headrace.process.streaming import start_query
from headrace.types import BIGINT, BOOLEAN
from tests.server.running import Running, running_server
from tests.support import wait_for

MINUTE = 60_000


@dataclass(frozen=True)
class Trusted:
    server: Running
    spark: SparkSession
    folder: Path

    def send(self, topic: str, *events: dict[str, Any]) -> None:
        """One at a time, so that they arrive in this order."""
        for event in events:
            assert self.server.send(topic, event).status_code in (200, 422)

    def compute(self) -> None:
        """Every query until it has read what is there, inputs first, and the views until they show it."""
        services = self.server.services
        for query in services.catalog.queries():
            spec = query_spec(query, services.catalog, services.project.checkpoints_folder)
            running = start_query(
                query_session(self.spark),
                services.project.log_folder,
                lambda name: services.log.topic(name).spec,
                SparkSettings(),
                spec,
                available_now=True,
            )
            running.awaitTermination()
        self.caught_up()

    def caught_up(self) -> None:
        followers = self.server.services.followers
        wait_for(lambda: not any(followers.lag(name) for name in followers.names()), 30, "the views")

    def why(self, view: str, **parameters: Any) -> dict[str, Any]:
        answer = self.server.http.get(f"/v1/views/{view}/why", params=parameters)
        assert answer.status_code == 200, answer.text
        body: dict[str, Any] = answer.json()
        return body

    def plant(self, topic: str, row: dict[str, Any]) -> None:
        """Write a row into a changelog, as no query would."""
        log = self.server.services.log
        spec = log.topic(topic).spec
        types = {c.name: c.type for c in spec.key + spec.value}
        types |= {"$time": BIGINT, "$tombstone": BOOLEAN, "$window_start": BIGINT, "$window_end": BIGINT}
        batch = pa.record_batch({name: pa.array([value], arrow_type(types[name])) for name, value in row.items()})
        log.append([Append(topic, batch)]).result(30)
        self.caught_up()


@contextmanager
def trusted(folder: Path, spark: SparkSession, sql: str, toml: str = "") -> Iterator[Trusted]:
    with running_server(folder, toml, sql) as server:
        yield Trusted(server, spark, folder)


def places(records: Sequence[dict[str, Any]]) -> set[tuple[str, int, int]]:
    return {(record["topic"], record["partition"], record["offset"]) for record in records}

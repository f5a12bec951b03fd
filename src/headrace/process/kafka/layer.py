"""The batch layer of a Lambda view → Kafka: one transaction, with the job's identity, which names the cut."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from headrace.errors import QueryFailed
from headrace.log.base import BatchIdentity, TopicSpec
from headrace.log.dead_letters import create_dead_letters
from headrace.log.local.files import replace_file
from headrace.process.base import LayerSpec
from headrace.process.kafka.inputs import KafkaRangeInputs, Offsets
from headrace.process.kafka.letters import dead_letters, stage_letters
from headrace.process.kafka.place import KafkaPlace
from headrace.process.lower.sink import Routed


class KafkaStretch:
    """What computing one stretch takes beside the rows: how far time has come, and what could not be decoded."""

    def __init__(self, session: SparkSession, place: KafkaPlace, job: str) -> None:
        create_dead_letters(place.log)
        self._session, self._place = session, place
        self._letters = dead_letters(session, job)
        self._inputs: KafkaRangeInputs | None = None

    def inputs(
        self,
        topics: Callable[[str], TopicSpec],
        starts: Mapping[str, Offsets],
        ends: Mapping[str, Offsets],
        times: Mapping[str, Offsets],
    ) -> KafkaRangeInputs:
        self._inputs = KafkaRangeInputs(
            self._session, self._place, topics, starts, ends, self._letters.box, times, observed={}
        )
        return self._inputs

    def times(self, before: Mapping[str, Offsets]) -> dict[str, Offsets]:
        """How far time has come where the stretch ends, which has been computed."""
        assert self._inputs is not None
        return {**before, **self._inputs.reached()}

    def keep_letters(self, file: Path) -> list[str]:
        """The file's name, if there is anything to keep: most stretches have no dead letter, and there may be
        thousands of stretches."""
        batch = self._letters.batch()
        if batch is None:
            return []
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        replace_file(file, sink.getvalue().to_pybytes())
        return [file.name]

    def commit(self, spec: LayerSpec, routed: Routed, kept: Sequence[Path]) -> None:
        """As every batch's on Kafka its rows pass through the driver. Done again it changes nothing: the identity is
        there, or nothing is. `kept` are dead letters of the stretches before."""
        log = self._place.log
        if isinstance(spec.cut, int):
            raise QueryFailed(f"the batch layer `{spec.id}` ends at an arrival number, and Kafka has none")
        if log.last_identity(spec.id, 1) is not None:
            return
        transaction = f"{spec.id}-layer"
        log.abort(transaction)
        self._letters.clear()
        log.stage(transaction, 0, 0, routed.routes, iter(routed.frame.toArrow().to_batches()))
        letters = [batch for file in kept for batch in pa.ipc.open_stream(file.read_bytes())]
        last = self._letters.batch()
        tasks = [(0, 0), *stage_letters(log, transaction, 1, [*letters, *([last] if last is not None else [])])]
        log.commit(transaction, tasks, BatchIdentity(spec.id, 1, spec.id, 0, json.dumps({"topics": spec.cut})))

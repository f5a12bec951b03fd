"""What tasks cannot decode (`DeadLetterBox.java`), committed together with what they could."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from headrace.log.base import Route
from headrace.log.dead_letters import DEAD_LETTERS_TOPIC, DeadLetter, bury
from headrace.log.kafka import KafkaLog


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """Of one query. `box` is where its tasks put them."""

    query: str
    box: Any

    def clear(self) -> None:
        self.box.clear()

    def stage(self, log: KafkaLog, transaction: str, task: int) -> list[tuple[int, int]]:
        """Once the tasks have run: as one more task of the transaction, if there are any."""
        batch = self.batch()
        return stage_letters(log, transaction, task, [] if batch is None else [batch])

    def batch(self) -> pa.RecordBatch | None:
        """As the log takes them; None if there are none."""
        found = self._letters()
        return bury(found).batch if found else None

    def _letters(self) -> list[DeadLetter]:
        """Their source says which record it was."""
        return [
            DeadLetter(
                one.topic(),
                one.reason(),
                f"query {self.query} {one.partition()}:{one.offset()}",
                one.id(),
                bytes(one.payload() or b""),
            )
            for one in self.box.letters()
        ]


def stage_letters(
    log: KafkaLog, transaction: str, task: int, batches: Sequence[pa.RecordBatch]
) -> list[tuple[int, int]]:
    if not batches:
        return []
    route = Route(DEAD_LETTERS_TOPIC, {name: name for name in batches[0].schema.names})
    log.stage(transaction, task, 0, [route], iter(batches))
    return [(task, 0)]


def dead_letters(spark: SparkSession, query: str) -> DeadLetters:
    jvm: Any = spark._jvm
    return DeadLetters(query, jvm.dev.headrace.spark.kafka.DeadLetterBox())

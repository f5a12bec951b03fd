"""What tasks cannot decode (`DeadLetterBox.java`), committed together with what they could."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

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
        found = self._letters()
        if not found:
            return []
        batch = bury(found).batch
        route = Route(DEAD_LETTERS_TOPIC, {name: name for name in batch.schema.names})
        log.stage(transaction, task, 0, [route], iter([batch]))
        return [(task, 0)]

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


def dead_letters(spark: SparkSession, query: str) -> DeadLetters:
    jvm: Any = spark._jvm
    return DeadLetters(query, jvm.dev.headrace.spark.kafka.DeadLetterBox())

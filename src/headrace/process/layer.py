"""The batch layer of a Lambda view: what a table holds after exactly the records before a cut.

It is computed a stretch of the log at a time, and what each gives is kept beside the checkpoints (`stretches`). The
last one is merged with all of them and appended as one transaction, together with what came too late: nobody sees a
part of a layer.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from headrace.log.base import TIME, TOMBSTONE, TopicSpec
from headrace.process.base import LATE_COLUMNS, LayerSpec
from headrace.process.batch import last_by_key
from headrace.process.inputs import FORMAT, RangeInputs
from headrace.process.letters import box_for, writing_letters
from headrace.process.lower.lower import lower_late_branch, lower_node, lower_root_parts
from headrace.process.lower.parts import Parts
from headrace.process.lower.rows import Rows, column
from headrace.process.lower.scan import Inputs
from headrace.process.lower.sink import Routed, route_rows
from headrace.process.lower.window import LAST_TIME_MS
from headrace.process.session import query_session
from headrace.process.streaming import routes_json
from headrace.process.stretches import Places, Stretches
from headrace.sql.plan import Aggregate, PersistentQuery, Project

if TYPE_CHECKING:
    from headrace.process.kafka.layer import KafkaStretch
    from headrace.process.kafka.place import KafkaPlace

MOST_KEPT = 16
"""Stretches, until they are merged into one."""
LATE = "late"
_LATE_NAMES = [*(c.name for c in LATE_COLUMNS), TIME]


def write_layer(
    spark: SparkSession, log: Path | KafkaPlace, topics: Callable[[str], TopicSpec], spec: LayerSpec, rows: int = 0
) -> None:
    """All of it, so many rows at a time; 0 is all at once."""
    layer = BatchLayer(spark, log, topics, spec)
    while rows and (ends := layer.stretches.next(rows)) is not None:
        layer.keep(ends)
    layer.commit()


@dataclass(frozen=True, slots=True)
class _Lowered:
    parts: Parts
    late: DataFrame | None


class BatchLayer:
    """One job. Each step may be cut short anywhere and is then done again, by whoever has the same folder. `commit` is
    known by the job's id: a repeat changes nothing."""

    def __init__(
        self, spark: SparkSession, log: Path | KafkaPlace, topics: Callable[[str], TopicSpec], spec: LayerSpec
    ) -> None:
        self._session, self._log, self._topics, self._spec = query_session(spark), log, topics, spec
        self.stretches = Stretches(spec)

    def keep(self, ends: Places) -> None:
        """Compute the stretch up to there, and keep what it gives."""
        account = self.stretches.account
        self.stretches.plan(ends)
        with self._writing(account.stretches):
            kafka = self._kafka()
            lowered = self._lower(account.done, ends, kafka)
            name = self._write(_packed(lowered))
        letters: list[str] = []
        times: Places = {}
        if kafka is not None:
            letters = kafka.keep_letters(self.stretches.path(f"{name}.letters"))
            times = kafka.times(account.times)
        self.stretches.done(name, letters, times)
        if len(self.stretches.account.kept) >= MOST_KEPT:
            self._merge(lowered)

    def commit(self) -> None:
        """Compute what is left, merge it with what was kept, and let all of it be seen."""
        # Like every stretch: what fails in Python is told as it is computed, and known again only by the same stretch.
        self.stretches.plan(self.stretches.ends)
        spec, account = self._spec, self.stretches.account
        with self._writing(account.stretches):
            kafka = self._kafka()
            lowered = self._lower(account.done, self.stretches.ends, kafka)
            frame, late = lowered.parts.frame, lowered.late
            if account.kept:
                kept = self._kept(lowered)
                frame = lowered.parts.merge(frame.unionAll(_parts_of(kept, frame)))
                late = late.unionAll(_late_of(kept)) if late is not None else None
            rows = lowered.parts.finish(frame)
            routed = route_rows(spec.plan, _there(rows), late, spec.late_topic)
            if kafka is None:
                _write_locally(self._local, spec, routed)
            else:
                kafka.commit(spec, routed, [self.stretches.path(name) for name in account.letters])

    @property
    def _local(self) -> Path:
        assert isinstance(self._log, Path)
        return self._log

    def _writing(self, stretch: int) -> Any:
        return writing_letters(box_for(self._log, self._spec.id, self._spec.plan.inputs[0].topic, str(stretch)))

    def _kafka(self) -> KafkaStretch | None:
        if isinstance(self._log, Path):
            return None
        # Only those who use Kafka have its packages.
        from headrace.process.kafka.layer import KafkaStretch

        return KafkaStretch(self._session, self._log, self._spec.id)

    def _lower(self, starts: Places, ends: Places, kafka: KafkaStretch | None) -> _Lowered:
        ends = {**self._spec.ends, **ends}
        if kafka is None:
            inputs: Inputs = RangeInputs(self._session, self._local, self._topics, starts, ends)
        else:
            inputs = kafka.inputs(self._topics, starts, ends, self.stretches.account.times)
        query = self._spec.plan
        late = lower_late_branch(query.root, inputs) if self._spec.late_topic is not None else None
        return _Lowered(_parts(query, inputs), late)

    def _merge(self, lowered: _Lowered) -> None:
        kept = self._kept(lowered)
        parts = lowered.parts.merge(_parts_of(kept, lowered.parts.frame))
        late = _late_of(kept) if lowered.late is not None else None
        self.stretches.merged(self._write(_packed(_Lowered(replace(lowered.parts, frame=parts), late))))

    def _write(self, frame: DataFrame) -> str:
        """Its name, which nobody else has: a Spark whose engine was killed may still be writing the same."""
        name = f"{self.stretches.account.stretches}-{uuid4().hex}"
        frame.write.parquet(str(self.stretches.path(name)))
        return name

    def _kept(self, lowered: _Lowered) -> DataFrame:
        """One by one: several folders whose names have brackets Spark reads more than once."""
        schema = _packed(lowered).schema
        paths = [str(self.stretches.path(name)) for name in self.stretches.account.kept]
        found = [self._session.read.schema(schema).option("__globPaths__", "false").parquet(path) for path in paths]
        return reduce(DataFrame.unionAll, found)


def _parts(query: PersistentQuery, inputs: Inputs) -> Parts:
    root = _never_late(query.root) if query.counts_late else query.root
    if isinstance(root.input, Aggregate):
        return lower_root_parts(root, inputs)
    rows = lower_node(root, inputs)
    newest = last_by_key(query, rows.frame)
    return Parts(newest, lambda several: last_by_key(query, several), rows.with_frame)


def _never_late(root: Project) -> Project:
    """The same without a moment at which its window closes. What came late is written down all the same."""
    if isinstance(root.input, Aggregate) and root.input.window is not None:
        return replace(root, input=replace(root.input, window=replace(root.input.window, grace_ms=LAST_TIME_MS)))
    return root


def _there(rows: Rows) -> Rows:
    return rows.with_frame(rows.frame.filter(~column(TOMBSTONE)))


def _packed(lowered: _Lowered) -> DataFrame:
    """What is kept of a stretch as one frame: its parts, and what came too late."""
    parts = lowered.parts.frame
    types = [field.dataType for field in parts.schema.fields]
    if lowered.late is None:
        return parts.select(*_named(parts.columns, "p"), F.lit(False).alias(LATE))
    late = lowered.late.select(*(column(name) for name in _LATE_NAMES))
    late_types = [field.dataType for field in late.schema.fields]
    left = parts.select(*_named(parts.columns, "p"), F.lit(False).alias(LATE), *_nothing(late_types, "l"))
    right = late.select(*_nothing(types, "p"), F.lit(True).alias(LATE), *_named(_LATE_NAMES, "l"))
    return left.unionAll(right)


def _named(names: list[str], prefix: str) -> list[Any]:
    """By place: a file's columns may not be called everything."""
    return [column(name).alias(f"{prefix}{place}") for place, name in enumerate(names)]


def _nothing(types: list[T.DataType], prefix: str) -> list[Any]:
    return [F.lit(None).cast(type_).alias(f"{prefix}{place}") for place, type_ in enumerate(types)]


def _parts_of(kept: DataFrame, like: DataFrame) -> DataFrame:
    named = [column(f"p{place}").alias(name) for place, name in enumerate(like.columns)]
    return kept.filter(~column(LATE)).select(*named)


def _late_of(kept: DataFrame) -> DataFrame:
    return kept.filter(column(LATE)).select(
        *(column(f"l{place}").alias(name) for place, name in enumerate(_LATE_NAMES))
    )


def _write_locally(log: Path, spec: LayerSpec, routed: Routed) -> None:
    (
        routed.frame.write.format(FORMAT)
        .mode("append")
        .option("path", str(log))
        .option("routes", routes_json(routed.routes))
        .option("query", spec.id)
        .option("offsets", json.dumps({"arrival": spec.cut}))
        .save()
    )

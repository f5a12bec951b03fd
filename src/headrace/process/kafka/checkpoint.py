"""What Spark's checkpoint says about a query: which batch it is, and where the next one begins."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.errors import UsageError
from headrace.log.base import NO_STREAM_TIME, BatchIdentity
from headrace.process.base import QuerySpec
from headrace.process.progress import first_offsets


@dataclass(frozen=True, slots=True)
class PlannedBatch:
    """A file of `offsets/`: two lines of Spark's own, then one per source, after its name and a colon."""

    number: int
    text: str

    @property
    def watermark(self) -> int:
        """What Spark went by when it ran the batch: what this closes came out with it, or before."""
        return int(json.loads(self.text.splitlines()[1])["batchWatermarkMs"])

    @property
    def floor(self) -> int:
        """What stream time had reached in all partitions (`FloorOffset.java`)."""
        return int(next((source["floor"] for source in self.sources().values() if "floor" in source), NO_STREAM_TIME))

    def sources(self) -> dict[str, dict[str, Any]]:
        """Where each source ends, as it says it itself."""
        found: dict[str, dict[str, Any]] = {}
        for number, line in enumerate(self.text.splitlines()[2:]):
            brace = line.find("{")
            if brace >= 0:
                found[line[:brace].rstrip(":") or str(number)] = json.loads(line[brace:])
        return found

    def ends(self, *names: str) -> dict[int, int]:
        """Return where a topic of Kafka's ends, by partition. One that was forked has had another name."""
        for offsets in self.sources().values():
            for topic in names:
                if topic in offsets:
                    return {int(partition): int(offset) for partition, offset in offsets[topic].items()}
        return {}


def planned_batch(checkpoint: Path, number: int) -> PlannedBatch:
    try:
        return PlannedBatch(number, (checkpoint / "offsets" / str(number)).read_text())
    except FileNotFoundError:
        raise UsageError(f"the checkpoint `{checkpoint}` has no batch {number}") from None


def last_done(checkpoint: Path) -> PlannedBatch | None:
    """The last batch that is done: the next one begins where it ends."""
    done = max(_numbers(checkpoint / "commits"), default=None)
    return None if done is None else planned_batch(checkpoint, done)


def last_planned(checkpoint: Path) -> PlannedBatch | None:
    planned = max(_numbers(checkpoint / "offsets"), default=None)
    return None if planned is None else planned_batch(checkpoint, planned)


def _numbers(folder: Path) -> Iterator[int]:
    if folder.is_dir():
        yield from (int(file.name) for file in folder.iterdir() if file.name.isdigit())


def batch_identity(spec: QuerySpec, number: int, kafka_names: Callable[[str], tuple[str, ...]]) -> BatchIdentity:
    """As the Java sink has it (`BatchIdentity.java`): a digest of all that Spark wrote, and where each topic ended,
    the address of the rows (contract 9), with the floor of stream time. (`partitions`, of the first, is what older
    versions wrote and read.) Spark writes both files before it hands the batch to the sink."""
    planned = planned_batch(spec.checkpoint, number)
    checkpoint = json.loads((spec.checkpoint / "metadata").read_text())["id"]
    ends = first_offsets(planned.sources().values())
    topics = {source.topic: planned.ends(*kafka_names(source.topic)) for source in spec.plan.inputs}
    offsets = {
        "partitions": _by_partition(ends),
        "topics": {topic: _by_partition(places) for topic, places in topics.items()},
        "floor": planned.floor,
        "digest": hashlib.sha256(planned.text.encode()).hexdigest(),
    }
    return BatchIdentity(spec.id, spec.version, checkpoint, number, json.dumps(offsets))


def _by_partition(places: Mapping[int, int]) -> dict[str, int]:
    return {str(partition): end for partition, end in sorted(places.items())}

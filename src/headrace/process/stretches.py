"""A job over a bounded range of the log, taken in stretches: how long they are, and what is known of those that are
done.

What a stretch gave is kept until the job is done, so a job that was paused or killed goes on behind the last one. The
account of it is replaced only once all of that is on disk. A stretch is noted in it before it is computed: who comes
again computes the same one.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping
from pathlib import Path

import msgspec

from headrace import __version__
from headrace.log.local.files import replace_file
from headrace.process.base import LayerSpec
from headrace.structs import ready

Places = Mapping[str, Mapping[int, int]]
"""By topic and partition."""

ACCOUNT = "account.json"
PACED_S = 5.0
"""How many seconds' worth of rows a job with a pace reads at a time."""
AIM_S = 30.0
"""How long a stretch of one without should take: about what is lost with one that is cut short. Each costs its groups
once more, so shorter ones would make a table of many keys slow."""
LEAST_GROWTH, MOST_GROWTH = 0.25, 4.0


class Account(msgspec.Struct, frozen=True):
    of: str
    """Which work it is of; another's is worth nothing."""
    done: dict[str, dict[int, int]]
    """Up to where what is kept goes."""
    planned: dict[str, dict[int, int]] | None = None
    """And up to where the next stretch does."""
    stretches: int = 0
    kept: list[str] = []
    """Folders."""
    letters: list[str] = []
    """Files with dead letters."""
    times: dict[str, dict[int, int]] = {}
    """On Kafka: how far time had come there."""


class Stretches:
    """Of one job. Without a folder nothing is kept, so there is one."""

    def __init__(self, spec: LayerSpec) -> None:
        self.folder = spec.folder
        # Of tables that a stream meets each stretch needs all.
        whole = {topic: ends for topic, ends in spec.ends.items() if topic in spec.from_beginning}
        self.ends = {topic: ends for topic, ends in spec.ends.items() if topic not in whole}
        begins = {
            topic: {partition: spec.begins.get(topic, {}).get(partition, 0) for partition in ends}
            for topic, ends in self.ends.items()
        }
        self._again = count(spec.begins, whole)
        self.total = count(begins, self.ends)
        of = f"{__version__} {spec.id} {spec.cut} {_plain(self.ends)} {spec.epoch}".rstrip()
        found = _read(self.folder)
        self.account = found if found is not None and found.of == of and self._has(found) else Account(of, begins)

    def _has(self, account: Account) -> bool:
        """Spark reads what is not there as nothing."""
        return all(self.path(name).exists() for name in (*account.kept, *account.letters))

    @property
    def left(self) -> int:
        return count(self.account.done, self.ends)

    def next(self, rows: int) -> Places | None:
        """Where a stretch of about so many rows ends, or of as many as have to be read again for each; as it was
        planned, if it was. None if that is the last."""
        if self.folder is None:
            return None
        ends = self.account.planned or self._ahead(rows)
        return ends if count(ends, self.ends) else None

    def paced(self, rows_per_second: int) -> int:
        """How many rows the next stretch would have that is planned with this pace. One that was planned without may
        have a thousand times as many, and nobody is to rest for hours to make up for them."""
        return count(self.account.done, self._ahead(paced_rows(rows_per_second))) if rows_per_second else 0

    def _ahead(self, rows: int) -> Places:
        return ahead(self.account.done, self.ends, max(1, rows, self._again))

    def plan(self, ends: Places) -> None:
        if self.folder is not None:
            self._save(msgspec.structs.replace(self.account, planned=_plain(ends)))

    def done(self, kept: str, letters: list[str], times: Places) -> None:
        """What was planned is, and what it gave is on disk under these names."""
        account = self.account
        assert account.planned is not None
        self._save(
            msgspec.structs.replace(
                account,
                done=account.planned,
                planned=None,
                stretches=account.stretches + 1,
                kept=[*account.kept, kept],
                letters=[*account.letters, *letters],
                times=_plain(times),
            )
        )

    def merged(self, kept: str) -> None:
        """All that was kept is in one."""
        self._save(msgspec.structs.replace(self.account, kept=[kept]))
        self.tidy()

    def tidy(self) -> None:
        """Remove what does not count: of a stretch that was cut short, of work that was another's. The Spark of a
        killed engine may still be writing there; what cannot be removed now is the next time."""
        there = list(self.folder.iterdir()) if self.folder is not None and self.folder.is_dir() else []
        for path in there:
            if path.name not in (ACCOUNT, *self.account.kept, *self.account.letters):
                shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)

    def path(self, name: str) -> Path:
        assert self.folder is not None
        return self.folder / name

    def _save(self, account: Account) -> None:
        assert self.folder is not None
        self.folder.mkdir(parents=True, exist_ok=True)
        replace_file(self.folder / ACCOUNT, msgspec.json.encode(account))
        self.account = account


def _read(folder: Path | None) -> Account | None:
    try:
        return None if folder is None else msgspec.json.decode((folder / ACCOUNT).read_bytes(), type=ready(Account))
    except (OSError, msgspec.MsgspecError):
        return None


def _plain(places: Places) -> dict[str, dict[int, int]]:
    return {topic: dict(offsets) for topic, offsets in places.items()}


def count(starts: Places, ends: Places) -> int:
    """How many offsets lie between.

    >>> count({"a": {0: 5}}, {"a": {0: 7, 1: 10}}), count({"a": {0: 9}}, {"a": {0: 7}})
    (12, 0)
    """
    return sum(
        max(0, end - starts.get(topic, {}).get(partition, 0))
        for topic, offsets in ends.items()
        for partition, end in offsets.items()
    )


def ahead(starts: Places, ends: Places, rows: int) -> Places:
    """About so many rows from `starts` on, of each partition its share; all of them if few would be left.

    >>> ahead({"a": {0: 0, 1: 50}}, {"a": {0: 100, 1: 100}}, 30)
    {'a': {0: 20, 1: 60}}
    >>> ahead({"a": {0: 90}}, {"a": {0: 100}}, 9)
    {'a': {0: 100}}
    """
    left = count(starts, ends)
    if left <= rows * 5 // 4:
        return ends
    found = {}
    for topic, offsets in ends.items():
        begun = {partition: min(starts.get(topic, {}).get(partition, 0), end) for partition, end in offsets.items()}
        found[topic] = {
            partition: begun[partition] + math.ceil((end - begun[partition]) * rows / left)
            for partition, end in offsets.items()
        }
    return found


def paced_rows(rows_per_second: int) -> int:
    """Of a stretch."""
    return int(rows_per_second * PACED_S)


def next_length(rows: int, seconds: float, least: int) -> int:
    """Of a stretch, after one of so many rows that took so long.

    >>> next_length(1000, 60.0, 10), next_length(1000, 0.1, 10), next_length(1000, 9999.0, 400)
    (500, 4000, 400)
    """
    growth = min(MOST_GROWTH, max(LEAST_GROWTH, AIM_S / max(seconds, 0.001)))
    return max(least, int(rows * growth))

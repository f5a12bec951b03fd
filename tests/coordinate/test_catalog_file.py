"""The catalog's state in a file: a shorter way to what the log says, and never anything else."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from headrace.coordinate.catalog import Catalog, create_internal_topics
from headrace.coordinate.catalog_file import CatalogFile, Saved, _decode, _encode
from headrace.coordinate.events import (
    DeploymentSaved,
    Event,
    FunctionsChanged,
    QueryCreated,
    QueryPaced,
    SourceCreated,
    TypeCreated,
    VersionCreated,
    VersionsSwitched,
    ViewCreated,
)
from headrace.coordinate.fold import WITH_SAMPLES, CatalogState, fold_all
from headrace.functions.files import FunctionFile
from headrace.log.base import Log
from headrace.log.local.open import LocalLog
from headrace.types import BIGINT, VARCHAR, Map
from headrace.views.versions import Deployment, Item, Layers, Version
from tests.coordinate.test_catalog_fold import histories
from tests.coordinate.test_catalog_log import BY_PAGE, CLICKS, QUERY, VIEW
from tests.kafka import open_kafka
from tests.store.project import open_log

SECOND = replace(BY_PAGE, topic="BY_PAGE.v2", query="CTAS_BY_PAGE_2")
LAYERS = Layers({"clicks": {0: 7, 1: 9}}, "CTAS_BY_PAGE_3", "CTAS_BY_PAGE_2", {"clicks": [0, 0]}, {0: 5}, 3)
EVENTS: list[Event] = [
    SourceCreated(CLICKS),
    SourceCreated(BY_PAGE),
    QueryCreated(QUERY),
    ViewCreated(VIEW),
    QueryPaced(QUERY.id, 5, {"clicks": {0: 3, 1: 4}}),
    TypeCreated("TALLY", Map(VARCHAR, BIGINT)),
    FunctionsChanged((FunctionFile("functions/one.py", "def one() -> int: ..."),)),
    VersionCreated(Version("BY_PAGE", 2, SECOND, "building", 1, 9, layers=LAYERS)),
    VersionsSwitched({"BY_PAGE": 2}, 77, 1),
]


@pytest.fixture
def log(tmp_path: Path) -> Iterator[LocalLog]:
    made = open_log(tmp_path / "log")
    create_internal_topics(made)
    yield made
    made.close()


def keep(log: Log, path: Path, events: list[Event]) -> Catalog:
    """Write events, and the state after them."""
    file = CatalogFile(path, keeps=True, every=1)
    catalog = Catalog(log, file=file)
    for event in events:
        catalog.append([event])
        file.settle()
    return catalog


def first_read(log: Log, open_it: Callable[[], Catalog]) -> tuple[Catalog, int]:
    """A catalog, and how many of the topic's offsets were asked for."""
    asked: list[int] = []
    read = log.read

    def counted(topic: str, partition: int, start: int, end: int, *more: Any) -> Any:
        asked.append(end - start)
        return read(topic, partition, start, end, *more)

    log.read = counted  # type: ignore[assignment,method-assign]
    try:
        return open_it(), sum(asked)
    finally:
        log.read = read  # type: ignore[method-assign]


def test_it_begins_where_the_file_ends(log: LocalLog, tmp_path: Path) -> None:
    path = tmp_path / "catalog.state"
    written = keep(log, path, EVENTS)
    catalog, read = first_read(log, lambda: Catalog(log, file=CatalogFile(path)))
    assert catalog.state == written.state == Catalog(log).state
    assert catalog.history("BY_PAGE") == Catalog(log).history("BY_PAGE") != ()
    assert read == 1  # that the log still has the last one
    catalog.append([VersionsSwitched({"BY_PAGE": 1}, 88, 1)])
    again, read = first_read(log, lambda: Catalog(log, file=CatalogFile(path)))
    assert again.state == catalog.state == Catalog(log).state
    assert again.history("BY_PAGE") == Catalog(log).history("BY_PAGE")
    assert read == 2


@pytest.mark.slow
def test_the_same_on_kafka(kafka: str, tmp_path: Path) -> None:
    path = tmp_path / "catalog.state"
    with open_kafka(kafka) as log:
        create_internal_topics(log)
        written = keep(log, path, EVENTS)
        catalog, read = first_read(log, lambda: Catalog(log, file=CatalogFile(path)))
        assert (catalog.state, read) == (written.state, 1)
    local = open_log(tmp_path / "log")
    create_internal_topics(local)
    keep(local, tmp_path / "other", EVENTS)
    # The same events at the same offsets, and yet another log.
    catalog, read = first_read(local, lambda: Catalog(local, file=CatalogFile(path)))
    assert read > len(EVENTS)
    assert catalog.history("BY_PAGE") == Catalog(local).history("BY_PAGE") != ()
    local.close()


@given(histories)
@settings(deadline=None)
def test_a_state_survives_being_written_down(history: list[Event]) -> None:
    saved = Saved(fold_all(CatalogState(), history), {"A": ((0, 1), (5, 2))}, {3: 9}, 7, "mark")
    assert _decode(_encode(saved)) == saved


def test_what_is_not_whole_or_not_ours_is_passed_over(log: LocalLog, tmp_path: Path) -> None:
    path = tmp_path / "catalog.state"
    written = keep(log, path, EVENTS)
    whole = path.read_bytes()
    places = range(0, len(whole), 211)
    broken = [whole[:place] for place in places]
    broken += [whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :] for place in places]
    for content in broken:
        path.write_bytes(content)
        catalog, read = first_read(log, lambda: Catalog(log, file=CatalogFile(path)))
        assert (catalog.state, read) == (written.state, len(EVENTS))


def test_the_file_of_another_log_is_passed_over(log: LocalLog, tmp_path: Path) -> None:
    """As when a log is put back from a copy."""
    path = tmp_path / "catalog.state"
    keep(log, path, EVENTS)
    for number, events in enumerate((EVENTS[:4], [*EVENTS[:-1], VersionsSwitched({"BY_PAGE": 2}, 78, 1)])):
        other = open_log(tmp_path / f"other{number}")
        create_internal_topics(other)
        for event in events:
            Catalog(other).append([event])
        assert Catalog(other, file=CatalogFile(path)).state == Catalog(other).state
        other.close()


def test_it_is_written_now_and_then_and_only_by_one(log: LocalLog, tmp_path: Path) -> None:
    path = tmp_path / "catalog.state"
    file = CatalogFile(path, keeps=True, every=4)
    catalog = Catalog(log, file=file)
    catalog.append(EVENTS[:3])
    file.settle()
    assert not path.exists()
    catalog.append(EVENTS[3:4])
    file.settle()
    first = path.read_bytes()
    reader = Catalog(log, file=CatalogFile(path, every=1))
    catalog.append(EVENTS[4:7])
    reader.refresh()
    file.settle()
    assert path.read_bytes() == first


def test_a_full_disk_is_said_and_changes_nothing(
    log: LocalLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(path: Path, content: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("headrace.coordinate.catalog_file.replace_file", full)
    with caplog.at_level(logging.WARNING):
        catalog = keep(log, tmp_path / "catalog.state", EVENTS)
    assert "No space left" in caplog.text
    assert catalog.state == Catalog(log).state


def compared(number: int, **more: Any) -> Deployment:
    samples = [{"key": {"page": f"/{n}"}, "old": {"n": number}, "new": None} for n in range(3)]
    comparison = {"view": "by_page", "changed": 3, "samples": samples, "windows": [{"start": number}]}
    return Deployment(number, [Item("BY_PAGE", "rebuilds", number + 1, number)], 5, comparisons=[comparison], **more)


def test_samples_of_old_deployments_are_read_from_the_log(log: LocalLog, tmp_path: Path) -> None:
    count = WITH_SAMPLES + 5
    saved = [DeploymentSaved(compared(number, stage="switched")) for number in range(1, count + 1)]
    path = tmp_path / "catalog.state"
    catalog = keep(log, path, [DeploymentSaved(compared(1)), *saved])
    with_samples = [one.id for one in catalog.deployments() if one.comparisons[0]["samples"]]
    assert with_samples == list(range(6, count + 1))
    assert [one.comparisons[0]["changed"] for one in catalog.deployments()] == [3] * count
    for opened in (catalog, Catalog(log), Catalog(log, file=CatalogFile(path))):
        assert [opened.deployment(number) for number in range(1, count + 1)] == [one.deployment for one in saved]
    # Rolled back, it is saved as the catalog has it.
    first = catalog.deployments()[0]
    catalog.append([DeploymentSaved(Deployment(1, first.items, 5, stage="rolled back", comparisons=first.comparisons))])
    assert catalog.deployment(1) == Catalog(log).deployment(1) == compared(1, stage="rolled back")
    assert catalog.deployment(count + 1) is None


def test_one_that_waits_keeps_its_samples(log: LocalLog) -> None:
    catalog = Catalog(log)
    catalog.append([DeploymentSaved(compared(1, stage="waiting"))])
    catalog.append([DeploymentSaved(compared(number, stage="switched")) for number in range(2, WITH_SAMPLES + 9)])
    assert catalog.state.deployments[1] == compared(1, stage="waiting")

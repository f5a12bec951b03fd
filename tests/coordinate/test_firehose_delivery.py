"""Delivery streams on a log of their own: every record is delivered once, whatever its time, its size, the disk, and
whoever takes files, folders and streams away."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headrace.clock import ManualClock
from headrace.coordinate.firehose import gathering
from headrace.coordinate.firehose.definition import EXTENDED, HTTP, DeliveryNote
from headrace.coordinate.firehose.manager import Deliveries
from headrace.functions.attach import Attached
from headrace.functions.compiled import Limits
from headrace.functions.files import FunctionFile
from headrace.log.base import TopicSpec
from headrace.log.dead_letters import create_dead_letters
from headrace.log.local import LocalLog
from tests.log.support import manual_clock, open_owner, put
from tests.support import wait_for

HOUR_MS = 3_600_000
FED = TopicSpec("fed", kind="raw")


@pytest.fixture
def clock() -> ManualClock:
    return manual_clock()


@pytest.fixture
def log(tmp_path: Path, clock: ManualClock) -> Iterator[LocalLog]:
    found = open_owner(tmp_path / "log", clock, segment_bytes=2000, retention_hours=1)
    create_dead_letters(found)
    found.create_topic(FED)
    found.create_topic(TopicSpec("onward", kind="raw"))
    yield found
    found.close()


@pytest.fixture
def deliveries(log: LocalLog, clock: ManualClock, tmp_path: Path) -> Iterator[Deliveries]:
    found = begun(log, clock, tmp_path)
    yield found
    found.close()


SLOW = """
import pathlib, time

def slow(records):
    here = pathlib.Path("{folder}")
    (here / f"begun-{time.monotonic_ns()}").touch()
    while not (here / "go").exists():
        time.sleep(0.02)
    return [record.value for record in records]
"""


def begun(log: LocalLog, clock: ManualClock, folder: Path) -> Deliveries:
    def find(name: str) -> tuple[FunctionFile, Attached]:
        text = SLOW.replace("{folder}", str(folder))
        return FunctionFile("functions/slow.py", text), Attached(name, "slow", seconds=300)

    deliveries = Deliveries(log, clock, folder / "data", folder / "buckets", find, Limits(5.0))
    log.hold(deliveries.needed)
    deliveries.start()
    return deliveries


def note(name: str, source: str = "", seconds: int = 0, to: str = "", transform: str = "") -> DeliveryNote:
    lines: dict[str, Any] = {"Type": "AppendDelimiterToRecord", "Parameters": []}
    arn = {"ParameterName": "LambdaArn", "ParameterValue": transform}
    called: list[dict[str, Any]] = [{"Type": "Lambda", "Parameters": [arn]}] if transform else []
    files = {
        "BucketARN": "arn:aws:s3:::lake",
        "Prefix": f"{name}/",
        "BufferingHints": {"SizeInMBs": 1, "IntervalInSeconds": seconds},
        "ProcessingConfiguration": {"Enabled": True, "Processors": [*called, lines]},
    }
    topic: dict[str, Any] = {"EndpointConfiguration": {"Url": f"topic:{to}"}}
    return DeliveryNote(
        name=name,
        made=7,
        created_ms=0,
        updated_ms=0,
        source=source,
        destination=HTTP if to else EXTENDED,
        configuration=topic if to else files,
    )


def lines(folder: Path) -> list[str]:
    """Of all files."""
    found = [path for path in (folder / "buckets").rglob("*") if path.is_file() and not path.name.startswith(".")]
    return sorted(line for path in found for line in path.read_text().splitlines())


def values(log: LocalLog, topic: str) -> list[bytes]:
    ends = log.snapshot().ends[topic]
    return [
        value
        for number, one in enumerate(ends)
        for records in log.read(topic, number, one.start, one.end, ["VALUE"])
        for value in records.batch.column(0).to_pylist()
    ]


@pytest.mark.parametrize("time_ms", [0, 4_000_000_000_000, 10**17])
def test_a_record_may_have_any_time(log: LocalLog, deliveries: Deliveries, tmp_path: Path, time_ms: int) -> None:
    """No folder can be named by a year beyond all calendars; and a file is due by when its records came."""
    deliveries.create(note("any", source="fed"))
    put(log, "fed", VALUE=[b"one"], time_=[time_ms])
    wait_for(lambda: lines(tmp_path) == ["one"], 10, "the file")
    assert deliveries.error("any") is None


def test_a_folder_may_be_taken_away(log: LocalLog, clock: ManualClock, tmp_path: Path) -> None:
    """Whoever cleans up old files takes the last one's folder, too."""
    deliveries = begun(log, clock, tmp_path)
    deliveries.create(note("swept"))
    put(log, "_firehose.swept", VALUE=[b"one"])
    wait_for(lambda: lines(tmp_path) == ["one"], 10, "the file")
    deliveries.close()
    shutil.rmtree(tmp_path / "buckets" / "lake" / "swept")
    deliveries = begun(log, clock, tmp_path)
    put(log, "_firehose.swept", VALUE=[b"two"])
    wait_for(lambda: lines(tmp_path) == ["two"], 10, "the next file")
    assert deliveries.error("swept") is None
    deliveries.close()


def test_records_without_bytes_do_not_fill_the_memory(
    log: LocalLog, deliveries: Deliveries, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gathering, "MOST_RECORDS", 3)
    deliveries.create(note("small", seconds=900))
    put(log, "_firehose.small", VALUE=[b""] * 5)
    wait_for(lambda: lines(tmp_path) == [""] * 3, 10, "a file before its time")
    assert deliveries.error("small") is None


def test_what_is_not_delivered_is_kept_however_long_it_takes(log: LocalLog, clock: ManualClock, tmp_path: Path) -> None:
    """In a delivery stream's own topic, and in a stream that it reads, whose retention waits."""
    (tmp_path / "buckets").write_text("no folder can be made here")
    deliveries = begun(log, clock, tmp_path)
    deliveries.create(note("own"))
    deliveries.create(note("reads", source="fed"))
    for number in range(30):
        put(log, "_firehose.own", VALUE=[b"own %02d" % number + b" " * 200])
        put(log, "fed", VALUE=[b"fed %02d" % number + b" " * 200])
    wait_for(lambda: all(deliveries.error(name) for name in ("own", "reads")), 10, "the error")
    # Segments are as old as their files, which are younger than this clock says.
    clock.advance(9 * 365 * 24 * HOUR_MS)
    log.maintain()
    deliveries.close()
    log.maintain()
    (tmp_path / "buckets").unlink()
    deliveries = begun(log, clock, tmp_path)
    wait_for(lambda: len(lines(tmp_path)) == 60, 10, "the files")
    wait_for(lambda: deliveries.needed("fed") == {0: 30}, 10, "the position")
    log.maintain()
    assert len(values(log, "fed")) < 30, "now it is let go"
    deliveries.close()


def test_the_buffer_of_one_that_writes_to_a_topic_is_emptied(
    log: LocalLog, clock: ManualClock, deliveries: Deliveries
) -> None:
    deliveries.create(note("passes", to="onward"))
    put(log, "_firehose.passes", VALUE=[b"one", b"two"])
    wait_for(lambda: values(log, "onward") == [b"one", b"two"], 10, "the topic")
    assert len(values(log, "_firehose.passes")) == 2, "a put that is tried again is known by it"
    clock.advance(2 * HOUR_MS)
    put(log, "_firehose.passes", VALUE=[b"three"])
    wait_for(lambda: values(log, "_firehose.passes") == [b"three"], 10, "the buffer")


@pytest.mark.parametrize("to", ["", "onward"], ids=["files", "topic"])
def test_a_stream_that_was_deleted_and_made_again_loses_nothing(
    log: LocalLog, deliveries: Deliveries, tmp_path: Path, to: str
) -> None:
    def delivered() -> list[str]:
        return sorted(value.decode() for value in values(log, "onward")) if to else lines(tmp_path)

    for text in ("first", "second"):
        deliveries.create(note("twice", to=to))
        put(log, "_firehose.twice", VALUE=[text.encode()] * 2)
        wait_for(lambda text=text: delivered().count(text) == 2, 10, "the records")  # type: ignore[misc]
        deliveries.delete("twice")
    assert delivered() == ["first"] * 2 + ["second"] * 2


def test_the_stream_it_reads_may_be_made_again(
    log: LocalLog, deliveries: Deliveries, clock: ManualClock, tmp_path: Path
) -> None:
    """The offsets of another stream by that name are not those of this one."""
    put(log, "fed", VALUE=[b"before"] * 5)
    deliveries.create(note("reads", source="fed"))
    put(log, "fed", VALUE=[b"a", b"b"])
    wait_for(lambda: lines(tmp_path) == ["a", "b"], 10, "the file")
    log.delete_topic("fed")
    deliveries.close()
    # Others begin, although what this one reads is not there.
    deliveries = begun(log, clock, tmp_path)
    deliveries.create(note("zz"))
    put(log, "_firehose.zz", VALUE=[b"z"])
    wait_for(lambda: lines(tmp_path) == ["a", "b", "z"], 10, "the other's file")
    log.create_topic(FED)
    put(log, "fed", VALUE=[b"c"])
    wait_for(lambda: lines(tmp_path) == ["a", "b", "c", "z"], 20, "the new one's records")
    assert deliveries.error("zz") is None
    deliveries.close()


def test_a_topic_left_by_a_kill_is_no_obstacle(log: LocalLog, deliveries: Deliveries, tmp_path: Path) -> None:
    log.create_topic(TopicSpec("_firehose.left", kind="raw"))
    put(log, "_firehose.left", VALUE=[b"forgotten"])
    deliveries.create(note("left"))
    put(log, "_firehose.left", VALUE=[b"new"])
    wait_for(lambda: lines(tmp_path) == ["new"], 10, "the file")
    assert deliveries.error("left") is None


def calls(folder: Path) -> int:
    return len(list(folder.glob("begun-*")))


def test_a_transform_that_outlasts_the_change_of_its_stream_delivers_nothing_twice(
    log: LocalLog, deliveries: Deliveries, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits for ever for what is under way; what comes of it later is not written."""
    monkeypatch.setattr("headrace.coordinate.firehose.manager.END_S", -4.5)
    deliveries.create(note("slow", source="fed", transform="slow"))
    put(log, "fed", VALUE=[b"one"])
    wait_for(lambda: calls(tmp_path) == 1, 20, "a call")
    outlasting = deliveries._workers()["slow"].thread
    try:
        deliveries.change(msgspec.structs.replace(note("slow", source="fed", transform="slow"), version=2))
        wait_for(lambda: calls(tmp_path) == 2, 20, "the next one's call")
    finally:
        (tmp_path / "go").touch()
    assert outlasting is not None
    outlasting.join(120)
    put(log, "fed", VALUE=[b"two"])
    wait_for(lambda: "two" in lines(tmp_path), 20, "another file")
    assert lines(tmp_path) == ["one", "two"]


def test_nobody_waits_for_a_transform_of_a_stream_that_is_changed(
    log: LocalLog, deliveries: Deliveries, tmp_path: Path
) -> None:
    """What asks how they are, the log's retention among them, does not take as long as the call."""
    deliveries.create(note("slow", source="fed", transform="slow"))
    put(log, "fed", VALUE=[b"one"])
    wait_for(lambda: calls(tmp_path) == 1, 20, "a call")
    old = deliveries._workers()["slow"]
    newer = msgspec.structs.replace(note("slow", source="fed", transform="slow"), version=2)
    changing = threading.Thread(target=deliveries.change, args=(newer,))
    changing.start()
    try:
        wait_for(old.stop.is_set, 20, "the end to be asked for")
        assert [one.name for one in deliveries.statuses()] == ["slow"]
        assert deliveries.needed("fed") == {0: 0}
        assert deliveries._workers()["slow"] is old, "it is still at it"
    finally:
        (tmp_path / "go").touch()
        changing.join(120)
    wait_for(lambda: lines(tmp_path) == ["one"], 20, "the file")

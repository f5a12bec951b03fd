"""Dead letters of functions and delivery streams, sent through them again: once, as they are or mended."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from headrace.clock import SystemClock
from headrace.collect.redrive import Failure, Order, Redriver, Report
from headrace.config import CollectSettings
from headrace.coordinate.again import Reruns
from headrace.coordinate.attached_worker import Worker
from headrace.coordinate.firehose.definition import EXTENDED, HTTP, DeliveryNote
from headrace.coordinate.firehose.manager import Deliveries
from headrace.errors import NotFound, Refused
from headrace.functions.attach import Attached
from headrace.functions.compiled import Limits
from headrace.functions.describe import describe
from headrace.functions.files import FunctionFile
from headrace.log.base import TopicSpec
from headrace.log.dead_letters import create_dead_letters
from headrace.log.local import LocalLog
from headrace.server.dead_letters import DeadLetterIndex
from headrace.types import BIGINT, VARCHAR, Column
from tests.log.support import open_owner, put
from tests.support import wait_for

pytestmark = pytest.mark.slow

USERS = TopicSpec("users", key=(Column("ID", VARCHAR),), value=(Column("NAME", VARCHAR),))
LOUD = TopicSpec("loud", key=(Column("ID", VARCHAR),), value=(Column("NAME", VARCHAR), Column("N", BIGINT)))
TEXT = """
from headrace import on_topic, transform

@on_topic("users", to="loud", retries=0, start="earliest")
def shout(records):
    return [{"id": r.key, "name": r.value["name"].upper(), "n": len(r.value["name"])} for r in records]

@on_topic("fed", to="copies", retries=0, start="earliest")
def twice(records):
    return [(r.key, r.value.decode()) for r in records for _ in range(2)]

@transform
def text(records):
    return [r.value.decode() for r in records]
"""
CALM = TEXT.replace('r.value["name"].upper()', '(r.value["name"] or "nobody").upper()').replace(
    'len(r.value["name"])', "0"
)


class Project:
    """What a server has of it: a log, functions that may change, delivery streams."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log: LocalLog = open_owner(folder / "log")
        create_dead_letters(self.log)
        raw = [TopicSpec(name, kind="raw") for name in ("fed", "copies")]
        for spec in (USERS, LOUD, *raw):
            self.log.create_topic(spec)
        self.text, self.limits, self.clock = TEXT, Limits(20.0), SystemClock()
        self.deliveries = Deliveries(self.log, self.clock, folder / "data", folder / "buckets", self.find, self.limits)
        self.reruns = Reruns(self.log, self.clock, self.find, self.deliveries, self.limits)

    def find(self, name: str) -> tuple[FunctionFile, Attached]:
        file = describe(FunctionFile("functions/a.py", self.text))[0]
        for attached in file.attached:
            if attached.name == name:
                return file, attached
        raise NotFound(f"there is no function `{name}` on a topic")

    def work(self, name: str, records: int) -> None:
        """Have a function work on so many."""
        worker = Worker(self.log, self.clock, *self.find(name), self.limits)
        thread = threading.Thread(target=worker.run)
        thread.start()
        wait_for(lambda: worker.counts.records == records, 20, "the function")
        worker.stop.set()
        thread.join()

    def redrive(self, topic: str, **order: Any) -> Report:
        redriver = Redriver(self.log, self.clock, CollectSettings(), again=self.reruns.begin)
        return redriver.redrive(Order(topic, **order), {})

    def letters(self, topic: str) -> list[dict[str, Any]]:
        return DeadLetterIndex(self.log).newest(topic, 10)

    def rows(self, topic: str, *columns: str) -> list[tuple[Any, ...]]:
        ends = self.log.snapshot().ends[topic][0]
        found = self.log.read(topic, 0, ends.start, ends.end, list(columns))
        return [tuple(row.values()) for part in found for row in part.batch.to_pylist()]

    def close(self) -> None:
        self.deliveries.close()
        self.log.close()


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    found = Project(tmp_path)
    yield found
    found.close()


def outcomes(report: Report) -> tuple[int, int, int]:
    return report.accepted, report.duplicates, report.rejected


def reason(report: Report) -> str:
    [sample] = report.samples
    return sample.reason or ""


def test_a_record_goes_through_the_mended_function_once(project: Project) -> None:
    put(project.log, "users", ID=["a", "b"], NAME=["ann", None], id_=["1", "2"])
    project.work("shout", 2)
    assert [letter["SOURCE"] for letter in project.letters("users")] == ["function shout 0:1"]
    failed = project.redrive("users")
    assert (outcomes(failed), "AttributeError" in reason(failed)) == ((0, 0, 1), True)
    project.text = CALM
    assert outcomes(project.redrive("users", preview=True)) == (1, 0, 0)
    assert project.rows("loud", "ID", "NAME") == [("a", "ANN")], "a preview writes nothing"
    assert outcomes(project.redrive("users")) == (1, 0, 0)
    assert outcomes(project.redrive("users")) == (0, 0, 0), "it went through it once already"
    assert project.rows("loud", "ID", "NAME") == [("a", "ANN"), ("b", "NOBODY")]
    assert len(project.rows("users", "ID")) == 2, "where it is, it is not put again"
    assert [(one["redriven"], one["attempts"]) for one in project.letters("users")] == [(True, 4)]


def test_a_record_may_be_mended_instead(project: Project) -> None:
    put(project.log, "users", ID=["b"], NAME=[None])
    project.work("shout", 1)
    assert outcomes(project.redrive("users", values={"name": "'bob'", "id": "'B'"})) == (1, 0, 0)
    assert project.rows("loud", "ID", "NAME", "N") == [("B", "BOB", 3)]
    assert project.rows("users", "ID", "NAME") == [("b", None)]


def test_a_record_that_retention_took_is_what_its_letter_says(project: Project) -> None:
    put(project.log, "users", ID=["b"], NAME=[None])
    put(project.log, "fed", KEY=[b"k"], VALUE=[b"\xff"])
    project.work("shout", 1)
    project.work("twice", 1)
    project.log.delete_records("users", 0, 1)
    project.log.delete_records("fed", 0, 1)
    project.text = CALM.replace("r.value.decode()", 'r.value.decode("latin-1")')
    assert outcomes(project.redrive("users")) == outcomes(project.redrive("fed")) == (1, 0, 0)
    assert project.rows("loud", "ID", "NAME") == [("b", "NOBODY")]
    assert project.rows("copies", "KEY", "VALUE") == [(None, "\xff".encode())] * 2, "a letter has no key"


def test_two_who_do_it_at_once_double_nothing(project: Project) -> None:
    """Each has read which letters there are before the other is done."""
    put(project.log, "users", ID=["b"], NAME=[None])
    put(project.log, "fed", KEY=[b"k"], VALUE=[b"\xff"])
    project.work("shout", 1)
    project.work("twice", 1)
    project.text = CALM.replace("r.value.decode()", 'r.value.decode("latin-1")')

    class Late(Redriver):
        def _run_again(self, letter: Any, failure: Failure, work: Any) -> None:
            assert outcomes(project.redrive(work.topic.name)) == (1, 0, 0)
            super()._run_again(letter, failure, work)

    late = Late(project.log, project.clock, CollectSettings(), again=project.reruns.begin)
    assert outcomes(late.redrive(Order("users"), {})) == outcomes(late.redrive(Order("fed"), {})) == (0, 1, 0)
    assert project.rows("loud", "ID") == [("b",)]
    assert project.rows("copies", "KEY", "VALUE") == [(b"k", "\xff".encode())] * 2


def test_what_is_made_fits_or_the_letter_stays(project: Project) -> None:
    put(project.log, "users", ID=["b"], NAME=[None])
    project.work("shout", 1)
    project.text = CALM.replace('"n": 0', '"n": "many"')
    failed = project.redrive("users")
    assert "does not fit topic `loud`: `n` must be" in reason(failed)
    project.text = CALM.replace('on_topic("users"', 'on_topic("fed"')
    assert "not on topic `users` any more" in reason(project.redrive("users"))
    project.text = CALM.replace("def shout", "def whisper")
    assert "no function `shout`" in reason(project.redrive("users"))
    assert project.rows("loud", "ID") == []


def test_what_a_function_made_and_its_topic_did_not_take_is_an_event(project: Project) -> None:
    project.text = TEXT.replace('len(r.value["name"])', '"many"')
    put(project.log, "users", ID=["a"], NAME=["ann"])
    project.work("shout", 1)
    [letter] = project.letters("loud")
    assert letter["SOURCE"] == "function function-shout"
    assert outcomes(project.redrive("loud", values={"n": "LEN(n)"})) == (1, 0, 0)
    assert project.rows("loud", "ID", "N") == [("a", 4)]


def delivery(name: str, source: str = "", transform: str = "", to: str = "") -> DeliveryNote:
    parameter = {"ParameterName": "LambdaArn", "ParameterValue": transform}
    processors = [{"Type": "Lambda", "Parameters": [parameter]}] if transform else []
    more: dict[str, Any] = {"ProcessingConfiguration": {"Enabled": bool(transform), "Processors": processors}}
    files = {
        "BucketARN": "arn:aws:s3:::lake",
        "BufferingHints": {"SizeInMBs": 1, "IntervalInSeconds": 0},
        "DataFormatConversionConfiguration": {"OutputFormatConfiguration": {"Serializer": {"ParquetSerDe": {}}}},
    }
    topic = {"EndpointConfiguration": {"Url": f"topic:{to}"}}
    return DeliveryNote(
        name=name,
        made=7,
        created_ms=0,
        updated_ms=0,
        source=source,
        destination=HTTP if to else EXTENDED,
        configuration=more | (topic if to else files),
    )


def in_files(project: Project) -> list[Any]:
    """The column `n` of all files."""
    found = (project.folder / "buckets").rglob("*.parquet")
    tables = [pq.read_table(path) for path in found if not path.name.startswith(".")]
    return sorted(n for table in tables for n in table.column("n").to_pylist())


@pytest.mark.parametrize("source", ["", "fed"], ids=["own", "stream"])
def test_a_record_is_delivered_again_into_a_file(project: Project, source: str) -> None:
    """Nobody else who reads the stream sees it twice."""
    project.deliveries.create(delivery("lake", source))
    topic = source or "_firehose.lake"
    put(project.log, topic, VALUE=[b'{"n": 1}', b'{"n": 2', b"nonsense"], id_=["1", "2", "3"])
    wait_for(lambda: in_files(project) == [1] and len(project.letters(topic)) == 2, 20, "file and letters")
    mended = {"where": "payload LIKE '{%'", "values": {"payload": "CONCAT(payload, '}')"}}
    assert outcomes(project.redrive(topic, preview=True, **mended)) == (1, 0, 0)
    assert outcomes(project.redrive(topic, preview=True)) == (0, 0, 2)
    assert outcomes(project.redrive(topic, **mended)) == (1, 0, 0)
    wait_for(lambda: in_files(project) == [1, 2], 20, "the next file")
    failed = project.redrive(topic)
    assert (outcomes(failed), "not valid JSON" in reason(failed)) == ((0, 0, 1), True)
    assert sorted(one["redriven"] for one in project.letters(topic)) == [False, True]
    if source:
        assert len(project.rows("fed", "VALUE")) == 3
    # A server that starts again goes on in both.
    project.deliveries.close()
    project.deliveries.start()
    put(project.log, topic, VALUE=[b'{"n": 3}'])
    wait_for(lambda: in_files(project) == [1, 2, 3], 20, "the last file")


def test_a_record_is_delivered_again_into_a_topic(project: Project) -> None:
    project.deliveries.create(delivery("onward", transform="text", to="copies"))
    put(project.log, "_firehose.onward", VALUE=[b"one", b"\xff"])
    wait_for(lambda: len(project.letters("_firehose.onward")) == 1, 20, "the letter")
    assert outcomes(project.redrive("_firehose.onward")) == (0, 0, 1)
    project.text = TEXT.replace("r.value.decode()", 'r.value.decode("latin-1")')
    assert outcomes(project.redrive("_firehose.onward")) == (1, 0, 0)
    assert [value for (value,) in project.rows("copies", "VALUE")] == [b"one", "\xff".encode()]


def test_what_a_transform_drops_is_nothing(project: Project) -> None:
    project.text = TEXT.replace("[r.value.decode() for r", "[None if r.value == b'x' else r.value for r")
    project.deliveries.create(delivery("onward", transform="text", to="copies"))
    put(project.log, "_firehose.onward", VALUE=[b"x", b"one"])
    wait_for(lambda: project.rows("copies", "VALUE") == [(b"one",)], 20, "the topic")
    assert project.letters("copies") == []


def test_other_topics_of_headrace_get_nothing(project: Project) -> None:
    with pytest.raises(Refused):
        project.redrive("_dead_letters")

"""Positions outside of the log, after the log was copied back by hand and has overtaken them: none is read on."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.cli.export_files import export_topic
from headrace.clock import ManualClock
from headrace.config import load_project
from headrace.deliver.browse import offsets_at, page_json, read_after
from headrace.errors import PositionOfAnotherLog
from headrace.log.base import TopicSpec
from headrace.log.dead_letters import create_dead_letters
from headrace.log.local import LocalLog
from tests.coordinate.test_firehose_delivery import begun, lines, note
from tests.log.support import manual_clock, open_owner, put
from tests.support import wait_for


class Place:
    """A project's log, which can be copied and put back."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.clock = folder, manual_clock()
        (folder / "headrace.toml").touch()
        self.log = self.open()
        create_dead_letters(self.log)
        self.log.create_topic(TopicSpec("fed", kind="raw"))

    def open(self) -> LocalLog:
        return open_owner(self.folder / ".headrace" / "log", self.clock)

    def copy(self) -> None:
        self.log.close()
        shutil.copytree(self.folder / ".headrace" / "log", self.folder / "copy")
        self.log = self.open()

    def put_back(self) -> None:
        self.log.close()
        shutil.rmtree(self.folder / ".headrace" / "log")
        shutil.copytree(self.folder / "copy", self.folder / ".headrace" / "log")
        self.log = self.open()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    found = Place(tmp_path)
    yield found
    found.log.close()


def test_a_delivery_stream_says_that_its_files_are_of_another_log(place: Place) -> None:
    clock: ManualClock = place.clock
    deliveries = begun(place.log, clock, place.folder)
    deliveries.create(note("out", source="fed"))
    put(place.log, "fed", VALUE=[b"one"])
    wait_for(lambda: lines(place.folder) == ["one"], 60, "the first file")
    deliveries.close()
    place.copy()
    deliveries = begun(place.log, clock, place.folder)
    put(place.log, "fed", VALUE=[b"lost"])
    wait_for(lambda: lines(place.folder) == ["lost", "one"], 60, "the second file")
    deliveries.close()
    place.put_back()
    put(place.log, "fed", VALUE=[b"two", b"three", b"four"])
    deliveries = begun(place.log, clock, place.folder)
    wait_for(lambda: deliveries.error("out") is not None, 60, "the error")
    assert "`out` has read topic `fed` further than this log goes" in str(deliveries.error("out"))
    deliveries.close()
    assert lines(place.folder) == ["lost", "one"]


def test_a_position_of_a_page_is_refused_with_its_epoch(place: Place) -> None:
    put(place.log, "fed", VALUE=[b"one"])
    first = json.loads(page_json(read_after(place.log, "fed", {0: 0}, 10)))
    place.copy()
    put(place.log, "fed", VALUE=[b"lost"])
    second = json.loads(page_json(read_after(place.log, "fed", {0: 1}, 10)))
    place.put_back()
    put(place.log, "fed", VALUE=[b"two", b"three"])
    good = offsets_at(place.log, "fed", at=f"{first['next']}@{first['epoch']}")
    assert good == {0: 1}
    with pytest.raises(PositionOfAnotherLog, match="has read topic `fed` further than this log goes"):
        offsets_at(place.log, "fed", at=f"{second['next']}@{second['epoch']}")


def test_an_export_does_not_go_on_in_a_folder_of_another_log(place: Place) -> None:
    project, to = load_project(place.folder), place.folder / "exported"

    def export() -> str:
        place.log.close()
        try:
            return export_topic(project, "fed", to, "json", lambda text: None)
        finally:
            place.log = place.open()

    put(place.log, "fed", VALUE=[b"one"])
    assert export() == "1 record in 1 new file"
    place.copy()
    put(place.log, "fed", VALUE=[b"lost"])
    assert export() == "1 record in 1 new file"
    place.put_back()
    put(place.log, "fed", VALUE=[b"two", b"three", b"four"])
    with pytest.raises(PositionOfAnotherLog, match="has read topic `fed` further than this log goes"):
        export()
    shutil.rmtree(to)
    assert export() == "4 records in 1 new file"

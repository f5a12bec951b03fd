"""The engine's reports through a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headrace.coordinate.reports import ReportReader, write_report
from tests.support import wait_for


def test_each_report_arrives_and_an_old_one_does_not(tmp_path: Path) -> None:
    file = tmp_path / "engine.json"
    write_report(file, {"of": "a dead engine"})
    received: list[Any] = []
    reader = ReportReader(file, received.append)
    try:
        write_report(file, {"number": 1})
        wait_for(lambda: received == [{"number": 1}], 5, "the first report")
        file.write_text("{ torn")
        write_report(file, {"number": 2})
        wait_for(lambda: received[-1:] == [{"number": 2}], 5, "the next one")
        assert {"of": "a dead engine"} not in received
    finally:
        reader.close()

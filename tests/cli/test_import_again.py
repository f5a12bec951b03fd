"""`headrace import` without a server, over days: files are renamed, grow, are copied, vanish, or are empty."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace.cli.import_files import FORMATS, Progress
from headrace.cli.import_record import Records
from tests.cli.conftest import Headrace

pytestmark = pytest.mark.slow

Import = Callable[..., dict[str, Any]]


@pytest.fixture
def bring(headrace: Headrace, tmp_path: Path) -> Import:
    """Import into a topic, and say what became of it: the answer, and what was said beside it."""
    project = tmp_path / "shop"
    headrace("init", str(project))
    made = headrace("topic", "create", "plain", "--columns", "a INTEGER, at TIMESTAMP", "--project", str(project))
    assert made.code == 0, made.err

    def run(*arguments: str | Path) -> dict[str, Any]:
        said = headrace("import", "plain", *map(str, arguments), "--project", str(project), "--json")
        return {"code": said.code, "said": said.err} | (json.loads(said.out) if said.out else {})

    return run


def test_a_file_that_was_renamed_and_then_grew_adds_what_is_new(bring: Import, tmp_path: Path) -> None:
    file = tmp_path / "monday.csv"
    file.write_text("a\n1\n2\n")
    assert bring(file)["accepted"] == 2
    file = file.rename(tmp_path / "week.csv")
    assert "was imported already as `monday.csv`" in bring(file)["said"]
    file.write_text("a\n1\n2\n3\n")
    grown = bring(file)
    assert (grown["accepted"], grown["duplicates"]) == (1, 2)
    file.touch()
    assert bring(file)["rows"] == 0


def test_two_files_of_one_content_are_one_unless_it_is_said_that_they_are_two(bring: Import, tmp_path: Path) -> None:
    monday, tuesday = tmp_path / "monday.csv", tmp_path / "tuesday.csv"
    for file in (monday, tuesday):
        file.write_text("a\n1\n2\n")
    both = bring(monday, tuesday)
    assert (both["accepted"], both["duplicates"]) == (2, 2)
    assert both["copies"] == [{"file": str(tuesday), "of": str(monday)}]
    assert f"{tuesday} has the content of {monday}: its rows are the same ones (--copies takes them" in both["said"]
    assert "--copies" in bring(tuesday)["said"], "it is said each time"
    assert bring(monday, tuesday, "--copies")["accepted"] == 2
    for options in ((), ("--copies",), ("--again",), ("--again", "--copies")):
        assert bring(monday, tuesday, *options)["accepted"] == 0, options
    # One of the same name elsewhere, and one that was only moved.
    (tmp_path / "next").mkdir()
    other = tmp_path / "next" / "monday.csv"
    other.write_text("a\n1\n2\n")
    assert bring(other, "--copies")["accepted"] == 2
    other = other.rename(tmp_path / "next" / "sunday.csv")
    assert bring(other, "--copies")["accepted"] == 0


def test_a_file_without_rows_is_said(bring: Import, tmp_path: Path) -> None:
    folder = tmp_path / "history"
    (folder / ".hidden").mkdir(parents=True)
    (folder / ".hidden" / "rows.csv").write_text("a\n7\n")  # such as what a program keeps for itself
    (folder / "blank.csv").write_text("\n\n")
    (folder / "heading.csv").write_text("a,at\n")
    (folder / "rows.csv").write_text("\na,at\n1,\n2,20261115\n")
    tried = bring(folder, "--dry-run")
    assert (tried["rows"], tried["would_be_rejected"], len(tried["without_rows"])) == (2, 1, 2)
    done = bring(folder)
    assert (done["accepted"], done["rejected"]) == (1, 1)
    assert done["without_rows"] == [str(folder / "blank.csv"), str(folder / "heading.csv")]
    assert f"{folder / 'blank.csv'} has no rows" in done["said"]
    assert "rows.csv is for a topic without a column for event times: its events get the time of" in done["said"]


def test_what_is_mistyped_is_said_before_anything_is_sent(bring: Import, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,at\n1,x\n")
    assert f"one of {', '.join(FORMATS)}" in bring(tmp_path / "a.csv", "--format", "xml")["said"]
    for options in ((), ("--dry-run",)):
        mistyped = bring(tmp_path / "a.csv", "--time", "att", *options)
        assert mistyped["unreadable"][0]["problem"].endswith(
            "a.csv` has no field `att`, which is to hold the event time"
        )
    (tmp_path / "nothing").mkdir()
    assert "no file in `nothing` has an ending that is known" in bring("nothing")["said"]


def test_a_file_that_cannot_even_be_looked_at_does_not_stop_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    there, gone = tmp_path / "there.csv", tmp_path / "gone.csv"
    there.write_text("a\n1\n")
    progress = Progress.begin([gone, there], None, Records(tmp_path, "plain"), copies=False)
    assert (list(progress.files), progress.failures) == (
        [there],
        {gone: f"`{gone}` cannot be read: No such file or directory"},
    )
    assert "gone.csv" in capsys.readouterr().err


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig", "latin-1"])
def test_encodings_are_known_by_their_names(bring: Import, tmp_path: Path, encoding: str) -> None:
    file = tmp_path / "rows.csv"
    file.write_bytes("a,at\n1,\n".encode(encoding))
    assert bring(file, "--encoding", encoding)["accepted"] == 1
    for wrong in ("base64", "nonsense", "a\0b"):
        refused = bring(file, "--encoding", wrong)
        assert (refused["code"], "no encoding is called" in refused["said"]) == (64, True), wrong

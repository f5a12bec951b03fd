"""Files that grow, are rotated, emptied and deleted while they are read: every line once, in its order."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.collect.pull.files import FileSettings, read_piece
from headrace.collect.pull.tail import Place, Tail
from headrace.log.codecs.json_codec import Unreadable

MOST = 100


def tail(folder: Path, places: list[Place] | None = None, pattern: str = "*.log") -> Tail:
    return Tail(folder, [pattern], MOST, places or [])


def lines(reading: Tail) -> list[str]:
    found: list[str] = []
    for piece in reading.new():
        found += piece.data.decode().splitlines()
        reading.advance(piece.following)
    return found


def resumed(reading: Tail, folder: Path) -> Tail:
    """As after kill -9: only what the cursor says is left."""
    text = msgspec.json.encode(reading.places)
    return tail(folder, msgspec.json.decode(text, type=list[Place]))


def append(file: Path, *texts: str) -> None:
    with file.open("a") as stream:
        stream.write("".join(f"{text}\n" for text in texts))


def test_only_whole_lines_are_read(tmp_path: Path) -> None:
    reading = tail(tmp_path)
    (tmp_path / "a.log").write_text("one\ntw")
    assert lines(reading) == ["one"]
    assert lines(reading) == []
    append(tmp_path / "a.log", "o", "three")
    assert lines(reading) == ["two", "three"]


def test_a_rotated_file_is_read_to_its_end_and_the_new_one_from_its_beginning(tmp_path: Path) -> None:
    file = tmp_path / "a.log"
    append(file, "1")
    reading = tail(tmp_path)
    assert lines(reading) == ["1"]
    append(file, "2")
    file.rename(tmp_path / "a.log.1")
    append(file, "3")
    append(tmp_path / "a.log.1", "2b")
    reading = resumed(reading, tmp_path)
    assert lines(reading) == ["2", "2b", "3"]
    # Twice more: names shift.
    append(tmp_path / "a.log.1", "2c")
    (tmp_path / "a.log.1").rename(tmp_path / "a.log.2")
    file.rename(tmp_path / "a.log.1")
    append(file, "4")
    assert sorted(lines(resumed(reading, tmp_path))) == ["2c", "4"]


def test_a_file_that_was_emptied_begins_anew(tmp_path: Path) -> None:
    file = tmp_path / "a.log"
    append(file, "first line", "second line")
    reading = tail(tmp_path)
    assert len(lines(reading)) == 2
    os.truncate(file, 0)
    append(file, "third line, and longer than what was there before it was emptied")
    assert lines(reading) == ["third line, and longer than what was there before it was emptied"]
    file.unlink()
    append(file, "fourth")
    assert lines(resumed(reading, tmp_path)) == ["fourth"]


def test_from_now_on(tmp_path: Path) -> None:
    append(tmp_path / "a.log", "old")
    reading = tail(tmp_path)
    reading.begin_at_end()
    append(tmp_path / "a.log", "new")
    append(tmp_path / "b.log", "also new")
    assert lines(reading) == ["new", "also new"]


def test_a_line_that_is_too_long_is_a_letter_and_the_next_is_read(tmp_path: Path) -> None:
    file = tmp_path / "a.log"
    file.write_text("x" * 500)
    reading = tail(tmp_path)
    [piece] = [next(reading.new())]
    assert piece.too_long
    events, following = read_piece(piece, FileSettings(type="file", path="x", max_line_bytes=MOST))
    assert isinstance(events.events[0], Unreadable)  # type: ignore[union-attr]
    reading.advance(following)
    assert lines(reading) == []
    append(file, "y" * 10, "short")
    assert lines(resumed(reading, tmp_path)) == ["short"]


steps = st.lists(st.sampled_from(["append", "append", "read", "restart", "rotate"]), max_size=30)


@settings(max_examples=40)
@given(steps)
def test_whatever_happens_every_line_comes_once(happens: list[str]) -> None:
    folder = Path(tempfile.mkdtemp())
    try:
        file, reading = folder / "a.log", tail(folder)
        written: list[str] = []
        found: list[str] = []
        generations = 0
        for step in [*happens, "read"]:
            if step == "append":
                written.append(f"line {len(written)}")
                append(file, written[-1])
            elif step == "read":
                found += lines(reading)
            elif step == "restart":
                reading = resumed(reading, folder)
            elif file.exists():
                # One that was never seen under its own name is nobody's: so it is read before, as logrotate's pace is.
                found += lines(reading)
                generations += 1
                for number in range(generations, 0, -1):
                    before = folder / (f"a.log.{number - 1}" if number > 1 else "a.log")
                    before.rename(folder / f"a.log.{number}")
        assert found == written
    finally:
        shutil.rmtree(folder)

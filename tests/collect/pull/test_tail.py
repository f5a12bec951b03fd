"""Files that grow, are rotated, emptied and deleted while they are read: every line once, in its order."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.collect.pull import tail as tails
from headrace.collect.pull.files import FileSettings, first_state, read_piece
from headrace.collect.pull.tail import IDLE_S, Place, Tail
from headrace.log.codecs.json_codec import Unreadable
from tests.support import open_to_all

MOST = 100


class Now:
    """A clock that goes when it is told to."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def tail(folder: Path, places: list[Place] | None = None, pattern: str = "*.log", now: Now | None = None) -> Tail:
    return Tail(folder, [pattern], MOST, places or [], now or Now())


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


def test_from_now_on_in_a_file_of_any_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file above 2 GiB is not read at once: whoever tries has its first 2 GiB, and takes old lines for new ones."""
    file = tmp_path / "a.log"
    with file.open("wb") as stream:
        stream.truncate(3 << 30)
        stream.seek(0, os.SEEK_END)
        stream.write(b"\nold\nhal")
    sizes: list[int] = []
    pread = os.pread

    def seen(file: int, size: int, at: int) -> bytes:
        sizes.append(size)
        return pread(file, size, at)

    monkeypatch.setattr(os, "pread", seen)
    reading = tail(tmp_path)
    reading.begin_at_end()
    assert max(sizes) <= tails.CHUNK_BYTES
    append(file, "f", "new")
    assert lines(reading) == ["half", "new"]
    reading.close()


def test_from_now_on_the_first_line_names_the_columns_still(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("n,name\n1,one\n")
    reading, csv = tail(tmp_path), FileSettings(type="file", path="x", format="csv")
    reading.begin_at_end(lambda head: first_state(head, csv))
    append(tmp_path / "a.log", "2,two")
    piece = next(reading.new())
    events, _ = read_piece(piece, csv)
    assert events.events == [{"n": "2", "name": "two"}]  # type: ignore[union-attr]
    reading.close()


def test_one_that_cannot_be_read_is_said_and_the_others_are_read(tmp_path: Path) -> None:
    (tmp_path / "loop.log").symlink_to(tmp_path / "loop.log")
    (tmp_path / "folder.log").mkdir()
    append(tmp_path / "a.log", "1")
    reading = tail(tmp_path)
    assert lines(reading) == ["1"]
    [why] = reading.told()
    assert why.endswith("loop.log cannot be read: Too many levels of symbolic links")
    # Said once, and known for as long as it is so.
    append(tmp_path / "a.log", "2")
    assert lines(reading) == ["2"]
    assert reading.told() == []
    assert list(reading.unreadable) == [str(tmp_path / "loop.log")]
    (tmp_path / "loop.log").unlink()
    assert lines(reading) == []
    assert not reading.unreadable
    reading.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_a_file_of_another_owner_is_said_and_read_from_where_it_was_when_it_can_be(tmp_path: Path) -> None:
    open_to_all(tmp_path)
    file = tmp_path / "secret.log"
    append(file, "1")
    append(tmp_path / "z.log", "open")
    file.chmod(0o644)
    reading = tail(tmp_path)
    os.seteuid(65_534)
    try:
        assert sorted(lines(reading)) == ["1", "open"]
        os.seteuid(0)
        append(file, "2")
        file.chmod(0o600)
        os.seteuid(65_534)
        assert lines(reading) == []
        assert reading.unreadable == {str(file): "Permission denied"}
        os.seteuid(0)
        assert lines(reading) == ["2"]
    finally:
        os.seteuid(0)
        reading.close()


def test_one_that_was_deleted_or_moved_away_is_read_to_its_end(tmp_path: Path) -> None:
    logs, elsewhere = tmp_path / "logs", tmp_path / "elsewhere"
    logs.mkdir()
    elsewhere.mkdir()
    now = Now()
    reading = tail(logs, now=now)
    append(logs / "a.log", "1")
    append(logs / "b.log", "2")
    assert sorted(lines(reading)) == ["1", "2"]
    append(logs / "a.log", "3")
    append(logs / "b.log", "4")
    (logs / "a.log").unlink()
    (logs / "b.log").rename(elsewhere / "b.log")
    append(logs / "a.log", "new")
    assert sorted(lines(reading)) == ["3", "4", "new"]
    # Whoever writes it has not noticed yet.
    append(elsewhere / "b.log", "5")
    assert lines(reading) == ["5"]
    now.seconds += IDLE_S + 1
    assert lines(reading) == []
    assert [place.path for place in reading.places] == [str(logs / "a.log")]
    assert reading.told() == []
    reading.close()


def test_what_is_lost_with_a_file_is_said(tmp_path: Path) -> None:
    file = tmp_path / "a.log"
    file.write_text("1\n" + "x" * 50)
    reading = tail(tmp_path)
    assert lines(reading) == ["1"]
    after = resumed(reading, tmp_path)
    file.unlink()
    append(file, "2")
    # The process that had it open is gone.
    reading.close()
    assert lines(after) == ["2"]
    [why] = after.told()
    assert why == f"{file} is gone before it was read to its end: 50 bytes of it are lost"
    after.close()


def test_a_line_of_any_length_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tails, "CHUNK_BYTES", 128)
    (tmp_path / "a.log").write_text("x" * 300_000 + "\nshort\n")
    reading = tail(tmp_path)
    assert [len(line) for line in lines(reading)] == [MOST + 1, len("short")]
    reading.close()

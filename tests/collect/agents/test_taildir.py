"""Growing files, rotated, truncated, renamed, read again after a crash: every line once."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from headrace.collect.agents.base import AgentError, Event
from headrace.collect.agents.interceptors import java_regex
from headrace.collect.agents.sources import positions, taildir
from headrace.collect.agents.sources.file_groups import FileGroup
from headrace.collect.agents.sources.taildir import TaildirSource, TailSettings
from headrace.errors import ConfigError
from tests.collect.agents.making import counters
from tests.support import open_to_all


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders are looked at with every poll."""
    monkeypatch.setattr(taildir, "SCAN_S", -1.0)


class Tail:
    """A source, and all it has given; `kill` forgets it as a crash would."""

    def __init__(self, folder: Path, pattern: str = r".*\.log", **settings: object) -> None:
        self._groups = [FileGroup(folder, java_regex(pattern), {"group": "g"})]
        self._positions = folder / "position.json"
        self._settings = TailSettings(**({"save_s": 0.0} | settings))  # type: ignore[arg-type]
        self.seen: dict[str, bytes] = {}
        self.last: list[Event] = []
        self.open()

    def open(self) -> None:
        self.counters = counters("source", "tail")
        self.source = TaildirSource(self._groups, self._positions, self._settings, self.counters)

    def read(self, taken: bool = True) -> list[str]:
        """All there is now."""
        found: list[Event] = []
        while events := self.source.poll():
            found += events
            if not taken:
                break
            self.source.taken()
        for event in found:
            assert event.id is not None
            # The same id is the same line, always.
            assert self.seen.setdefault(event.id, event.body) == event.body
        self.last = found
        return [event.body.decode() for event in found]

    def kill(self) -> None:
        for file in self.source._files.values():
            os.close(file.descriptor)
        self.open()

    def restart(self) -> None:
        self.source.close()
        self.open()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def write(file: Path, text: str) -> None:
    with file.open("a") as out:
        out.write(text)


def test_lines_come_as_they_are_written(folder: Path) -> None:
    tail, file = Tail(folder), folder / "a.log"
    assert tail.read() == []
    write(file, "one\ntwo\nthr")
    assert tail.read() == ["one", "two"]
    write(file, "ee\r\n\nfour\n")
    assert tail.read() == ["three", "", "four"]
    assert {event.headers["group"] for event in tail.last} == {"g"}


def test_a_restart_goes_on(folder: Path) -> None:
    tail, file = Tail(folder), folder / "a.log"
    write(file, "one\n")
    assert tail.read() == ["one"]
    tail.restart()
    write(file, "two\n")
    assert tail.read() == ["two"]


def test_what_is_read_again_after_a_crash_has_the_same_ids(folder: Path) -> None:
    tail, file = Tail(folder, save_s=1000.0), folder / "a.log"
    write(file, "one\ntwo\n")
    assert tail.read() == ["one", "two"]
    tail.kill()
    write(file, "three\n")
    assert tail.read() == ["one", "two", "three"]
    assert len(tail.seen) == 3


def test_a_batch_the_channel_did_not_take_is_read_again(folder: Path) -> None:
    tail, file = Tail(folder, batch_size=2), folder / "a.log"
    write(file, "one\ntwo\nthree\n")
    assert tail.read(taken=False) == ["one", "two"]
    assert tail.read() == ["one", "two", "three"]
    assert len(tail.seen) == 3


def test_rotation_by_renaming(folder: Path) -> None:
    tail, file = Tail(folder), folder / "a.log"
    write(file, "one\n")
    assert tail.read() == ["one"]
    write(file, "two\n")
    file.rename(folder / "a.log.1")
    write(file, "three\n")
    assert sorted(tail.read()) == ["three", "two"]
    write(folder / "a.log.1", "late\n")
    assert tail.read() == ["late"]


def test_rotation_while_nobody_looked(folder: Path) -> None:
    tail, file = Tail(folder), folder / "a.log"
    write(file, "one\n")
    assert tail.read() == ["one"]
    write(file, "two\n")
    tail.kill()
    file.rename(folder / "a.log.1")
    write(file, "three\n")
    assert sorted(tail.read()) == ["three", "two"]
    tail.restart()
    assert tail.read() == []


def test_truncation(folder: Path) -> None:
    tail, file = Tail(folder), folder / "a.log"
    write(file, "one\ntwo\n")
    assert tail.read() == ["one", "two"]
    os.truncate(file, 0)
    write(file, "1\n")
    assert tail.read() == ["1"]
    assert len(tail.seen) == 3


def test_truncated_and_grown_beyond_where_it_was_meanwhile(folder: Path) -> None:
    tail, file = Tail(folder), folder / "a.log"
    write(file, "one\ntwo\n")
    assert tail.read() == ["one", "two"]
    tail.kill()
    os.truncate(file, 0)
    write(file, "another first line\nand a second\n")
    assert tail.read() == ["another first line", "and a second"]
    assert len(tail.seen) == 4


def test_truncated_twice_between_crashes_the_ids_differ(folder: Path) -> None:
    """The position file knows a generation before the first line of it goes anywhere."""
    tail, file = Tail(folder, save_s=1000.0), folder / "a.log"
    write(file, "aaaa\nbbbb\n")
    assert tail.read() == ["aaaa", "bbbb"]
    tail.restart()
    for text in ("1111\n", "2222\n", "33\n"):
        os.truncate(file, 0)
        write(file, text)
        assert tail.read() == [text.strip()]
        tail.kill()
    assert sorted(tail.seen.values()) == [b"1111", b"2222", b"33", b"aaaa", b"bbbb"]


def test_a_new_file_with_an_old_ones_inode(folder: Path) -> None:
    tail, file = Tail(folder), folder / "a.log"
    write(file, "old one\n")
    assert tail.read() == ["old one"]
    tail.restart()
    # As a file system may do that gives a freed inode to the next file.
    with file.open("r+") as out:
        out.write("new one\n")
    assert tail.read() == ["new one"]
    assert len(tail.seen) == 2


def test_many_files_take_turns(folder: Path) -> None:
    tail = Tail(folder, batch_size=10, max_batches=1)
    for name in range(20):
        write(folder / f"{name}.log", "".join(f"{name}-{line}\n" for line in range(35)))
    first = tail.source.poll()
    tail.source.taken()
    second = tail.source.poll()
    assert first[0].body.split(b"-")[0] != second[0].body.split(b"-")[0]
    assert len({*(event.body.decode() for event in first), *tail.read()}) == 20 * 35


def test_a_file_that_is_deleted_is_read_to_its_end(folder: Path) -> None:
    tail, file = Tail(folder), folder / "a.log"
    write(file, "one\n")
    assert tail.read() == ["one"]
    write(file, "two\n")
    file.unlink()
    assert tail.read() == ["two"]


def test_idle_files_are_closed_and_found_again(folder: Path) -> None:
    tail, file = Tail(folder, idle_s=-1.0), folder / "a.log"
    write(file, "one\n")
    assert tail.read() == ["one"]
    tail.read()
    assert tail.source._files == {}
    write(file, "two\n")
    assert tail.read() == ["two"]


def test_a_line_without_end_of_a_file_that_was_rotated_away(folder: Path) -> None:
    tail, file = Tail(folder, idle_s=-1.0), folder / "a.log"
    write(file, "one\nno end")
    assert tail.read() == ["one"]
    file.rename(folder / "a.old")
    assert tail.read() == ["no end"]


def test_a_very_long_line_comes_in_pieces(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(taildir, "MAX_LINE", 1_000_000)
    tail = Tail(folder)
    write(folder / "a.log", "x" * 2_500_000 + "\nshort\n" + "y" * 200_000 + "\nend\n")
    found = tail.read()
    assert [len(line) for line in found[:3]] == [1_000_000, 1_000_000, 500_000]
    assert [line[:5] for line in found[3:]] == ["short", "yyyyy", "end"]
    assert len(found[4]) == 200_000


def test_skip_to_end_and_headers(folder: Path) -> None:
    file = folder / "a.log"
    write(file, "old\n")
    tail = Tail(folder, skip_to_end=True, file_header="file", offset_header=True)
    assert tail.read() == []
    write(file, "new\n")
    assert tail.read() == ["new"]
    assert tail.last[0].headers == {"group": "g", "file": str(file), "byteoffset": "4"}


def test_flumes_own_position_file_is_continued(folder: Path) -> None:
    file = folder / "a.log"
    write(file, "one\ntwo\n")
    entry = {"inode": file.stat().st_ino, "pos": 4, "file": str(file)}
    (folder / "position.json").write_text(json.dumps([entry]))
    tail = Tail(folder)
    assert tail.read() == ["two"]
    tail.source.close()
    [written] = json.loads((folder / "position.json").read_text())
    assert (written["inode"], written["pos"], written["file"]) == (entry["inode"], 8, str(file))


def test_a_broken_position_file_stops_it(folder: Path) -> None:
    (folder / "position.json").write_text("[{")
    with pytest.raises(ConfigError, match="position file"):
        Tail(folder)


def test_a_position_is_whole_or_not_there(folder: Path) -> None:
    known = {(1, 2): positions.Position("/x", 5, "g", 7)}
    positions.save_positions(folder / "p.json", known)
    assert positions.load_positions(folder / "p.json") == known
    assert [file.name for file in folder.iterdir()] == ["p.json"]


def test_what_cannot_be_read_is_left_out_and_said_once(folder: Path) -> None:
    """A link to itself: even root cannot open it."""
    tail = Tail(folder)
    (folder / "0.log").symlink_to(folder / "0.log")
    (folder / "folder.log").mkdir()
    write(folder / "a.log", "one\n")
    assert tail.read() == ["one"]
    write(folder / "a.log", "two\n")
    assert tail.read() == ["two"]
    counted = tail.counters.read()
    assert (counted["FileUnreadableCount"], counted["FilesUnreadable"]) == (1, 1)
    assert tail.counters.last_error == f"`{folder}/0.log` is left out: too many levels of symbolic links"
    # Mended, it is read like any other.
    (folder / "0.log").unlink()
    write(folder / "0.log", "three\n")
    assert tail.read() == ["three"]
    assert tail.counters.read()["FilesUnreadable"] == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_somebody_elses_file_is_left_out_until_it_may_be_read(folder: Path) -> None:
    open_to_all(folder)
    tail = Tail(folder)
    write(folder / "mine.log", "mine\n")
    write(folder / "theirs.log", "theirs\n")
    (folder / "theirs.log").chmod(0o600)
    os.seteuid(65534)
    try:
        assert tail.read() == ["mine"]
        assert "theirs.log` is left out: permission denied" in (tail.counters.last_error or "")
    finally:
        os.seteuid(0)
    assert tail.read() == ["theirs"]


def test_a_folder_that_cannot_be_looked_at_forgets_nothing(folder: Path) -> None:
    inner = folder / "inner"
    inner.mkdir()
    tail = Tail(inner, idle_s=-1.0)
    tail._positions = folder / "position.json"
    tail.open()
    write(inner / "a.log", "one\n")
    assert tail.read() == ["one"]
    tail.restart()
    inner.rename(folder / "aside")
    inner.write_text("not a folder")
    assert tail.read() == []
    assert "inner` is left out: not a directory" in (tail.counters.last_error or "")
    inner.unlink()
    (folder / "aside").rename(inner)
    write(inner / "a.log", "two\n")
    assert tail.read() == ["two"]


def test_no_line_goes_before_its_files_name_is_on_disk(folder: Path) -> None:
    logs, aside = folder / "logs", folder / "aside"
    logs.mkdir()
    tail = Tail(logs)
    aside.write_text("no folder: nothing can be written here")
    tail.source._position_file = aside / "position.json"
    write(logs / "a.log", "one\n")
    for _ in range(2):
        with pytest.raises(AgentError, match="cannot be written"):
            tail.source.poll()
    aside.unlink()
    assert tail.read() == ["one"]
    assert (aside / "position.json").exists()


@pytest.mark.parametrize("text", ["[1]", '[{"file": "/"}]', '{"a": 1}', '[{"file": "/", "pos": "x", "inode": 1}]'])
def test_a_position_file_of_something_else_is_said(folder: Path, text: str) -> None:
    (folder / "position.json").write_text(text)
    with pytest.raises(ConfigError, match="cannot be read"):
        Tail(folder)

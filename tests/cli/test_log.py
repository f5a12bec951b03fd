"""`headrace log`: looks at the files, says what is wrong, and ends with the code a script can go by."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Headrace
from tests.log.support import PLAIN, open_owner, put, segments


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The log of a project that is not running."""
    (tmp_path / "headrace.toml").write_text("[log]\nmin_free_bytes = 0\n")
    log = open_owner(tmp_path / ".headrace" / "log", segment_bytes=2_000)
    log.create_topic(PLAIN)
    for n in range(20):
        put(log, "plain", N=[n])
    log.close()
    return tmp_path / ".headrace" / "log"


def test_a_sound_log(headrace: Headrace, folder: Path) -> None:
    said = headrace("log", "verify")
    assert (said.code, said.err) == (0, "")
    assert said.out.startswith("20 records in 20 frames, ")
    assert said.out.endswith("nothing is damaged\n")
    found = json.loads(headrace("log", "verify", "--json").out)
    assert (found["records"], found["findings"], found["running"]) == (20, [], False)


def test_damage_is_named_repaired_and_gone(headrace: Headrace, folder: Path) -> None:
    first = segments(folder)[0]
    content = bytearray(first.read_bytes())
    content[300] ^= 1
    first.write_bytes(content)
    said = headrace("log", "verify")
    assert said.code == 1
    assert "frame: topic `plain`, partition 0: the bytes do not match their checksum" in said.out
    assert f"`{first}`, position 64" in said.out
    said = headrace("log", "repair", "--json")
    assert (said.code, "add --yes" in said.err) == (1, True)
    said = headrace("log", "repair", "--yes")
    assert (said.code, "1 repaired, 0 left" in said.out) == (0, True)
    assert headrace("log", "verify").code == 0
    assert json.loads(headrace("log", "repair", "--json").out) == {"repaired": [], "left": 0}


def test_what_cannot_be_repaired_is_left_and_said(headrace: Headrace, folder: Path) -> None:
    content = bytearray(segments(folder)[0].read_bytes())
    content[9] ^= 1
    segments(folder)[0].write_bytes(content)
    said = headrace("log", "repair", "--yes")
    assert said.code == 1
    assert "  left: " in said.out


def test_a_topic_that_is_not_there(headrace: Headrace, folder: Path) -> None:
    for command in ("verify", "repair", "stats"):
        said = headrace("log", command, "--topic", "plane")
        assert (said.code, said.out) == (1, "")
        assert "topic `plane` does not exist\n  did you mean `plain`?" in said.err


def test_stats(headrace: Headrace, folder: Path) -> None:
    [part] = json.loads(headrace("log", "stats", "--json").out)["partitions"]
    assert (part["topic"], part["records"], part["segments"]) == ("plain", 20, len(segments(folder)))
    assert headrace("log", "stats").out.splitlines()[1].startswith("plain")


def test_archive_now(headrace: Headrace, folder: Path) -> None:
    said = headrace("log", "archive")
    assert (said.code, "there is no archive" in said.err) == (1, True)
    project = folder.parent.parent / "headrace.toml"
    project.write_text(project.read_text() + '[log.archive]\nfolder = "archive"\n')
    assert json.loads(headrace("log", "archive", "--seal", "--json").out)["segments"] > 1
    assert len(list((folder.parent / "archive").rglob("*.parquet"))) > 1
    assert headrace("log", "verify").code == 0
    assert json.loads(headrace("log", "stats", "--json").out)["partitions"][0]["archived_to"] == 20


def test_split_and_merge(headrace: Headrace, folder: Path) -> None:
    said = headrace("log", "split", "plain", "0")
    assert said.out == "partition 0 of `plain` is closed; its keys go to 1 and 2\n"
    assert json.loads(headrace("log", "merge", "plain", "2", "1", "--json").out)["opened"] == [3]
    said = headrace("log", "split", "plain", "0")
    assert (said.code, "is closed" in said.err) == (1, True)


def test_there_must_be_a_log(headrace: Headrace, tmp_path: Path) -> None:
    (tmp_path / "headrace.toml").write_text("")
    said = headrace("log", "verify")
    assert said.code == 1
    assert "there is no log" in said.err

"""Every damage is found and named, repair sets aside exactly it, and the figures are those of the files."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import NotFound
from headrace.log.base import TopicConfig
from headrace.log.local import LocalClient, LocalLog
from headrace.log.local.inspect import Finding
from headrace.log.local.repair import repair_log
from headrace.log.local.segment import index_path
from headrace.log.local.statistics import log_statistics
from headrace.log.local.verify import verify_log
from tests.log.support import DERIVED, PLAIN, VIEWS, manual_clock, numbers, open_owner, put, rows, segments


def filled(folder: Path, **changes: Any) -> LocalLog:
    """Two topics in several segments, one of them rewritten and compacted."""
    log = open_owner(folder, manual_clock(), segment_bytes=6_000, segment_seconds=10, frame_rows=30, **changes)
    log.create_topic(PLAIN)
    log.create_topic(replace(DERIVED, config=TopicConfig(compacted=True, compression="zstd")))
    for n in range(80):
        put(log, "counts", K=[f"k{n % 5}"], N=[n], time_=[n])
    log.maintain()
    for n in range(80):
        put(log, "plain", N=[2 * n, 2 * n + 1], time_=[1000 - n, n])
    return log


def kinds(findings: tuple[Finding, ...]) -> list[tuple[str, str]]:
    return [(finding.kind, finding.topic) for finding in findings]


def flip(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 4
    path.write_bytes(content)


@pytest.mark.parametrize("running", [True, False], ids=["beside an owner", "without an owner"])
def test_a_sound_log_has_no_findings(tmp_path: Path, running: bool) -> None:
    log = filled(tmp_path / "log", serve=True)
    records = sum(len(rows(log, topic)) for topic in ("plain", "counts"))
    if not running:
        log.close()
    steps: list[tuple[int, int]] = []
    report = verify_log(tmp_path / "log", progress=lambda done, total: steps.append((done, total)))
    assert report.findings == ()
    assert (report.running, report.records, report.partitions) == (running, records, 2)
    assert steps[-1][0] == steps[-1][1] == sum(path.stat().st_size for path in tmp_path.rglob("*.seg"))
    log.close()


@pytest.mark.parametrize("running", [True, False], ids=["beside an owner", "without an owner"])
def test_damage_is_found_and_set_aside(tmp_path: Path, running: bool) -> None:
    log = filled(tmp_path / "log", serve=True)
    paths = segments(tmp_path / "log")
    flip(paths[0], 64 + 40)
    flip(paths[1], paths[1].stat().st_size // 2)
    before = paths[0].read_bytes()
    if not running:
        log.close()
    findings = verify_log(tmp_path / "log").findings
    assert kinds(findings) == [("frame", "plain")] * 2
    assert (findings[0].first_offset, findings[0].next_offset, findings[0].position) == (0, 2, 64)
    assert findings[1].file == str(paths[1])
    lost = set(range(2)) | set(range(findings[1].first_offset, findings[1].next_offset))
    repairer = LocalClient(tmp_path / "log") if running else open_owner(tmp_path / "log")
    repaired = repair_log(repairer, findings)
    assert [one.done for one in repaired] == [True, True]
    report = verify_log(tmp_path / "log")
    assert (report.findings, report.set_aside) == ((), len(lost))
    assert numbers(repairer) == [n for n in range(160) if n not in lost]
    assert paths[0].read_bytes() == before
    assert len(list((tmp_path / "log" / "quarantine").glob("*.bytes"))) == 2
    repairer.close()
    log.close()


def test_what_a_power_cut_took_from_a_segment_is_no_damage_if_the_journal_has_it(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    log = open_owner(tmp_path / "running")
    log.create_topic(PLAIN)
    put(log, "plain", N=[0])
    size = segments(tmp_path / "running")[0].stat().st_size
    put(log, "plain", N=[1, 2])
    shutil.copytree(tmp_path / "running", folder)
    log.close()
    (folder / "stable").unlink()
    assert verify_log(folder).findings == ()
    os.truncate(segments(folder)[0], size + 100)
    [found] = verify_log(folder).findings
    assert (found.kind, found.position, found.first_offset, found.next_offset) == ("unrestored", size, 1, 3)
    log = open_owner(folder)
    [repaired] = repair_log(log, [found])
    assert (repaired.done, repaired.message) == (True, "done when the log was opened")
    assert numbers(log) == [0, 1, 2]
    log.close()
    assert verify_log(folder).findings == ()


def test_a_missing_segment_is_damage_that_can_be_set_aside(tmp_path: Path) -> None:
    filled(tmp_path / "log").close()
    first, second = segments(tmp_path / "log")[:2]
    first.unlink()
    [finding] = verify_log(tmp_path / "log").findings
    after = int(second.name[:20])
    assert (finding.first_offset, finding.next_offset, finding.repair) == (0, after, "quarantine")
    log = open_owner(tmp_path / "log")
    assert [one.done for one in repair_log(log, [finding])] == [True]
    assert numbers(log) == list(range(after, 160))
    log.close()
    assert verify_log(tmp_path / "log").findings == ()


@pytest.mark.parametrize("harm", ["missing", "wrong entry", "cut short", "foreign"])
def test_an_index_that_is_wrong_is_written_anew(tmp_path: Path, harm: str) -> None:
    log = open_owner(tmp_path / "log", segment_bytes=400_000)
    log.create_topic(PLAIN)
    for first in range(0, 20_000, 100):
        put(log, "plain", N=list(range(first, first + 100)))
    log.close()
    path, other = (index_path(path.parent, int(path.name[:20])) for path in segments(tmp_path / "log")[:2])
    right = path.read_bytes()
    assert len(right) > 32 + 3 * 40
    if harm == "missing":
        path.unlink()
    elif harm == "foreign":
        path.write_bytes(other.read_bytes())
    else:
        path.write_bytes(right[:-40] if harm == "cut short" else right[:40] + b"\1" + right[41:])
    findings = verify_log(tmp_path / "log").findings
    assert [(finding.kind, finding.repair) for finding in findings] == [("index", "rebuild index")]
    log = open_owner(tmp_path / "log", segment_bytes=400_000, serve=True)
    client = LocalClient(tmp_path / "log")
    assert [one.done for one in repair_log(client, findings)] == [True]
    assert path.read_bytes() == right
    assert numbers(client, start=1234, end=1236) == [1234, 1235]
    client.close()
    log.close()
    assert verify_log(tmp_path / "log").findings == ()


def test_what_cannot_be_repaired_says_why(tmp_path: Path) -> None:
    filled(tmp_path / "log").close()
    journal = tmp_path / "log" / "journal"
    flip(journal, journal.stat().st_size // 2)
    flip(segments(tmp_path / "log")[0], 9)
    (tmp_path / "log" / "topics" / "stranger").mkdir()
    findings = verify_log(tmp_path / "log").findings
    assert {"journal", "file"} <= {finding.kind for finding in findings}
    assert "does not begin with a snapshot" in findings[0].message
    assert findings[0].file == str(journal)
    assert {finding.repair for finding in findings if finding.kind in ("journal", "file")} == {"none"}


def test_a_segment_header_is_looked_at_too(tmp_path: Path) -> None:
    filled(tmp_path / "log").close()
    flip(segments(tmp_path / "log")[0], 9)
    report = verify_log(tmp_path / "log")
    assert ("segment", "plain") in kinds(report.findings)


def test_a_frame_that_lies_is_found(tmp_path: Path) -> None:
    """Its checksum is right, its header is not that of its rows."""
    from headrace.log.local.frame import encode_frame, frame_body
    from headrace.log.local.segment import MappedSegment

    log = open_owner(tmp_path / "log")
    log.create_topic(PLAIN)
    put(log, "plain", N=[1, 2], time_=[5, 6])
    log.close()
    [path] = segments(tmp_path / "log")
    segment = MappedSegment(path.parent, 0)
    header = segment.header_at(64)
    assert header is not None
    frame = encode_frame(header._replace(max_time=9), frame_body(segment.data, 64, header))
    path.write_bytes(path.read_bytes()[:64] + b"".join(bytes(part) for part in frame))
    assert [(found.kind, found.repair) for found in verify_log(tmp_path / "log").findings] == [("order", "none")]


def test_a_damaged_index_of_ids_is_named_and_mended_when_the_log_is_opened(tmp_path: Path) -> None:
    log = open_owner(tmp_path / "log")
    log.create_topic(PLAIN)
    put(log, "plain", N=[1, 2], id_=["a", "b"])
    log.close()
    [run] = (tmp_path / "log" / "ids").rglob("*.run")
    run.write_bytes(bytes(run.stat().st_size))
    [finding] = verify_log(tmp_path / "log").findings
    assert (finding.kind, finding.topic, finding.message) == (
        "ids",
        "plain",
        f"the index of event ids `{run.name}` is damaged",
    )
    log = open_owner(tmp_path / "log")
    [repaired] = repair_log(log, [finding])
    assert repaired.done
    log.close()
    assert verify_log(tmp_path / "log").findings == ()


def test_a_topic_that_is_not_there_is_said_so(tmp_path: Path) -> None:
    log = open_owner(tmp_path / "log")
    log.create_topic(PLAIN)
    log.close()
    with pytest.raises(NotFound, match="did you mean `plain`"):
        verify_log(tmp_path / "log", "plains")
    with pytest.raises(NotFound, match="did you mean `plain`"):
        list(log_statistics(tmp_path / "log", "plains"))


def test_no_log_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no log"):
        verify_log(tmp_path / "log")


def test_statistics_are_those_of_the_files(tmp_path: Path) -> None:
    log = filled(tmp_path / "log", serve=True)
    log.create_topic(VIEWS)
    by_topic = {(part.topic, part.partition): part for part in log_statistics(tmp_path / "log")}
    plain, counts = by_topic["plain", 0], by_topic["counts", 0]
    assert (plain.records, plain.start, plain.end) == (160, 0, 160)
    assert (plain.oldest_ms, plain.newest_ms) == (0, 1000)
    assert plain.bytes == log.stats("plain").bytes
    assert (plain.rewritten, plain.compacted_to, plain.compression_ratio) == (0, None, None)
    assert counts.records == len(rows(log, "counts")) < 80
    assert counts.compacted_to is not None
    assert counts.rewritten == counts.segments - 1
    assert (by_topic["pageviews", 1].records, by_topic["pageviews", 1].oldest_ms) == (0, None)
    assert [part.topic for part in log_statistics(tmp_path / "log", "plain")] == ["plain"]
    log.close()

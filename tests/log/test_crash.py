"""Kill -9, failing syncs, a full disk: what was acknowledged is there, once, in order; what failed is not."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.log.support import open_owner

pytestmark = pytest.mark.slow

WRITER = [sys.executable, "-m", "tests.log.writer"]
ROOT = Path(__file__).parents[2]


class Ledger:
    """What the writer said."""

    def __init__(self) -> None:
        self.acknowledged: set[int] = set()
        self.failed: dict[int, str] = {}
        self.done = False

    def note(self, line: bytes) -> None:
        words = line.decode().split()
        # A killed writer may leave half a line; that record counts as unacknowledged.
        if not line.endswith(b"\n"):
            return
        if words[0] == "ok":
            self.acknowledged.add(int(words[1]))
        elif words[0] == "failed":
            self.failed[int(words[1])] = words[2]
        elif words[0] == "done":
            self.done = True


def run(
    folder: Path, first: int, count: int, *rest: str, before: tuple[str, ...] = (), ledger: Ledger | None = None
) -> Ledger:
    ledger = ledger or Ledger()
    with subprocess.Popen(
        [*before, *WRITER, str(folder), str(first), str(count), *rest],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=ROOT,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            ledger.note(line)
    return ledger


def stored(folder: Path) -> list[list[int]]:
    """The numbers in the log, by partition."""
    log = open_owner(folder)
    found = [
        [
            n
            for records in log.read("pageviews", partition, 0, columns=["N"])
            for n in records.batch.column(0).to_pylist()
        ]
        for partition in range(2)
    ]
    assert log.snapshot().arrival == sum(map(len, found))
    log.close()
    return found


def check(folder: Path, acknowledged: set[int], sent: int) -> list[int]:
    """Lost 0, twice 0, order per partition kept."""
    found = stored(folder)
    everything = [n for numbers in found for n in numbers]
    assert len(set(everything)) == len(everything), "a record is there twice"
    assert acknowledged - set(everything) == set(), "an acknowledged record is lost"
    assert set(everything) <= set(range(sent))
    assert found == [sorted(numbers) for numbers in found], "the order is not kept"
    return sorted(everything)


def test_kill_nine_at_any_moment(tmp_path: Path) -> None:
    """Ten times: a writer is killed, and the next one sends again what was not acknowledged."""
    folder, chance = tmp_path / "log", random.Random(7)
    acknowledged: set[int] = set()
    sent = 0
    for _ in range(10):
        first = max(acknowledged, default=-1) + 1
        ledger = Ledger()
        process = subprocess.Popen(
            [*WRITER, str(folder), str(first), "100000", "8"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=ROOT,
        )
        assert process.stdout is not None
        lines = chance.randrange(1, 300)
        for _ in range(lines):
            ledger.note(process.stdout.readline())
        process.kill()
        for line in process.stdout:
            ledger.note(line)
        process.wait()
        process.stdout.close()
        assert ledger.failed == {}
        assert ledger.acknowledged
        acknowledged |= ledger.acknowledged
        # At most eight were outstanding.
        sent = max(sent, max(ledger.acknowledged) + 9)
        check(folder, acknowledged, sent)
    rest = run(folder, max(acknowledged) + 1, 10)
    assert rest.done
    assert check(folder, acknowledged | rest.acknowledged, sent + 10) == list(range(max(acknowledged) + 11))


def strace(inject: str, *paths: Path) -> tuple[str, ...]:
    """strace that makes a system call on one of these files fail, or a reason why not."""
    assert shutil.which("strace"), "`make setup-tests` installs strace"
    probe = subprocess.run(["strace", "-o", os.devnull, "true"], capture_output=True, check=False)
    if probe.returncode:
        pytest.skip("the kernel does not let this user trace: " + probe.stderr.decode().strip())
    calls, _, _ = inject.partition(":")
    wanted = [option for path in paths for option in ("-P", str(path))]
    return ("strace", "-f", "-o", os.devnull, "-e", f"trace={calls}", *wanted, "-e", f"inject={inject}")


def files(folder: Path, what: str) -> list[Path]:
    if what == "journal":
        return [folder / "journal"]
    return [folder / "topics" / "pageviews" / str(partition) / f"{0:020}.seg" for partition in range(2)]


def nth_sync(what: str, record: int) -> int:
    """Each record takes one sync of the journal, which was synced for the topic before; if the journal does not get its
    frames, also one of its segment."""
    return record + 1 if what == "segment" else record + 2


def large(what: str) -> tuple[str, str]:
    """Arguments of a writer whose groups are too large for the journal, if segments are what the test is about."""
    return ("1", "0") if what == "segment" else ("1", "1000000")


@pytest.mark.parametrize("record", [0, 3])
@pytest.mark.parametrize("what", ["segment", "journal"])
def test_killed_at_exactly_this_sync(tmp_path: Path, what: str, record: int) -> None:
    folder = tmp_path / "log"
    fault = f"fdatasync:signal=KILL:when={nth_sync(what, record)}"
    ledger = run(folder, 0, 20, *large(what), before=strace(fault, *files(folder, what)))
    assert (ledger.acknowledged, ledger.done) == (set(range(record)), False)
    # Of the record that was not acknowledged all may be there if its journal record was written, otherwise nothing.
    complete = [list(range(record)), list(range(record + 1))][: 2 if what == "journal" else 1]
    assert check(folder, ledger.acknowledged, 20) in complete
    again = run(folder, record, 20 - record)
    assert check(folder, ledger.acknowledged | again.acknowledged, 20) == list(range(20))


@pytest.mark.parametrize("what", ["segment", "journal"])
def test_a_failed_sync_is_never_acknowledged_and_the_log_recovers(tmp_path: Path, what: str) -> None:
    folder = tmp_path / "log"
    fault = f"fdatasync:error=EIO:when={nth_sync(what, 2)}"
    ledger = run(folder, 0, 20, *large(what), before=strace(fault, *files(folder, what)))
    assert (ledger.failed, ledger.done) == ({2: "log"}, True)
    assert ledger.acknowledged == set(range(20)) - {2}
    # Nothing of the failed group will ever be visible, and its event id was not used up.
    assert check(folder, ledger.acknowledged, 20) == sorted(ledger.acknowledged)
    assert run(folder, 2, 1).acknowledged == {2}
    assert 2 in [n for numbers in stored(folder) for n in numbers]


@pytest.mark.parametrize("what", ["segment", "journal"])
def test_a_failed_write_is_a_full_disk_and_the_log_recovers(tmp_path: Path, what: str) -> None:
    folder = tmp_path / "log"
    ledger = run(folder, 0, 20, before=strace("pwritev,pwritev2,pwrite64:error=ENOSPC:when=6", *files(folder, what)))
    assert (list(ledger.failed.values()), ledger.done) == (["disk_full"], True)
    assert check(folder, ledger.acknowledged, 20) == sorted(set(range(20)) - set(ledger.failed))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of three megabytes."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(disk)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("only root may mount a small disk to fill: " + mounted.stderr.decode().strip())
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def test_a_disk_that_really_runs_full(small_disk: Path) -> None:
    filler = small_disk / "filler"
    filler.write_bytes(bytes(2_300_000))
    ledger = run(small_disk / "log", 0, 2000, "20")
    assert set(ledger.failed.values()) == {"disk_full"}
    assert ledger.done
    assert len(ledger.acknowledged) > 20
    filler.unlink()
    before = check(small_disk / "log", ledger.acknowledged, 2000)
    assert before == sorted(ledger.acknowledged)
    again = run(small_disk / "log", 2000, 100)
    assert again.acknowledged == set(range(2000, 2100))
    assert check(small_disk / "log", ledger.acknowledged | again.acknowledged, 2100) == [*before, *range(2000, 2100)]

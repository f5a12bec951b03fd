"""What the workload said, and whether the log agrees."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from headrace.log.local import LocalLog
from headrace.log.writing.prepare import id_digest
from tests.chaos.log.workload import GROUP, PRODUCED, READ, TOGETHER, events_of, open_workload, total_key

IDS_ASKED, IDS_AGAIN = 20_000, 500
ROOT = Path(__file__).parents[3]
WORKLOAD = (sys.executable, "-m", "tests.chaos.log.workload")


@dataclass
class Ledger:
    acknowledged: set[int] = field(default_factory=set)
    failed: set[int] = field(default_factory=set)
    done: bool = False

    def note(self, line: bytes) -> None:
        words = line.decode(errors="replace").split()
        # A killed process may leave half a line; that step counts as unacknowledged.
        if not line.endswith(b"\n") or not words:
            return
        match words:
            case ["ok", first, after]:
                self.acknowledged.update(range(int(first), int(after)))
            case ["failed", first, after, _]:
                self.failed.update(range(int(first), int(after)))
            case ["done"]:
                self.done = True

    @property
    def next(self) -> int:
        return max(self.acknowledged, default=-1) + 1


class Broken(AssertionError):
    """The log is not what the ledger says."""


def run_workload(
    folder: Path, ledger: Ledger, first: int, count: int, *before: str, rows: int = 1, kill_after: int | None = None
) -> None:
    """Run it to its end, or kill it when it has said so many lines. `before`: a command that runs it."""
    command = [*before, *WORKLOAD, str(folder), str(first), str(count), str(rows)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=ROOT) as process:
        assert process.stdout is not None
        for number, line in enumerate(process.stdout):
            ledger.note(line)
            if kill_after is not None and number + 1 == kill_after:
                process.kill()


def numbers(log: LocalLog, topic: str) -> list[list[int]]:
    """The column N, by partition."""
    return [
        [n for records in log.read(topic, at, ends.start, columns=["N"]) for n in records.batch.column(0).to_pylist()]
        for at, ends in enumerate(log.snapshot().ends[topic])
    ]


def committed(log: LocalLog) -> int | None:
    """Where the group is that reads with the producer's transactions."""
    if GROUP not in log.groups():
        return None
    return next((at.committed for at in log.group(GROUP).offsets if at.at == READ), None)


def check(folder: Path, ledger: Ledger, sent: int) -> int:
    """Lost 0, twice 0, failed but visible 0, order kept, transactions whole. Returns how many records there are."""
    log = open_workload(folder)
    try:
        return check_log(log, ledger, sent)
    finally:
        log.close()


def check_log(log: LocalLog, ledger: Ledger, sent: int) -> int:
    events, [totals] = numbers(log, "events"), numbers(log, "totals")
    everything = [n for part in events for n in part]
    found = set(everything)
    wrong = {
        "twice": len(everything) - len(found),
        "lost": len(ledger.acknowledged - found),
        "failed but visible": len(ledger.failed & found),
        "never sent": len([n for n in found if not 0 <= n < sent]),
        "out of order": sum(part != sorted(part) for part in [*events, totals]),
    }
    newest = {total_key(n): n for n in sorted(found) if n % TOGETHER == 0}
    wrong["half a transaction"] = int({total_key(n): n for n in totals} != newest)
    wrong["a group's offset"] = int(committed(log) != max((n for n in found if n % PRODUCED == 0), default=None))
    if any(wrong.values()):
        raise Broken(f"{ {name: count for name, count in wrong.items() if count} }")
    check_ids(log, found, sent)
    return len(found)


def check_ids(log: LocalLog, found: set[int], sent: int) -> None:
    """The index of ids knows those of the records that are there, and no other; so sent again, none is taken."""
    asked = range(max(0, sent - IDS_ASKED), sent + 10)
    index = log._owned("events").ids
    assert index is not None
    known = index.known([id_digest(str(n)) for n in asked])
    right = [n for n in asked if (id_digest(str(n)) in known) == (n in found)]
    if len(right) < len(asked):
        raise Broken(f"ids are not known as they should be: {sorted(set(asked) - set(right))[:5]}")
    if again := sorted(found)[-IDS_AGAIN:]:
        [appended] = log.append([events_of(again)]).result(60)
        if appended.positions:
            raise Broken(f"ids were taken twice: {appended.positions}")

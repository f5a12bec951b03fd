"""Damage at rest: torn ends, flipped bits, zeroed pages. All of it is found, none of it is served, the rest is read."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

from headrace.errors import CorruptFrame, HeadraceError
from headrace.log.local import LocalLog
from tests.chaos.log.kills import Say
from tests.chaos.log.ledger import Broken, Ledger, check
from tests.chaos.log.workload import open_workload, run

PAGE = 4096


def make_log(folder: Path, records: int) -> dict[str, list[list[dict[str, object]]]]:
    """A log with everything in it, closed; and what it holds."""
    log = open_workload(folder, archive=False)
    run(log, range(records), lambda line: None)
    content = read_all(log)
    log.close()
    return content


def read_all(log: LocalLog) -> dict[str, list[list[dict[str, object]]]]:
    """All rows by topic and partition, damage passed over only after it was named and set aside."""
    return {
        topic.name: [read_partition(log, topic.name, number) for number in range(topic.spec.partitions)]
        for topic in log.topics()
    }


def read_partition(log: LocalLog, topic: str, number: int) -> list[dict[str, object]]:
    while True:
        rows: list[dict[str, object]] = []
        start = log.snapshot().ends[topic][number].start
        try:
            for records in log.read(topic, number, start):
                places = records.offsets or range(records.first_offset, records.next_offset)
                found = records.batch.to_pylist()
                rows += [row | {"at": place} for row, place in zip(found, places, strict=True)]
            return rows
        except CorruptFrame as error:
            log.quarantine(topic, number, error.data["first_offset"])


def truncate_everywhere(folder: Path, records: int, step: int, say: Say) -> int:
    """A power cut may leave any part of what was not synced: here, of the last two groups, segments and journal cut
    at every `step`-th byte. What comes before is whole."""
    whole = folder / "whole"
    log = open_workload(folder / "running", archive=False)
    run(log, range(records - 2), lambda line: None)
    before = sizes(folder / "running")
    run(log, range(records - 2, records), lambda line: None)
    # As a crash leaves it: closing would tidy up. A file that is not in its place yet may be gone before it is copied.
    shutil.copytree(folder / "running", whole, ignore=shutil.ignore_patterns("*.tmp"))
    log.close()
    cuts = 0
    for path, length in sizes(whole).items():
        for cut in range(before.get(path, 0), length, step):
            image = folder / "image"
            shutil.copytree(whole, image)
            (image / "log" / "stable").unlink(missing_ok=True)  # it is mapped, and may be of any moment before
            with (image / path).open("r+b") as file:
                file.truncate(cut)
            check_cut(image, path, records)
            shutil.rmtree(image)
            cuts += 1
    say(f"cut {cuts} times at the end of {records} records")
    return cuts


def check_cut(image: Path, path: str, records: int) -> None:
    acknowledged = Ledger(acknowledged=set(range(records - 2)))
    if path == "log/journal":
        check(image, acknowledged, records)
        return
    # A segment below what the journal promises and does not hold is damage: said, set aside, the rest is there.
    log = open_workload(image, archive=False)
    try:
        content = read_all(log)
    finally:
        log.close()
    found = {row["N"] for part in content["events"] for row in part}
    if lost := acknowledged.acknowledged - found:
        raise Broken(f"{path} was cut in its last two frames, and {sorted(lost)} are lost")


def sizes(folder: Path) -> dict[str, int]:
    """Of what is written at its end: segments and the journal."""
    files = [*folder.glob("log/topics/*/*/*.seg"), folder / "log" / "journal"]
    return {str(path.relative_to(folder)): path.stat().st_size for path in files}


def flip_bits(folder: Path, flips: int, seed: int, say: Say) -> None:
    """One bit of one segment at a time."""
    damage_often(folder, flips, seed, say, "bit", flip_bit)


def zero_pages(folder: Path, pages: int, seed: int, say: Say) -> None:
    damage_often(folder, pages, seed, say, "page", zero_page)


def flip_bit(content: bytearray, chance: random.Random) -> None:
    content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)


def zero_page(content: bytearray, chance: random.Random) -> None:
    place = chance.randrange(0, len(content), PAGE)
    content[place : place + PAGE] = bytes(len(content[place : place + PAGE]))


def damage_often(
    folder: Path, times: int, seed: int, say: Say, name: str, harm: Callable[[bytearray, random.Random], None]
) -> None:
    chance = random.Random(seed)
    whole = folder / "whole"
    content = make_log(whole, 120)
    originals = {path: path.read_bytes() for path in sorted(whole.glob("log/topics/*/*/*.seg"))}
    found = passed = 0
    for _ in range(times):
        path = chance.choice(list(originals))
        damaged = bytearray(originals[path])
        harm(damaged, chance)
        if bytes(damaged) == originals[path]:
            continue
        path.write_bytes(damaged)
        lost = compare(whole, content)
        found, passed = found + bool(lost), passed + (not lost)
        path.write_bytes(originals[path])
        for aside in [*whole.glob("log/topics/*/*/quarantined.json"), whole / "log" / "quarantine"]:
            shutil.rmtree(aside) if aside.is_dir() else aside.unlink(missing_ok=True)
    say(f"{times} times a {name} was damaged: {found} cost rows, all named; {passed} fell where nothing is kept")


def compare(folder: Path, content: dict[str, list[list[dict[str, object]]]]) -> int:
    """Whatever is read is as it was written. How many rows are missing."""
    try:
        log = open_workload(folder, archive=False)
    except HeadraceError as error:
        raise Broken(f"the log does not open: {error}") from error
    try:
        now = read_all(log)
    finally:
        log.close()
    missing = 0
    for topic, partitions in content.items():
        for number, rows in enumerate(partitions):
            before = {row["at"]: row for row in rows}
            for row in now[topic][number]:
                if before.get(row["at"]) != row:
                    raise Broken(f"`{topic}`/{number} serves damage: {row}")
            missing += len(rows) - len(now[topic][number])
    return missing

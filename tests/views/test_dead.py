"""Which dead letters are asked whether they would have counted."""

from __future__ import annotations

from pathlib import Path

from headrace.log.dead_letters import DeadLetter, bury, create_dead_letters
from headrace.views.dead import AT_A_TIME, newest_letters
from tests.log.support import open_owner


def letters(topic: str, first: int, count: int) -> list[DeadLetter]:
    return [DeadLetter(topic, "no number", "http", None, b"%d" % number) for number in range(first, first + count)]


def test_a_flood_of_other_letters_does_not_hide_those_of_a_topic(tmp_path: Path) -> None:
    log = open_owner(tmp_path / "log")
    create_dead_letters(log)
    for written in (letters("sales", 0, 3), letters("other", 0, 2 * AT_A_TIME), letters("sales", 3, 2)):
        log.append([bury(written)]).result()
    found = [[row["PAYLOAD"] for row in newest_letters(log, ["sales"], most)] for most in (100, 4, 1)]
    assert found == [[b"0", b"1", b"2", b"3", b"4"], [b"1", b"2", b"3", b"4"], [b"4"]]
    assert newest_letters(log, [], 100) == newest_letters(log, ["none"], 100) == []
    log.close()

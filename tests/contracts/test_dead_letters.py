"""Dead letters on every log: counted, mended, sent again once, whoever does it and however often."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from headrace.clock import SystemClock
from headrace.collect.base import RawEvents
from headrace.collect.decode import EventCollector
from headrace.collect.redrive import Order, Redriver, Report
from headrace.config import CollectSettings
from headrace.log.base import Append, Log
from headrace.log.dead_letters import DEAD_LETTERS_SPEC, REDRIVEN_SPEC, create_dead_letters
from headrace.server.dead_letters import DeadLetterIndex
from tests.log.support import PLAIN, numbers

SETTINGS = CollectSettings()
OLDER = ("TOPIC", "REASON", "SOURCE", "EVENT_ID", "PAYLOAD")


def send(log: Log, body: str) -> None:
    EventCollector(log, SystemClock(), SETTINGS).collect(RawEvents("plain", body.encode())).result(60)


def redrive(log: Log, mended: str | None = None, **order: Any) -> Report:
    values = {} if mended is None else {"n": mended}
    return Redriver(log, SystemClock(), SETTINGS).redrive(Order("plain", values=values, **order), {})


def outcomes(report: Report) -> tuple[int, int, int]:
    return report.accepted, report.duplicates, report.rejected


def attempts(log: Log) -> list[int]:
    """Newest first."""
    return [row["attempts"] for row in DeadLetterIndex(log).newest("plain", 10)]


def topics(log: Log) -> None:
    log.create_topic(PLAIN)
    create_dead_letters(log)


def test_a_letter_is_sent_again_once_and_counts_how_often_it_was_tried(log: Log) -> None:
    topics(log)
    send(log, '[{"n": "7", "$id": "a"}, {"n": 1}, {"n": "x"}]')
    assert attempts(log) == [1, 1]
    assert outcomes(redrive(log)) == (0, 0, 2)
    assert attempts(log) == [2, 2]
    mended = "CAST(n AS BIGINT)"
    assert outcomes(redrive(log, mended, preview=True)) == (2, 0, 0)
    assert attempts(log) == [2, 2], "who only looks tries nothing"
    assert outcomes(redrive(log, mended, where="attempts = 2 AND n = '7'")) == (1, 0, 0)
    assert outcomes(redrive(log, mended, where="n = '7'")) == (0, 0, 0)
    assert attempts(log) == [2, 3]
    assert numbers(log) == [1, 7]


def test_two_who_send_letters_again_at_once_double_nothing(log: Log) -> None:
    """Each has read which letters there are before the other is done."""
    topics(log)
    send(log, '[{"n": "1", "$id": "a"}, {"n": "2"}]')

    class Late(Redriver):
        def _write(self, *arguments: Any) -> None:
            redrive(log, "CAST(n AS BIGINT)")
            super()._write(*arguments)

    late = Late(log, SystemClock(), SETTINGS).redrive(Order("plain", values={"n": "CAST(n AS BIGINT)"}), {})
    assert outcomes(late) == (0, 2, 0)
    assert numbers(log) == [1, 2]


def test_letters_of_an_older_version_were_tried_once(log: Log) -> None:
    log.create_topic(PLAIN)
    log.create_topic(replace(DEAD_LETTERS_SPEC, value=DEAD_LETTERS_SPEC.value[: len(OLDER)]))
    log.create_topic(replace(REDRIVEN_SPEC, value=REDRIVEN_SPEC.value[:3]))
    older(log, "_dead_letters", OLDER, [["plain", "no number", "http", None, b'{"n": "3"}']] * 2)
    older(log, "_redriven", ("LETTER", "TOPIC", "WHO"), [[0, "plain", "ann"]])
    create_dead_letters(log)
    assert attempts(log) == [1, 2]
    send(log, '{"n": "x"}')
    assert outcomes(redrive(log, "CAST(n AS BIGINT)", where="n = '3'")) == (1, 0, 0)
    assert attempts(log) == [1, 2, 2]
    assert numbers(log) == [3]


def older(log: Log, topic: str, names: Sequence[str], rows: list[list[Any]]) -> None:
    columns = {name: pa.array(list(values)) for name, values in zip(names, zip(*rows, strict=True), strict=True)}
    log.append([Append(topic, pa.record_batch(columns))]).result(60)

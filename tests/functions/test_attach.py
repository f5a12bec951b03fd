"""Functions that are called with records: what is in a file, and how they are called."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Event

import pytest

from headrace.functions.attach import Attached
from headrace.functions.batches import Caller, Sent
from headrace.functions.compiled import Limits
from headrace.functions.describe import describe
from headrace.functions.files import FunctionFile

TEXT = """
import threading
from headrace import on_topic, transform

@on_topic("clicks", to="copied", batch=7, shards=[1])
def copy(records):
    'Copies.'
    return [(r.key, r.value) for r in records]

@on_topic("clicks", retries=0, to="x")
def picky(records):
    if any(r.value == b"3" for r in records):
        raise ValueError("three")
    return [r.value for r in records]

@on_topic("clicks", retries=0)
def talks(records):
    return [r.value for r in records]

@on_topic("clicks", retries=0, seconds=0.3)
def hangs(records):
    threading.Event().wait()

@transform
def none(records):
    return []
"""


def file() -> FunctionFile:
    return describe(FunctionFile("functions/a.py", TEXT))[0]


def sent(count: int) -> list[Sent]:
    return [(0, n, 1000 + n, None, b"k", str(n).encode(), {}) for n in range(count)]


@pytest.fixture
def callers() -> Iterator[dict[str, Caller]]:
    found = file()
    made = {one.name: Caller(found, one, True, Limits(20.0), lambda: None) for one in found.attached}
    yield made
    for caller in made.values():
        caller.close()


def test_a_file_says_what_its_decorators_were_told() -> None:
    first, *_ = file().attached
    expected = Attached(
        "copy", "copy", topic="clicks", to="copied", batch=7, partitions=(1,), summary="Copies.", line=first.line
    )
    assert first == expected


@pytest.mark.parametrize(
    ("decorator", "problem"),
    [
        ('on_topic("a", batch=0)', "`batch` is 1 to"),
        ('on_topic("a", batch="many")', "Expected `int`"),
        ('on_topic("a", to="a")', "would read what it writes"),
        ('on_topic("a", start="now")', "Invalid enum value"),
        ('on_topic("a", name="no name")', "is not a name"),
        ('on_topic("a", retries=-1)', "not negative"),
    ],
)
def test_what_a_decorator_cannot_be_told(decorator: str, problem: str) -> None:
    text = f"from headrace import on_topic\n@{decorator}\ndef f(records): ..."
    described, problems = describe(FunctionFile("functions/b.py", text))
    assert described.attached == ()
    assert problem in problems[0].message
    assert problems[0].line == 2


def test_a_batch_is_halved_around_what_a_function_fails_for(callers: dict[str, Caller]) -> None:
    worked = callers["picky"].work(sent(10), Event())
    assert [value for _, value, _ in worked.made] == [b"0", b"1", b"2", *(str(n).encode() for n in range(4, 10))]
    [(record, reason, attempts)] = worked.rejected
    assert (record[1], reason) == (3, "ValueError: three (functions/a.py line 13)")
    assert attempts == 5, "among all, among five, three and two, and alone"
    assert callers["copy"].work(sent(2), Event()).made == [(b"k", b"0", False), (b"k", b"1", False)]


@pytest.mark.parametrize(
    ("name", "reason"), [("talks", "says no topic"), ("hangs", "did not answer"), ("none", "one value for each")]
)
def test_a_call_that_cannot_be_is_a_failure(callers: dict[str, Caller], name: str, reason: str) -> None:
    [rejected] = callers[name].work(sent(1), Event()).rejected
    assert reason in rejected.reason

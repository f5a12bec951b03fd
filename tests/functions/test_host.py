"""The process beside the server: whatever a function does, the server goes on."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator

import pytest

from headrace.errors import DeadlineExceeded
from headrace.functions.compiled import Failure, Limits
from headrace.functions.host import FunctionHost
from headrace.functions.signatures import functions_of
from headrace.sql.functions.function import Steps
from headrace.types import BIGINT, VARCHAR
from tests.functions.support import function_file
from tests.support import wait_for

TEXT = """
import os, threading

@function
def plus_one(x: int) -> int:
    print("computing", x)
    return x + 1

@function
def inverse(x: int) -> float:
    return 1 / x

@function
def die(x: int) -> int:
    os._exit(3)

@function
def sleepy(x: int) -> int:
    threading.Event().wait(600)
    return x

@function
def hang(x: int) -> int:
    import signal
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    threading.Event().wait(600)
    return x

@function
def eat(x: int) -> int:
    return len(bytearray(x))

@function
def words(text: str) -> Iterator[str]:
    yield from text.split()

@function
class Biggest:
    def init(self): return None
    def add(self, state, x: int): return x if state is None else max(state, x)
    def merge(self, left, right): return max(left, right)
    def result(self, state) -> int: return state
"""


class Served:
    def __init__(self, seconds: float) -> None:
        self.failures: list[Failure] = []
        self.host = FunctionHost(Limits(seconds=seconds, memory_bytes=512 * 1024 * 1024), self.failures.append)
        described, problems = self.host.describe(function_file(TEXT))
        assert problems == ()
        self.functions = functions_of(described, self.host)

    def call(self, name: str, value: int) -> object:
        prepare = self.functions[name].prepare
        assert prepare is not None
        return prepare((BIGINT,), BIGINT)(value)


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    made = Served(seconds=120.0)  # on a busy machine
    yield made
    made.host.close()


@pytest.fixture(scope="module")
def hasty() -> Iterator[Served]:
    made = Served(seconds=2.0)
    yield made
    made.host.close()


@pytest.fixture(autouse=True)
def _no_failures(served: Served) -> None:
    served.failures.clear()


def test_a_function_that_prints_answers_all_the_same(served: Served) -> None:
    assert [served.call("PLUS_ONE", number) for number in range(3)] == [1, 2, 3]
    assert served.failures == []


def test_it_is_called_by_a_server_with_more_than_a_thousand_open_files() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4096)), hard))
    held = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        served = Served(seconds=120.0)
        assert served.call("PLUS_ONE", 1) == 2
        served.host.close()
    finally:
        for descriptor in held:
            os.close(descriptor)


def test_one_that_raises_gives_null_and_is_told(served: Served) -> None:
    assert served.call("INVERSE", 0) is None
    assert [failure.error for failure in served.failures] == ["ZeroDivisionError: division by zero"]


def test_one_that_ends_its_process_ends_only_that(served: Served) -> None:
    assert served.call("DIE", 1) is None
    assert [failure.error for failure in served.failures] == ["it ended the process it ran in"]
    assert served.call("PLUS_ONE", 1) == 2


def test_one_that_sleeps_too_long_is_interrupted(hasty: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.functions.host.GRACE_SECONDS", 60.0)  # not so long that it would wake up
    hasty.failures.clear()
    assert hasty.call("SLEEPY", 1) is None
    assert [failure.error for failure in hasty.failures] == ["TimeoutError: took longer than 2 s"]


def test_one_that_does_not_let_itself_be_interrupted_is_killed(hasty: Served) -> None:
    with pytest.raises(DeadlineExceeded, match="function `hang` did not answer within 2 s"):
        hasty.call("HANG", 1)
    wait_for(lambda: hasty.call("PLUS_ONE", 1) == 2, 20, "an answer of the next process")


def test_one_that_wants_too_much_memory_does_not_get_it(served: Served) -> None:
    assert served.call("EAT", 1000) == 1000
    assert served.call("EAT", 4 * 1024**3) is None
    assert [failure.error for failure in served.failures] == ["MemoryError"]
    assert served.call("PLUS_ONE", 1) == 2


def test_rows_and_groups_go_there_and_back(served: Served) -> None:
    words, biggest = served.functions["WORDS"].prepare, served.functions["BIGGEST"].prepare
    assert words is not None
    assert biggest is not None
    assert words((VARCHAR,), VARCHAR)("a b") == ["a", "b"]
    steps: Steps = biggest((BIGINT,), BIGINT)
    state = steps.add(steps.add(steps.init(), 3), 7)
    assert steps.result(steps.merge(state, steps.add(steps.init(), 5))) == 7


def test_a_file_that_ends_the_process_is_a_problem_of_that_file() -> None:
    host = FunctionHost()
    _, problems = host.describe(function_file("import os\nos._exit(1)"))
    assert [problem.message for problem in problems] == ["ends the process that loads it"]
    host.close()

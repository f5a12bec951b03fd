"""How often a stretch that failed is tried again."""

from __future__ import annotations

import errno

import pytest

from headrace.errors import DiskFull, QueryFailed
from headrace.process.tries import FIRST_S, TRIES, Tries


class FromJava(Exception):
    """As PySpark hands them over: with the JVM's stack trace as text."""

    _stackTrace = "SparkException: Job aborted\nCaused by: java.io.IOException: No space left on device"


def test_what_fails_too_often_is_given_up() -> None:
    tries = Tries()
    for _ in range(2):
        waits = [tries.wait_after(QueryFailed("no")) for _ in range(TRIES)]
        assert waits == [0.0] * (TRIES - 1) + [None]
        tries.reset()


@pytest.mark.parametrize(
    "error",
    [DiskFull("the disk is full"), OSError(errno.ENOSPC, "full"), FromJava("failed"), QueryFailed("disk_full: x")],
)
def test_a_full_disk_is_waited_for(error: Exception) -> None:
    tries = Tries()
    assert tries.wait_after(QueryFailed("no")) == 0.0
    waits = [tries.wait_after(error) or 0.0 for _ in range(50)]
    assert FIRST_S / 2 <= waits[0] < waits[10] <= 60
    # And counts as no try.
    assert [tries.wait_after(QueryFailed("no")) for _ in range(2)] == [0.0, None]

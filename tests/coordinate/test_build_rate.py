"""What a plan's minutes are made of."""

from __future__ import annotations

from headrace.coordinate.changes import BUILDS_REMEMBERED, build_rate
from headrace.views.versions import Deployment


def built(number: int, rows: int, milliseconds: int, throttle: int = 0) -> Deployment:
    return Deployment(number, [], 0, rows_read=rows, build_ms=milliseconds, rows_per_second=throttle)


def test_a_build_that_was_held_back_says_nothing_about_the_next() -> None:
    fast, throttled = built(1, 2_000_000, 1000), built(2, 2_000_000, 40_000, throttle=50_000)
    # The server was away for most of an hour, or somebody had paused it.
    interrupted = built(3, 2_000_000, 2_000_000)
    assert build_rate([fast, throttled, interrupted]) == 2_000_000
    assert build_rate([throttled]) == 0
    assert build_rate([]) == 0


def test_what_was_long_ago_is_forgotten() -> None:
    now = [built(number, 1_000_000, 4000) for number in range(BUILDS_REMEMBERED)]
    assert build_rate([built(1, 2_000_000, 1000), *now]) == 250_000

"""The wall clock against the monotonic clock."""

from __future__ import annotations

import logging

import pytest

from headrace.clock import GuardedClock, steady_seconds

DAY_MS = 86_400_000
START_MS = 1_794_744_000_000


class Machine:
    """Two clocks that a test moves: together, as time does, or the wall clock alone."""

    def __init__(self) -> None:
        self.wall, self.steady = START_MS, 1000.0
        self.clock = GuardedClock(600, lambda: self.wall, lambda: self.steady)

    def pass_seconds(self, seconds: float) -> None:
        self.wall += int(seconds * 1000)
        self.steady += seconds

    def elapsed_ms(self) -> int:
        """How far the guarded time has come."""
        return self.clock.now_ms() - START_MS


@pytest.mark.parametrize("jump_ms", [2 * DAY_MS, -3_600_000])
def test_a_jump_that_does_not_last_is_not_followed(jump_ms: int, caplog: pytest.LogCaptureFixture) -> None:
    machine = Machine()
    machine.pass_seconds(60)
    assert machine.elapsed_ms() == 60_000
    machine.wall += jump_ms
    for second in range(61, 66):
        machine.pass_seconds(1)
        assert machine.elapsed_ms() == second * 1000
    jump = machine.clock.jump()
    assert jump is not None
    assert jump.offset_ms == jump_ms
    assert str(jump) == {2 * DAY_MS: "48.0 h forward", -3_600_000: "1.0 h back"}[jump_ms]
    machine.wall -= jump_ms
    machine.pass_seconds(1)
    assert (machine.elapsed_ms(), machine.clock.jump(), machine.clock.jumps) == (66_000, None, 1)
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 2


def test_a_jump_that_lasts_is_followed_and_another_one_begins_anew() -> None:
    machine = Machine()
    machine.wall += DAY_MS
    assert machine.elapsed_ms() == 0
    machine.pass_seconds(599)
    assert machine.elapsed_ms() == 599_000
    machine.wall += 3_600_000
    assert machine.elapsed_ms() == 599_000
    machine.pass_seconds(599)
    assert machine.elapsed_ms() == 1_198_000, "it has to stay where it is"
    machine.pass_seconds(1)
    assert machine.elapsed_ms() == 1_199_000 + DAY_MS + 3_600_000
    assert (machine.clock.jump(), machine.clock.jumps) == (None, 2)


def test_small_corrections_and_a_clock_that_is_slewed_are_followed() -> None:
    machine = Machine()
    for _ in range(3600):
        machine.pass_seconds(1)
        machine.wall += 500
        assert machine.clock.now_ms() == machine.wall
    machine.wall -= 1500
    assert machine.clock.now_ms() == machine.wall
    machine.pass_seconds(3 * 86_400)
    machine.wall += 100_000
    assert machine.clock.now_ms() == machine.wall, "nobody asked for days"
    assert machine.clock.jumps == 0


def test_a_process_that_stands_still_between_two_readings_sees_no_jump() -> None:
    steady = iter([0.0, 0.0, 61.0, 1.0, 61.0, 61.0, 61.0])
    walls = iter([START_MS, START_MS + 1000, START_MS + 1000, START_MS + 61_000])
    clock = GuardedClock(600, lambda: next(walls), lambda: next(steady))
    assert (clock.now_ms(), clock.jumps) == (START_MS + 61_000, 0)


def test_the_steady_clock_only_grows() -> None:
    assert steady_seconds() <= steady_seconds()

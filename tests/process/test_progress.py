"""Figures of a query's progress."""

from __future__ import annotations

from headrace.process.progress import Rate


def test_a_long_batch_goes_as_fast_as_those_before() -> None:
    """Between two batches of 20 seconds the rate does not fall to nothing; it does once nothing comes any more."""
    rate = Rate(seconds=5.0)
    assert rate.update(0.0, 0) == 0.0
    assert rate.update(10.0, 0) == 0.0
    assert rate.update(20.0, 2000) == 100.0
    assert rate.update(39.0, 2000) == 100.0
    assert rate.update(40.0, 6000) == 200.0
    assert rate.update(79.0, 6000) == 200.0
    assert rate.update(81.0, 6000) == 0.0


def test_short_batches_count_over_the_last_seconds() -> None:
    rate = Rate(seconds=5.0)
    found = [rate.update(tick / 5, tick * 10) for tick in range(100)]
    assert {round(one, 6) for one in found[1:]} == {50.0}
    assert [round(rate.update(19.8 + waited, 990), 6) for waited in (0.2, 4.9, 5.1)] == [50.0, 50.0, 0.0]

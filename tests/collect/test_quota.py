"""Quotas and load shedding: how much a collector takes, what it leaves out, and that it says so."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.clock import ManualClock
from headrace.collect.base import RawEvents
from headrace.collect.gate import Arrival
from headrace.collect.quota import Buckets
from headrace.errors import Overloaded
from headrace.log.codecs.json_codec import Unreadable
from tests.collect.gating import Gated, gated

WEB = 'type = "http"\ntopic = "pageviews"\n'


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_700_000_000_000)


@pytest.fixture
def project(tmp_path: Path, clock: ManualClock) -> Iterator[Gated]:
    with gated(tmp_path, clock=clock) as found:
        yield found


def users(*names: str) -> list[dict[str, object]]:
    return [{"USERID": name, "n": number} for number, name in enumerate(names)]


def test_a_tenant_over_its_quota_is_told_when_to_come_again(project: Gated, clock: ManualClock) -> None:
    project.write("web", WEB + "[quota]\ntenant_events_per_second = 2\nburst_seconds = 2")
    project.take("web", *users("a", "a", "a", "a"), key="one")
    with pytest.raises(Overloaded, match="one sender") as told:
        project.take("web", *users("a", "a"), key="one")
    assert told.value.retry_after == pytest.approx(1.0)
    project.take("web", *users("a"), key="other")
    clock.advance(1000)
    project.take("web", *users("a", "a"), key="one")
    status = project.gates.named("web").counters.status()
    assert (status.received, status.accepted, status.refused) == (9, 7, 2)


def test_without_a_key_the_address_is_the_tenant(project: Gated) -> None:
    project.write("web", WEB + "[quota]\ntenant_bytes_per_second = 10\nburst_seconds = 1")
    project.take("web", *users("a"), address="10.0.0.1", size=10)
    project.take("web", *users("a"), address="10.0.0.2", size=10)
    with pytest.raises(Overloaded, match="bytes per second"):
        project.take("web", *users("a"), address="10.0.0.1", size=10)


def test_a_key_over_its_quota_names_itself_and_uses_nothing_of_the_others(project: Gated, clock: ManualClock) -> None:
    project.write("web", WEB + '[quota]\nkey_field = "userid"\nkey_events_per_second = 1\nburst_seconds = 3')
    project.take("web", *users("hot", "hot", "hot", "cold"))
    with pytest.raises(Overloaded, match="`userid` `hot`"):
        project.take("web", *users("hot", "cold", "cold"))
    project.take("web", *users("cold", "cold"))


def test_what_is_no_object_has_no_key_and_spoils_nothing(project: Gated) -> None:
    project.write("web", WEB + '[quota]\nkey_field = "userid"\nkey_events_per_second = 1\nburst_seconds = 3')
    outcome = project.take("web", *users("a"), "text", 7, ["list"], None, Unreadable("is not JSON"))
    assert (outcome.accepted, len(outcome.rejected)) == (1, 5)


def test_more_than_a_bucket_holds_is_taken_when_it_is_full_and_paid_for(project: Gated, clock: ManualClock) -> None:
    project.write("web", WEB + "[quota]\nevents_per_second = 1\nburst_seconds = 2")
    project.take("web", *users(*"abcdef"))
    with pytest.raises(Overloaded) as told:
        project.take("web", *users("a"))
    assert told.value.retry_after == pytest.approx(5.0)


@given(st.lists(st.tuples(st.floats(0, 5), st.integers(1, 50)), max_size=60), st.floats(0.5, 100), st.floats(0.1, 20))
def test_no_tenant_gets_more_than_rate_and_burst(asked: list[tuple[float, int]], rate: float, burst: float) -> None:
    buckets, now, taken, largest = Buckets(rate, burst), 0.0, 0, 0
    for pause, wanted in asked:
        now += pause
        if not buckets.missing("a", wanted, now):
            buckets.take("a", wanted, now)
            taken, largest = taken + wanted, max(largest, wanted)
    assert taken <= rate * now + max(buckets.size, 1) + largest + 1e-6


def shed(project: Gated, text: str, *events: dict[str, Any]) -> list[object]:
    """The numbers of the events that were kept."""
    project.write("web", f"{WEB}[shed]\nevents_per_second = 2\nburst_seconds = 1\n{text}")
    outcome = project.take("web", *events)
    assert (outcome.accepted, outcome.shed) == (2, len(events) - 2)
    status = project.gates.named("web").counters.status()
    assert (status.received, status.shed) == (len(events), len(events) - 2)
    return sorted(row["N"] for row in project.rows())


def test_the_oldest_are_shed_first(project: Gated) -> None:
    now = 1_700_000_000_000
    events = [{"n": n, "$time": now - age} for n, age in enumerate((5000, 10, 9000, 20))]
    assert shed(project, 'policy = "oldest"', *events) == [1, 3]


def test_a_sample_keeps_users_whole(project: Gated) -> None:
    events = [{"n": n, "userid": "ab"[n % 2]} for n in range(4)]
    assert shed(project, 'policy = "sample"\nfield = "userid"', *events) in ([0, 2], [1, 3])


def test_what_matters_least_is_shed_first(project: Gated) -> None:
    kinds = ("view", "purchase", "view", "error")
    events = [{"n": n, "pageid": kind} for n, kind in enumerate(kinds)]
    assert shed(project, 'policy = "priority"\nfield = "pageid"\norder = ["purchase", "error"]', *events) == [1, 3]


def test_greater_numbers_matter_more(project: Gated) -> None:
    events = [{"n": n, "weight": weight} for n, weight in enumerate((1, 9, None, 5))]
    assert shed(project, 'policy = "priority"\nfield = "weight"', *events) == [1, 3]


@pytest.mark.parametrize("policy", ["oldest", "sample", "priority"])
def test_what_has_no_fields_or_too_great_a_number_is_shed_or_a_letter_like_any_other(
    project: Gated, policy: str
) -> None:
    project.write("web", WEB + f'[shed]\npolicy = "{policy}"\nfield = "w"\nevents_per_second = 4\nburst_seconds = 1')
    outcome = project.take("web", {"w": 10**400}, {"w": -(10**400)}, 7, "text", Unreadable("is not JSON"), {"w": 1})
    assert (outcome.shed, outcome.accepted + len(outcome.rejected)) == (2, 4)


def test_what_is_kept_of_too_much_may_have_rules_and_be_refused(project: Gated) -> None:
    text = '[shed]\npolicy = "oldest"\nevents_per_second = 2\nburst_seconds = 1\nfield = "n"\n[privacy]\ndrop = ["x"]'
    project.write("web", WEB + text)
    body = RawEvents("pageviews", b'[{"n": 1}, {"n": 2, "x": 1}, {"n": "z"}]', idempotency_key="k")
    outcome = project.gates.named("web").collect(body, Arrival()).result(30)
    assert (outcome.accepted, outcome.shed, [one.index for one in outcome.rejected]) == (1, 1, [2])


def test_what_is_kept_has_its_own_number_and_id(project: Gated, clock: ManualClock) -> None:
    """Rejections are told by the number they were sent with; sent again, what was kept is a duplicate."""
    project.write("web", WEB + '[shed]\npolicy = "oldest"\nevents_per_second = 2\nburst_seconds = 1\nfield = "n"')
    events = [{"n": 1}, {"n": "7"}, {"n": 2}]
    first = project.take("web", *events, idempotency_key="k")
    assert (first.accepted, first.shed, [one.index for one in first.rejected]) == (1, 1, [1])
    clock.advance(2000)
    again = project.take("web", *events[2:], {"n": 1}, idempotency_key="other")
    assert again.accepted == 2
    assert next(row["$id"] for row in project.rows() if row["N"] == 2) == "k/2"


def test_within_its_rate_nothing_is_shed(project: Gated, clock: ManualClock) -> None:
    project.write("web", WEB + '[shed]\npolicy = "sample"\nevents_per_second = 2\nburst_seconds = 1')
    for _ in range(5):
        assert project.take("web", *users("a", "b")).shed == 0
        clock.advance(1000)


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("[quota]\nevents_per_second = -1", 4, "below zero"),
        ("[quota]\nkey_field = 'x'", 3, "belong together"),
        ("[quota]\nburst_seconds = 0", 4, "above zero"),
        ("[shed]\nevents_per_second = 3", 3, "says how, but not what"),
        ("[shed]\npolicy = 'sample'", 4, "when it is too much"),
        ("[shed]\npolicy = 'priority'\nevents_per_second = 3", 4, "which field"),
        ("[shed]\npolicy = 'newest'", 4, "policy"),
    ],
)
def test_mistakes_are_told_by_line(project: Gated, text: str, line: int, message: str) -> None:
    project.write("web", WEB + text)
    [problem] = project.gates.problems
    assert (problem.line, message in problem.message) == (line, True), problem

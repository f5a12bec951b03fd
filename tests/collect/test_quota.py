"""Quotas and load shedding: how much a collector takes, what it leaves out, and that it says so."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.clock import ManualClock
from headrace.collect.base import RawEvents, Sent
from headrace.collect.gate import Arrival
from headrace.collect.quota import Buckets, key_text
from headrace.collect.shedding import Policy as ShedPolicy
from headrace.collect.shedding import Shedding, ShedSettings
from headrace.errors import Overloaded
from headrace.log.codecs.json_codec import Unreadable
from tests.collect.gating import Gated, gated

WEB = 'type = "http"\ntopic = "pageviews"\n'
ODD: list[Any] = [Unreadable("no JSON"), 7, None, [], "text", True, 10**4000, float("nan")]
"""What may stand where an object should."""


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


def test_behind_a_proxy_of_ours_the_address_is_the_one_it_tells(project: Gated) -> None:
    enrich = '[enrich]\nproxies = ["10.0.0.0/8"]\n'
    project.write("web", f"{WEB}{enrich}[quota]\ntenant_events_per_second = 1\nburst_seconds = 1")
    project.take("web", *users("a"), address="10.0.0.1", forwarded="192.0.2.1")
    project.take("web", *users("a"), address="10.0.0.1", forwarded="192.0.2.2")
    with pytest.raises(Overloaded):
        project.take("web", *users("a"), address="10.0.0.1", forwarded="9.9.9.9, 192.0.2.1")
    project.take("web", *users("a"), address="11.0.0.1", forwarded="192.0.2.1")


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


def test_what_is_no_object_has_no_key_and_spoils_nobody_elses(project: Gated) -> None:
    project.write("web", WEB + '[quota]\nkey_field = "userid"\nkey_events_per_second = 100')
    sent = Sent([*ODD, *users("a")], lambda row: b"{}")
    outcome = project.gates.named("web").take(sent, Arrival()).result(30)
    assert (outcome.accepted, len(outcome.rejected)) == (1, len(ODD))


def test_bytes_have_no_key(project: Gated) -> None:
    project.write("web", WEB + '[quota]\nkey_field = "userid"\nkey_events_per_second = 1')
    gate = project.gates.named("web")
    for _ in range(5):
        gate.admit_bytes(3, Arrival())
    assert gate.counters.status().refused == 0


def test_a_key_may_be_anything(project: Gated) -> None:
    project.write("web", WEB + '[quota]\nkey_field = "userid"\nkey_events_per_second = 1\nburst_seconds = 2')
    values: list[Any] = [None, 10**4200, -1, [10**4200], {"a": [[]]}]
    project.take("web", *({"userid": value} for value in values))
    with pytest.raises(Overloaded, match="`userid`"):
        project.take("web", *({"userid": [10**4200]} for _ in range(2)))
    assert key_text(10**5000) == "int", "which Python does not print"


def test_long_keys_take_no_more_memory_than_short_ones() -> None:
    buckets = Buckets(1, 1)
    for number in range(100):
        buckets.take(f"{number}" + "x" * 100_000, 1, 0.0)
    assert sum(len(name) for name in buckets.names()) < 100 * 100
    assert buckets.missing("0" + "x" * 100_000, 1, 0.0) == pytest.approx(1.0)
    assert buckets.missing("0" + "x" * 100_001, 1, 0.0) == 0.0


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


def test_what_is_kept_of_too_much_may_have_rules_and_be_refused(project: Gated) -> None:
    text = '[shed]\npolicy = "oldest"\nevents_per_second = 2\nburst_seconds = 1\nfield = "n"\n[privacy]\ndrop = ["x"]'
    project.write("web", WEB + text)
    body = RawEvents("pageviews", b'[{"n": 1}, {"n": 2, "x": 1}, {"n": "z"}]', idempotency_key="k")
    outcome = project.gates.named("web").collect(body, Arrival()).result(30)
    assert (outcome.accepted, outcome.shed, [one.index for one in outcome.rejected]) == (1, 1, [2])


@pytest.mark.parametrize("text", ['policy = "priority"', 'policy = "oldest"', 'policy = "sample"'])
def test_what_cannot_be_compared_is_shed_or_rejected_like_everything_else(
    project: Gated, clock: ManualClock, text: str
) -> None:
    """Numbers that no float holds, NaN among numbers, no objects at all."""
    limits = "events_per_second = 8\nburst_seconds = 1"
    project.write("web", f'{WEB}[shed]\n{text}\nfield = "weight"\n{limits}')
    odd: list[Any] = [10**400, -(10**400), float("nan"), None, "x" * 10_000, [], True, 1.5]
    for _ in range(3):
        sent = Sent([*ODD, *({"n": n, "weight": value} for n, value in enumerate(odd))], lambda row: b'{"weight": 0}')
        outcome = project.gates.named("web").take(sent, Arrival()).result(30)
        assert (outcome.accepted + len(outcome.rejected) + outcome.shed, outcome.shed > 0) == (len(sent.events), True)
        clock.advance(500)


# One event a request: what was taken before decides what is taken now.


def one_by_one(clock: ManualClock, events: list[dict[str, Any]], policy: ShedPolicy, **how: Any) -> list[int]:
    """The numbers of those that were taken, where a hundred come in a second and twenty are taken."""
    shedding = Shedding(ShedSettings(policy=policy, events_per_second=20, burst_seconds=2, **how), clock)
    taken = []
    for number, event in enumerate(events):
        clock.advance(10)
        if shedding.kept([event]) is None:
            taken.append(number)
    return taken


@pytest.mark.parametrize(
    ("order", "values"),
    [
        (["purchase", "error"], ("view", "purchase")),
        ([], (1, 5)),
        ([], (Decimal("0.5"), 10**400)),
        ([True], (False, True)),
    ],
)
def test_what_matters_is_taken_though_the_rest_came_before_it(
    clock: ManualClock, order: list[Any], values: tuple[Any, Any]
) -> None:
    """Every tenth of them matters: of those none is left out, and others are taken for what is left of the rate."""
    events = [{"kind": values[number % 10 == 7]} for number in range(1000)]
    taken = one_by_one(clock, events, "priority", field="kind", order=order)
    assert sum(number % 10 == 7 for number in taken) == 100
    assert 200 <= len(taken) <= 245


def test_what_matters_is_taken_however_rare_it_is(clock: ManualClock) -> None:
    events = [{"kind": 9 if number % 3000 == 2999 else number % 3} for number in range(9000)]
    # The first cannot be waited for: nobody knows yet that there is something that matters more.
    assert {5999, 8999} <= {*one_by_one(clock, events, "priority", field="kind")}


def test_late_news_goes_before_fresh_news_does(clock: ManualClock) -> None:
    """A device that was away sends what is an hour old, in between those that are there."""
    events = [{"$time": 1_700_000_000_000 + number - 3_600_000 * (number % 10 != 7)} for number in range(1000)]
    taken = one_by_one(clock, events, "oldest")
    assert sum(number % 10 == 7 for number in taken) == 100
    assert 200 <= len(taken) <= 245


def test_a_sample_keeps_users_whole_over_all_their_requests(clock: ManualClock) -> None:
    """Of fifty users about ten are kept, nearly all of them wholly."""
    events = [{"userid": f"user-{number % 50}"} for number in range(5000)]
    taken = one_by_one(clock, events, "sample", field="userid")
    later = Counter(number % 50 for number in taken if number >= 1000)
    whole = sum(count == 80 for count in later.values())
    assert 780 <= later.total() <= 820
    assert (whole >= 7, len(later) - whole <= 4) == (True, True), later


def test_without_a_field_the_sample_is_of_all(clock: ManualClock) -> None:
    taken = one_by_one(clock, [{} for _ in range(2000)], "sample")
    assert 400 <= len(taken) <= 445
    assert all(any(start <= number < start + 200 for number in taken) for start in range(0, 2000, 200))


def test_half_of_a_burst_is_for_anybody(clock: ManualClock) -> None:
    views = [{"kind": "view"}] * 20
    settings = ShedSettings(policy="priority", field="kind", order=["purchase"], events_per_second=20, burst_seconds=2)
    assert Shedding(settings, clock).kept(views) is None


def test_the_newest_of_many_are_kept_in_one_request(clock: ManualClock) -> None:
    settings = ShedSettings(policy="oldest", events_per_second=3000, burst_seconds=1)
    kept = Shedding(settings, clock).kept([{"$time": number} for number in range(5000)])
    assert kept is not None
    assert (len(kept) >= 1500, kept) == (True, [*range(5000 - len(kept), 5000)])


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


def test_shedding_and_rules_together_keep_what_was_sent(project: Gated) -> None:
    """The id is no field of the event's text: a rule that rewrote the text looked for it there."""
    shed = '[shed]\npolicy = "oldest"\nevents_per_second = 1\nburst_seconds = 1\nfield = "n"\n'
    project.write("web", f'{WEB}{shed}[enrich]\ncollector = "by"')
    text = b'{"n": 2, "extra": 1.50}'
    sent = Sent([{"n": 1}, {"n": 2, "extra": 1.5}], lambda row: text if row else b'{"n": 1}')
    outcome = project.gates.named("web").take(sent, Arrival(idempotency_key="k")).result(30)
    assert (outcome.accepted, outcome.shed, outcome.left_out) == (1, 1, (0,))
    [row] = project.rows()
    assert (row["$id"], row["$rest"]) == ("k/1", '{"extra":1.50,"by":"web"}')


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

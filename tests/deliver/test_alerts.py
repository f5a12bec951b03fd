"""Alerts: what fires, who is told, once each, over restarts and receivers that are away."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.clock import ManualClock
from headrace.collect.decode import EventCollector
from headrace.config import CollectSettings, Project, ProjectSettings
from headrace.deliver.alerts.alerts import Alerts
from headrace.deliver.alerts.definitions import WATCHES, AlertSettings, Definition, Destination, read_alert
from headrace.deliver.alerts.state import Instance, Reading, append_instances, step
from headrace.errors import DiskFull
from headrace.log.dead_letters import create_dead_letters
from headrace.log.local.open import LocalLog
from headrace.toml_files import Problem
from tests.collect.receiver import Receiver, signature_is_right
from tests.log.support import PLAIN, open_owner, rows
from tests.support import let_pass, wait_for

SECRET = b"between us"
START_MS = 1_700_000_000_000


def read(text: str, name: str = "a") -> Definition | str:
    found = read_alert(Path(f"/project/alerts/{name}.toml"), text)
    return found if isinstance(found, Definition) else str(found)


def test_a_file_says_what_it_watches_and_who_is_told() -> None:
    found = read(
        'watch = "late"\nview = "per_minute"\nabove = 10\nwithin = "5m"\nfor = "30s"\n'
        '[[to]]\nwebhook = "https://hooks.example.com/T0/secret"\n[[to]]\ntopic = "told"'
    )
    assert isinstance(found, Definition)
    assert found.rule == "per_minute: more than 10 late rows within 5m, for 30s"
    assert [place.shown for place in found.settings.to] == ["webhook hooks.example.com", "topic told"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("watch = ", "alerts/a.toml:1: not valid TOML: Invalid value"),
        ("above = 3", "alerts/a.toml:1: an alert needs a `watch`"),
        ('\nwatch = "drfit"', "alerts/a.toml:2: `drfit` cannot be watched\n  did you mean `drift`"),
        ('watch = "drift"\ntopic = "t"', "alerts/a.toml:2: `drift` is about a view, not about a topic"),
        ('watch = "drift"\nwithin = "5m"', "alerts/a.toml:2: `drift` is what it is now, and has no `within`"),
        ('watch = "late"\nfor = "a while"', "alerts/a.toml:2: `for`: `a while` is not a length of time"),
        ('watch = "late"\nabove = -1', "alerts/a.toml:2: `above` must be a number"),
        ('watch = "late"\nabove = nan', "alerts/a.toml:2: `above` must be a number"),
        ('watch = "late"\n\n[[to]]\nwebhok = "x"', "alerts/a.toml:4: there is no setting `to.webhok`"),
        ('watch = "late"\n\n[[to]]', "alerts/a.toml:3: a `[[to]]` has either a `webhook` or a `topic`"),
        ('watch = "late"\n[[to]]\nwebhook = "ftp://x"', "alerts/a.toml:3: a webhook is an address to post to"),
        ('watch = "late"\n[[to]]\ntopic = "t"\n[[to]]\ntopic = "t"', "alerts/a.toml:2: two `[[to]]` are the same"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(text: str, said: str) -> None:
    found = read(text)
    assert isinstance(found, str)
    assert found.startswith(said)


def definition(hold: str = "", to: int = 1) -> Definition:
    places = [Destination(topic=f"t{number}") for number in range(to)]
    return Definition("a", WATCHES["drift"], AlertSettings(watch="drift", hold=hold, to=places))


def states(hold: str, *looks: tuple[int, float | None]) -> list[str]:
    instance = Instance(alert="a", subject="v")
    found: list[str] = []
    for second, value in looks:
        instance = step(instance, definition(hold), Reading(value), START_MS + second * 1000, "p")
        found.append(instance.state)
    return found


def test_it_fires_once_it_was_too_much_for_long_enough() -> None:
    assert states("", (0, 0), (1, 2), (2, 3), (3, 0), (4, 1)) == ["ok", "firing", "firing", "resolved", "firing"]
    assert states("10s", (0, 1), (9, 1), (10, 1)) == ["pending", "pending", "firing"]
    assert states("10s", (0, 1), (9, 0), (10, 1), (19, 1)) == ["pending", "ok", "pending", "pending"]
    assert states("", (0, 1), (1, None), (2, 0)) == ["firing", "firing", "resolved"], (
        "what is not known changes nothing"
    )
    assert states("10s", (0, 1), (-3600, 1)) == ["pending", "firing"], "a clock that is set back holds nothing up"


@given(st.lists(st.tuples(st.integers(-5, 30), st.sampled_from([None, 0.0, 0.5, 3.0])), max_size=40), st.booleans())
def test_firing_and_over_are_told_in_turns(looks: list[tuple[int, float | None]], holds: bool) -> None:
    instance, now = Instance(alert="a", subject="v"), START_MS
    for seconds, value in looks:
        now += seconds * 1000
        before, instance = instance, step(instance, definition("10s" if holds else "", to=2), Reading(value), now, "p")
        assert (instance.state != before.state) or instance is before or before.state == "pending"
    told = [json.loads(notice.body)["state"] for notice in instance.outbox if notice.to == instance.outbox[0].to]
    assert told == (["firing", "resolved"] * len(told))[: len(told)]
    assert len({(notice.id, notice.to) for notice in instance.outbox}) == len(instance.outbox)
    assert len(told) == 2 * instance.fired - (instance.state == "firing")


class Desk:
    """A log, and alerts over it that can be let fall as by kill -9. What is measured is said by the test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "alerts").mkdir(parents=True)
        self.log: LocalLog = open_owner(folder / "log")
        self.log.create_topic(PLAIN)
        create_dead_letters(self.log)
        self.clock = ManualClock(START_MS)
        self.values: dict[str, float | None] = {"v": 0.0, "w": 0.0}
        self.alerts = self.open()

    def open(self) -> Alerts:
        project = Project(self.folder, ProjectSettings())
        collector = EventCollector(self.log, self.clock, CollectSettings())
        measures = dict.fromkeys(WATCHES, lambda: {name: Reading(value) for name, value in self.values.items()})
        return Alerts(project, self.log, self.clock, collector, SECRET, measures)

    def write(self, text: str, name: str = "a") -> None:
        (self.folder / "alerts" / f"{name}.toml").write_text(text)

    def look(self, seconds: int = 1) -> str:
        self.clock.advance(seconds * 1000)
        self.alerts.look()
        return self.alerts.status("a").state

    def told(self) -> Any:
        [status] = self.alerts.status("a").destinations
        return status

    def begin_anew(self) -> None:
        self.alerts.close()
        self.alerts = self.open()

    def close(self) -> None:
        self.alerts.close()
        self.log.close()


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(tmp_path / "project")
    yield desk
    desk.close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.close()


def bodies(receiver: Receiver) -> list[dict[str, Any]]:
    return [json.loads(body) for body, _ in receiver.got]


def test_a_webhook_is_told_signed_and_once_over_restarts(desk: Desk, receiver: Receiver) -> None:
    desk.write(f'watch = "drift"\nview = "V"\ndescription = "look"\n[[to]]\nwebhook = "{receiver.url}"')
    assert desk.look() == "ok"
    desk.values["v"] = 2
    assert desk.look() == "firing"
    wait_for(lambda: desk.told().last is not None, 20, "the webhook")
    [told] = bodies(receiver)
    assert (told["id"], told["state"], told["subject"], told["value"]) == ("a/v/1/firing", "firing", "v", 2)
    assert told["text"] == "[firing] a: v: 2 rows not as the log says"
    assert all(signature_is_right(SECRET, body, header) for body, header in receiver.got)

    desk.begin_anew()
    assert desk.look() == "firing"
    desk.values["v"] = None
    assert desk.look() == "firing", "what is not known ends nothing"
    desk.values["v"] = 0
    assert desk.look() == "resolved"
    wait_for(lambda: desk.told().last.id == "a/v/1/resolved", 20, "the webhook")
    assert [one["state"] for one in bodies(receiver)] == ["firing", "resolved"], "nothing twice"


def test_a_receiver_that_is_away_is_told_in_order_by_whoever_runs_then(desk: Desk, receiver: Receiver) -> None:
    receiver.answers = [503] * 1000
    desk.write(f'watch = "drift"\n[[to]]\nwebhook = "{receiver.url}"')
    desk.values["v"] = 1
    desk.look()
    wait_for(lambda: desk.told().error == "answered 503", 20, "a try")
    desk.values["v"] = 0
    assert desk.look() == "resolved"
    assert desk.told().waiting == 2
    desk.begin_anew()
    receiver.answers = []
    receiver.got.clear()

    def both() -> bool:
        desk.look()
        return bool(desk.told().waiting == 0)

    wait_for(both, 20, "both notices")
    assert [one["state"] for one in bodies(receiver)] == ["firing", "resolved"]


def test_a_topic_has_each_notice_once(desk: Desk) -> None:
    desk.write('watch = "drift"\nabove = 1\n[[to]]\ntopic = "alarms"')
    desk.values["w"] = 2
    desk.look()
    assert "alarms" in desk.told().error, "a topic that is not there is said, and tried again"
    desk.log.create_topic(_alarms())
    desk.look(10)
    assert desk.told().waiting == 0
    # As if killed before it was noted: the same state is there again, and the notice is sent again.
    [fired] = desk.alerts.status("a").instances
    again = step(Instance(alert="a", subject="w"), desk.alerts.status("a").definition, Reading(2.0), START_MS, "p")
    assert again.fired == fired.fired
    desk.log.append([append_instances([again], [], START_MS)]).result()
    desk.begin_anew()
    desk.look()
    assert desk.told().waiting == 0
    assert [(row["STATE"], row["VALUE"]) for row in rows(desk.log, "alarms")] == [("firing", 2)]


def _alarms() -> Any:
    from headrace.log.base import TopicSpec
    from headrace.types import DOUBLE, VARCHAR, Column

    return TopicSpec("alarms", value=(Column("ALERT", VARCHAR), Column("STATE", VARCHAR), Column("VALUE", DOUBLE)))


def test_files_are_read_again_and_a_broken_one_goes_on_as_it_was(desk: Desk) -> None:
    desk.write('watch = "drift"')
    desk.values["v"] = 1
    assert desk.look() == "firing"
    desk.write('watch = "drift"\nabove = "many"')
    assert desk.look() == "firing"
    assert "alerts/a.toml:2: `above`: expected a number" in str(desk.alerts.status("a").problem)
    desk.begin_anew()
    desk.alerts.look()
    assert desk.alerts.statuses() == []
    desk.write('watch = "drift"\nabove = 0.5')
    assert desk.look() == "firing", "a start with a broken file forgets nothing"
    desk.write('watch = "drift"\nabove = 5')
    assert desk.look() == "resolved"
    desk.write('watch = "drift"\nview = "nothing"')
    desk.look()
    assert desk.alerts.status("a").problem == "there is no view `nothing`"
    (desk.folder / "alerts" / "a.toml").unlink()
    desk.alerts.look()
    desk.write('watch = "drift"', "b")
    desk.alerts.look()
    assert [status.definition.name for status in desk.alerts.statuses()] == ["b"]
    desk.begin_anew()
    desk.alerts.look()
    assert [one.subject for one in desk.alerts.status("b").instances] == ["v"], "and nothing of `a` is left"


def test_what_is_counted_is_what_came_lately(desk: Desk) -> None:
    desk.write('watch = "dead_letters"\ntopic = "v"\nabove = 5\nwithin = "1m"')
    desk.values["v"] = 1000
    assert desk.look() == "ok"
    desk.values["v"] = 1004
    assert desk.look(30) == "ok"
    desk.values["v"] = 1006
    assert desk.look(10) == "firing"
    desk.begin_anew()
    assert desk.look() == "firing", "nobody knows yet what came within the last minute"
    assert desk.look(30) == "firing"
    assert desk.look(31) == "resolved"


def test_a_full_disk_delays_and_loses_nothing(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.write('watch = "drift"')
    desk.values["v"] = 1

    def full(*_: object, **__: object) -> None:
        raise DiskFull("full")

    with monkeypatch.context() as patched:
        patched.setattr(desk.log, "append", full)
        with pytest.raises(DiskFull):
            desk.look()
    assert desk.alerts.status("a").state == "ok"
    assert desk.look() == "firing"


def test_what_was_taken_is_not_told_again_while_that_cannot_be_noted(
    desk: Desk, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full by the time the receiver has answered."""
    desk.write(f'watch = "drift"\n[[to]]\nwebhook = "{receiver.url}"')
    desk.values["v"] = 1
    append, full = desk.log.append, threading.Event()

    def append_or_not(*given: Any) -> Any:
        if threading.current_thread().name.startswith("headrace-callback"):
            full.set()
        if full.is_set():
            raise DiskFull("full")
        return append(*given)

    with monkeypatch.context() as patched:
        patched.setattr(desk.log, "append", append_or_not)
        desk.look()
        wait_for(full.is_set, 20, "the answer")
        for _ in range(3):
            let_pass(0.1)
            assert desk.look(3600) == "firing"
        assert desk.told().waiting == 1
    wait_for(lambda: desk.look() == "firing" and desk.told().waiting == 0, 20, "a note of it")
    assert desk.told().last.error is None
    assert [one["state"] for one in bodies(receiver)] == ["firing"]


def test_what_is_taken_while_somebody_looks_is_not_told_again(
    desk: Desk, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    receiver.answers = [503]
    desk.write(f'watch = "drift"\n[[to]]\nwebhook = "{receiver.url}"')
    desk.values["v"] = 1
    desk.look()
    wait_for(lambda: desk.told().error == "answered 503", 20, "a try")

    class Slow(dict[str, float | None]):
        def items(self) -> Any:
            """It takes as long to measure as the receiver takes to answer."""
            desk.clock.advance(1000)
            wait_for(lambda: len(receiver.got) == 2, 20, "the second try")
            let_pass(0.3)
            return super().items()

    with monkeypatch.context() as patched:
        patched.setattr(desk, "values", Slow(desk.values))
        desk.look()
    wait_for(lambda: desk.look() == "firing" and desk.told().waiting == 0, 20, "a note of it")
    let_pass(0.3)
    assert len(receiver.got) == 2, "once refused, once taken"


def test_a_test_says_who_took_it(desk: Desk, receiver: Receiver) -> None:
    receiver.answers = [200, 404]
    desk.write(f'watch = "lag"\n[[to]]\nwebhook = "{receiver.url}"\n[[to]]\nwebhook = "env:NOT_SET_ANYWHERE"')
    desk.alerts.look()
    assert [error for _, error in desk.alerts.test("a")] == [None, "the environment has no `NOT_SET_ANYWHERE`"]
    assert bodies(receiver)[0]["state"] == "test"
    assert desk.alerts.test("a")[0][1] == "answered 404"


def test_a_problem_names_its_file() -> None:
    assert isinstance(read_alert(Path("/project/alerts/a b.toml"), 'watch = "lag"'), Problem)

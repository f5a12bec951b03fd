"""Gates: found by what a client brings, made anew when a file changes, counting what passes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from headrace.clock import ManualClock
from headrace.collect.base import Outcome
from headrace.collect.status import Board, CollectorStatus, Counters, Kept, Report
from headrace.errors import NotFound, Overloaded, Unauthenticated, UsageError
from headrace.log.codecs.json_codec import Unreadable
from headrace.log.dead_letters import DEAD_LETTERS_TOPIC
from tests.collect.gating import Gated, gated

WEB = 'type = "http"\ntopic = "pageviews"\n'


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Gated]:
    with gated(tmp_path) as found:
        yield found


def test_events_pass_and_are_counted(project: Gated) -> None:
    project.write("web", WEB)
    outcome = project.take("web", {"userid": "a", "n": 1}, {"n": "x"}, Unreadable("is nothing"), size=40)
    assert (outcome.accepted, [one.index for one in outcome.rejected]) == (1, [1, 2])
    again = project.take("web", {"$id": "7"}, {"$id": "7"})
    assert (again.accepted, again.duplicates) == (1, 1)
    status = project.gates.named("web").counters.status()
    assert (status.received, status.accepted, status.duplicates, status.rejected) == (5, 2, 1, 2)
    assert (status.bytes, status.state) == (40, "running")
    [first, second] = project.rows(DEAD_LETTERS_TOPIC)
    assert (first["PAYLOAD"], first["SOURCE"]) == (b'{"n":"x"}', "http web")
    assert b"is nothing" in second["PAYLOAD"]


def test_undeclared_fields_are_kept_as_the_protocol_made_them(project: Gated) -> None:
    project.write("web", WEB)
    project.take("web", {"userid": "a", "extra": {"b": [1, 2.5]}})
    assert [row["$rest"] for row in project.rows()] == ['{"extra":{"b":[1,2.5]}}']


def test_what_the_log_does_not_take_is_counted_as_refused(project: Gated) -> None:
    project.write("lost", 'type = "http"\ntopic = "nowhere"\n')
    with pytest.raises(NotFound):
        project.take("lost", {"n": 1})
    status = project.gates.named("lost").counters.status()
    assert (status.received, status.refused, status.errors) == (1, 1, 1)
    assert status.last_error is not None
    assert "nowhere" in status.last_error


def test_events_that_wait_for_a_quota_are_not_refused_where_they_come_again(project: Gated) -> None:
    project.write("web", WEB + "[quota]\nevents_per_second = 0.001\nburst_seconds = 1000\n")
    gate = project.gates.named("web")
    project.take("web", {"n": 1})
    for patient, refused in ((True, 0), (False, 1)):
        gate.patient = patient
        with pytest.raises(Overloaded):
            project.take("web", {"n": 2})
        assert gate.counters.status().refused == refused


def test_a_changed_file_changes_its_collector_alone_and_keeps_its_counts(project: Gated) -> None:
    project.write("web", WEB)
    project.write("other", 'type = "http"\ntopic = "other"\n')
    project.take("web", {"n": 1})
    web, other = project.gates.named("web"), project.gates.named("other")
    project.write("web", WEB + "# changed\n")
    assert project.gates.named("web") is not web
    assert project.gates.named("other") is other
    assert project.gates.named("web").counters.status().accepted == 1


def test_a_broken_file_keeps_what_runs_and_is_a_problem(project: Gated) -> None:
    project.write("web", WEB)
    before = project.gates.named("web")
    project.write("web", "type = ")
    assert project.gates.for_topic("pageviews") is before
    assert [problem.name for problem in project.gates.problems] == ["web"]
    project.write("web", WEB + "enabled = false\n")
    assert (project.gates.for_topic("pageviews"), project.gates.problems) == (None, ())
    assert [one.name for one in project.gates.disabled] == ["web"]


def test_only_a_file_that_changed_is_worth_a_look(project: Gated) -> None:
    project.write("web", WEB)
    assert not project.gates.look()
    (project.folder / "collectors" / "web.toml").unlink()
    assert project.gates.look()
    assert project.gates.all() == []


def test_what_is_missing_is_said_with_what_to_write(project: Gated) -> None:
    with pytest.raises(NotFound, match="no collector of type `http` is set up") as error:
        project.gates.of("http")
    assert error.value.hint is not None
    assert "collectors/http.toml" in error.value.hint


SEGMENT = 'type = "segment"\ntopic = "pageviews"\n'


def test_a_write_key_says_which_collector_is_meant(project: Gated, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("APP_KEY", "hidden")
    project.write("web", SEGMENT + 'keys = ["a", "b"]\n')
    project.write("app", SEGMENT + 'keys = ["env:APP_KEY"]\n')
    gates = project.gates
    assert [gates.of("segment", key=key).name for key in ("a", "b", "hidden")] == ["web", "web", "app"]
    assert gates.of("segment", key="a", name="web").name == "web"
    for key, name in (("c", None), (None, None), ("a", "app"), ("env:APP_KEY", None)):
        with pytest.raises(Unauthenticated):
            gates.of("segment", key=key, name=name)
    with pytest.raises(NotFound):
        gates.of("segment", key="a", name="elsewhere")
    # One without keys takes what no other has a key for.
    project.write("open", SEGMENT)
    assert [gates.of("segment", key=key).name for key in ("a", "c", None)] == ["web", "open", "open"]
    project.write("also", SEGMENT)
    with pytest.raises(UsageError, match="several collectors of type `segment` fit"):
        gates.of("segment")


def test_where_the_project_has_keys_a_collector_without_must_be_meant(tmp_path: Path) -> None:
    with gated(tmp_path, '[[auth.keys]]\nkey = "boss-0123456789ab"\nrole = "admin"\n') as project:
        project.write("web", SEGMENT)
        assert [one.message for one in project.gates.problems] == [
            "this project has `[auth] keys`, but anybody could send to this collector"
        ]
        assert project.gates.all() == []
        project.write("web", SEGMENT + 'keys = ["a"]\n')
        assert project.gates.of("segment", key="a").name == "web"
        # Its keys taken out by mistake, it goes on as it was.
        project.write("web", SEGMENT)
        with pytest.raises(Unauthenticated):
            project.gates.of("segment", key="b")
        project.write("web", SEGMENT + "public = true\n")
        assert project.gates.of("segment", key="b").name == "web"


def test_two_collectors_cannot_keep_one_topic(project: Gated) -> None:
    project.write("a", WEB)
    project.write("b", WEB)
    assert [problem.message for problem in project.gates.problems] == [
        "topic `pageviews` has the collector `a` already"
    ]


def test_processes_add_up_and_ended_ones_are_not_forgotten() -> None:
    clock = ManualClock(0)
    board, own = Board(clock), Counters("web", clock)
    own.took(Outcome(2), 2, 10)

    def report(pid: int, accepted: int) -> None:
        status = CollectorStatus(name="web", state="waiting", detail="the broker", received=accepted, accepted=accepted)
        board.receive({"process": "listeners", "pid": pid, "collectors": [msgspec.to_builtins(status)]})

    report(1, 5)
    report(1, 7)
    found = board.status("web", own.status())
    assert (found.accepted, found.state, found.detail) == (9, "waiting", "the broker")
    report(2, 1)
    found = board.status("web", own.status())
    assert found.accepted == 10
    clock.advance(60_000)
    found = board.status("web", own.status())
    assert (found.accepted, found.state) == (10, "running")
    # It was only silent for a while: what it counted is not counted twice.
    report(2, 4)
    assert board.status("web", own.status()).accepted == 13


def test_the_next_server_counts_on_and_so_do_the_processes_that_outlived_the_last() -> None:
    clock = ManualClock(0)
    own = Counters("web", clock)

    def report(board: Board, pid: int, **counts: int) -> None:
        found = [CollectorStatus(name=name, received=count, accepted=count) for name, count in counts.items()]
        board.receive(msgspec.to_builtins(Report("listeners", pid, found)))

    def totals(board: Board, *names: str) -> list[int]:
        return [board.status(name, CollectorStatus(name=name)).accepted for name in names]

    first = Board(clock)
    own.took(Outcome(2), 2, 10)
    report(first, 1, devices=5, files=3)
    kept = msgspec.json.encode(first.keep(Report("server", 7, [own.status()])))
    second = Board(clock)
    second.take_up(msgspec.json.decode(kept, type=Kept), "server")
    assert totals(second, "web", "devices", "files") == [2, 5, 3]
    report(second, 1, devices=6, files=3)
    assert totals(second, "devices", "files") == [6, 3]
    # A collector that is gone from a report, or begins anew, keeps what it had.
    report(second, 1, devices=1)
    assert totals(second, "devices", "files") == [7, 3]
    report(second, 2, devices=1, files=1)
    assert totals(second, "devices", "files") == [8, 4]


def test_what_a_collector_says_of_itself_is_text_whatever_it_was_sent() -> None:
    """One that could not be told silenced all of its process, and everybody thought that nothing was collected."""
    counters = Counters("any", ManualClock())
    counters.failed("source avro: `\udcff\ud800` is no topic")
    counters.becomes("waiting", "for `\udcff`")
    told = msgspec.json.decode(msgspec.json.encode(counters.status()))
    assert (told["last_error"], told["detail"]) == (r"source avro: `\udcff\ud800` is no topic", r"for `\udcff`")

"""Visits: an id that later calls carry, that nobody can make up, and that events are told by."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.collect.visits import Visit, Visits
from tests.server.running import Running, running_server

COLLECTOR = 'type = "http"\ntopic = "pageviews"\n[enrich]\nvisitor = "visitor"\nsession = "session"\n'
KEY = b"k" * 32
HEADER = "X-Headrace-Visit"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder: Path = tmp_path_factory.mktemp("project")
    (folder / "collectors").mkdir()
    (folder / "collectors" / "web.toml").write_text(COLLECTOR)
    with running_server(folder) as running:
        yield running


def rests(server: Running, count: int) -> list[dict[str, str | None]]:
    return [event["rest"] for event in server.events("pageviews")[-count:]]


def test_the_first_call_gets_ids_that_later_ones_carry(server: Running) -> None:
    with httpx.Client(base_url=f"http://127.0.0.1:{server.port}", timeout=60, trust_env=False) as browser:
        first = browser.get("/v1/visit")
        assert (first.json()["new_visitor"], first.json()["new_session"]) == (True, True)
        cookie = first.headers["set-cookie"].lower()
        assert all(part in cookie for part in ("httponly", "samesite=lax", "path=/", "max-age="))
        again = browser.post("/v1/visit").json()
        assert (again["new_visitor"], again["new_session"]) == (False, False)
        assert (again["visitor"], again["session"]) == (first.json()["visitor"], first.json()["session"])
        sent = browser.post("/v1/topics/pageviews/events", json=[{"userid": "a"}, {"userid": "b"}])
        assert sent.json()["accepted"] == 2
    carried = {"visitor": again["visitor"], "session": again["session"]}
    assert rests(server, 2) == [carried, carried]


def test_events_without_a_visit_begin_one(server: Running) -> None:
    sent = server.send("pageviews", {"userid": "c", "visitor": "somebody else"})
    token = sent.headers[HEADER]
    second = server.send("pageviews", {"userid": "c"}, headers={HEADER: token})
    assert HEADER not in second.headers
    assert server.send("pageviews", {"userid": "c"}, params={"wait": "ticket"}, headers={HEADER: token}).is_success
    first, then = rests(server, 2)[:2]
    assert first == then
    assert first["visitor"] != "somebody else"


@pytest.mark.parametrize("token", ["", "1.a.b.c", "1.victim.session.0.aaaa", "x" * 10_000, "....", "1.a.b.9.\xff"])
def test_a_token_that_we_did_not_sign_is_nobodys(server: Running, token: str) -> None:
    url = f"http://127.0.0.1:{server.port}/v1/visit"
    called = httpx.get(url, headers={HEADER.encode(): token.encode("latin-1")}, timeout=60, trust_env=False).json()
    assert called["new_visitor"]
    assert called["visitor"] not in ("victim", "a")


def test_a_session_ends_and_the_visitor_stays() -> None:
    visits = Visits(KEY, 1800)
    first = visits.call("", 1_000_000)
    within = visits.call(visits.token(first), 1_000_000 + 1_700_000)
    assert (within.visitor, within.session, within.news) == (first.visitor, first.session, "seen")
    later = visits.call(visits.token(within), within.seen_ms + 1_800_000)
    assert (later.visitor, later.news) == (first.visitor, "session")
    assert later.session != first.session
    assert visits.call(visits.token(first), 1_000_010) == visits.read(visits.token(first))


def test_a_token_from_a_clock_far_ahead_does_not_live_for_ever() -> None:
    visits = Visits(KEY, 1800)
    ahead = visits.token(Visit("v", "s", 10**12))
    assert visits.call(ahead, 1_000_000).news == "session"


@given(st.text(max_size=60), st.integers(0, 150), st.text(max_size=3))
def test_nothing_else_is_read(text: str, at: int, change: str) -> None:
    visits = Visits(KEY, 1800)
    token = visits.token(Visit("visitor", "session", 1_000_000))
    changed = token[:at] + change + token[at + len(change) :]
    assert visits.read(text) is None
    assert visits.read(changed) in (None, visits.read(token))
    assert changed == token or visits.read(changed) is None
    assert Visits(b"other", 1800).read(token) is None

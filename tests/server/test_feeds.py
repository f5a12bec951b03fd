"""Feeds, tails and push queries over SSE, lines and WebSocket: continued without gap or repeat, whoever restarted."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest
import websockets.sync.client
from websockets.exceptions import ConnectionClosed, InvalidStatus

from headrace.deliver.ids import parse_id
from tests.server.running import Running, running_server
from tests.server.streams import Sent, follow
from tests.support import wait_for

FEED = "/v1/views/users/feed"


def put(server: Running, *names: str) -> None:
    answer = server.send("users", [{"id": name, "name": name.upper()} for name in names])
    assert answer.json()["accepted"] == len(names)


def names(events: list[Sent]) -> list[str]:
    assert all(event.event == "change" for event in events), events
    return [event.data["key"]["id"] for event in events]


def connected(server: Running, count: int, kind: str = "feed") -> None:
    def following() -> bool:
        text = server.http.get("/metrics").text
        return f'headrace_feed_clients{{kind="{kind}"}} {count:.1f}' in text

    wait_for(following, 10, f"{count} clients")


def test_a_feed_tells_what_changes(tmp_path: Path) -> None:
    with running_server(tmp_path) as server, follow(server.http, FEED) as feed:
        assert feed.response.headers["content-type"].startswith("text/event-stream")
        server.send("users", {"id": "a", "name": "Ann", "age": 7, "$time": 1000})
        server.send("users", {"id": "a", "$tombstone": True, "$time": 2000})
        first, second = feed.take(2)
        assert first.data == {"key": {"id": "a"}, "value": {"name": "Ann", "age": 7}, "time_ms": 1000}
        assert second.data == {"key": {"id": "a"}, "value": None, "time_ms": 2000}
        assert first.id is not None
        assert second.id is not None
        assert (parse_id(first.id).arrival or 0) < (parse_id(second.id).arrival or 0)


def test_a_feed_goes_on_where_it_was_over_a_restart(tmp_path: Path) -> None:
    with running_server(tmp_path) as server:
        put(server, "a", "b", "c")
        with follow(server.http, FEED, params={"from": "beginning"}) as feed:
            seen = feed.take(2)
            last_id = feed.last_id
        put(server, "d")
    with running_server(tmp_path) as server:
        put(server, "e")
        headers = {"Last-Event-ID": last_id or ""}
        with follow(server.http, FEED, headers=headers) as feed:
            rest = feed.take(3)
        # Partitions are read in order of arrival, so the names are exactly those after the two seen.
        assert sorted(names(seen) + names(rest)) == ["a", "b", "c", "d", "e"]
        assert names(rest)[-2:] == ["d", "e"]


def test_a_snapshot_and_then_what_follows(tmp_path: Path) -> None:
    with running_server(tmp_path) as server:
        put(server, "a", "b")
        wait_for(lambda: server.http.get("/v1/views/users").json()["rows"] == 2, 10, "the view")
        with follow(server.http, FEED, params={"snapshot": "true"}) as feed:
            first = feed.take(2)
            assert sorted(names(first)) == ["a", "b"]
            assert all(event.data["snapshot"] for event in first)
            put(server, "c")
            [third] = feed.take(1)
            assert (third.data["key"], "snapshot" in third.data) == ({"id": "c"}, False)


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/v1/views/nobody/feed", 404),
        (f"{FEED}?from=yesterday", 400),
        (f"{FEED}?after=nonsense", 400),
        (f"{FEED}?after=1-99999999", 410),
        (f"{FEED}?after=7-1", 410),
    ],
)
def test_what_a_feed_cannot_do(server: Running, path: str, status: int) -> None:
    answer = server.http.get(path)
    assert (answer.status_code, set(answer.json())) == (status, {"error"})
    with pytest.raises(InvalidStatus) as refused:
        websockets.sync.client.connect(f"ws://127.0.0.1:{server.port}{path}", proxy=None)
    assert refused.value.response.status_code == status


def test_a_websocket_says_the_same(tmp_path: Path) -> None:
    with running_server(tmp_path) as server:
        url = f"ws://127.0.0.1:{server.port}{FEED}"
        with websockets.sync.client.connect(f"{url}?from=beginning", proxy=None) as socket:
            put(server, "a", "b", "c")
            seen: list[dict[str, Any]] = []
            while len(seen) < 2:
                message = json.loads(socket.recv(60))
                assert set(message) == {"id", "event", "data"}
                if message["event"] == "change":
                    seen.append(message)
        with websockets.sync.client.connect(f"{url}?after={seen[-1]['id']}", proxy=None) as socket:
            message = {"event": ""}
            while message["event"] != "change":
                message = json.loads(socket.recv(60))
        assert sorted(each["data"]["key"]["id"] for each in [*seen, message]) == ["a", "b", "c"]


def test_everybody_is_told_when_the_server_stops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.server.main.FEEDS_END_S", 60.0)  # a busy machine takes longer to tell them
    ends: dict[str, Any] = {}
    ready = threading.Barrier(4)

    def sse(server: Running) -> None:
        url = f"http://127.0.0.1:{server.port}"
        with httpx.Client(base_url=url, timeout=60, trust_env=False) as http, follow(http, FEED) as feed:
            ready.wait(60)
            ends["sse"] = [event.data for event in feed]

    def push(server: Running) -> None:
        url = f"http://127.0.0.1:{server.port}"
        body = {"sql": "SELECT userid FROM pageviews EMIT CHANGES;"}
        http = httpx.Client(base_url=url, timeout=60, trust_env=False)
        with http, follow(http, "/v1/query", "POST", json=body) as rows:
            ready.wait(60)
            ends["push"] = [(event.event, event.data) for event in rows][-1]

    def socket(server: Running) -> None:
        with websockets.sync.client.connect(f"ws://127.0.0.1:{server.port}{FEED}", proxy=None) as connection:
            ready.wait(60)
            messages = []
            try:
                while True:
                    messages.append(json.loads(connection.recv(60)))
            except ConnectionClosed:
                ends["socket"] = messages[-1]

    with running_server(tmp_path) as server:
        threads = [threading.Thread(target=work, args=(server,)) for work in (sse, push, socket)]
        for thread in threads:
            thread.start()
        ready.wait(60)
        connected(server, 2)
    for thread in threads:
        thread.join(60)
    assert ends["sse"] == [{"reason": "stopping"}]
    assert ends["push"] == ("end", {"reason": "stopped"})
    assert (ends["socket"]["event"], ends["socket"]["data"]) == ("cut", {"reason": "stopping"})


def test_clients_that_leave_are_forgotten(server: Running) -> None:
    for _ in range(3):
        with follow(server.http, FEED):
            connected(server, 1)
    with websockets.sync.client.connect(f"ws://127.0.0.1:{server.port}{FEED}", proxy=None):
        connected(server, 1)
    connected(server, 0)
    assert server.http.get(FEED.replace("/feed", "")).json()["lag"] == 0


def test_a_client_that_does_not_read_holds_nobody_up(tmp_path: Path) -> None:
    with running_server(tmp_path) as server, follow(server.http, FEED), follow(server.http, FEED) as attentive:
        big = "x" * 1000
        for start in range(0, 4000, 500):
            server.send("users", [{"id": str(i), "name": big} for i in range(start, start + 500)])
        assert len(attentive.take(4000)) == 4000


def test_the_tail_of_a_topic(server: Running) -> None:
    with follow(server.http, "/v1/topics/pageviews/tail") as tail:
        connected(server, 1, "tail")
        server.send("pageviews", {"userid": "t", "pageid": "/tail", "extra": 1.50})
        [event] = tail.take(1)
    assert event.event == "event"
    assert (event.data["key"], event.data["value"]["pageid"], event.data["rest"]) == (
        {"userid": "t"},
        "/tail",
        {"extra": 1.5},
    )


def test_a_push_query(server: Running) -> None:
    sql = "SELECT userid, pageid FROM pageviews WHERE pageid = '/push' EMIT CHANGES LIMIT 2;"
    with follow(server.http, "/v1/query", "POST", json={"sql": sql}) as push:
        [header] = push.take(1)
        assert (header.event, [column["name"] for column in header.data["columns"]]) == ("header", ["userid", "pageid"])
        server.send(
            "pageviews", [{"userid": "a", "pageid": "/push"}, {"userid": "b"}, {"userid": "c", "pageid": "/push"}]
        )
        rows = push.take(3)
    assert [each.event for each in rows] == ["row", "row", "end"]
    assert sorted(each.data["row"] for each in rows[:2]) == [["a", "/push"], ["c", "/push"]]
    assert rows[2].data == {"reason": "limit"}


def test_a_push_query_no_faster_than_asked(server: Running) -> None:
    sql = "SELECT userid, pageid FROM pageviews WHERE pageid LIKE '/every%' EMIT CHANGES EVERY 1 SECOND LIMIT 2;"
    with follow(server.http, "/v1/query", "POST", json={"sql": sql}) as push:
        push.take(1)
        sent = [{"userid": user, "pageid": f"/every/{n}"} for n in range(5) for user in ("a", "b")]
        server.send("pageviews", sent)
        rows = push.take(3)
    # One atomic request, so one interval: of each key the newest, and the limit counts those.
    assert sorted(each.data["row"] for each in rows[:2]) == [["a", "/every/4"], ["b", "/every/4"]]
    assert rows[2].data == {"reason": "limit"}


def test_a_push_query_as_lines(server: Running) -> None:
    body = {"sql": "SELECT userid FROM pageviews EMIT CHANGES;", "limit": 1}
    headers = {"Accept": "application/x-ndjson"}
    with server.http.stream("POST", "/v1/query", json=body, headers=headers) as response:
        assert response.headers["content-type"].startswith("application/x-ndjson")
        lines = (json.loads(line) for line in response.iter_lines() if line)
        assert next(lines)["event"] == "header"
        server.send("pageviews", {"userid": "line"})
        row, end = next(lines), next(lines)
    assert (row["event"], row["data"]["row"], end["event"]) == ("row", ["line"], "end")


def test_a_push_query_that_needs_the_engine_says_so(server: Running) -> None:
    sql = "SELECT pageid, COUNT(*) AS n FROM pageviews GROUP BY pageid EMIT CHANGES;"
    answer = server.http.post("/v1/query", json={"sql": sql})
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "not_running")


def test_push_queries_are_limited(tmp_path: Path) -> None:
    body = {"sql": "SELECT userid FROM pageviews EMIT CHANGES;"}
    with running_server(tmp_path, "[server]\nmax_push_queries = 1\n") as server:
        with follow(server.http, "/v1/query", "POST", json=body) as push:
            push.take(1)
            refused = server.http.post("/v1/query", json=body)
            assert (refused.status_code, refused.json()["error"]["code"]) == (429, "overloaded")

        def room() -> bool:
            with server.http.stream("POST", "/v1/query", json=body) as response:
                return response.status_code == 200

        wait_for(room, 10, "the first to be forgotten")


def test_the_overview_live(server: Running) -> None:
    with follow(server.http, "/v1/overview/live") as live:
        first, second = live.take(2)
    assert (first.event, second.event) == ("overview", "overview")
    assert second.data["uptime_s"] > first.data["uptime_s"]

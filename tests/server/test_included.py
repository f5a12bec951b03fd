"""Reads that wait for writes. The engine is played by the test: it commits what a query would have."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from headrace.log.base import BatchIdentity, Route
from tests.kafka import kafka_settings
from tests.log.support import batch
from tests.server.running import PAGEVIEWS, Running, running_server

SQL = (
    PAGEVIEWS
    + """
CREATE TABLE by_page AS SELECT pageid, COUNT(*) AS views FROM pageviews GROUP BY pageid;
CREATE TABLE by_views AS SELECT views, COUNT(*) AS pages FROM by_page GROUP BY views;
"""
)
COUNT = "SELECT views FROM by_page WHERE pageid = '/a';"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running_server(tmp_path_factory.mktemp("project"), sql=SQL) as running:
        yield running


class Engine:
    """Commits one row of each query when it is told to."""

    def __init__(self, server: Running) -> None:
        self._server = server
        self._batches: dict[str, int] = {}

    def commit(self, table: str, **columns: list[Any]) -> None:
        """The query that makes a table has read all there is, and writes a row."""
        log, catalog = self._server.services.log, self._server.services.catalog
        [topic] = [view.topic for view in catalog.views() if view.name == table]
        [query] = [query for query in catalog.queries() if query.sink_topic == topic]
        number = self._batches[table] = self._batches.get(table, -1) + 1
        route = Route(query.sink_topic, {name: name for name in columns})
        log.stage(table, 0, 0, [route], iter([batch(**columns)]))
        now = log.snapshot()
        read = {topic: {str(n): end.end for n, end in enumerate(now.ends[topic])} for topic in query.reads.values()}
        offsets = {"arrival": now.arrival} if "arrival" in log.capabilities else {"topics": read}
        identity = BatchIdentity(query.id, query.version, "c", number, json.dumps(offsets))
        log.commit(table, [(0, 0)], identity)


@pytest.fixture(scope="module")
def engine(server: Running) -> Engine:
    return Engine(server)


def write(server: Running, *pages: str) -> str:
    events = [{"userid": "abcdefgh"[number], "pageid": page} for number, page in enumerate(pages)]
    token = server.send("pageviews", events).json()["token"]
    assert isinstance(token, str)
    return token


def ask(server: Running, sql: str, after: str | list[str], wait_ms: int = 60_000) -> httpx.Response:
    return server.http.post("/v1/query", json={"sql": sql, "after": after, "wait_ms": wait_ms})


def test_a_read_waits_for_a_write_and_says_how_far_the_view_is(server: Running, engine: Engine) -> None:
    token = write(server, "/a", "/b", "/c", "/d")
    assert token.startswith("pageviews@0:")
    assert ",1:" in token, "one token for several partitions"
    late = ask(server, COUNT, token, 1500)
    assert (late.status_code, late.json()["error"]["code"]) == (408, "deadline")
    assert late.json()["error"]["detail"] == "query `CTAS_BY_PAGE_1` has 4 records of its inputs to read"
    assert server.http.post("/v1/query", json={"sql": COUNT}).json()["rows"] == [], "nobody else waits"

    with ThreadPoolExecutor() as threads:
        waiting = [
            threads.submit(ask, server, COUNT, token),
            threads.submit(ask, server, COUNT, "now"),
            threads.submit(ask, server, COUNT, "pageviews@"),
            threads.submit(
                server.http.get, "/v1/views/by_page/rows", params={"pageid": "/a", "after": token, "wait": 60}
            ),
        ]
        engine.commit("BY_PAGE", PAGEID=["/a"], VIEWS=[1])
        answers = [future.result(120).json() for future in waiting]
    assert [answer["rows"] for answer in answers] == [[[1]], [[1]], [[1]], [["/a", 1]]]


def test_a_view_of_a_view_waits_through_the_chain(server: Running, engine: Engine) -> None:
    token = write(server, "/a")
    pages = "SELECT pages FROM by_views WHERE views = 2;"
    with ThreadPoolExecutor() as threads:
        waiting: Future[httpx.Response] = threads.submit(ask, server, pages, token)
        engine.commit("BY_PAGE", PAGEID=["/a"], VIEWS=[2])
        late = ask(server, pages, token, 50).json()["error"]
        assert "CTAS_BY_VIEWS" in late["detail"]
        engine.commit("BY_VIEWS", VIEWS=[2], PAGES=[1])
        assert waiting.result(120).json()["rows"] == [[1]]
    changed = server.http.get("/v1/views/by_page").json()["through"]["id"]
    assert ask(server, COUNT, changed).json()["rows"] == [[2]], "an id of the feed of the view itself"
    assert ask(server, pages, f"by_page/{changed}").json()["rows"] == [[1]], "an id of a view that it reads"


@pytest.mark.slow
def test_on_kafka_too(tmp_path: Path, kafka: str) -> None:
    prefix = kafka_settings(kafka).kafka.prefix
    toml = f'[log]\nbackend = "kafka"\n[log.kafka]\nbootstrap = "{kafka}"\nprefix = "{prefix}"\n'
    with running_server(tmp_path, toml, SQL) as server:
        engine = Engine(server)
        for number in range(5):
            token = server.send("users", {"id": "ann", "name": str(number)}).json()["token"]
            assert ask(server, "SELECT name FROM users WHERE id = 'ann';", token).json()["rows"] == [[str(number)]]
        token = write(server, "/a", "/b", "/c", "/d")
        assert ",1:" in token
        late = ask(server, COUNT, token, 50)
        assert (late.status_code, "CTAS_BY_PAGE_1" in late.json()["error"]["detail"]) == (408, True)
        with ThreadPoolExecutor() as threads:
            waiting = [threads.submit(ask, server, COUNT, after) for after in (token, "now")]
            engine.commit("BY_PAGE", PAGEID=["/a"], VIEWS=[1])
            assert [future.result(120).json()["rows"] for future in waiting] == [[[1]], [[1]]]
        changed = server.http.get("/v1/views/by_page").json()["through"]["id"]
        assert ask(server, COUNT, changed).json()["rows"] == [[1]]


def test_tables_and_streams_over_topics_wait_for_their_topic(server: Running) -> None:
    token = server.send("users", {"id": "ann", "name": "Ann"}).json()["token"]
    assert ask(server, "SELECT name FROM users WHERE id = 'ann';", token).json()["rows"] == [["Ann"]]
    token = write(server, "/only-a-stream")
    counted = "SELECT COUNT(*) AS n FROM pageviews WHERE pageid = '/only-a-stream';"
    assert ask(server, counted, [token, "now"]).json()["rows"] == [[1]]


def test_inserted_rows_have_a_token_too(server: Running) -> None:
    insert = "INSERT INTO users (id, name) VALUES ('cid', 'Cid'), ('dan', 'Dan'), ('fay', 'Fay');"
    [result] = server.http.post("/v1/statements", json={"sql": insert}).json()["results"]
    asked = ask(
        server, "SELECT COUNT(*) AS n FROM users WHERE id = 'cid' OR id = 'dan' OR id = 'fay';", result["token"]
    )
    assert asked.json()["rows"] == [[3]]


def test_a_repeated_write_waits_for_the_first(server: Running) -> None:
    event = {"id": "bob", "name": "Bob"}
    first = server.send("users", event, headers={"Idempotency-Key": "one"}).json()["token"]
    again = server.send("users", event, headers={"Idempotency-Key": "one"}).json()["token"]
    assert first.partition("@")[2] != again.partition("@")[2]
    assert ask(server, "SELECT name FROM users WHERE id = 'bob';", again).json()["rows"] == [["Bob"]]


@pytest.mark.parametrize(
    ("after", "status", "message"),
    [
        ("users@0:0", 409, "no event of topic `users` comes to view `by_page`"),
        ("nowhere@0:0", 404, "topic `nowhere` does not exist"),
        ("pageviews@0:999999", 410, "topic `pageviews` has no record before offset 1000000 of partition 0"),
        ("pageviews@0:0.deadbeef", 410, "`pageviews@0:0.deadbeef` is not a position of this log"),
        ("yesterday", 400, "`yesterday` is not an event id"),
    ],
)
def test_positions_that_cannot_be_waited_for(server: Running, after: str, status: int, message: str) -> None:
    answer = ask(server, COUNT, after)
    assert (answer.status_code, answer.json()["error"]["message"]) == (status, message)


def test_nothing_is_promised_for_what_is_not_durable(server: Running) -> None:
    assert server.send("users", {"id": "eve"}, params={"acks": "1"}).json()["token"] is None
    pushed = ask(server, "SELECT * FROM by_page EMIT CHANGES;", "now")
    assert (pushed.status_code, "push query" in pushed.json()["error"]["message"]) == (400, True)

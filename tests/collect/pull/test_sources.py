"""Pullers against real sources that cut them off, and pullers that are stopped and started again: every event once."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from websockets.sync.server import ServerConnection, serve

from headrace.collect.pull.sse import Parser
from headrace.log.base import TopicSpec
from headrace.types import BIGINT, VARCHAR, Column
from tests.collect.listeners import listening
from tests.log.support import PLAIN, rows
from tests.server.running import running_server
from tests.support import wait_for

pytestmark = pytest.mark.slow

LINES = TopicSpec("lines", value=(Column("MESSAGE", VARCHAR),))
Handle = Callable[[BaseHTTPRequestHandler, dict[str, str]], None]


@contextmanager
def source(handle: Handle) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            query = {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}
            handle(self, query)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def answer(to: BaseHTTPRequestHandler, body: Any, status: int = 200, **headers: str) -> None:
    data = json.dumps(body).encode()
    to.send_response(status)
    for name, value in headers.items():
        to.send_header(name.replace("_", "-"), value)
    to.send_header("content-length", str(len(data)))
    to.end_headers()
    to.wfile.write(data)


def follow(folder: Path, text: str, count: int, topic: TopicSpec = PLAIN, column: str = "N") -> list[Any]:
    """What is there once so many rows are, with the collector stopped and started again on the way."""
    for wanted in (count // 2, count):
        with listening(folder, {"pull": f'topic = "{topic.name}"\n{text}'}, [topic]) as running:
            rows = running.wait_rows(topic.name, wanted)
    return [row[column] for row in rows]


def test_server_sent_events_go_on_after_the_last_id(tmp_path: Path) -> None:
    asked: list[str] = []

    def handle(to: BaseHTTPRequestHandler, query: dict[str, str]) -> None:
        last = to.headers.get("last-event-id", "-1")
        asked.append(last)
        to.send_response(200)
        to.send_header("content-type", "text/event-stream")
        to.end_headers()
        for n in range(int(last) + 1, min(int(last) + 8, 40)):
            to.wfile.write(
                f'id: {n}\nevent: view\ndata: {{"n": {n}}}\n\n: a comment\n\nevent: other\ndata: 0\n\n'.encode()
            )
        # In the middle of an event the connection ends.
        to.wfile.write(b'id: 1000\ndata: {"n"')

    with source(handle) as url:
        assert follow(tmp_path, f'type = "sse"\nurl = "{url}"\nevents = ["view"]', 40) == list(range(40))
    assert "1000" not in asked


def test_server_sent_events_are_parsed_as_the_standard_says() -> None:
    stream = b"\xef\xbb\xbfdata: a\r\ndata:b\r\rid: 1\ndata: c\n\n:x\ndata\n\nid: 2\n\nevent: e\ndata: d\n\n"
    expected = [("message", "a\nb", ""), ("message", "c", "1"), ("message", "", "1"), ("e", "d", "2")]
    for step in (1, 2, 3, len(stream)):
        parser = Parser(1000)
        found = [event for at in range(0, len(stream), step) for event in parser.feed(stream[at : at + step])]
        assert [(event.type, event.data, event.id) for event in found] == expected


def test_a_websocket_is_followed_by_the_cursor_of_its_messages(tmp_path: Path) -> None:
    def talk(connection: ServerConnection) -> None:
        first = json.loads(connection.recv())["after"] + 1
        for n in range(first, min(first + 7, 30)):
            connection.send(json.dumps({"n": n}))
        # What comes again is known by its id.
        connection.send(json.dumps({"n": first}))
        if first + 7 >= 30:
            with_end.wait(600)

    with_end = threading.Event()
    with serve(talk, "127.0.0.1", 0) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        port = server.socket.getsockname()[1]
        text = f'type = "websocket"\nurl = "ws://127.0.0.1:{port}/"\ncursor = "n"\nid = "n"\n'
        more = 'subscribe = [\'{"after": {cursor}}\']\nfirst = "-1"\n'
        # `first` is text: a number is written as one.
        found = follow(tmp_path, text + more.replace('"-1"', "-1"), 30)
        with_end.set()
        server.shutdown()
        thread.join()
    assert found == list(range(30))


def test_where_a_puller_is_says_nothing_of_its_password_and_its_key(tmp_path: Path) -> None:
    known: list[bool] = []

    def handle(to: BaseHTTPRequestHandler, query: dict[str, str]) -> None:
        first = int(query.get("after", "0"))
        known.append(query["api_key"] == "hush" and to.headers["authorization"].startswith("Basic "))
        items = [{"n": n} for n in range(first, min(first + 5, 10))]
        answer(to, {"items": items, "next": first + len(items)}, 200 if items else 500)

    with source(handle) as url:
        address = f"{url.replace('//', '//ann:hush@')}/x?api_key=hush"
        text = f'type = "poll"\nurl = "{address}"\nitems = "items"\ncursor = "next"\nparameter = "after"\n'
        assert follow(tmp_path, text, 10) == list(range(10))
        with listening(tmp_path, {"pull": f'topic = "plain"\n{text}'}, [PLAIN]) as running:
            wait_for(lambda: "500" in running.status("pull").detail, 10, "it to say what it waits for")
            assert "hush" not in str(running.status("pull"))
            assert "hush" not in str(rows(running.log, "_cursors"))
            assert len(running.wait_rows("plain", 10)) == 10
    assert all(known)


def test_a_source_that_sends_us_elsewhere_does_not_send_our_headers_along(tmp_path: Path) -> None:
    elsewhere: list[str | None] = []

    def far(to: BaseHTTPRequestHandler, query: dict[str, str]) -> None:
        elsewhere.append(to.headers.get("x-api-key"))
        answer(to, [{"n": 1}])

    with source(far) as other:

        def near(to: BaseHTTPRequestHandler, query: dict[str, str]) -> None:
            assert to.headers["x-api-key"] == "hush"
            answer(to, {}, 302, location=other)

        with source(near) as url:
            text = f'type = "poll"\nurl = "{url}"\nid = "n"\nheaders = {{ X-Api-Key = "hush" }}\n'
            with listening(tmp_path, {"pull": f'topic = "plain"\n{text}'}, [PLAIN]) as running:
                assert len(running.wait_rows("plain", 1)) == 1
    assert set(elsewhere) == {None}


def test_polling_by_a_path_waits_as_long_as_the_source_asks(tmp_path: Path) -> None:
    refused: list[str] = []

    def handle(to: BaseHTTPRequestHandler, query: dict[str, str]) -> None:
        first = int(query.get("after", "0"))
        if first == 12 and len(refused) < 2:
            refused.append("")
            return answer(to, {}, 429, retry_after="1")
        items = [{"n": n} for n in range(first, min(first + 6, 30))]
        return answer(to, {"data": {"items": items}, "next": first + len(items)})

    with source(handle) as url:
        text = f'type = "poll"\nurl = "{url}/x?a=1"\nitems = "data.items"\ncursor = "next"\nparameter = "after"'
        assert follow(tmp_path, text + "\nevery_seconds = 0.05", 30) == list(range(30))
    assert len(refused) == 2


def test_polling_by_etag_takes_an_answer_once(tmp_path: Path) -> None:
    version = ["1"]

    def handle(to: BaseHTTPRequestHandler, query: dict[str, str]) -> None:
        if to.headers.get("if-none-match") == version[0]:
            to.send_response(304)
            to.end_headers()
            unchanged.set()
            return
        answer(to, {"n": int(version[0])}, etag=version[0])

    unchanged = threading.Event()
    with source(handle) as url:
        text = f'type = "poll"\ntopic = "plain"\nurl = "{url}"\ncursor = "etag"\nevery_seconds = 0.05'
        with listening(tmp_path, {"pull": text}, [PLAIN]) as running:
            running.wait_rows("plain", 1)
            assert unchanged.wait(120)
            version[0] = "2"
            assert [row["N"] for row in running.wait_rows("plain", 2)] == [1, 2]


def test_a_source_that_is_away_is_waited_for(tmp_path: Path) -> None:
    with listening(
        tmp_path, {"pull": 'type = "sse"\ntopic = "plain"\nurl = "http://127.0.0.1:1/"'}, [PLAIN]
    ) as running:
        status = running.wait_until("pull", "waiting")
        wait_for(lambda: "tried again in" in running.status("pull").detail, 10, "a reason")
        wait_for(lambda: running.status("pull").errors >= 2, 10, "a second try")
        assert status.accepted == 0


def test_another_headrace_is_followed_by_its_offsets(tmp_path: Path) -> None:
    there, here = tmp_path / "there", tmp_path / "here"
    there.mkdir()
    here.mkdir()
    sql = "CREATE STREAM plain (n BIGINT) WITH (KAFKA_TOPIC='origin', VALUE_FORMAT='JSON', PARTITIONS=2);"
    with running_server(there, sql=sql) as other:
        other.send("origin", [{"n": n, "$id": f"i{n}", "$time": 1000 + n, "more": n} for n in range(20)])
        text = f'type = "headrace"\nurl = "http://127.0.0.1:{other.port}"\nsource = "origin"\nbatch = 3'
        found = follow(here, text, 20)
        assert sorted(found) == list(range(20))
        other.send("origin", [{"n": 20}])
        with listening(here, {"pull": f'topic = "plain"\n{text}'}, [PLAIN]) as running:
            rows = running.wait_rows("plain", 21)
    known = {row["N"]: row for row in rows}
    assert len(rows) == len(known) == 21
    assert (known[7]["$id"], known[7]["$time"], json.loads(known[7]["$rest"])) == ("i7", 1007, {"more": 7})


def test_files_in_every_format(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "a.txt").write_bytes(b"one\ntwo\n\xff\n")
    (logs / "a.json").write_text('{"n": 1}\nnope\n{"n": 2}\n')
    (logs / "a.csv").write_text('n,name\n3,"x, y"\n4,z\n5\n')
    (logs / "a.w3c").write_text("#Fields: date time cs-method sc-status\n2026-11-16 10:00:00 GET 200\n")
    web = TopicSpec("web", value=(Column("CS_METHOD", VARCHAR), Column("SC_STATUS", BIGINT)))
    collectors = {
        "text": 'type = "file"\ntopic = "lines"\npath = "logs/*.txt"',
        "json": 'type = "file"\ntopic = "plain"\nformat = "json"\npath = ["logs/*.json"]',
        "csv": 'type = "file"\ntopic = "table"\nformat = "csv"\npath = "logs/*.csv"\n[validate]\ncoerce = ["n"]',
        "web": 'type = "file"\ntopic = "web"\nformat = "w3c"\npath = "logs/*.w3c"',
    }
    table = TopicSpec("table", value=(Column("N", BIGINT), Column("NAME", VARCHAR)))
    for again in range(2):
        # Started again it knows the fields that the first line said.
        with listening(tmp_path, collectors, [LINES, PLAIN, table, web]) as running:
            assert [row["MESSAGE"] for row in running.wait_rows("lines", 2)] == ["one", "two"]
            assert [row["N"] for row in running.wait_rows("plain", 2)] == [1, 2]
            rows = running.wait_rows("table", 2 + again)
            assert [(row["N"], row["NAME"]) for row in rows][:2] == [(3, "x, y"), (4, "z")]
            assert [row["SC_STATUS"] for row in running.wait_rows("web", 1 + again)] == [200, 404][: again + 1]
            wait_for(lambda: len(running.letters()) == 3, 10, "three dead letters")
            # Each says where its line begins.
            places = [f"file text {logs}/a.txt:8", f"file json {logs}/a.json:9", f"file csv {logs}/a.csv:20"]
            assert sorted(letter["SOURCE"] for letter in running.letters()) == sorted(places)
        if not again:
            with (logs / "a.csv").open("a") as file:
                file.write("6,six\n")
            with (logs / "a.w3c").open("a") as file:
                file.write("2026-11-16 10:00:01 GET 404\n")

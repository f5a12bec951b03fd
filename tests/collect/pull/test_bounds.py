"""Sources that send more than fits into memory: bounded, said, and nothing after it is kept waiting."""

from __future__ import annotations

import asyncio
import gzip
import itertools
import json
import threading
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.sync.server import ServerConnection, serve

from headrace.collect.outlet import CURSORS_TOPIC
from headrace.collect.pull.base import MOST_BYTES, Broken, Item, _Arrived, read_answer
from headrace.collect.pull.sse import Parser
from tests.collect.listeners import listening
from tests.collect.pull.test_sources import answer, source
from tests.log.support import PLAIN, rows
from tests.support import wait_for

MOST = 20


def events(pieces: list[bytes]) -> list[tuple[str, str, bool]]:
    parser = Parser(MOST)
    return [(one.data, one.id, one.too_long) for piece in pieces for one in parser.feed(piece)]


@given(st.lists(st.integers(0, 10_000)), st.sampled_from([b"\n", b"\r\n", b"\r"]))
def test_an_event_that_is_too_long_is_its_beginning_and_the_next_is_read(cuts: list[int], end: bytes) -> None:
    lines = [b"id: 1", b"data: " + b"x" * 100, b"data: y", b"", b": " + b"-" * 100, b"id: 2", b"data: z", b"", b":"]
    stream = end.join(lines)
    places = sorted({0, len(stream), *(at % (len(stream) + 1) for at in cuts)})
    pieces = [stream[start:stop] for start, stop in itertools.pairwise(places)]
    assert events(pieces) == [("x" * MOST, "1", True), ("z", "2", False)]


def test_empty_lines_of_data_are_not_for_free() -> None:
    [(data, _, too_long)] = events([b"data:\n"] * 1000 + [b"\n"])
    assert too_long
    assert len(data) <= MOST


def test_what_waits_to_be_written_is_bounded_by_its_bytes() -> None:
    async def fill() -> int:
        arrived, large = _Arrived(), b"x" * (MOST_BYTES // 2)
        count = 0
        while True:
            putting = asyncio.ensure_future(arrived.put([Item({}, large)]))
            for _ in range(10):
                await asyncio.sleep(0)
            if not putting.done():
                break
            count += 1
        # Somebody takes them, and it goes on.
        assert len(await arrived.take()) == 2
        await putting
        return count

    assert asyncio.run(fill()) == 2


@pytest.mark.parametrize("encoding", ["gzip", "identity", "zstd"])
def test_a_small_answer_that_becomes_a_large_one_is_not_taken(encoding: str) -> None:
    body = b"[" + b" " * 5_000_000 + b"]"

    def handle(to: BaseHTTPRequestHandler, query: dict[str, str]) -> None:
        to.send_response(200)
        to.send_header("content-encoding", encoding)
        to.end_headers()
        to.wfile.write(gzip.compress(body) if encoding == "gzip" else body)

    async def ask(url: str, most: int) -> bytes:
        async with httpx.AsyncClient(timeout=60, trust_env=False) as http:
            return (await read_answer(http, url, most)).content

    with source(handle) as url:
        if encoding != "zstd":
            assert asyncio.run(ask(url, len(body))) == body
        with pytest.raises(Broken, match="which was not asked for" if encoding == "zstd" else "more than 100000 bytes"):
            asyncio.run(ask(url, 100_000))


@pytest.mark.slow
def test_a_poller_says_that_an_answer_is_too_large_and_goes_on_when_it_is_not(tmp_path: Path) -> None:
    sizes = [1000]

    def handle(to: BaseHTTPRequestHandler, query: dict[str, str]) -> None:
        answer(to, {"items": [{"n": 1, "id": "a", "more": "x" * sizes[0]}]})

    with source(handle) as url:
        text = f'type = "poll"\ntopic = "plain"\nurl = "{url}"\nid = "id"\nitems = "items"\nmax_answer_bytes = 500'
        with listening(tmp_path, {"pull": text}, [PLAIN]) as running:
            wait_for(lambda: "more than 500 bytes" in running.status("pull").detail, 10, "a reason")
            sizes[0] = 10
            assert [row["N"] for row in running.wait_rows("plain", 1)] == [1]


@pytest.mark.slow
def test_a_server_sent_event_that_is_too_large_is_a_letter_and_the_next_is_taken(tmp_path: Path) -> None:
    def handle(to: BaseHTTPRequestHandler, query: dict[str, str]) -> None:
        last = int(to.headers.get("last-event-id", "0"))
        to.send_response(200)
        to.end_headers()
        bodies = [json.dumps({"n": 1}), json.dumps({"n": "x" * 3_000_000}), json.dumps({"n": 3})]
        for number, body in enumerate(bodies, 1):
            if number > last:
                to.wfile.write(f"id: {number}\ndata: {body}\n\n".encode())

    with source(handle) as url:
        text = f'type = "sse"\ntopic = "plain"\nurl = "{url}"'
        with listening(tmp_path, {"pull": text}, [PLAIN]) as running:
            assert [row["N"] for row in running.wait_rows("plain", 2)] == [1, 3]
            [letter] = running.letters()
            assert "more than 1048576 bytes" in letter["REASON"]
            assert letter["PAYLOAD"].startswith(b'{"n": "xxx')


@pytest.mark.slow
def test_an_array_is_one_write_however_long_it_is(tmp_path: Path) -> None:
    """Cut in two, its first part would come twice after a kill between them."""
    end = threading.Event()

    def talk(connection: ServerConnection) -> None:
        connection.send(json.dumps([{"n": n} for n in range(2500)]))
        end.wait(600)

    with serve(talk, "127.0.0.1", 0) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        text = f'type = "websocket"\ntopic = "plain"\nurl = "ws://127.0.0.1:{server.socket.getsockname()[1]}/"'
        try:
            with listening(tmp_path, {"pull": text}, [PLAIN]) as running:
                assert len(running.wait_rows("plain", 2500)) == 2500
                assert len(rows(running.log, CURSORS_TOPIC)) == 1
        finally:
            end.set()
            server.shutdown()
            thread.join()

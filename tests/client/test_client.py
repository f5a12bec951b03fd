"""`headrace.Client` against a real server."""

from __future__ import annotations

import asyncio
import itertools
import json
import subprocess
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from headrace import AsyncClient, Client
from headrace.client import NewRecord
from headrace.client.following import Buffer
from headrace.errors import Conflict, DeadlineExceeded, NotFound, NotRunning, Overloaded, UsageError
from tests.server.running import Running
from tests.support import free_port


def test_produce_and_consume(client: Client) -> None:
    client.create_topic("orders", "id VARCHAR KEY, total DOUBLE", partitions=2)
    sent = client.produce(
        "orders",
        [{"id": "a", "total": 1.5, "note": "x"}, NewRecord(key="b", value={"total": 2}, headers={"h": "1"}),
         NewRecord(key="a"), {"id": "c", "total": "much"}],
    )  # fmt: skip
    assert (sent.accepted, sent.duplicates) == (3, 0)
    assert [(one.index, "must be a number" in one.reason) for one in sent.rejected] == [(3, True)]
    records = list(client.consume("orders", follow=False))
    assert sorted((record.key["id"], record.value is None) for record in records) == [
        ("a", False), ("a", True), ("b", False),
    ]  # fmt: skip
    whole = next(record for record in records if record.rest)
    assert whole.fields == {"id": "a", "total": 1.5, "note": "x"}
    [topic] = [topic for topic in client.topics() if topic.name == "orders"]
    assert (topic.records, client.topic("orders").dead_letters) == (3, 1)


def test_reading_goes_on_where_it_was(client: Client) -> None:
    client.create_topic("long", "n INT")
    client.produce("long", ({"n": number} for number in range(1200)))
    first = client.page("long", limit=700)
    rest = client.page("long", at=first.next, limit=700)
    assert [record.fields["n"] for record in first.records + rest.records] == list(range(1200))
    assert client.page("long", before=first.first).records == []
    heard = threading.Event()

    def send() -> None:
        # Until it is heard: nobody knows when whoever begins at the end has begun.
        while not heard.wait(0.2):
            client.produce("long", [{"n": -1}])

    sending = threading.Thread(target=send)
    sending.start()
    try:
        assert next(client.consume("long", "latest")).fields == {"n": -1}
    finally:
        heard.set()
        sending.join()


def test_sending_again_is_harmless(client: Client) -> None:
    client.create_topic("once", "n INT")
    events = [{"n": number} for number in range(3)]
    assert client.produce("once", events, key="import-7").accepted == 3
    assert client.produce("once", events, key="import-7").duplicates == 3
    assert len(client.page("once").records) == 3


def test_batches(client: Client) -> None:
    client.create_topic("batched", "n INT")
    with client.producer("batched", batch_records=10) as out:
        for number in range(25):
            out.send({"n": number})
        assert out.accepted == 20
        out.send({"n": "x"})
    assert (out.accepted, len(out.rejected)) == (25, 1)
    records = list(client.consume("batched", follow=False))
    assert [record.fields["n"] for record in records] == list(range(25))


def test_queues_and_requests(client: Client) -> None:
    client.create_topic("sums", "a INT, b INT")
    client.create_queue("adders", "sums", max_deliveries=2)

    def add() -> None:
        for message in client.messages("adders"):
            client.reply(message, {"sum": message.record.fields["a"] + message.record.fields["b"]})
            client.ack("adders", message)
            return

    worker = threading.Thread(target=add)
    worker.start()
    assert client.request("sums", {"a": 2, "b": 3}, timeout=60).reply.fields == {"sum": 5}
    worker.join()
    with pytest.raises(DeadlineExceeded):
        client.request("sums", {"a": 1, "b": 1}, timeout=0.05)
    [message] = client.receive("adders", wait=30)
    assert client.extend("adders", message, lease=60).done == 1
    assert client.nack("adders", [message], reason="tired").done == 1
    assert client.receive("adders")[0].deliveries == 2
    assert client.queue("adders").leased == 1
    client.produce("sums", [{"a": 1}])
    [plain] = client.page("sums", before="latest", limit=1).records
    with pytest.raises(UsageError, match="asks for no reply"):
        client.reply(plain, {})
    client.delete_queue("adders")
    assert [queue.name for queue in client.queues()] == []


def test_sql_and_feeds(client: Client) -> None:
    assert client.statements("SHOW TABLES;")[0]["kind"] == "table"
    client.produce("users", [{"id": "ann", "name": "Ann", "age": 7}])
    feed = client.feed("users", from_beginning=True)
    change = next(feed)
    assert (change.key, change.value) == ({"id": "ann"}, {"name": "Ann", "age": 7})
    client.produce("users", [NewRecord(key="ann")])
    assert next(feed).value is None
    feed.close()  # type: ignore[attr-defined]
    assert change.id is not None
    again = client.feed("users", after=change.id)
    assert next(again).value is None
    answer = client.query("SELECT id, name FROM users;")
    assert (answer.dicts(), answer.truncated) == ([], False)


def test_errors_are_those_the_server_raised(client: Client) -> None:
    with pytest.raises(NotFound, match="`nothing`"):
        client.topic("nothing")
    with pytest.raises(Conflict):
        client.create_topic("users", "other INT")
    with (
        Client(f"http://127.0.0.1:{free_port()}", patience=0.3) as nobody,
        pytest.raises(NotRunning, match="no answer"),
    ):
        nobody.topics()


def test_the_same_on_an_event_loop(server: Running) -> None:
    async def story() -> None:
        async with AsyncClient(f"http://127.0.0.1:{server.port}") as client:
            await client.create_topic("loop", "n INT")
            async with client.producer("loop", batch_records=2) as out:
                for number in range(5):
                    await out.send({"n": number})
            found = [record.fields["n"] async for record in client.consume("loop", follow=False)]
            assert found == [0, 1, 2, 3, 4]
            await client.create_queue("loop", "loop")
            async for message in client.messages("loop", limit=2):
                await client.ack("loop", message)
                if message.record.fields["n"] == 4:
                    break
            await client.produce("users", [{"id": "bob", "name": "Bob"}])
            async for change in client.feed("users", snapshot=True):
                if change.key == {"id": "bob"}:
                    break
            with pytest.raises(NotFound):
                await client.queue("nothing")

    asyncio.run(story())


def test_both_clients_can_the_same() -> None:
    def public(kind: type) -> set[str]:
        return {name for name in dir(kind) if not name.startswith("_")}

    assert public(Client) == public(AsyncClient)


def test_importing_it_is_quick_and_needs_no_spark() -> None:
    heavy = "('pyspark', 'pyarrow', 'granian', 'starlette')"
    program = f"import sys, headrace; headrace.Client; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


class Scripted:
    """A server that answers as told, one after the other, and remembers what it was asked."""

    def __init__(self, *answers: tuple[int, dict[str, str], Any]) -> None:
        self.asked: list[tuple[str, dict[str, str], bytes]] = []
        script = iter(answers)
        asked = self.asked

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                asked.append((self.path, {name.lower(): value for name, value in self.headers.items()}, body))
                status, headers, answer = next(script)
                if not status:
                    self.close_connection = True  # as if it had died
                    return
                content = json.dumps(answer).encode()
                self.send_response(status)
                for name, value in {**headers, "content-length": str(len(content))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: Any) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"

    def close(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


TAKEN = {"accepted": 1, "duplicates": 0, "rejected": [], "positions": [[0, 0, 0]], "position": None}
BUSY = {"error": {"code": "overloaded", "message": "busy", "retry_after": 0.01}}


@pytest.fixture
def scripted() -> Any:
    made: list[Scripted] = []

    def make(*answers: tuple[int, dict[str, str], Any]) -> Scripted:
        made.append(Scripted(*answers))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_a_busy_or_dying_server_is_asked_again_with_the_same_ids(scripted: Callable[..., Scripted]) -> None:
    server = scripted((429, {}, BUSY), (0, {}, None), (503, {}, {"error": {"code": "not_running", "message": "x"}}),
                      (200, {}, TAKEN))  # fmt: skip
    with Client(server.url) as client:
        assert client.produce("t", [{"n": 1}]).accepted == 1
    assert len(server.asked) == 4
    assert len({(asked[1]["idempotency-key"], asked[2]) for asked in server.asked}) == 1


def test_what_may_have_happened_is_not_done_twice(scripted: Callable[..., Scripted]) -> None:
    server = scripted((429, {}, BUSY), (0, {}, None))
    with Client(server.url) as client, pytest.raises(NotRunning, match="no answer"):
        client.statements("DROP TABLE t;")
    assert len(server.asked) == 2


def test_patience_ends(scripted: Callable[..., Scripted]) -> None:
    server = scripted(*itertools.repeat((429, {}, BUSY), 100))
    with Client(server.url, patience=0.2) as client, pytest.raises(Overloaded):
        client.produce("t", [{"n": 1}])


def test_a_batch_that_failed_is_kept_with_its_ids(scripted: Callable[..., Scripted]) -> None:
    broken = {"error": {"code": "disk_full", "message": "full"}}
    server = scripted((507, {}, broken), (200, {}, TAKEN), (200, {}, TAKEN))
    buffer = Buffer("t")
    buffer.add({"n": 1})
    with Client(server.url) as client:
        with pytest.raises(Exception, match="full"):
            client.run(buffer.flush())
        client.run(buffer.flush())
        buffer.add({"n": 2})
        client.run(buffer.flush())
    keys = [asked[1]["idempotency-key"] for asked in server.asked]
    assert keys[0] == keys[1] != keys[2]

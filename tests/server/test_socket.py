"""Publish and subscribe over one WebSocket, both ways."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NoReturn

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from headrace.deliver.browse import Page, read_after
from headrace.errors import LogError
from headrace.log.base import Log
from tests.server.running import Running, running_server
from tests.support import wait_for


class Talking:
    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection

    def say(self, **message: Any) -> None:
        self.connection.send(json.dumps({name.removesuffix("_"): value for name, value in message.items()}))

    def hear(self, *names: str) -> dict[str, Any]:
        """The next message with one of these names in it."""
        while True:
            message: dict[str, Any] = json.loads(self.connection.recv(60))
            if any(name in message for name in names):
                return message
            assert {"alive", "records", "subscribed"} & set(message), message

    def numbers(self, count: int) -> list[int]:
        """`n` of so many records, as they come."""
        found: list[int] = []
        while len(found) < count:
            found += [record["value"]["n"] for record in self.hear("records")["records"]]
        return found


@contextmanager
def talking(server: Running, **headers: str) -> Iterator[Talking]:
    with connect(f"ws://127.0.0.1:{server.port}/v1/socket", additional_headers=headers, proxy=None) as connection:
        yield Talking(connection)


@pytest.fixture
def topic(server: Running) -> str:
    name = f"chat-{uuid.uuid4().hex[:8]}"
    assert server.http.post("/v1/topics", json={"name": name, "columns": "who VARCHAR KEY, n INT"}).status_code == 201
    return name


def test_what_one_publishes_the_others_get_in_order(server: Running, topic: str) -> None:
    with talking(server) as one, talking(server) as other:
        other.say(subscribe="s", topics=[topic])
        assert other.hear("subscribed")["at"] == {topic: "0:0"}
        for n in range(50):
            one.say(publish=str(n), topic=topic, event={"who": "ada", "n": n})
        acks = [one.hear("ack") for _ in range(50)]
        assert {ack["ack"]: ack["accepted"] for ack in acks} == {str(n): 1 for n in range(50)}
        got: list[int] = []
        while len(got) < 50:
            got += [record["value"]["n"] for record in other.hear("records")["records"]]
        assert got == list(range(50))


def test_sockets_at_the_same_place_share_a_read(server: Running, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def counted(log: Log, name: str, *options: Any) -> Page:
        if name == topic:
            read.append(name)
        return read_after(log, name, *options)

    monkeypatch.setattr("headrace.server.socket.read_after", counted)
    with ExitStack() as closing:
        many = [closing.enter_context(talking(server)) for _ in range(10)]
        for one in many:
            one.say(subscribe="s", topics=[topic])
            one.hear("subscribed")
        assert server.send(topic, {"n": 1}).json()["accepted"] == 1
        assert [one.numbers(1) for one in many] == [[1]] * 10
    # One for all; a second for those who were late by more than it is kept.
    assert len(read) < 10


def test_a_subscription_is_resumed_by_offset(server: Running, topic: str) -> None:
    server.send(topic, [{"n": n} for n in range(10)])
    with talking(server) as first:
        first.say(subscribe="s", topics=topic, from_="earliest")
        page = first.hear("records")
    assert (len(page["records"]), page["next"]) == (10, "0:10")
    server.send(topic, [{"n": n} for n in range(10, 15)])
    with talking(server) as again:
        again.say(subscribe="s", topics=topic, after={topic: page["next"]})
        assert [record["value"]["n"] for record in again.hear("records")["records"]] == list(range(10, 15))


def test_a_pattern_takes_in_topics_made_later(server: Running) -> None:
    base = uuid.uuid4().hex[:8]
    with talking(server) as one:
        one.say(subscribe="all", topics=f"{base}.*")
        one.hear("subscribed")
        server.http.post("/v1/topics", json={"name": f"{base}.new", "columns": "n INT"})
        one.say(publish="p", topic=f"{base}.new", event={"n": 1})
        heard = [one.hear("ack", "records"), one.hear("ack", "records")]
    [page] = [message for message in heard if "records" in message]
    assert (page["subscription"], page["topic"], page["records"][0]["value"]["n"]) == ("all", f"{base}.new", 1)


def test_a_pattern_goes_on_when_the_log_was_away(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Kafka may be, when somebody looks for topics made later."""
    monkeypatch.setattr("headrace.server.socket.LOOK_S", 0.01)
    looks: list[int] = []

    def away() -> NoReturn:
        looks.append(1)
        raise LogError("Kafka does not answer")

    with talking(server) as one:
        one.say(subscribe="s", topics=["away.*"])
        one.hear("subscribed")
        with monkeypatch.context() as patched:
            patched.setattr(server.services.log, "topics", away)
            wait_for(lambda: len(looks) >= 20, 10, "looks")
        server.http.post("/v1/topics", json={"name": "away.later", "columns": "n INT"}).raise_for_status()
        server.send("away.later", {"n": 7})
        assert one.numbers(1) == [7]


def test_who_failed_to_subscribe_may_try_again(server: Running, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with talking(server) as one:
        with monkeypatch.context() as patched:

            def away() -> NoReturn:
                raise LogError("Kafka does not answer")

            patched.setattr(server.services.log, "topics", away)
            one.say(subscribe="s", topics=[topic])
            assert one.hear("error")["error"]["message"] == "Kafka does not answer"
        one.say(subscribe="s", topics=[topic])
        assert one.hear("subscribed", "error")["subscribed"] == "s"


def test_what_does_not_fit_is_told_with_its_id_and_ends_nothing(server: Running, topic: str) -> None:
    with talking(server) as one:
        one.say(publish="bad", topic=topic, event={"n": "no number"})
        assert one.hear("ack")["rejected"][0]["reason"]
        for message, code in (
            ({"publish": "a", "topic": "nowhere", "event": {}}, "not_found"),
            ({"publish": "b", "topic": topic}, "usage"),
            ({"publish": "c", "subscribe": "c"}, "usage"),
            ({"subscribe": "d", "topics": []}, "usage"),
            ({"subscribe": "e", "topics": ["nowhere"]}, "not_found"),
            ({"subscribe": "f", "topics": topic, "after": {topic: "zero"}}, "usage"),
            ({"unsubscribe": "g"}, "not_found"),
            ({"shout": "h"}, "usage"),
        ):
            one.say(**message)
            assert one.hear("error")["error"]["code"] == code, message
        one.connection.send(b"\xff\xfe")
        assert one.hear("error")["id"] is None
        one.connection.send("[" * 100_000)
        assert one.hear("error")["error"]["code"] == "usage"
        one.say(publish="good", topic=topic, events=[{"n": 1}, {"n": 2}], key="k")
        assert one.hear("ack")["accepted"] == 2
        one.say(publish="again", topic=topic, events=[{"n": 1}, {"n": 2}], key="k")
        assert one.hear("ack")["duplicates"] == 2


def test_what_is_published_counts_among_the_bodies_that_are_held(server: Running, topic: str) -> None:
    """Many connections with large messages must not fill the memory: too much is refused, with its id."""
    budget = server.services.budget
    room = budget.left
    with talking(server) as one:
        budget.take(room - 100)
        try:
            one.say(publish="large", topic=topic, event={"n": 1, "who": "x" * 100})
            refused = one.hear("error")
            assert (refused["id"], refused["error"]["code"]) == ("large", "overloaded")
            one.say(publish="small", topic=topic, event={"n": 1})
            assert one.hear("ack")["ack"] == "small"
        finally:
            budget.give_back(room - 100)
        for message in ({"event": {"n": "no number"}}, {"topic": "nowhere", "event": {}}, {"event": {"n": 2}}):
            one.say(**{"publish": "p", "topic": topic} | message)
            one.hear("ack", "error")
    wait_for(lambda: budget.left == room, 20, "everything to be given back")


def test_unsubscribed_it_is_quiet(server: Running, topic: str) -> None:
    with talking(server) as one:
        one.say(subscribe="s", topics=topic)
        one.hear("subscribed")
        one.say(subscribe="s", topics=topic)
        assert one.hear("error")["error"]["code"] == "conflict"
        one.say(unsubscribe="s")
        one.hear("unsubscribed")
        one.say(publish="p", topic=topic, event={"n": 1})
        assert "ack" in one.hear("ack", "records")


def test_a_slow_client_is_told_why_it_is_cut(server: Running, topic: str) -> None:
    """What it would get next is gone when it comes to it."""
    server.send(topic, [{"n": n} for n in range(10)])
    server.http.delete(f"/v1/topics/{topic}/records", params={"partition": 0, "before": 5})
    with talking(server) as one:
        one.say(subscribe="s", topics=topic, after={topic: "0:2"})
        told = one.hear("cut")
    assert (told["subscription"], told["topic"]) == ("s", topic)
    assert told["cut"].startswith("too slow: offset `2`")


def test_one_that_takes_nothing_holds_up_nobody(server: Running, topic: str) -> None:
    """Its records wait in the log; what the server keeps for it is bounded."""
    with talking(server) as slow, talking(server) as quick:
        slow.say(subscribe="s", topics=topic)
        slow.hear("subscribed")
        quick.say(subscribe="q", topics=topic)
        quick.hear("subscribed")
        for n in range(20):
            server.send(topic, [{"who": "x" * 20_000, "n": n}] * 10)
        heard = [one.numbers(200) for one in (quick, slow)]
    assert heard == [[n for n in range(20) for _ in range(10)]] * 2


def test_publishing_needs_a_key_that_may_write(tmp_path: Path) -> None:
    keys = '[auth]\nkeys = [{ key = "reads-0123456789" }, { key = "writes-0123456789", role = "write" }]\n'
    with running_server(tmp_path, keys, key="writes-0123456789") as server:
        with talking(server, Authorization="Bearer reads-0123456789") as reader:
            reader.say(publish="p", topic="pageviews", event={})
            assert reader.hear("error")["error"]["code"] == "refused"
            reader.say(subscribe="s", topics="pageviews")
            reader.hear("subscribed")
            with talking(server, Authorization="Bearer writes-0123456789") as writer:
                writer.say(publish="p", topic="pageviews", event={"userid": "u"})
                assert writer.hear("ack")["accepted"] == 1
            assert reader.hear("records")["topic"] == "pageviews"
        with pytest.raises(Exception, match="401"), talking(server):
            pass


def test_when_the_server_stops_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.server.main.FEEDS_END_S", 60.0)  # a busy machine takes longer to tell them
    told: list[dict[str, Any]] = []
    ready, threads = threading.Event(), []

    def listen(port: int) -> None:
        with connect(f"ws://127.0.0.1:{port}/v1/socket", proxy=None) as connection:
            ready.set()
            try:
                while True:
                    told.append(json.loads(connection.recv()))
            except ConnectionClosed:
                pass

    with running_server(tmp_path) as server:
        threads.append(threading.Thread(target=listen, args=(server.port,)))
        threads[0].start()
        assert ready.wait(120)
        wait_for(lambda: server.services.metrics.following() > 0, 10, "the socket")
    threads[0].join(120)
    assert {"cut": "the server is stopping"} in told

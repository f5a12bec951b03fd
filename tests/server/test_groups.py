"""Groups over HTTP, with the Python client and without."""

from __future__ import annotations

import threading
from typing import Any

import msgspec
import pytest

from headrace import Client
from headrace.errors import Conflict, NotFound
from headrace.server.models.log import ConsumedAnswer, ConsumerModel
from tests.server.running import Running
from tests.support import wait_for


@pytest.fixture(scope="module")
def client(server: Running) -> Any:
    with Client(f"http://127.0.0.1:{server.port}") as made:
        yield made


def fill(client: Client, topic: str, count: int = 20, partitions: int = 4) -> None:
    client.create_topic(topic, "k VARCHAR KEY, n INT", partitions=partitions)
    client.produce(topic, [{"k": f"k{number}", "n": number} for number in range(count)])


def join(server: Running, group: str, topics: Any, **options: Any) -> str:
    answer = server.http.post(f"/v1/groups/{group}/consumers", json={"topics": topics, **options})
    assert answer.status_code == 201, answer.text
    msgspec.json.decode(answer.content, type=ConsumerModel)
    path: str = f"/v1/groups/{group}/consumers/{answer.json()['id']}"
    return path


def poll(server: Running, path: str, **parameters: Any) -> dict[str, Any]:
    answer = server.http.get(f"{path}/records", params=parameters)
    assert answer.status_code == 200, answer.text
    msgspec.json.decode(answer.content, type=ConsumedAnswer)
    body: dict[str, Any] = answer.json()
    return body


def numbers(body: dict[str, Any]) -> list[int]:
    return sorted(record["value"]["n"] for record in body["records"])


def test_join_poll_commit_leave_and_come_back(server: Running, client: Client) -> None:
    fill(client, "shop")
    path = join(server, "billing", ["shop"])
    first = poll(server, path, wait=30)
    assert numbers(first) == list(range(20))
    assert {record["topic"] for record in first["records"]} == {"shop"}
    assert server.http.post(f"{path}/offsets", json={"offsets": first["offsets"][:2]}).status_code == 204
    group = client.group("billing")
    committed = sum(offset.committed or 0 for offset in group.offsets)
    assert (group.state, len(group.members), group.lag) == ("stable", 1, 20 - committed)
    assert server.http.delete(path).status_code == 204
    assert server.http.get(f"{path}/records").status_code == 404
    again = join(server, "billing", "shop")
    assert len(poll(server, again, wait=30)["records"]) == 20 - committed
    assert server.http.post(f"{again}/offsets", json={}).status_code == 204
    assert client.group("billing").lag == 0
    server.http.delete(again)


def test_a_join_that_is_sent_again_is_the_same_member(server: Running, client: Client) -> None:
    fill(client, "twice")
    chosen = "0123456789abcdef"
    path = join(server, "once", "twice", id=chosen)
    assert path.endswith(chosen)
    assert join(server, "once", "twice", id=chosen) == path
    assert numbers(poll(server, path, wait=30)) == list(range(20))
    assert len(client.group("once").members) == 1
    other = server.http.post("/v1/groups/another/consumers", json={"topics": "twice", "id": chosen})
    assert other.status_code == 404, "an id of another group's member"
    assert server.http.post("/v1/groups/once/consumers", json={"topics": "twice", "id": "../x"}).status_code == 400


def test_an_answer_that_was_lost_is_given_again(server: Running, client: Client) -> None:
    fill(client, "lossy")
    path = join(server, "careful", "lossy")
    poll(server, path, wait=30, poll=1, limit=7)  # nobody gets this
    seen: list[int] = []
    for number in range(1, 10):
        if len(seen) < 20:
            seen += numbers(poll(server, path, wait=30, poll=number, limit=7))
    assert sorted(seen) == list(range(20))
    server.http.delete(path)


def test_answers_are_bounded_in_bytes_and_lose_nothing(server: Running, client: Client) -> None:
    fill(client, "bounded")
    path = join(server, "thrifty", "bounded")
    seen: list[int] = []
    while len(seen) < 20:
        found = poll(server, path, wait=30, max_bytes=400)
        assert 0 < len(found["records"]) < 6
        seen += numbers(found)
    assert sorted(seen) == list(range(20))
    server.http.delete(path)


def test_members_share_the_partitions_and_take_over(server: Running, client: Client) -> None:
    fill(client, "shared", 0)
    one = join(server, "crew", "shared", session_timeout_s=3)
    two = join(server, "crew", "shared", session_timeout_s=60)

    def shares() -> list[int]:
        nonlocal one
        if server.http.get(f"{one}/records").status_code == 404:
            # On a busy machine three seconds pass unheard.
            one = join(server, "crew", "shared", session_timeout_s=3)
        poll(server, two)
        return sorted(len(member["partitions"]) for member in client.group("crew").members)

    wait_for(lambda: shares() == [2, 2], 20, "the partitions to be shared")
    # One says nothing any more: the other gets everything.
    wait_for(
        lambda: bool(poll(server, two)) and [len(m["partitions"]) for m in client.group("crew").members] == [4],
        20,
        "the silent member to be sent away",
    )
    assert poll(server, two)["records"] == []
    server.http.delete(two)


def test_a_poll_waits_and_a_heartbeat_keeps_the_place(server: Running, client: Client) -> None:
    fill(client, "slowly", 0)
    path = join(server, "patient", "slowly")
    assert server.http.post(f"{path}/heartbeat").status_code == 200
    later = threading.Timer(0.3, client.produce, ("slowly", [{"k": "a", "n": 7}]))
    later.start()
    assert numbers(poll(server, path, wait=60)) == [7]
    seeked = server.http.post(f"{path}/seek", json={"offsets": [
        {"topic": "slowly", "partition": number, "offset": 0} for number in range(4)]})  # fmt: skip
    assert [offset["offset"] for offset in seeked.json()["offsets"]] == [0, 0, 0, 0]
    assert numbers(poll(server, path, wait=30)) == [7]
    server.http.delete(path)


def test_reset_and_delete(server: Running, client: Client) -> None:
    fill(client, "again")
    with client.consumer("redo", "again") as consumer:
        assert len(consumer.poll()) == 20
        consumer.commit()
        with pytest.raises(Conflict):
            client.reset_group("redo", "earliest")
    assert client.group("redo").lag == 0
    assert client.reset_group("redo", "earliest").lag == 20
    assert client.reset_group("redo", "latest").lag == 0
    assert client.reset_group("redo", time="2000-01-01").lag == 20
    assert client.reset_group("fresh", "latest", topics=["again"]).lag == 0
    assert {"redo", "fresh"} <= {group.name for group in client.groups()}
    client.delete_group("redo")
    with pytest.raises(NotFound):
        client.group("redo")
    for body in ({}, {"to": "latest", "time": 5}):
        assert server.http.post("/v1/groups/fresh/reset", json=body).status_code == 400
    assert server.http.post("/v1/groups/never/reset", json={"to": "latest"}).status_code == 404


def test_the_client_commits_what_was_processed(client: Client) -> None:
    fill(client, "work")
    with client.consumer("workers", "work") as consumer:
        for count, _ in enumerate(consumer, 1):
            if count == 8:
                consumer.commit()
                break
    # The eighth was given but not finished.
    assert sum(offset.committed or 0 for offset in client.group("workers").offsets) == 7
    with client.consumer("workers", ["work"]) as consumer:
        assert len(consumer.poll(wait=30)) == 13


def test_subscriptions_that_cannot_be(server: Running) -> None:
    wrong: list[Any] = ["", [], "/(/"]
    for topics in wrong:
        answer = server.http.post("/v1/groups/g/consumers", json={"topics": topics})
        assert answer.status_code == 400, topics
    assert server.http.get("/v1/groups/g/consumers/nobody/records").status_code == 404

"""Records in with all their parts, and out again page by page."""

from __future__ import annotations

import base64
import os
import socket
import threading
from typing import Any

import httpx
import pyarrow as pa
import pytest

from headrace.log.local.segment import MappedSegment
from tests.server.running import Running
from tests.support import wait_for


def make(server: Running, name: str, **options: Any) -> None:
    answer = server.http.post("/v1/topics", json={"name": name, **options})
    assert answer.status_code == 201, answer.text


def send(server: Running, topic: str, *records: dict[str, Any], **options: Any) -> httpx.Response:
    return server.http.post(f"/v1/topics/{topic}/records", json={"records": records}, **options)


def read(server: Running, topic: str, **parameters: Any) -> dict[str, Any]:
    answer = server.http.get(f"/v1/topics/{topic}/records", params=parameters)
    assert answer.status_code == 200, answer.text
    page: dict[str, Any] = answer.json()
    return page


def test_a_record_keeps_its_parts(server: Running) -> None:
    make(server, "parts", columns="id VARCHAR KEY, total DOUBLE", partitions=3)
    answer = send(
        server,
        "parts",
        {"key": "k1", "value": {"total": 1.5, "note": "x"}, "headers": {"trace": "t1", "raw": {"base64": "/w=="}}},
        {"key": {"id": "k1"}, "value": {"total": 2}, "partition": 2, "time": "2026-11-15T12:00:00Z", "id": "once"},
        {"key": "k2"},
        {"key": "k2", "value": {"total": 2}, "partition": 2, "id": "once"},
    )
    assert answer.status_code == 200
    assert (answer.json()["accepted"], answer.json()["duplicates"]) == (3, 1)
    found = read(server, "parts")["records"]
    by_id = {(record["key"]["id"], record["id"]): record for record in found}
    first, pinned = by_id["k1", None], by_id["k1", "once"]
    assert (first["value"], first["rest"]) == ({"total": 1.5}, {"note": "x"})
    assert first["headers"] == {"trace": "t1", "raw": {"base64": "/w=="}}
    assert (pinned["partition"], pinned["time_ms"]) == (2, 1_794_744_000_000)
    assert [record["value"] for record in found if record["key"]["id"] == "k2"] == [None]


def test_a_partition_is_split_and_its_halves_are_merged_again(server: Running) -> None:
    make(server, "shards", columns="id VARCHAR KEY, n BIGINT", partitions=2)
    keys = [f"k{number}" for number in range(40)]

    def reshape(**wanted: Any) -> httpx.Response:
        return server.http.post("/v1/topics/shards/partitions", json=wanted)

    def places() -> dict[str, int]:
        """Where the keys' newest records are."""
        send(server, "shards", *({"key": key, "value": {"n": 1}} for key in keys))
        return {record["key"]["id"]: record["partition"] for record in read(server, "shards")["records"]}

    before = places()
    assert reshape(split=0).json() == {"topic": "shards", "closed": [0], "opened": [2, 3]}
    after = places()
    assert {after[key] for key in keys if before[key] == 0} == {2, 3}
    assert all(after[key] == 1 for key in keys if before[key] == 1)
    assert reshape(merge=[2, 3]).json() == {"topic": "shards", "closed": [2, 3], "opened": [4]}
    assert {key: 4 if before[key] == 0 else 1 for key in keys} == places()
    for wrong in ({}, {"split": 1, "merge": [1, 4]}, {"split": 0}, {"merge": [1]}, {"merge": [4, 4]}):
        answer = reshape(**wrong)
        assert answer.status_code == 400, (wrong, answer.text)
    assert reshape(split=9).status_code == 404


def test_raw_records_are_text_bytes_or_json(server: Running) -> None:
    make(server, "bytes", kind="raw")
    assert send(server, "bytes", {"key": "k", "value": "text"}, {"value": {"base64": "AP8="}}, {"value": {"a": 1}},
                {"key": {"base64": "aw=="}}).json()["accepted"] == 4  # fmt: skip
    found = read(server, "bytes")["records"]
    values = [record["value"] and base64.b64decode(record["value"]["value"]) for record in found]
    assert values == [b"text", b"\x00\xff", b'{"a":1}', None]
    assert [record["key"]["key"] for record in found] == ["aw==", None, None, "aw=="]


def test_one_bad_record_spoils_no_other(server: Running) -> None:
    make(server, "mixed", columns="id VARCHAR KEY, total DOUBLE")
    answer = send(
        server, "mixed", {"value": 7}, {"key": "a", "value": {"total": "much"}}, {"partition": 9}, {"kee": 1},
        {"key": "b", "value": {"total": 1}},
    )  # fmt: skip
    reasons = {each["index"]: each["reason"] for each in answer.json()["rejected"]}
    assert (answer.json()["accepted"], sorted(reasons)) == (1, [0, 1, 2, 3])
    assert "neither an object nor null" in reasons[0]
    assert "`total` must be a number" in reasons[1]
    assert "asks for partition 9: the topic has 1" in reasons[2]
    assert "unknown field `kee`" in reasons[3]
    assert len(server.dead_letters("mixed")) == 4


def test_pages_forwards_and_backwards(server: Running) -> None:
    make(server, "pages", columns="n INT", partitions=2)
    for number in range(10):
        send(server, "pages", {"value": {"n": number}, "partition": number % 2})

    def numbers(page: dict[str, Any]) -> list[int]:
        return [record["value"]["n"] for record in page["records"]]

    first = read(server, "pages", limit=4)
    second = read(server, "pages", limit=4, at=first["next"])
    assert (numbers(first), numbers(second)) == ([0, 1, 2, 3], [4, 5, 6, 7])
    assert (first["cut"], first["starts"], first["ends"]) == (True, "0:0,1:0", "0:5,1:5")
    assert numbers(read(server, "pages", limit=4, before=second["from"])) == numbers(first)
    last = read(server, "pages", limit=3, before="latest")
    assert numbers(last) == [7, 8, 9]
    assert numbers(read(server, "pages", partition=1, offset=3)) == [7, 9]
    assert read(server, "pages", **{"from": "latest"})["records"] == []
    assert numbers(read(server, "pages", time="2000-01-01")) == list(range(10))


def test_lines_and_arrow_say_in_a_header_where_to_go_on(server: Running) -> None:
    make(server, "forms", columns="n INT")
    for number in range(3):
        send(server, "forms", {"value": {"n": number}})
    lines = server.http.get("/v1/topics/forms/records", params={"format": "ndjson", "limit": 2})
    assert (len(lines.text.splitlines()), lines.headers["headrace-next"]) == (2, "0:2")
    answer = server.http.get("/v1/topics/forms/records", params={"format": "arrow", "at": "0:1"})
    table = pa.ipc.open_stream(answer.content).read_all()
    assert (table.column("N").to_pylist(), table.column("$offset").to_pylist()) == ([1, 2], [1, 2])
    empty = server.http.get("/v1/topics/forms/records", params={"format": "arrow", "from": "latest"})
    assert pa.ipc.open_stream(empty.content).read_all().num_rows == 0


def test_a_long_poll_ends_with_the_first_record(server: Running) -> None:
    make(server, "awaited", columns="n INT", partitions=2)
    later = threading.Timer(0.2, send, (server, "awaited", {"value": {"n": 1}, "partition": 1}))
    later.start()
    page = read(server, "awaited", wait=60)
    later.join()
    assert [record["value"]["n"] for record in page["records"]] == [1]
    assert read(server, "awaited", partition=0, wait=0.05)["records"] == []


@pytest.mark.parametrize("path", ["records?from=earliest", "events?from=newest", "events?from=oldest"])
def test_an_answer_is_bounded_in_bytes_whatever_its_limit(server: Running, path: str) -> None:
    name = "huge" + str(abs(hash(path)) % 100_000)
    make(server, name)
    for _ in range(8):
        assert send(server, name, {"value": {"big": "x" * 900_000}}).status_code == 200
    answer = server.http.get(f"/v1/topics/{name}/{path}&limit=1000")
    assert len(answer.content) < 5 * 1024 * 1024
    assert answer.json()["cut"] is True


def test_what_is_sent_gives_its_room_back(server: Running) -> None:
    before = server.services.answers.left
    assert server.http.get("/v1/topics/pageviews/records").status_code == 200
    assert server.services.answers.left == before


def test_a_topic_is_configured_and_altered(server: Running) -> None:
    make(server, "shaped", columns="id VARCHAR KEY, n INT", compacted=True, tombstone_ms=1000, retention_ms=60_000)
    made = server.http.get("/v1/topics/shaped").json()
    assert (made["config"]["compacted"], made["config"]["tombstone_ms"], made["retention_ms"]) == (True, 1000, 60_000)
    altered = server.http.patch("/v1/topics/shaped", json={"add_columns": "note VARCHAR", "compression": "zstd"}).json()
    assert [column["name"] for column in altered["columns"]] == ["id", "n", "note"]
    assert (altered["config"]["compression"], altered["config"]["tombstone_ms"]) == ("zstd", 1000)
    assert altered["schema_versions"] == 2


def test_records_are_deleted_before_an_offset(server: Running) -> None:
    make(server, "cut", columns="n INT")
    for number in range(5):
        send(server, "cut", {"value": {"n": number}})
    answer = server.http.delete("/v1/topics/cut/records?before=3")
    assert answer.json()["partitions"] == [{"partition": 0, "start": 3, "end": 5}]
    gone = server.http.get("/v1/topics/cut/records?offset=0&partition=0")
    assert (gone.status_code, gone.json()["error"]["start"]) == (416, 3)
    assert server.http.delete("/v1/topics/cut/records").json()["partitions"][0]["start"] == 5


def test_clients_that_take_nothing_are_dropped_and_give_their_room_back(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.server.answers.SEND_S", 0.3)
    make(server, "slow")
    for _ in range(6):
        send(server, "slow", {"value": {"big": "x" * 900_000}})
    budget = server.services.answers
    before, held, give_back = budget.left, list[int](), budget.give_back

    def give_back_seen(count: int) -> None:
        give_back(count)
        held.append(count)

    monkeypatch.setattr(budget, "give_back", give_back_seen)
    request = b"GET /v1/topics/slow/records?max_bytes=16000000 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    sockets = []
    for _ in range(3):
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", server.port))
        connection.sendall(request)
        sockets.append(connection)
    wait_for(lambda: len([count for count in held if count > 4_000_000]) == 3, 20, "the answers and their end")
    assert budget.left == before
    for connection in sockets:
        connection.close()
    assert server.http.get("/v1/topics/slow/records?limit=1").status_code == 200


def test_too_many_large_answers_are_refused(server: Running) -> None:
    budget = server.services.answers
    taken = budget.left
    budget.take(taken)
    try:
        refused = server.http.get("/v1/topics/pageviews/records")
    finally:
        budget.give_back(taken)
    assert (refused.status_code, "retry-after" in refused.headers) == (429, True)


def test_a_page_ends_before_damage_and_names_it(server: Running) -> None:
    """And so does `/readyz`, until it is set aside."""
    make(server, "harmed", columns="id VARCHAR KEY, n BIGINT", partitions=2)
    for number in range(3):
        send(server, "harmed", {"key": "k", "value": {"n": number}, "partition": 0})
    send(server, "harmed", {"key": "k", "value": {"n": 9}, "partition": 1})
    folder = server.services.project.log_folder / "topics" / "harmed" / "0"
    [segment] = folder.glob("*.seg")
    frames = [position for position, _ in MappedSegment(folder, 0).frames(0, 3)]
    with segment.open("r+b") as file:
        file.seek(frames[2] + 200)
        [byte] = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 4]))
    page = read(server, "harmed")
    assert [record["value"]["n"] for record in page["records"]] == [0, 1, 9]
    assert (page["next"], page["damage"]["code"]) == ("0:2,1:1", "corrupt_frame")
    assert page["damage"]["message"] == "damaged bytes in topic `harmed`, partition 0, offsets 2 to 2"
    lines = server.http.get("/v1/topics/harmed/records", params={"format": "ndjson"})
    assert (len(lines.text.splitlines()), lines.headers["headrace-damage"]) == (3, f'"{page["damage"]["message"]}"')
    assert [record["value"]["n"] for record in read(server, "harmed", before="latest")["records"]] == [9]
    refused = server.http.get("/v1/topics/harmed/records", params={"at": page["next"]})
    assert (refused.status_code, refused.json()["error"]["code"]) == (500, "corrupt_frame")
    assert [one for one in server.http.get("/readyz").json()["problems"] if page["damage"]["message"] in one]
    server.services.log.quarantine("harmed", 0, 2)
    assert not [one for one in server.http.get("/readyz").json()["problems"] if "harmed" in one]
    assert "damage" not in read(server, "harmed")

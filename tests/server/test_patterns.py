"""The ways to talk to the server: with a ticket, with a question."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.server.running import Running, running_server


def test_a_ticket_and_its_result(server: Running) -> None:
    given = server.send("pageviews", [{"userid": "t", "pageid": "p"}, {"pageid": 7}], params={"wait": "ticket"})
    assert given.status_code == 202, given.text
    assert given.headers["location"] == given.json()["result"]
    found = server.http.get(given.json()["result"], params={"wait": 30}).json()
    assert (found["state"], found["result"]["accepted"], found["result"]["rejections"]) == ("done", 1, 1)
    assert found["result"]["positions"]
    assert found["error"] is None


def test_a_ticket_as_a_stream(server: Running) -> None:
    given = server.send("pageviews", {"userid": "s"}, headers={"Prefer": "respond-async"})
    assert given.headers["preference-applied"] == "respond-async"
    with server.http.stream("GET", given.json()["result"], headers={"Accept": "text/event-stream"}) as answer:
        lines = [line for line in answer.iter_lines() if line.startswith(("event:", "data:"))]
    assert lines[-2] == "event: done"
    assert json.loads(lines[-1].removeprefix("data: "))["result"]["accepted"] == 1


def test_what_fails_later_says_so(server: Running) -> None:
    given = server.send(
        "pageviews", b"\x1f\x8bnot gzip", params={"wait": "ticket"}, headers={"Content-Encoding": "gzip"}
    )
    found = server.http.get(given.json()["result"], params={"wait": 30}).json()
    assert (found["state"], found["result"]) == ("failed", None)
    assert "gzip" in found["error"]["message"]


@pytest.mark.parametrize(
    ("params", "status"),
    [
        ({"wait": "ticket", "acks": "0"}, 400),
        ({"wait": "sometimes"}, 400),
        ({"callback": "http://127.0.0.1/"}, 403),
        ({"wait": "ticket", "view": "users", "key": "1"}, 400),
        ({"view": "users"}, 400),
        ({"view": "nobody", "key": "1"}, 404),
        ({"view": "users", "key": "1", "acks": "1"}, 400),
        ({"view": "users", "key": "1", "timeout": "nan"}, 400),
        ({"view": "users", "key.nothing": "1"}, 404),
    ],
)
def test_what_makes_no_sense_is_refused(server: Running, params: dict[str, str], status: int) -> None:
    before = server.http.get("/v1/topics/users").json()["records"]
    answer = server.send("users", {"id": "1", "name": "n"}, params=params)
    assert answer.status_code == status, answer.text
    assert server.http.get("/v1/topics/users").json()["records"] == before


def test_there_is_no_such_ticket(server: Running) -> None:
    assert server.http.get("/v1/tickets/none").status_code == 404


def test_events_sent_with_a_question_are_answered_with_the_row(server: Running) -> None:
    user = uuid.uuid4().hex
    for age in range(5):
        answer = server.send("users", {"id": user, "name": "Ada", "age": age}, params={"view": "users", "key": user})
        assert answer.status_code == 200, answer.text
        assert view_of(answer) == [[user, "Ada", age]]
        assert answer.json()["accepted"] == 1


def view_of(answer: httpx.Response) -> Any:
    assert answer.json()["view"]["included"]
    found = answer.json()["view"]["rows"]
    names = [column["name"].lower() for column in found["columns"]]
    return [[row[names.index(name)] for name in ("id", "name", "age")] for row in found["rows"]]


def test_a_view_that_never_gets_the_events_is_refused_before_they_are_taken(server: Running) -> None:
    answer = server.send("pageviews", {"userid": "q"}, params={"view": "users", "key": "q"})
    assert answer.status_code == 409
    assert "no event of topic `pageviews`" in answer.json()["error"]["message"]


def test_what_is_private_gets_no_ticket(tmp_path: Path) -> None:
    """A ticket keeps the body as it came. Asked for, it is refused; only preferred, the answer is synchronous."""
    (tmp_path / "collectors").mkdir()
    (tmp_path / "collectors" / "web.toml").write_text(
        'type = "http"\ntopic = "pageviews"\n[privacy]\ndrop = ["userid"]\n'
    )
    with running_server(tmp_path) as server:
        refused = server.send("pageviews", {"userid": "u"}, params={"wait": "ticket"})
        assert (refused.status_code, "hides fields" in refused.json()["error"]["message"]) == (403, True)
        assert server.send("pageviews", {"userid": "u"}, headers={"Prefer": "respond-async"}).status_code == 200


def test_a_ticket_tells_no_more_of_an_address_than_the_collector_does(tmp_path: Path) -> None:
    (tmp_path / "collectors").mkdir()
    (tmp_path / "collectors" / "web.toml").write_text(
        'type = "http"\ntopic = "pageviews"\n[enrich]\naddress = "pageid"\naddress_as = "hash"\n'
        'proxies = ["127.0.0.1/32"]\n'
    )
    key = "a-key-0123456789"
    with running_server(tmp_path, f'[[auth.keys]]\nkey = "{key}"\nrole = "admin"\n', key=key) as server:
        headers = {"X-Forwarded-For": "198.51.100.77"}
        server.send("pageviews", {"userid": "now"}, headers=headers)
        given = server.send("pageviews", {"userid": "later"}, params={"wait": "ticket"}, headers=headers).json()
        assert server.http.get(given["result"], params={"wait": 30}).json()["state"] == "done"
        hashes = {event["value"]["pageid"] for event in server.events("pageviews")}
        assert len(hashes) == 1, "hashed once, sooner or later"
        kept = [
            file.read_bytes()
            for file in (tmp_path / ".headrace").rglob("*")
            if "_tickets" in str(file) and file.is_file()
        ]
        assert any(b"pageviews" in content for content in kept)
        assert not any(b"198.51.100.77" in content or b"127.0.0.1" in content for content in kept)

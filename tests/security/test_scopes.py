"""Keys that are limited to some topics and views: every route of the server's description, then each way by hand."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import boto3
import httpx
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from headrace.access.keys import make_key
from headrace.access.owner import own_key
from headrace.access.rights import Identity, Resource, Scope
from headrace.config import load_project
from headrace.errors import ConfigError
from tests.security.conftest import KEYS, LIMITED
from tests.security.test_matrix import bearer, needed_role
from tests.server.running import Running
from tests.support import wait_for

SECRET = "hidden_word"
OTHERS = "0123456789abcdef"
"""The id of a consumer of `hits`."""
NAMES = {"topic": "hits", "view": "VAULT", "queue": "hitting", "group": "hitters", "consumer": OTHERS, "offset": "0"}
SQL = "SELECT * FROM vault;"
BODIES: dict[str, Any] = {
    "/v1/query": {"sql": SQL},
    "/v1/statements": {"sql": "INSERT INTO vault (id, hidden_word) VALUES ('a', 'b');"},
    "/ksql": {"ksql": "INSERT INTO vault (id, hidden_word) VALUES ('a', 'b');"},
    "/query": {"ksql": SQL},
    "/query-stream": {"sql": SQL},
    "/inserts-stream": {"target": "VAULT"},
    "/v1/groups/{group}/consumers": {"topics": ["hits"]},
    "/v1/validate": {"sql": SQL},
    "/v1/topics/{topic}/events": {"id": "x"},
    "/v1/topics/{topic}/records": {"records": [{"value": {"id": "x"}}]},
}
FILTERED = {("GET", "/v1/topics"), ("GET", "/v1/views"), ("GET", "/v1/queues")}


class Caller:
    def __init__(self, server: Running, key: str) -> None:
        self.http, self.port = server.http, server.port
        self.headers = bearer(key)

    def ask(self, method: str, path: str, **options: Any) -> httpx.Response:
        return self.http.request(method, path, headers=self.headers, **options)

    def status(self, method: str, path: str, **options: Any) -> int:
        """The status alone: some answers never end."""
        with self.http.stream(method, path, headers=self.headers, **options) as answer:
            return answer.status_code

    def refusal(self, method: str, path: str, **options: Any) -> str:
        answer = self.ask(method, path, **options)
        assert answer.status_code == 403, answer.text
        body = answer.json()
        return str(body.get("error", body)["message"])


@pytest.fixture(scope="module")
def server(keyed: Running) -> Running:
    """With something to find: rows, records, a dead letter, a queue and a consumer of what is hidden."""
    admin = Caller(keyed, KEYS["admin"])
    for topic, event in (
        ("vault", {"id": "a", "hidden_word": "x"}),
        ("hits", {"id": "h"}),
        ("users", {"id": "u", "name": "Ada", "age": 36}),
        ("pageviews", {"userid": "u", "pageid": "p", "viewtime": 1}),
    ):
        assert admin.ask("POST", f"/v1/topics/{topic}/events", json=event).status_code == 200
    assert admin.ask("POST", "/v1/topics/hits/events", json=[7]).status_code == 422
    assert admin.ask("POST", "/v1/topics/pageviews/events", json=[7]).status_code == 422
    for name, topic in (("hitting", "hits"), ("paging", "pageviews")):
        assert admin.ask("POST", "/v1/queues", json={"name": name, "topic": topic}).status_code == 201
    joined = admin.ask("POST", "/v1/groups/hitters/consumers", json={"topics": ["hits"], "id": OTHERS})
    assert joined.status_code == 201, joined.text
    wait_for(lambda: bool(admin.ask("GET", "/v1/views/users/rows").json()["rows"]), 60, "the row of the view")
    return keyed


@pytest.fixture(params=["read", "write"])
def caller(server: Running, request: pytest.FixtureRequest) -> Caller:
    return Caller(server, LIMITED[request.param])


@pytest.fixture
def writer(server: Running) -> Caller:
    return Caller(server, LIMITED["write"])


def routes(server: Running) -> Iterator[tuple[str, str, str | None]]:
    found = server.http.get("/openapi.json", headers=bearer(KEYS["admin"])).json()["paths"]
    for path, methods in found.items():
        for method, operation in methods.items():
            if not {"signature", "collector"} & {name for one in operation["security"] for name in one}:
                yield method.upper(), path, needed_role(operation)


def test_no_route_shows_or_takes_what_is_not_in_the_scope(server: Running, caller: Caller) -> None:
    """A new route is refused as long as it does not say what it touches."""
    wrong, asked = [], 0
    for method, path, role in routes(server):
        if role is None:
            continue
        filled = re.sub(r"\{(\w+)\}", lambda found: NAMES.get(found[1], "no-such"), path)
        body = {"json": BODIES.get(path, {})} if method in ("POST", "PUT", "PATCH") else {}
        asked += 1
        with server.http.stream(method, filled, headers=caller.headers, **body) as answer:
            if answer.status_code == 403:
                text = answer.read().decode()
            elif (method, path) in FILTERED:
                text = answer.read().decode()
                if re.search("hits|hitting|vault", text, re.IGNORECASE):
                    wrong.append(f"{method} {path} lists what is hidden")
            else:
                text = ""
                # A WebSocket without an upgrade is nothing but an error.
                if path not in ("/v1/socket", "/ws/query"):
                    wrong.append(f"{method} {path} answered {answer.status_code}")
            if SECRET in text.lower():
                wrong.append(f"{method} {path} tells: {text}")
    assert wrong == []
    assert asked > 100


def test_keys_without_scopes_may_what_they_could(server: Running) -> None:
    reader = Caller(server, KEYS["read"])
    assert reader.status("GET", "/v1/topics/_dead_letters/records") == 200
    assert reader.ask("POST", "/v1/query", json={"sql": SQL}).json()["rows"]


def test_what_is_in_the_scope_works(caller: Caller) -> None:
    for path in (
        "/v1/topics/pageviews",
        "/v1/topics/pageviews/events",
        "/v1/topics/pageviews/records?from=earliest",
        "/v1/topics/pageviews/tail",
        "/v1/topics/pageviews/dead-letters",
        "/v1/dead-letters/1",
        "/v1/views/users",
        "/v1/views/USERS/rows",
        "/v1/views/users/feed",
        "/v1/queues/paging",
    ):
        assert caller.status("GET", path) == 200, path
    assert [one["name"] for one in caller.ask("GET", "/v1/topics?internal=true").json()["topics"]] == ["pageviews"]
    assert [one["name"].lower() for one in caller.ask("GET", "/v1/views").json()["views"]] == ["users"]
    assert [one["name"] for one in caller.ask("GET", "/v1/queues").json()["queues"]] == ["paging"]
    for path, name in (("/v1/query", "sql"), ("/query", "ksql"), ("/query-stream", "sql")):
        for sql in ("SELECT * FROM users;", "SELECT pageid FROM pageviews;", "SELECT * FROM pageviews EMIT CHANGES;"):
            assert caller.status("POST", path, json={name: sql}) == 200, (path, sql)


def test_a_writer_sends_to_its_topics_only(writer: Caller) -> None:
    event = {"userid": "w", "pageid": "q", "viewtime": 2}
    assert writer.status("POST", "/v1/topics/pageviews/events", json=event) == 200
    insert = "INSERT INTO pageviews (userid, pageid, viewtime) VALUES ('i', 'p', '2026-01-01T00:00:00');"
    assert writer.ask("POST", "/v1/statements", json={"sql": insert}).status_code == 200
    assert writer.ask("POST", "/ksql", json={"ksql": insert}).status_code == 200
    lines = '{"target": "PAGEVIEWS"}\n{"userid": "s", "pageid": "p"}\n'
    assert '"ok"' in writer.ask("POST", "/inserts-stream", content=lines).text
    assert writer.ask("POST", "/v1/queues/paging/receive").json()["messages"]

    refused = "the key `limited-write` may not write the topic"
    assert writer.refusal("POST", "/v1/topics/hits/events", json={"id": "x"}) == f"{refused} `hits`"
    both = insert + " INSERT INTO hits (id) VALUES ('x');"
    assert writer.refusal("POST", "/v1/statements", json={"sql": both}) == f"{refused} `hits`"
    assert "needs more" in writer.refusal("POST", "/v1/statements", json={"sql": insert + " SHOW TABLES;"})
    assert "needs more" in writer.refusal("POST", "/v1/statements", json={"sql": "DESCRIBE vault;"})
    # The view alone is in the scope, not the topic behind it.
    assert writer.refusal("POST", "/v1/topics/users/events", json={"id": "x"}) == f"{refused} `users`"
    assert writer.refusal("POST", "/v1/topics/pageviews/events?view=vault&key=a", json=event).endswith("view `VAULT`")
    named = writer.refusal("POST", "/v1/requests/pageviews", json={"value": event, "reply_topic": "hits"})
    assert named == "the key `limited-write` may not read the topic `hits`"


@pytest.mark.parametrize(
    "sql",
    [
        SQL,
        "SELECT no_such_column FROM vault;",
        "SELECT * FROM users WHERE id IN (SELECT id FROM vault);",
        "SELECT u.id FROM users u JOIN vault v ON u.id = v.id;",
        "SELECT * FROM vault EMIT CHANGES;",
        "SELECT * FROM hits;",
        "SELECT * FROM hits EMIT CHANGES;",
        "SELECT * FROM pageviews p JOIN vault v ON p.userid = v.id EMIT CHANGES;",
        "SELECT * FROM dead_letters;",
    ],
)
def test_sql_is_checked_by_what_it_reads(caller: Caller, sql: str) -> None:
    for path, name in (("/v1/query", "sql"), ("/query", "ksql"), ("/query-stream", "sql")):
        said = caller.refusal("POST", path, json={name: sql})
        assert "may not read the" in said
        assert SECRET not in said.lower()


def test_an_error_does_not_name_what_else_there_is(caller: Caller) -> None:
    for path in ("/v1/topics/page/records", "/v1/views/usars/rows"):
        answer = caller.ask("GET", path)
        assert answer.status_code == 404
        assert set(answer.json()["error"]) == {"code", "message"} | ({"topic"} if "topics" in path else set())
    for sql in ("SELECT * FROM vaul;", "PRINT page;"):
        text = caller.ask("POST", "/query", json={"ksql": sql}).text
        assert not re.search("vault|pageviews", text, re.IGNORECASE), text
    after = caller.refusal("GET", "/v1/views/users/rows?after=hits@0:0&wait=1")
    assert after.endswith("may not read the topic `hits`")


def test_a_star_is_not_for_headraces_own_topics(server: Running) -> None:
    caller = Caller(server, LIMITED["all"])
    for topic in server.services.log.topics():
        status = caller.status("GET", f"/v1/topics/{topic.name}/records")
        assert status == (403 if topic.internal else 200), topic.name
    assert caller.refusal("POST", "/v1/query", json={"sql": "SELECT * FROM dead_letters;"})
    assert caller.ask("POST", "/v1/query", json={"sql": SQL}).json()["rows"]
    insert = "INSERT INTO hits (id) VALUES ('y');"
    assert caller.ask("POST", "/v1/statements", json={"sql": insert}).status_code == 200
    # What is not one topic or view stays refused.
    assert [caller.status("GET", path) for path in ("/v1/queries", "/metrics", "/v1/overview")] == [403] * 3


def test_an_explanation_needs_the_topics_it_shows(server: Running, caller: Caller) -> None:
    assert Caller(server, LIMITED["all"]).ask("GET", "/v1/views/users/why?id=u").json()["page"]
    assert caller.refusal("GET", "/v1/views/users/why?id=u").endswith("may not read the topic `users`")


def test_print_is_checked_by_its_topic(caller: Caller) -> None:
    for topic, status in (("pageviews", 200), ("hits", 403), ("_audit", 403)):
        sql = f"PRINT '{topic}' FROM BEGINNING LIMIT 1;"
        assert caller.status("POST", "/query", json={"ksql": sql}) == status, topic


def test_groups_are_joined_for_topics_of_the_scope(writer: Caller) -> None:
    path = "/v1/groups/pagers/consumers"
    for topics in ("*", "page*", "/page.*/", ["pageviews", "hits"], "_audit"):
        assert writer.status("POST", path, json={"topics": topics}) == 403, topics
    assert writer.status("POST", "/v1/groups/hitters/consumers", json={"topics": "pageviews", "id": OTHERS}) == 403
    joined = writer.ask("POST", path, json={"topics": "pageviews"})
    assert joined.status_code == 201, joined.text
    own = f"{path}/{joined.json()['id']}"
    got = writer.ask("GET", f"{own}/records?wait=30").json()["records"]
    assert {one["topic"] for one in got} == {"pageviews"}
    foreign = {"offsets": [{"topic": "hits", "partition": 0, "offset": 1}]}
    assert [writer.status("POST", f"{own}/{act}", json=foreign) for act in ("offsets", "seek")] == [403, 403]
    assert writer.status("POST", f"{own}/offsets", json={}) == 204
    assert writer.status("DELETE", own) == 204


def test_a_socket_follows_and_takes_topics_of_the_scope(server: Running, writer: Caller) -> None:
    url = f"ws://127.0.0.1:{server.port}"
    with connect(f"{url}/v1/socket", additional_headers=writer.headers, proxy=None) as socket:

        def say(**message: Any) -> dict[str, Any]:
            socket.send(json.dumps(message))
            answer: dict[str, Any] = json.loads(socket.recv(60))
            return answer

        assert list(say(subscribe="all", topics=["*"])["at"]) == ["pageviews"]
        for topic in ("hits", "_audit"):
            said = say(subscribe="one", topics=[topic])["error"]["message"]
            assert said == f"the key `limited-write` may not read the topic `{topic}`"
        assert "may not read" in say(subscribe="one", topics=["page*"], after={"hits": "0:0"})["error"]["message"]
        assert "may not write" in say(publish="p", topic="hits", event={"id": "x"})["error"]["message"]
    for path in ("/v1/views/vault/feed", "/v1/views/vault/feed?from=beginning"):
        with pytest.raises(InvalidStatus, match="403"):
            connect(url + path, additional_headers=writer.headers, proxy=None)
    with connect(f"{url}/v1/views/users/feed?snapshot=true", additional_headers=writer.headers, proxy=None) as feed:
        assert "Ada" in str(feed.recv(60))
    asked = json.dumps({"ksql": "SELECT * FROM vault EMIT CHANGES;"})
    with connect(f"{url}/ws/query?request={quote(asked)}", additional_headers=writer.headers, proxy=None) as query:
        assert "may not read the view `VAULT`" in str(query.recv(60))


def test_kinesis_is_for_keys_without_scopes(server: Running) -> None:
    client = boto3.client(
        "kinesis",
        endpoint_url=f"http://127.0.0.1:{server.port}",
        region_name="eu-west-1",
        aws_access_key_id="limited-write",
        aws_secret_access_key=LIMITED["write"],
        config=Config(retries={"max_attempts": 0}),
    )
    with pytest.raises(ClientError, match="limited to some topics and views"):
        client.put_record(StreamName="pageviews", Data=b"{}", PartitionKey="p")


def test_refusals_are_in_the_audit(server: Running, caller: Caller) -> None:
    # From an address of its own: the refusals of one address that are written down are bounded.
    with httpx.Client(transport=httpx.HTTPTransport(local_address="127.0.0.2"), trust_env=False, timeout=60) as http:
        url = f"http://127.0.0.1:{server.port}/v1/topics/hits/records"
        assert http.get(url, headers=caller.headers).status_code == 403
    admin = Caller(server, KEYS["admin"])
    name = next(f"limited-{name}" for name, key in LIMITED.items() if bearer(key) == caller.headers)

    def noted() -> bool:
        found = admin.ask("GET", "/v1/topics/_audit/events", params={"from": "newest", "limit": 1000})
        lines = [one["value"] for one in found.json().get("events", ())]
        refused = {"who": name, "address": "127.0.0.2", "outcome": "refused", "action": "GET /v1/topics/hits/records"}
        return any(refused.items() <= one.items() for one in lines)

    wait_for(noted, 60, "the audit")


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ('role = "admin"\ntopics = ["a"]', "role admin cannot be limited"),
        ('role = "admin"\nviews = []', "role admin cannot be limited"),
        ('topics = ["a", ""]', "a name cannot be empty"),
        ('topics = ["_audit"]', "`_audit` is Headrace's own"),
        ('topics = "a"', "topics"),
    ],
)
def test_scopes_that_cannot_be_are_refused(tmp_path: Path, lines: str, message: str) -> None:
    (tmp_path / "headrace.toml").write_text(f'[[auth.keys]]\nkey = "{make_key()}"\n{lines}\n')
    with pytest.raises(ConfigError, match=message):
        load_project(tmp_path)


def test_an_empty_scope_is_nothing_and_one_kind_does_not_give_the_other() -> None:
    topic, view = Resource("topic", "a"), Resource("view", "a")
    nothing, topics, views = (Identity("write", scope=one) for one in (Scope(), Scope(("*",)), Scope(views=("*",))))
    assert [nothing.may("read", one) for one in (topic, view, None)] == [False, False, False]
    assert [topics.may("write", one) for one in (topic, view, None)] == [True, False, False]
    assert [views.may("read", one) for one in (topic, view, None)] == [False, True, False]
    assert not topics.may("admin", topic)
    assert not topics.may("read", Resource("topic", "_catalog"))
    assert not Identity("read", scope=Scope(("a.b",))).may("read", Resource("topic", "axb"))


def test_the_commands_take_a_key_without_scopes(tmp_path: Path) -> None:
    limited, reader = make_key(), make_key()
    (tmp_path / "headrace.toml").write_text(
        f'[[auth.keys]]\nkey = "{limited}"\nrole = "write"\ntopics = ["a"]\n[[auth.keys]]\nkey = "{reader}"\n'
    )
    assert own_key(load_project(tmp_path)) == reader

"""Keys and roles; and without keys, whom the server trusts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import websockets.sync.client
from websockets.exceptions import InvalidStatus

from headrace.config import AuthSettings, Key, Project, ProjectSettings, ServerSettings
from headrace.coordinate.supervisor import check_binding
from headrace.errors import ConfigError, Refused
from headrace.server.auth import Auth
from tests.server.running import Running, running_server

READS, WRITES, ADMIN = "r-key-0123456789", "w-key-0123456789", "a-key-0123456789"
TOML = """
[[auth.keys]]
key = "r-key-0123456789"
[[auth.keys]]
key = "w-key-0123456789"
role = "write"
[[auth.keys]]
key = "a-key-0123456789"
role = "admin"
"""


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running_server(tmp_path_factory.mktemp("locked"), TOML) as running:
        yield running


def ask(server: Running, method: str, path: str, key: str | None, **options: object) -> httpx.Response:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    return server.http.request(method, path, headers=headers, **options)  # type: ignore[arg-type]


READ = [
    ("GET", "/v1/topics"),
    ("GET", "/readyz"),
    ("GET", "/metrics"),
    ("GET", "/openapi.json"),
    ("GET", "/v1/overview"),
]


@pytest.mark.parametrize(("method", "path"), READ)
def test_reading_needs_a_key(locked: Running, method: str, path: str) -> None:
    answer = ask(locked, method, path, None)
    assert (answer.status_code, answer.json()["error"]["code"]) == (401, "unauthenticated")
    assert answer.headers["WWW-Authenticate"] == "Bearer"
    assert ask(locked, method, path, "wrong").status_code == 401
    assert ask(locked, method, path, READS).status_code in (200, 503)


def test_what_is_written_down_is_who_the_key_belongs_to(tmp_path: Path) -> None:
    named = (
        '[[auth.keys]]\nkey = "a-key-0123456789"\nrole = "admin"\nname = "release bot"\n'
        '[[auth.keys]]\nkey = "b-key-0123456789"\nrole = "admin"\n'
    )
    sql = "CREATE STREAM clicks (userid VARCHAR KEY) WITH (KAFKA_TOPIC='clicks', PARTITIONS=1);"
    more = sql.replace("KEY)", "KEY, page VARCHAR)")
    with running_server(tmp_path, named, sql) as server:
        who = []
        for key, text in (
            (ADMIN, more),
            ("b-key-0123456789", more.replace("page VARCHAR", "page VARCHAR, ms INT")),
        ):
            body = {"files": {"all.sql": text}, "who": "the queen"}
            who.append(ask(server, "POST", "/v1/deployments", key, json=body).json()["deployment"]["who"])
    assert who == ["release bot", "somebody with the role admin"]


def test_health_and_the_console_are_open(locked: Running) -> None:
    assert ask(locked, "GET", "/healthz", None).status_code == 200
    assert ask(locked, "GET", "/", None).status_code == 200


@pytest.mark.parametrize(
    ("key", "query", "send", "change"),
    [
        (None, 401, 401, 401),
        (READS, 200, 403, 403),
        (WRITES, 200, 200, 403),
        (ADMIN, 200, 200, 200),
    ],
)
def test_roles(locked: Running, key: str | None, query: int, send: int, change: int) -> None:
    select = {"sql": "SELECT * FROM users;"}
    assert ask(locked, "POST", "/v1/query", key, json=select).status_code == query
    assert ask(locked, "POST", "/v1/topics/users/events", key, json={"id": "a"}).status_code == send
    change_it = "CREATE STREAM IF NOT EXISTS changed (a INT) WITH (KAFKA_TOPIC='changed', VALUE_FORMAT='JSON');"
    for sql, status in [
        ("SHOW TABLES; DESCRIBE users; EXPLAIN SELECT * FROM users;", query),
        ("INSERT INTO users (id, name) VALUES ('a', 'Ann');", send),
        (change_it, change),
        (f"SHOW TABLES; {change_it}", change),
    ]:
        assert ask(locked, "POST", "/v1/statements", key, json={"sql": sql}).status_code == status, sql


def test_a_variable_smuggles_no_statement_past_the_roles(locked: Running) -> None:
    body = {"sql": "SHOW TABLES; ${more}", "variables": {"more": "DROP TABLE users;"}}
    assert ask(locked, "POST", "/v1/statements", WRITES, json=body).status_code == 403


def test_a_key_in_the_address_is_for_reading_only(locked: Running) -> None:
    assert locked.http.get("/v1/topics?key=r-key-0123456789").status_code == 200
    assert locked.http.get("/v1/views/users/rows?key=r-key-0123456789").status_code == 200
    assert locked.http.post("/v1/topics/users/events?key=a-key-0123456789", json={"id": "a"}).status_code == 401
    # Polling as a member of a group is a GET, and yet it changes something.
    assert locked.http.get("/v1/groups/g/consumers/c/records?key=a-key-0123456789").status_code == 401


def test_a_websocket_needs_a_key(locked: Running) -> None:
    url = f"ws://127.0.0.1:{locked.port}/v1/views/users/feed"
    with pytest.raises(InvalidStatus) as refused:
        websockets.sync.client.connect(url, proxy=None)
    assert refused.value.response.status_code == 401
    with websockets.sync.client.connect(f"{url}?key=r-key-0123456789", proxy=None):
        pass


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Host": "localhost"}, 200),
        ({"Host": "[::1]:8080"}, 200),
        ({"Host": "evil.example"}, 403),
        ({"Origin": "http://localhost:5173"}, 403),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
    ],
)
def test_without_keys_only_this_machine_is_trusted(server: Running, headers: dict[str, str], status: int) -> None:
    """A web page from elsewhere must not run SQL here, just because its visitor's browser can reach us."""
    answer = server.http.post("/v1/statements", json={"sql": "SHOW TABLES;"}, headers=headers)
    assert answer.status_code == status


def test_with_keys_other_names_and_sites_are_fine(locked: Running) -> None:
    headers = {"Host": "shop.example", "Origin": "https://shop.example", "Authorization": "Bearer r-key-0123456789"}
    assert locked.http.get("/v1/topics", headers=headers).status_code == 200


def project(host: str, keys: list[Key]) -> Project:
    settings = ProjectSettings(server=ServerSettings(host=host), auth=AuthSettings(keys))
    return Project(Path("/nowhere"), settings)


def test_listening_beyond_this_machine_needs_keys() -> None:
    for host in ("127.0.0.1", "::1", "localhost"):
        check_binding(project(host, []))
    check_binding(project("0.0.0.0", [Key("k", "admin")]))
    with pytest.raises(Refused, match="without keys") as refused:
        check_binding(project("0.0.0.0", []))
    assert "auth.keys" in (refused.value.hint or "")


@pytest.mark.parametrize(
    ("key", "message"),
    [
        (Key("k-key-0123456789", "boss"), "`boss` is not a role"),
        (Key("", "read"), "key 1 of [auth] keys has 0 characters; 16 is the least"),
        (Key("x", "read", "shop"), "key 1 of [auth] keys (`shop`) has 1 characters; 16 is the least"),
        (Key("sha256:abc"), "key 1 of [auth] keys is no hash: `sha256:` and 64 hexadecimal digits"),
        (Key("env:HEADRACE_NO_SUCH_KEY"), "the environment has no `HEADRACE_NO_SUCH_KEY`"),
    ],
)
def test_keys_that_cannot_be(key: Key, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Auth(project("127.0.0.1", [key]))
    assert refused.value.message == message

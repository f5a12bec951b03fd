"""What requests of other sites, other users and proxies get, beyond the table of routes."""

from __future__ import annotations

import os
import socket
import stat
from typing import Any

import httpx
import pytest

from headrace.access.owner import find_owner_key
from headrace.errors import CorruptFrame
from tests.security.conftest import KEYS
from tests.security.users import NOBODY, acting_as, as_root
from tests.server.running import Running

PIXEL = "/i?e=pv&p=web&url=https%3A%2F%2Fshop.example%2F"
STRANGE = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"}
CREATE = {"sql": "CREATE STREAM smuggled (a INT) WITH (KAFKA_TOPIC='smuggled', VALUE_FORMAT='JSON', PARTITIONS=1);"}


def test_the_owners_key_opens_everything_to_whoever_has_it(keyless: Running) -> None:
    key = find_owner_key(keyless.services.project)
    headers = {"Authorization": f"Bearer {key}", "X-Forwarded-For": "203.0.113.9", "Host": "shop.example"}
    assert keyless.http.get("/v1/topics", headers=headers).status_code == 200
    file = keyless.services.project.data / "secrets" / "owner"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(keyless.services.project.data.stat().st_mode) == 0o700


def test_the_owners_key_is_good_beside_others(keyed: Running) -> None:
    key = find_owner_key(keyed.services.project)
    assert keyed.http.get("/v1/topics", headers={"Authorization": f"Bearer {key}"}).status_code == 200


@as_root
def test_another_user_is_told_what_to_do(keyless: Running) -> None:
    with acting_as(NOBODY), httpx.Client(trust_env=False, timeout=60) as http:
        refused = http.post(f"http://127.0.0.1:{keyless.port}/v1/statements", json=CREATE)
    assert refused.status_code == 401
    assert refused.json()["error"]["message"] == "another user of this machine needs a key"
    assert "headrace key owner" in refused.json()["error"]["hint"]


def test_http_1_0_without_a_host_needs_a_key(keyless: Running) -> None:
    with socket.create_connection(("127.0.0.1", keyless.port), 60) as connection:
        connection.sendall(b"GET /v1/topics HTTP/1.0\r\n\r\n")
        assert connection.recv(4096).split(b"\r\n")[0].split()[1] == b"401"


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", None])
@pytest.mark.parametrize("path", ["/v1/statements", "/v1/plan", "/v1/deployments", "/v1/topics", "/ksql"])
def test_what_changes_definitions_takes_json_only(keyless: Running, path: str, kind: str | None) -> None:
    headers = {} if kind is None else {"Content-Type": kind}
    refused = keyless.http.post(path, content=b'{"sql": "SHOW TABLES;", "ksql": "SHOW TABLES;"}', headers=headers)
    assert refused.status_code == (400 if path == "/ksql" else 415), "ksqlDB's errors of requests are 400"
    assert "application/json" in refused.text


@pytest.mark.parametrize("kind", ["application/json; charset=utf-8", "application/vnd.ksql.v1+json"])
def test_json_under_its_other_names_is_taken(keyless: Running, kind: str) -> None:
    answer = keyless.http.post("/ksql", content=b'{"ksql": "SHOW TABLES;"}', headers={"Content-Type": kind})
    assert answer.status_code == 200


def test_events_may_come_as_curl_sends_them(keyless: Running) -> None:
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    sent = keyless.http.post("/v1/topics/users/events", content=b'{"id": "ann"}', headers=form)
    assert (sent.status_code, sent.json()["accepted"]) == (200, 1)


def hits(server: Running) -> int:
    return len(server.events("hits"))


def test_an_image_on_a_page_stores_nothing_where_the_collector_is_its_users_own(keyless: Running) -> None:
    before = hits(keyless)
    for headers in (STRANGE, STRANGE | {"Sec-Fetch-Site": "same-site"}, {"Origin": "https://evil.example"}):
        refused = keyless.http.get(PIXEL, headers=headers)
        assert refused.status_code == 403, headers
        assert "public = true" in refused.json()["error"]["hint"]
    assert hits(keyless) == before
    assert keyless.http.get(PIXEL).status_code == 200
    assert hits(keyless) == before + 1


@as_root
def test_public_and_keyed_collectors_take_events_of_strangers(keyless: Running) -> None:
    page: dict[str, Any] = {"headers": {"Origin": "https://shop.example", "Sec-Fetch-Site": "cross-site"}}
    event = {"client_id": "c", "events": [{"name": "seen"}]}
    with acting_as(NOBODY), httpx.Client(base_url=f"http://127.0.0.1:{keyless.port}", trust_env=False) as http:
        assert http.post("/v1/track", json={"userId": "u", "event": "Seen"}, **page).status_code == 200
        assert http.post("/mp/collect?api_secret=k-1", json=event, **page).status_code == 204
        assert http.post("/mp/collect?api_secret=other", json=event, **page).status_code == 401
        assert http.get(PIXEL).status_code == 401
        allowed = [http.request("OPTIONS", path, **page).status_code for path in ("/v1/track", "/mp/collect", "/i")]
    assert allowed == [204, 204, 404]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/flags"),
        ("POST", "/decide/"),
        ("GET", "/array/x/config"),
        ("POST", "/v1/m"),
        ("GET", "/v1/projects/x/settings"),
        ("OPTIONS", "/v1/track"),
        ("POST", "/v1/traces"),
    ],
)
def test_trackers_paths_answer_only_where_there_is_such_a_collector(keyed: Running, method: str, path: str) -> None:
    assert keyed.http.request(method, path).status_code == 404


def test_visits_are_begun_by_strangers_only_where_a_collector_counts_them(keyed: Running) -> None:
    assert keyed.http.get("/v1/visit").status_code == 401
    assert keyed.http.get("/v1/visit", headers={"Authorization": f"Bearer {KEYS['read']}"}).status_code == 200


def test_a_version_is_told_to_those_with_a_key(keyed: Running) -> None:
    assert keyed.http.get("/info").status_code == 401
    assert keyed.http.get("/info", auth=("anybody", KEYS["read"])).status_code == 200


def test_files_of_the_data_folder_are_for_their_user(keyless: Running) -> None:
    """Files are under the mask of the server's process, which a test's is not: the folder keeps others out."""
    data = keyless.services.project.data
    assert stat.S_IMODE(data.stat().st_mode) == 0o700
    assert data.stat().st_uid == os.geteuid()


def test_errors_do_not_tell_where_the_project_is(keyless: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that cannot be opened: its name is told from the project's folder on."""
    folder = keyless.services.project.folder
    file = folder / ".headrace" / "log" / "tøpic.seg"

    def fail(name: str) -> None:
        raise CorruptFrame(f"`{file}` is damaged", file=str(file), detail=f"at {file}: 7 bytes")

    monkeypatch.setattr(keyless.services.log, "topic", fail)
    answer = keyless.http.get("/v1/topics/users")
    assert str(folder) not in answer.text
    assert answer.json()["error"]["file"] == ".headrace/log/tøpic.seg"
    assert int(answer.headers["Content-Length"]) == len(answer.content)

"""Keys as hashes and references, read again while the server runs; wrong ones are slowed down; all is written down."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from headrace.access.keys import hash_key, make_key
from headrace.access.limits import MOST
from headrace.cli.checks import project_checks
from headrace.config import load_project
from headrace.server.auth import Auth
from tests.security.users import NOBODY, acting_as, as_root
from tests.server.running import Running, running_server
from tests.support import wait_for

HASHED, NAMED, FILED = make_key(), make_key(), make_key()


def entry(key: str, role: str = "read", name: str = "") -> str:
    return f'[[auth.keys]]\nkey = "{key}"\nrole = "{role}"\nname = "{name}"\n'


def status(server: Running, key: str | None, path: str = "/v1/topics") -> int:
    return server.http.get(path, headers={"Authorization": f"Bearer {key}"} if key else {}).status_code


def test_keys_change_while_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_TEST_KEY", NAMED)
    (tmp_path / "reader.key").write_text(f"{FILED}\n")
    file = tmp_path / "headrace.toml"
    with running_server(tmp_path) as server:
        assert (status(server, None), status(server, HASHED)) == (200, 200), "without keys it is its user's"
        text = entry(hash_key(HASHED), "admin", "boss") + entry("env:HEADRACE_TEST_KEY") + entry("file:reader.key")
        file.write_text(text)
        wait_for(lambda: status(server, None) == 401, 20, "the keys")
        assert [status(server, key) for key in (HASHED, NAMED, FILED)] == [200] * 3
        assert [status(server, key) for key in (hash_key(HASHED), "env:HEADRACE_TEST_KEY")] == [401] * 2

        file.write_text(text + entry("short"))
        wait_for(lambda: not server.services.auth.look(), 20, "the look")
        assert (status(server, None), status(server, HASHED)) == (401, 200), "a broken file changes nothing"

        (tmp_path / "reader.key").write_text(make_key())
        file.write_text(entry(hash_key(HASHED), "admin", "boss") + entry("file:reader.key"))
        wait_for(lambda: status(server, NAMED) == 401, 20, "one key less")
        assert (status(server, FILED), status(server, HASHED)) == (401, 200)

        # Who changes something is in the audit, and so is who was refused.
        create = {"sql": "CREATE STREAM noted (a INT) WITH (KAFKA_TOPIC='noted', VALUE_FORMAT='JSON', PARTITIONS=1);"}
        headers = {"Authorization": f"Bearer {HASHED}"}
        assert server.http.post("/v1/statements", json=create, headers=headers).status_code == 200

        def lines() -> list[dict[str, str]]:
            found = server.http.get("/v1/topics/_audit/events", params={"from": "oldest"}, headers=headers)
            return [{name.upper(): text for name, text in one["value"].items()} for one in found.json()["events"]]

        wait_for(lambda: any(one.get("OUTCOME") == "done" for one in lines()), 20, "the audit")
        [done] = [one for one in lines() if one["OUTCOME"] == "done"]
        assert (done["WHO"], done["ADDRESS"], done["ACTION"]) == ("boss", "127.0.0.1", "POST /v1/statements")
        assert done["DETAIL"] == create["sql"]
        refused = [one for one in lines() if one["OUTCOME"] == "refused"]
        assert {one["WHO"] for one in refused} == {"nobody known"}
        assert refused[0]["ACTION"] == "GET /v1/topics"

        # Who guesses is kept waiting; who knows is not.
        wrong = [
            server.http.get("/v1/topics", headers={"Authorization": f"Bearer guess-{n:020}"}) for n in range(MOST + 2)
        ]
        assert wrong[-1].status_code == 429
        assert 0 < int(wrong[-1].headers["Retry-After"]) <= 60
        assert status(server, HASHED) == 200
        assert len([one for one in lines() if one["OUTCOME"] == "refused"]) <= MOST, "refusals do not fill the disk"


@as_root
def test_a_refused_user_is_written_down_by_the_statement_nobody_ran(keyless: Running) -> None:
    with acting_as(NOBODY), httpx.Client(trust_env=False, timeout=60) as http:
        url = f"http://127.0.0.1:{keyless.port}/v1/statements"
        assert http.post(url, json={"sql": "DROP TABLE users;"}).status_code == 401
    assert keyless.http.get("/v1/topics/users").status_code == 200


def test_the_same_key_twice_is_a_mistake(tmp_path: Path) -> None:
    (tmp_path / "headrace.toml").write_text(entry(HASHED) + entry(hash_key(HASHED), "admin"))
    with pytest.raises(Exception, match="key 2 of \\[auth\\] keys is there twice"):
        Auth(load_project(tmp_path))


def test_the_doctor_finds_keys_that_others_can_read(tmp_path: Path) -> None:
    def access() -> tuple[str, str]:
        [found] = [check for check in project_checks(tmp_path) if check.name == "access"]
        return found.state, found.text

    file = tmp_path / "headrace.toml"
    file.write_text(entry(HASHED, "admin"))
    file.chmod(0o644)
    assert access() == ("wrong", "others can read the keys in headrace.toml")
    file.chmod(0o600)
    assert access() == ("ok", "1 keys")
    file.write_text(entry(hash_key(HASHED), "admin"))
    file.chmod(0o644)
    assert access() == ("ok", "1 keys"), "a hash is no key"
    (tmp_path / ".headrace").mkdir(mode=0o755)
    assert access()[0] == "wrong"

"""Who may send in the ways of other systems, and whose quota it is."""

from __future__ import annotations

from pathlib import Path

import httpx

from tests.server.running import running_server
from tests.server.test_protocols import SQL, basic


def test_where_the_project_has_keys_a_collector_has_its_own_or_says_that_it_is_public(tmp_path: Path) -> None:
    (tmp_path / "collectors").mkdir()
    kinds = {
        "site": 'type = "segment"\nkeys = ["w1"]',
        "web": 'type = "snowplow"\npublic = true',
        "open": 'type = "otlp"',
    }
    for name, text in kinds.items():
        (tmp_path / "collectors" / f"{name}.toml").write_text(f'{text}\ntopic = "clicks"\n')
    toml = '[auth]\nkeys = [{ key = "reader-0123456789", role = "read" }]\n'
    with running_server(tmp_path, toml, SQL, key="reader-0123456789") as server:
        assert [problem.name for problem in server.services.gates.problems] == ["open"]
        shop = {"Origin": "https://shop.example", "Host": "events.example"}
        anybody = httpx.Client(base_url=server.http.base_url, timeout=60, trust_env=False, headers=shop)
        with anybody:
            asked = anybody.options("/v1/t", headers={"Access-Control-Request-Method": "POST"})
            assert (asked.status_code, asked.headers["access-control-allow-origin"]) == (204, "https://shop.example")
            assert anybody.post("/v1/t", json={"event": "x"}, headers=basic("w1")).status_code == 200
            assert anybody.post("/v1/t", json={"event": "x", "writeKey": "w2"}).status_code == 401
            assert anybody.get("/i?e=pv").status_code == 200
            assert anybody.post("/v1/logs", json={}).status_code == 404
        assert len(server.events("clicks")) == 2


def test_a_key_that_nobody_checks_names_no_tenant(tmp_path: Path) -> None:
    """Otherwise a new key with every request would be a new quota with every request."""
    quota = "[quota]\ntenant_events_per_second = 0.01\nburst_seconds = 200"
    (tmp_path / "collectors").mkdir()
    (tmp_path / "collectors" / "open.toml").write_text(f'type = "segment"\ntopic = "clicks"\n{quota}')
    keyed = f'type = "posthog"\ntopic = "captures"\nkeys = ["one", "two"]\n{quota}'
    (tmp_path / "collectors" / "keyed.toml").write_text(keyed)
    with running_server(tmp_path, sql=SQL) as server:
        for number, status in enumerate((200, 200, 429)):
            message = {"type": "track", "event": "e", "anonymousId": "a", "writeKey": f"made up {number}"}
            told = server.http.post("/v1/track", json=message)
            assert told.status_code == status, told.text
        for key, status in (("one", 200), ("one", 200), ("one", 429), ("two", 200)):
            captured = {"api_key": key, "event": "e", "distinct_id": "d"}
            assert server.http.post("/capture/", json=captured).status_code == status

"""Python functions asked over HTTP: they run beside the server, which goes on whatever they do."""

from __future__ import annotations

from typing import Any

import pytest

from tests.server.running import Running
from tests.support import wait_for

STATEMENTS = """
CREATE STREAM notes (id BIGINT KEY, text VARCHAR) WITH (KAFKA_TOPIC='notes');
CREATE FUNCTION shout(text VARCHAR) RETURNS VARCHAR LANGUAGE PYTHON AS $$
    if text == "quiet":
        raise ValueError("hush")
    return text.upper()
$$;
CREATE FUNCTION crash(text VARCHAR) RETURNS VARCHAR LANGUAGE PYTHON AS $$
    import os
    os._exit(1)
$$;
INSERT INTO notes (id, text) VALUES (1, 'hello'), (2, 'quiet'), (3, NULL);
"""


@pytest.fixture(scope="module")
def noted(server: Running) -> Running:
    answer = server.http.post("/v1/statements", json={"sql": STATEMENTS})
    assert answer.status_code == 200, answer.text
    return server


def ask(server: Running, sql: str) -> Any:
    answer = server.http.post("/v1/query", json={"sql": sql}, timeout=120)
    assert answer.status_code == 200, answer.text
    return answer.json()["rows"]


def letters(server: Running) -> list[tuple[str, Any]]:
    found = ask(server, "SELECT reason, payload FROM dead_letters WHERE source LIKE 'function %';")
    return [(reason, payload) for reason, payload in found]


def test_a_select_calls_them_and_a_failure_is_null_and_a_letter(noted: Running) -> None:
    found = ask(noted, "SELECT id, SHOUT(text) FROM notes WHERE SHOUT('a') = 'A' ORDER BY id;")
    assert found == [[1, "HELLO"], [2, None], [3, None]]
    wait_for(lambda: any("hush" in reason for reason, _ in letters(noted)), 30, "the dead letter")


def test_one_that_ends_its_process_does_not_end_the_server(noted: Running) -> None:
    assert ask(noted, "SELECT CRASH(text) FROM notes WHERE id = 1;") == [[None]]
    assert ask(noted, "SELECT SHOUT(text) FROM notes WHERE id = 1;") == [["HELLO"]]
    assert noted.http.get("/healthz").status_code == 200


def test_they_are_offered_to_editors_and_listed(noted: Running) -> None:
    offered = {one["name"]: one for one in noted.http.get("/v1/completions").json()["functions"]}
    assert offered["SHOUT"]["signature"] == "(VARCHAR) -> VARCHAR"
    listed = noted.http.post("/ksql", json={"ksql": "LIST FUNCTIONS;", "streamsProperties": {}}).json()
    assert {"name": "SHOUT", "type": "SCALAR", "category": ""} in listed[0]["functions"]

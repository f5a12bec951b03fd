"""The description is what is served, and what is served is what the description says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from starlette.routing import Route

from headrace.server import (
    alerts,
    collectors,
    deliveries,
    deployments,
    differences,
    functions,
    groups,
    jobs,
)
from headrace.server.app import API, ENDPOINTS
from headrace.server.endpoint import routes_of
from headrace.server.models.collect import Collectors, VisitModel
from headrace.server.models.deploy import DeployAnswer, DeploymentsAnswer, DiffAnswer, PlanAnswer, VersionsAnswer
from headrace.server.models.events import Events, EventsAnswer, RecordsPage
from headrace.server.models.jobs import Jobs, RunJobsAnswer
from headrace.server.models.letters import DeadLetterModel, DeadLetters, Redriven
from headrace.server.models.log import Groups, MessagesAnswer, QueueModel, QueuesAnswer, SettledAnswer
from headrace.server.models.overview import Health, Overview, RatesHistory, Ready
from headrace.server.models.queries import LateRows, Queries, QueryDetail, QueryModel, Sources, ViewModel, Views
from headrace.server.models.registry import (
    CompatibilityAnswer,
    ConfigAnswer,
    ConfigWritten,
    ModeModel,
    Registered,
    SchemaAnswer,
    VersionOf,
)
from headrace.server.models.sql import Completions, QueryAnswer, StatementsAnswer, ValidateAnswer
from headrace.server.models.tickets import TicketGiven
from headrace.server.models.topics import Reshaped, TopicModel, Topics
from headrace.server.models.trust import (
    CareHistory,
    CareJobModel,
    CareJobs,
    CheckAnswer,
    ChecksAnswer,
    Revisions,
    WhyAnswer,
)
from tests.server.running import Running


@pytest.fixture(scope="module")
def document(server: Running) -> dict[str, Any]:
    found: dict[str, Any] = server.http.get("/openapi.json").json()
    return found


def test_every_route_is_described_and_every_description_is_a_route(server: Running, document: dict[str, Any]) -> None:
    routes = [route for endpoint in ENDPOINTS for route in routes_of(endpoint, server.services)]
    served = {
        (re.sub(r":\w+}", "}", route.path), method)
        for route in routes
        if isinstance(route, Route)
        for method in route.methods or ()
        if method != "HEAD"
    }
    described = {(path, method.upper()) for path, methods in document["paths"].items() for method in methods}
    assert served == described
    names = [operation["operationId"] for methods in document["paths"].values() for operation in methods.values()]
    assert len(names) == len(set(names))


def test_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    def references(value: Any) -> Iterator[str]:
        if isinstance(value, dict):
            if isinstance(value.get("$ref"), str):
                yield value["$ref"]
            for inner in value.values():
                yield from references(inner)
        elif isinstance(value, list):
            for inner in value:
                yield from references(inner)

    schemas = document["components"]["schemas"]
    assert not [name for name in schemas if "." in name], "two models of one name: each is then called by its module's"
    assert {reference.rpartition("/")[2] for reference in references(document)} <= set(schemas)


ANSWERS: list[tuple[str, str, Any, int, Any]] = [
    ("GET", "/healthz", None, 200, Health),
    ("GET", "/readyz", None, 503, Ready),
    ("GET", "/v1/topics?internal=true", None, 200, Topics),
    ("POST", "/v1/topics", {"name": "described", "columns": "a INT, b VARCHAR KEY"}, 201, TopicModel),
    ("GET", "/v1/topics/pageviews", None, 200, TopicModel),
    ("PATCH", "/v1/topics/described", {"add_columns": "c INT", "compression": "zstd"}, 200, TopicModel),
    ("POST", "/v1/topics/described/partitions", {"split": 0}, 200, Reshaped),
    ("POST", "/v1/topics/pageviews/events", [{"userid": "a", "x": 1}, {"userid": 1}], 200, EventsAnswer),
    ("POST", "/v1/topics/pageviews/events?acks=1", {"userid": "a"}, 202, EventsAnswer),
    ("POST", "/v1/topics/pageviews/events", 7, 422, EventsAnswer),
    ("POST", "/v1/topics/pageviews/events?wait=ticket", {"userid": "a"}, 202, TicketGiven),
    ("GET", "/v1/visit", None, 200, VisitModel),
    ("POST", "/v1/visit", None, 200, VisitModel),
    ("POST", "/v1/topics/pageviews/records", {"records": [{"key": "a", "value": {"pageid": "/"}}]}, 200,
     EventsAnswer),
    ("GET", "/v1/topics/pageviews/events", None, 200, Events),
    ("GET", "/v1/topics/pageviews/records", None, 200, RecordsPage),
    ("GET", "/v1/topics/pageviews/dead-letters", None, 200, DeadLetters),
    ("POST", "/v1/topics/pageviews/dead-letters/redrive", {"preview": True}, 200, Redriven),
    ("GET", "/v1/dead-letters/0", None, 200, DeadLetterModel),
    ("POST", "/v1/queues", {"name": "packing", "topic": "pageviews"}, 201, QueueModel),
    ("GET", "/v1/queues", None, 200, QueuesAnswer),
    ("GET", "/v1/groups", None, 200, Groups),
    ("GET", "/v1/queues/packing", None, 200, QueueModel),
    ("POST", "/v1/queues/packing/receive?limit=2", None, 200, MessagesAnswer),
    ("POST", "/v1/queues/packing/ack", {"receipts": ["x.0.0.1"]}, 200, SettledAnswer),
    ("POST", "/v1/queues/packing/nack", {"receipts": [], "delay_s": 1}, 200, SettledAnswer),
    ("POST", "/v1/queues/packing/extend", {"receipts": []}, 200, SettledAnswer),
    ("DELETE", "/v1/queues/packing", None, 204, None),
    ("DELETE", "/v1/topics/described", None, 204, None),
    ("POST", "/v1/statements", {"sql": "SHOW TABLES; DESCRIBE users;"}, 200, StatementsAnswer),
    ("POST", "/v1/query", {"sql": "SELECT * FROM users;"}, 200, QueryAnswer),
    ("POST", "/v1/query", {"sql": "SELECT * FROM pageviews;", "limit": 1, "deadline_ms": 500}, 200, QueryAnswer),
    ("POST", "/v1/validate", {"sql": "SELECT 1 FROM users;"}, 200, ValidateAnswer),
    ("POST", "/v1/validate", {"sql": "SELECT"}, 200, ValidateAnswer),
    ("GET", "/v1/completions", None, 200, Completions),
    ("GET", "/v1/sources", None, 200, Sources),
    ("POST", "/v1/statements", {"sql": "CREATE TABLE n AS SELECT pageid, COUNT(*) n FROM pageviews GROUP BY pageid;"},
     200, StatementsAnswer),
    ("GET", "/v1/queries", None, 200, Queries),
    ("GET", "/v1/queries/CTAS_N_1", None, 200, QueryDetail),
    ("POST", "/v1/queries/ctas_n_1/stop", {}, 200, QueryModel),
    ("POST", "/v1/queries/CTAS_N_1/start", None, 200, QueryModel),
    ("GET", "/v1/queries/CTAS_N_1/late", None, 200, LateRows),
    ("GET", "/v1/views", None, 200, Views),
    ("GET", "/v1/views/users", None, 200, ViewModel),
    ("GET", "/v1/views/users/rows", None, 200, QueryAnswer),
    ("GET", "/v1/views/users/why?id=a", None, 200, WhyAnswer),
    ("GET", "/v1/views/users/revisions", None, 200, Revisions),
    ("GET", "/v1/views/users/check", None, 200, CheckAnswer),
    ("POST", "/v1/views/users/check", None, 200, CheckAnswer),
    ("POST", "/v1/views/users/check?job=true", None, 202, CareJobModel),
    ("POST", "/v1/views/users/why?id=a", None, 202, CareJobModel),
    ("GET", "/v1/care", None, 200, CareJobs),
    ("GET", "/v1/care/1", None, 200, CareJobModel),
    ("POST", "/v1/care/1/cancel", None, 200, CareJobModel),
    ("GET", "/v1/views/users/check/history", None, 200, CareHistory),
    ("GET", "/v1/checks", None, 200, ChecksAnswer),
    ("GET", "/v1/collectors", None, 200, Collectors),
    ("GET", "/v1/jobs", None, 200, Jobs),
    ("GET", "/v1/functions", None, 200, functions.Functions),
    ("GET", "/v1/deliveries", None, 200, deliveries.DeliveriesModel),
    ("POST", "/v1/jobs", {}, 200, RunJobsAnswer),
    ("GET", "/v1/overview", None, 200, Overview),
    ("GET", "/v1/overview/history", None, 200, RatesHistory),
    ("POST", "/v1/plan", {}, 200, PlanAnswer),
    ("POST", "/v1/deployments", {}, 200, DeployAnswer),
    ("GET", "/v1/deployments", None, 200, DeploymentsAnswer),
    ("GET", "/v1/views/users/versions", None, 200, VersionsAnswer),
    ("GET", "/v1/views/users/diff", None, 200, DiffAnswer),
    ("POST", "/v1/views/users/forget", None, 200, VersionsAnswer),
    ("GET", "/registry", None, 200, dict[str, str]),
    ("GET", "/registry/schemas/types", None, 200, list[str]),
    ("POST", "/registry/subjects/s/versions", {"schema": '"string"'}, 200, Registered),
    ("POST", "/registry/subjects/s", {"schema": '"string"'}, 200, SchemaAnswer),
    ("GET", "/registry/subjects", None, 200, list[str]),
    ("GET", "/registry/subjects/s/versions", None, 200, list[int]),
    ("GET", "/registry/subjects/s/versions/1", None, 200, SchemaAnswer),
    ("GET", "/registry/subjects/s/versions/latest/referencedby", None, 200, list[int]),
    ("GET", "/registry/subjects/s/metadata", None, 200, SchemaAnswer),
    ("GET", "/registry/schemas", None, 200, list[SchemaAnswer]),
    ("GET", "/registry/schemas/ids/1", None, 200, SchemaAnswer),
    ("GET", "/registry/schemas/ids/1/subjects", None, 200, list[str]),
    ("GET", "/registry/schemas/ids/1/versions", None, 200, list[VersionOf]),
    ("GET", "/registry/contexts", None, 200, list[str]),
    ("POST", "/registry/compatibility/subjects/s/versions", {"schema": '"int"'}, 200,
     CompatibilityAnswer),
    ("POST", "/registry/compatibility/subjects/s/versions/1?verbose=true", {"schema": '"int"'}, 200,
     CompatibilityAnswer),
    ("GET", "/registry/config", None, 200, ConfigAnswer),
    ("PUT", "/registry/config", {"compatibility": "FULL"}, 200, ConfigWritten),
    ("DELETE", "/registry/config", None, 200, ConfigAnswer),
    ("PUT", "/registry/config/s", {"compatibility": "FULL"}, 200, ConfigWritten),
    ("GET", "/registry/config/s", None, 200, ConfigAnswer),
    ("DELETE", "/registry/config/s", None, 200, ConfigAnswer),
    ("GET", "/registry/mode", None, 200, ModeModel),
    ("PUT", "/registry/mode", {"mode": "READWRITE"}, 200, ModeModel),
    ("DELETE", "/registry/mode", None, 200, ModeModel),
    ("PUT", "/registry/mode/s", {"mode": "READWRITE"}, 200, ModeModel),
    ("GET", "/registry/mode/s", None, 200, ModeModel),
    ("DELETE", "/registry/mode/s", None, 200, ModeModel),
    ("DELETE", "/registry/subjects/s/versions/1", None, 200, int),
    ("DELETE", "/registry/subjects/s?permanent=true", None, 200, list[int]),
]  # fmt: skip


def test_answers_are_as_described(server: Running, document: dict[str, Any]) -> None:
    for method, path, body, status, model in ANSWERS:
        answer = server.http.request(method, path, json=body) if body is not None else server.http.request(method, path)
        assert answer.status_code == status, (path, answer.text)
        if model is not None:
            # Models refuse fields they do not know, so this is exact.
            msgspec.json.decode(answer.content, type=model)


# Checked where what they need is there: somebody who replies (test_queues), records to delete (test_records), groups
# with members (test_groups), deployments (test_deployments).
ELSEWHERE = (
    {("POST", "/v1/requests/{topic}"), ("DELETE", "/v1/topics/{topic}/records"), ("POST", "/v1/views/{view}/rollback")}
    | {("POST", "/v1/views/{view}/repair")}  # tests/views/test_repair.py
    | {("POST", "/v1/views/{view}/refresh"), ("POST", "/v1/rebuild")}  # test_deployments.py
    | {(endpoint.method, endpoint.path) for endpoint in jobs.ENDPOINTS if "{job}" in endpoint.path}  # test_jobs.py
    | {(endpoint.method, endpoint.path) for endpoint in alerts.ENDPOINTS}  # test_alerts.py
    | {(endpoint.method, endpoint.path) for endpoint in differences.ENDPOINTS}  # test_differences.py
    | {("POST", "/v1/functions/{function}/try")}  # test_attached.py
    # test_collectors_api.py
    | {(endpoint.method, endpoint.path) for endpoint in collectors.ENDPOINTS if "{collector}" in endpoint.path}
    | {(endpoint.method, endpoint.path) for endpoint in groups.ENDPOINTS if "{group}" in endpoint.path}
    | {(endpoint.method, endpoint.path) for endpoint in deployments.ENDPOINTS if "{deployment}" in endpoint.path}
)


def test_those_answers_are_all_the_answers() -> None:
    """Every answer that is a model is checked above."""
    checked = {(method, path.partition("?")[0].replace("/users", "/{view}")) for method, path, *_ in ANSWERS}

    def matches(path: str, method: str) -> bool:
        pattern = re.compile(re.sub(r"\{\w+\}", "[^/]+", path))
        return any(m == method and pattern.fullmatch(p) for m, p in checked)

    unchecked = [
        (endpoint.method, endpoint.path)
        for endpoint in API
        if any(isinstance(model, type) for model in endpoint.answers.values())
        and (endpoint.method, endpoint.path) not in ELSEWHERE
        and not matches(endpoint.path, endpoint.method)
    ]
    assert unchecked == []


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/v1/nothing", None, 404),
        ("GET", "/v1/topics/nothing", None, 404),
        ("PUT", "/v1/topics", None, 405),
        ("GET", "/v1/query", None, 405),
        ("POST", "/collect", {}, 405),
        ("POST", "/v1/nothing", {}, 404),
        ("DELETE", "/v1/nothing/at/all", None, 404),
        ("POST", "/registry/nothing", {}, 404),
        ("DELETE", "/v1/topics/pageviews", None, 409),
        ("DELETE", "/v1/topics/_catalog", None, 403),
        ("POST", "/v1/topics", {"name": "no/name"}, 400),
        ("POST", "/v1/topics", {"name": "_mine"}, 403),
        ("POST", "/v1/topics", {"name": "t", "columns": "a NONSENSE"}, 400),
        ("POST", "/v1/topics", {"nome": "t"}, 400),
        ("PATCH", "/v1/topics/users", {"add_columns": "more INT KEY"}, 400),
        ("PATCH", "/v1/topics/users", {"compression": "rar"}, 400),
        ("PATCH", "/v1/topics/_catalog", {"retention_ms": 5}, 403),
        ("DELETE", "/v1/topics/users/records?before=1", None, 400),
        ("DELETE", "/v1/topics/_catalog/records", None, 403),
        ("POST", "/v1/topics", {"name": "users", "partitions": 9}, 409),
        ("GET", "/v1/topics/users/events?limit=-1", None, 400),
        ("GET", "/v1/topics/users/events?limit=1000000", None, 400),
        ("GET", "/v1/topics/users/events?from=sometime", None, 400),
        ("GET", "/v1/topics/users/events?partition=9", None, 400),
        ("GET", "/v1/topics?internal=perhaps", None, 400),
        ("GET", "/v1/topics/users/records?at=0:1&time=5", None, 400),
        ("GET", "/v1/topics/users/records?at=1", None, 400),
        ("GET", "/v1/topics/users/records?offset=1", None, 400),
        ("GET", "/v1/topics/users/records?from=newest", None, 400),
        ("GET", "/v1/topics/users/records?time=soon", None, 400),
        ("GET", "/v1/topics/users/records?wait=forever", None, 400),
        ("GET", "/v1/topics/users/records?before=latest&format=arrow", None, 400),
        ("POST", "/v1/topics/users/records", [{"key": "a"}], 400),
        ("POST", "/v1/topics/_catalog/records", {"records": [{}]}, 403),
        ("POST", "/v1/queues", {"name": "no/name", "topic": "users"}, 400),
        ("POST", "/v1/queues", {"name": "q", "topic": "nothing"}, 404),
        ("POST", "/v1/queues", {"name": "q", "topic": "_catalog"}, 403),
        ("POST", "/v1/queues/nothing/receive", None, 404),
        ("POST", "/v1/queues/nothing/ack", {"receipts": []}, 404),
        ("GET", "/v1/queries/nothing", None, 404),
        ("GET", "/v1/views/nothing", None, 404),
        ("GET", "/v1/views/users/rows?nothing=1", None, 404),
        ("GET", "/v1/views/users/rows?age=old", None, 400),
        ("POST", "/v1/query", {"sql": "SELECT * FROM nothing;"}, 400),
        ("POST", "/v1/query", {"sql": "SHOW TABLES;"}, 400),
        ("POST", "/v1/query", {"sql": "SELECT * FROM users; SELECT * FROM users;"}, 400),
        ("POST", "/v1/query", {"sql": ""}, 400),
        ("POST", "/v1/query", {"sql": "SELECT * FROM users;", "limit": -1}, 400),
        ("POST", "/v1/statements", {"sql": "DROP TABLE nothing;"}, 400),
        ("POST", "/v1/statements", None, 400),
    ],
)
def test_errors_have_one_shape(server: Running, method: str, path: str, body: Any, status: int) -> None:
    answer = server.http.request(method, path, json=body) if body is not None else server.http.request(method, path)
    assert answer.status_code == status, answer.text
    error = msgspec.json.decode(answer.content)["error"]
    assert isinstance(error["code"], str)
    assert error["message"]
    assert answer.headers["content-type"] == "application/json"


def test_who_asks_in_the_wrong_way_is_told_the_right_one(server: Running) -> None:
    """Whatever path it is: a client with a wrong address gets here, too."""
    for path, allowed in (("/v1/topics", "GET, POST"), ("/collect", "GET")):
        error = server.http.put(path).json()["error"]
        assert error["message"] == f"`{path}` does not take PUT"
        assert error["hint"] == f"it takes {allowed}; /openapi.json lists all there is"

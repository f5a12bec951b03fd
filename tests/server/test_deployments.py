"""Plans and deployments over HTTP, with everything but Spark: what is begun is in the catalog and goes no further."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from headrace.log.local.open import LocalLog
from headrace.server.models.deploy import DeployAnswer, DeploymentModel, PlanAnswer, VersionsAnswer
from tests.server.running import Running, running_server

CLICKS = "CREATE STREAM clicks (userid VARCHAR KEY, page VARCHAR) WITH (KAFKA_TOPIC='clicks', PARTITIONS=1);"
BY_PAGE = "CREATE TABLE by_page AS SELECT page, COUNT(*) AS n FROM clicks GROUP BY page;"
TOP = "CREATE TABLE top AS SELECT page, n FROM by_page WHERE n > 1;"
ALL = "\n".join((CLICKS, BY_PAGE, TOP))
CHANGED = ALL.replace("COUNT(*)", "COUNT(*) * 2")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Running]:
    with running_server(tmp_path, sql=ALL) as running:
        yield running


def plan(server: Running, sql: str, **more: Any) -> PlanAnswer:
    answer = server.http.post("/v1/plan", json={"files": {"pipelines/all.sql": sql}, **more})
    assert answer.status_code == 200, answer.text
    return msgspec.json.decode(answer.content, type=PlanAnswer)


def deploy(server: Running, sql: str, **more: Any) -> DeploymentModel:
    answer = server.http.post("/v1/deployments", json={"files": {"pipelines/all.sql": sql}, **more})
    assert answer.status_code == 200, answer.text
    started = msgspec.json.decode(answer.content, type=DeployAnswer).deployment
    assert started is not None
    return started


def act(server: Running, number: int, action: str, body: Any = None) -> DeploymentModel:
    answer = server.http.post(f"/v1/deployments/{number}/{action}", json=body)
    assert answer.status_code == 200, answer.text
    return msgspec.json.decode(answer.content, type=DeploymentModel)


def versions(server: Running, name: str) -> list[tuple[int, str]]:
    answer = server.http.get(f"/v1/views/{name}/versions")
    found = msgspec.json.decode(answer.content, type=VersionsAnswer)
    return [(version.version, version.state) for version in found.versions]


def refusal(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["message"]


def test_a_plan_says_what_would_happen_and_changes_nothing(server: Running) -> None:
    server.send("clicks", [{"userid": "ann", "page": "/"}, {"userid": "bob", "page": "/"}])
    before = server.services.catalog.state
    assert plan(server, ALL).pending == 0
    found = plan(server, CHANGED)
    assert [(c.name, c.verdict, c.replays, c.line) for c in found.changes] == [
        ("clicks", "nothing", 0, 1),
        ("by_page", "rebuilds", 2, 2),
        ("top", "rebuilds", 0, 3),
    ]
    assert found.changes[1].dependents == ["top"]
    assert (found.pending, found.refused, found.seconds) == (2, 0, None)
    assert [c.verdict for c in plan(server, CHANGED, in_place=True).changes] == [
        "nothing",
        "keeps its state",
        "nothing",
    ]
    assert server.services.catalog.state is before


def test_without_files_the_server_reads_its_own(server: Running, tmp_path: Path) -> None:
    assert server.http.post("/v1/plan", json={}).json()["pending"] == 0
    (tmp_path / "pipelines" / "all.sql").write_text(CHANGED)
    assert server.http.post("/v1/plan", json={}).json()["pending"] == 2


def test_a_file_that_cannot_be_read_is_named(server: Running) -> None:
    answer = server.http.post("/v1/plan", json={"files": {"a.sql": "CREATE TABEL x;"}})
    assert refusal(answer)[0] == 400
    assert refusal(answer)[1].startswith("a.sql:1:8: ")
    twice = server.http.post("/v1/plan", json={"files": {"a.sql": CLICKS, "b.sql": CLICKS}})
    assert refusal(twice) == (400, "b.sql:1:1: `clicks` is defined at a.sql:1 already")


def test_views_are_computed_again_from_the_log(server: Running) -> None:
    assert refusal(server.http.post("/v1/rebuild", json={})) == (
        404,
        "no query has failed: there is nothing to compute again",
    )
    assert refusal(server.http.post("/v1/rebuild", json={"names": ["clicks"]}))[0] == 400
    answer = server.http.post("/v1/rebuild", json={"names": ["BY_PAGE"], "who": "ann"})
    assert answer.status_code == 200, answer.text
    started = msgspec.json.decode(answer.content, type=DeploymentModel)
    assert (started.stage, started.who, started.approved) == ("building", "ann", True)
    assert [(item.name, item.before, item.version) for item in started.items] == [("by_page", 1, 2), ("top", 1, 2)]


def test_a_build_is_begun_paused_throttled_and_cancelled(server: Running) -> None:
    server.send("clicks", [{"userid": "ann", "page": "/"}])
    started = deploy(server, CHANGED, who="ann", rows_per_second=5, gate="max_changed=0.1%")
    assert (started.stage, started.who, started.max_changed) == ("building", "ann", 0.001)
    assert [(item.name, item.before, item.version) for item in started.items] == [("by_page", 1, 2), ("top", 1, 2)]
    assert versions(server, "top") == [(1, "serving"), (2, "building")]
    assert act(server, started.id, "pause").paused
    assert not act(server, started.id, "resume").paused
    assert act(server, started.id, "throttle", {"rows_per_second": 9}).rows_per_second == 9
    assert act(server, started.id, "approve").approved
    second = server.http.post("/v1/deployments", json={"files": {"pipelines/all.sql": ALL + " "}})
    assert second.json() == {"deployment": None}
    other = {"files": {"pipelines/all.sql": ALL.replace("> 1", "> 2")}}
    assert refusal(server.http.post("/v1/deployments", json=other)) == (409, "deployment 1 is building")
    dropped = server.http.post("/v1/statements", json={"sql": "DROP TABLE top;"})
    assert refusal(dropped) == (409, "deployment 1 is changing `top`")
    deployments = server.services.deployments
    seen = deployments.get(started.id)
    assert act(server, started.id, "cancel").stage == "cancelled"
    deployments.advance(seen, stage="switching")  # by somebody who had looked before it was cancelled
    assert deployments.get(started.id).stage == "cancelled"
    assert versions(server, "top") == [(1, "serving")]
    assert not [topic.name for topic in server.services.log.topics() if topic.name.endswith(".v2")]
    assert refusal(server.http.post(f"/v1/deployments/{started.id}/cancel"))[0] == 409
    shown = server.http.get(f"/v1/deployments/{started.id}").json()
    assert shown == server.http.get("/v1/deployments").json()["deployments"][0]
    assert server.http.get("/v1/deployments?limit=0").json() == {"deployments": []}
    assert shown["items"][0]["old_statement"] == BY_PAGE


def test_what_cannot_be_is_refused_and_says_why(server: Running) -> None:
    def post(sql: str, **more: Any) -> tuple[int, str]:
        return refusal(server.http.post("/v1/deployments", json={"files": {"pipelines/all.sql": sql}, **more}))

    retyped = ALL.replace("page VARCHAR)", "page INT)")
    assert post(retyped)[0] == 409
    assert "`clicks` cannot be deployed: its column `page` is VARCHAR, and would be INTEGER" in post(retyped)[1]
    assert post(ALL.replace(TOP, "")) == (
        403,
        "no file defines `top` any more: to drop it needs your word",
    )
    assert post(CHANGED, gate="max_rows=3") == (400, "`max_rows=3` is not a gate")
    for start in ("yesterday", "²", "9" * 40):
        assert post(CHANGED, **{"from": start}) == (400, f"`{start}` is no place to start")
    assert post(CHANGED, strategy="lambda")[0] == 409
    assert refusal(server.http.post("/v1/views/top/rollback"))[0] == 409
    assert refusal(server.http.get("/v1/deployments/99")) == (404, "deployment 99 does not exist")
    assert refusal(server.http.get("/v1/deployments/²")) == (404, "deployment `²` does not exist")
    assert refusal(server.http.post("/v1/deployments/99/pause"))[0] == 404
    assert server.services.catalog.deployments() == []


def test_what_needs_no_replay_happens_at_once(server: Running) -> None:
    wider = ALL.replace("page VARCHAR)", "page VARCHAR, ms INT)") + "CREATE STREAM slow AS SELECT * FROM clicks;"
    done = deploy(server, wider)
    assert (done.stage, done.detail) == ("switched", "nothing had to be computed again")
    assert [(item.name, item.verdict) for item in done.items] == [("clicks", "keeps its state"), ("slow", "creates")]
    assert plan(server, wider).pending == 0
    # A drop is no replay either, and what was dropped is kept for a while.
    gone = deploy(server, wider.replace(TOP, ""), approve=True)
    assert gone.stage == "switched"
    assert versions(server, "top") == [(1, "retired")]
    assert server.http.get("/v1/views/top").status_code == 404
    assert server.http.post("/v1/views/top/rollback").json()["stage"] == "rolled back"
    assert versions(server, "top") == [(1, "serving")]
    deploy(server, wider.replace(TOP, ""), approve=True)
    assert server.http.post("/v1/views/top/forget").json()["versions"] == []


@pytest.mark.slow
def test_retention_waits_for_who_has_yet_to_read_and_says_what_is_gone(tmp_path: Path) -> None:
    small = "[log]\nsegment_bytes = 4096\nretention_bytes = 1\n"
    with running_server(tmp_path, small, CLICKS) as server:
        log = server.services.log
        assert isinstance(log, LocalLog)

        def arrives() -> int:
            """More than a segment, and what is left after housekeeping."""
            for number in range(30):
                server.send("clicks", [{"userid": f"{number}", "page": "/" * 100}])
            log.maintain()
            return log.stats("clicks").partitions[0].start

        first = arrives()
        assert first > 0, "nobody reads it"
        server.http.post("/v1/statements", json={"sql": BY_PAGE})
        assert [arrives(), arrives()] == [first, first], "its query has not begun"
        building = deploy(server, "\n".join((CLICKS, BY_PAGE.replace("COUNT(*)", "COUNT(page)"))))
        note = f"by_page: {first:,} earlier records of topic `clicks` are gone: it replays from what is left"
        assert building.warnings == [note]
        act(server, building.id, "pause")
        for query in server.services.catalog.queries():
            server.http.post(f"/v1/queries/{query.id}/stop")
        assert arrives() == first, "what is built needs it, paused or not"
        refused = server.http.delete("/v1/topics/clicks/records")
        assert refusal(refused) == (409, "deployment 1 has yet to read these records of topic `clicks`")
        act(server, building.id, "cancel")
        assert arrives() > first, "who was stopped by somebody may never go on"


def test_what_was_deployed_can_be_deployed_again(server: Running) -> None:
    server.send("clicks", [{"userid": "ann", "page": "/"}])
    first = deploy(server, CHANGED)
    act(server, first.id, "cancel")
    answer = server.http.post(f"/v1/deployments/{first.id}/restore", json={"who": "bob"})
    again = msgspec.json.decode(answer.content, type=DeployAnswer).deployment
    assert again is not None
    assert [(item.name, item.version, item.statement) for item in again.items] == [
        (item.name, 3, item.statement) for item in first.items
    ]
    act(server, again.id, "cancel")
    before = server.http.post(f"/v1/deployments/{first.id}/restore", json={"before": True})
    assert before.json() == {"deployment": None}


def test_or_replace_goes_on_in_place_or_builds_a_version(server: Running) -> None:
    def run(sql: str) -> str:
        answer = server.http.post("/v1/statements", json={"sql": sql})
        assert answer.status_code == 200, answer.text
        return str(answer.json()["results"][0]["message"])

    server.send("clicks", [{"userid": "ann", "page": "/"}])
    in_place = BY_PAGE.replace("CREATE", "CREATE OR REPLACE").replace("COUNT(*)", "COUNT(*) * 2")
    assert "goes on as it is defined now" in run(in_place)
    assert versions(server, "by_page") == [(1, "serving")]
    other = in_place.replace("GROUP BY", "WHERE userid <> 'bob' GROUP BY")
    assert run(other) == ("table `by_page` is computed anew as version 2 by deployment 1; version 1 serves until then")
    assert versions(server, "top") == [(1, "serving"), (2, "building")]
    assert server.services.deployments.get(1).approved


def test_another_server_goes_on_with_what_was_begun(tmp_path: Path) -> None:
    with running_server(tmp_path, sql=ALL) as server:
        server.send("clicks", [{"userid": "ann", "page": "/"}])
        number = deploy(server, CHANGED).id
    with running_server(tmp_path, sql=ALL) as server:
        assert server.http.get(f"/v1/deployments/{number}").json()["stage"] == "building"
        assert versions(server, "by_page") == [(1, "serving"), (2, "building")]
        act(server, number, "cancel")
    with running_server(tmp_path, sql=ALL) as server:
        assert versions(server, "by_page") == [(1, "serving")]


def test_a_lambda_view_says_what_it_is_made_of(server: Running) -> None:
    """Its batch layer waits for Spark; then it is refreshed by whoever says so."""
    hits = "CREATE TABLE hits AS SELECT userid, COUNT(*) AS n FROM clicks GROUP BY userid"
    found = plan(server, f"{ALL}\n{hits};", strategy="lambda").changes[-1]
    assert (found.name, found.verdict, found.strategy) == ("hits", "creates", "lambda")
    refused = plan(server, ALL.replace("AS n FROM", "AS n, HISTOGRAM(userid) AS h FROM"), strategy="lambda").changes[1]
    assert refused.verdict == "refused"
    assert refused.reason == "HISTOGRAM keeps nothing that can be merged"
    assert refused.hint == "--strategy kappa replays it"
    chained = plan(server, CHANGED, strategy="lambda").changes[-1]
    assert chained.verdict == "refused"
    assert chained.reason == "it reads `by_page`, whose layers are merged when it is read: no query can follow it"

    started = deploy(server, f"{ALL}\n{hits};", strategy="lambda")
    answer = server.http.get("/v1/views/hits/versions")
    [version] = msgspec.json.decode(answer.content, type=VersionsAnswer).versions
    assert (version.strategy, version.state) == ("lambda", "building")
    assert version.layers is not None
    assert version.layers.batch_rows is None
    assert [build.query_id for build in started.builds] == [version.layers.batch_query]
    act(server, started.id, "cancel")

    assert refusal(server.http.post("/v1/views/by_page/refresh", json={})) == (
        400,
        "`by_page` has no batch layer that could be computed again",
    )
    server.http.post("/v1/statements", json={"sql": f"{hits} REFRESH EVERY 1 HOUR;"})
    follows = server.http.post("/v1/statements", json={"sql": "CREATE TABLE more AS SELECT userid, n FROM hits;"})
    assert "`hits` is a Lambda view" in refusal(follows)[1]
    refreshed = server.http.post("/v1/views/hits/refresh", json={"who": "ann"})
    assert refreshed.status_code in (200, 409), refreshed.text  # the schedule may have been faster
    deployments = server.http.get("/v1/deployments").json()["deployments"]
    assert deployments[0]["items"][0]["verdict"] == "refreshes"


def test_a_build_is_no_further_than_what_it_reads(server: Running) -> None:
    """`top` has read everything of a new version of `by_page` that is still empty: of the whole it has read nothing."""
    sent = [{"userid": "u", "page": f"/{number}"} for number in range(4)]
    assert server.http.post("/v1/topics/clicks/events", json=sent).status_code == 200
    started = deploy(server, CHANGED)
    builds = {build.name: build for build in started.builds}
    assert (builds["by_page"].left, builds["top"].left) == (4, 0)
    assert (builds["by_page"].done, builds["top"].done) == (0.0, 0.0)

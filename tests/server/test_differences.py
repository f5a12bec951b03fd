"""Two versions of a view over HTTP: compared, looked at page by page, chosen from, taken away. Nothing was sent, so no
query has anything to compute: the rows of both versions are put there."""

from __future__ import annotations

import csv
import io
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.log.base import TIME, WINDOW_END, WINDOW_START, Append
from headrace.server.models.differences import DifferenceModel, DifferenceRowsAnswer
from headrace.views.difference import Apart
from headrace.views.difference_rows import DifferenceWriter
from tests.server.running import Running, running_server
from tests.support import wait_for

SQL = """
CREATE STREAM clicks (userid VARCHAR KEY, page VARCHAR, country VARCHAR) WITH (KAFKA_TOPIC='clicks', PARTITIONS=1);
CREATE TABLE per_minute AS SELECT country, page, COUNT(*) AS n, MAX(userid) AS last
  FROM clicks WINDOW TUMBLING (SIZE 1 MINUTE) GROUP BY country, page;
CREATE TABLE by_page AS SELECT page, COUNT(*) AS n FROM clicks GROUP BY page;
"""
CHANGED = SQL.replace("COUNT(*) AS n", "COUNT(*) * 2 AS n")
MINUTE = 60_000

Row = tuple[Any, ...]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Running]:
    with running_server(tmp_path, sql=SQL) as running:
        switched(running)
        yield running


def switched(server: Running) -> None:
    """Both tables in two versions, the first retired."""
    answer = server.http.post("/v1/deployments", json={"files": {"pipelines/all.sql": CHANGED}, "approve": True})
    number = answer.json()["deployment"]["id"]

    def is_switched() -> bool:
        return bool(server.http.get(f"/v1/deployments/{number}").json()["stage"] == "switched")

    wait_for(is_switched, 30, "the switch")


def put(server: Running, topic: str, names: Sequence[str], rows: Sequence[Row]) -> None:
    columns: Mapping[str, Any] = {name: pa.array([row[at] for row in rows]) for at, name in enumerate(names)}
    batch = pa.record_batch({**columns, TIME: pa.array([0] * len(rows))})
    # The first version has another topic once the second serves.
    first = server.services.catalog.versions(topic)[:1]
    server.services.log.append([Append(first[0].source.topic if first else topic, batch)]).result()


def put_minutes(server: Running, topic: str, rows: Sequence[Row]) -> None:
    """Country, page, minute, n, last."""
    names = ("COUNTRY", "PAGE", "N", "LAST", WINDOW_START, WINDOW_END)
    put(server, topic, names, [(c, p, n, last, at * MINUTE, (at + 1) * MINUTE) for c, p, at, n, last in rows])


def compared(server: Running, view: str, **body: int) -> DifferenceModel:
    started = server.http.post(f"/v1/views/{view}/diff", json=body)
    assert started.status_code == 202, started.text
    number = started.json()["id"]

    def found() -> DifferenceModel:
        answer = server.http.get(f"/v1/views/{view}/diff/{number}")
        return msgspec.json.decode(answer.content, type=DifferenceModel)

    wait_for(lambda: found().state in ("done", "failed"), 30, "the comparison")
    return found()


def rows(server: Running, view: str, number: int, **filters: Any) -> DifferenceRowsAnswer:
    answer = server.http.get(f"/v1/views/{view}/diff/{number}/rows", params=filters)
    assert answer.status_code == 200, answer.text
    return msgspec.json.decode(answer.content, type=DifferenceRowsAnswer)


def refusal(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["message"]


OLD = [("de", "/a", 1, 3, "ann"), ("de", "/b", 1, 1, "bob"), ("fr", "/a", 2, 5, "eve"), ("fr", "/z", 0, 1, "x")]
NEW = [("de", "/a", 1, 6, "ann"), ("de", "/b", 1, 1, "bob"), ("fr", "/a", 2, 5, "zoe"), ("it", "/n", 3, 1, "y")]


def test_rows_that_differ_are_counted_listed_and_chosen(server: Running) -> None:
    put_minutes(server, "PER_MINUTE", OLD)
    put_minutes(server, "PER_MINUTE.v2", NEW)
    found = compared(server, "per_minute")
    assert (found.old, found.new, found.state, found.error) == (1, 2, "done", None)
    assert (found.keys, found.columns, found.windowed) == (["country", "page"], ["n", "last"], True)
    assert found.comparison is not None
    assert {kind: found.comparison[kind] for kind in ("same", "changed", "only_old", "only_new")} == {
        "same": 1,
        "changed": 2,
        "only_old": 1,
        "only_new": 1,
    }
    everything = rows(server, "per_minute", found.id)
    assert everything.matching == 4
    assert [(row.kind, *row.key.values(), row.window, row.deltas) for row in everything.rows] == [
        ("only_new", "it", "/n", {"start": 3 * MINUTE, "end": 4 * MINUTE}, {}),
        ("changed", "fr", "/a", {"start": 2 * MINUTE, "end": 3 * MINUTE}, {"last": None}),
        ("changed", "de", "/a", {"start": MINUTE, "end": 2 * MINUTE}, {"n": 3.0}),
        ("only_old", "fr", "/z", {"start": 0, "end": MINUTE}, {}),
    ]

    def chosen(**filters: Any) -> list[str]:
        answer = rows(server, "per_minute", found.id, **filters)
        assert answer.matching == len(answer.rows)
        return ["".join(row.key.values()) for row in answer.rows]

    assert chosen(kind="only_old,only_new") == ["it/n", "fr/z"]
    assert chosen(**{"key.country": "fr"}) == ["fr/a", "fr/z"]
    assert chosen(**{"key.Country": "fr", "prefix": "/z"}) == ["fr/z"]
    assert chosen(**{"prefix.page": "/", "prefix.country": "i"}) == ["it/n"]
    assert chosen(prefix="f") == ["fr/a", "fr/z"]
    assert chosen(window="1970-01-01T00:01:30Z") == ["de/a"]
    assert chosen(**{"from": 2 * MINUTE + 1, "to": 3 * MINUTE}) == ["it/n", "fr/a"]
    assert chosen(column="LAST") == ["fr/a"]
    assert chosen(min_delta=3, column="n") == ["de/a"]
    assert chosen(min_delta=3.5) == []
    first = rows(server, "per_minute", found.id, limit=3)
    assert (len(first.rows), first.matching, first.next) == (3, 4, 3)
    rest = rows(server, "per_minute", found.id, limit=3, after=first.next)
    assert [*first.rows, *rest.rows] == everything.rows
    assert rest.next is None


def test_a_comparison_says_how_far_it_is_and_can_be_cancelled(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    put_minutes(server, "PER_MINUTE", OLD)
    put_minutes(server, "PER_MINUTE.v2", NEW)
    add, seen, reached, go_on = DifferenceWriter.add, [0], threading.Event(), threading.Event()

    def held(self: DifferenceWriter, row: Apart) -> None:
        """Wait at the second row that differs."""
        seen[0] += 1
        if seen[0] == 2:
            reached.set()
            assert go_on.wait(60)
        add(self, row)

    monkeypatch.setattr(DifferenceWriter, "add", held)
    number = server.http.post("/v1/views/per_minute/diff", json={}).json()["id"]
    path = f"/v1/views/per_minute/diff/{number}"
    assert reached.wait(60)
    now = server.http.get(path).json()
    assert (now["state"], now["found"]) == ("comparing", 1)
    assert server.http.post(f"{path}/cancel").status_code == 200
    go_on.set()
    wait_for(lambda: server.http.get(path).json()["state"] == "failed", 60, "the end of it")
    assert server.http.get(path).json()["error"]["message"] == "the comparison was cancelled"
    monkeypatch.undo()
    assert (compared(server, "per_minute").found, server.http.post(f"{path}/cancel").json()["state"]) == (4, "failed")


def test_a_difference_is_taken_away_as_a_file(server: Running) -> None:
    put(server, "BY_PAGE", ("PAGE", "N"), [(f"/{n}", n) for n in range(5000)])
    put(server, "BY_PAGE.v2", ("PAGE", "N"), [(f"/{n}", 2 * n) for n in range(5000)])
    number = compared(server, "by_page", old=1, new=2).id

    def taken(**parameters: Any) -> httpx.Response:
        answer = server.http.get(f"/v1/views/by_page/diff/{number}/export", params=parameters)
        assert answer.status_code == 200, answer.text
        return answer

    table = taken(format="csv")
    assert table.headers["content-disposition"] == "attachment; filename*=UTF-8''by_page-v1-v2.csv"
    assert table.headers["content-type"].startswith("text/csv")
    lines = list(csv.DictReader(io.StringIO(table.text, newline="")))
    assert len(lines) == 4999, "0 is 0"
    assert lines[0] == {"kind": "changed", "key.page": "/1", "old.n": "1", "new.n": "2", "delta.n": "1.0"}
    parquet = pq.read_table(pa.BufferReader(taken(format="parquet").content))
    assert (parquet.num_rows, pa.compute.sum(parquet["delta.n"]).as_py()) == (4999, sum(range(5000)))
    few = json.loads(taken(format="json", min_delta=4998).content)
    assert [one["key"]["page"] for one in few] == ["/4998", "/4999"]


def test_what_was_asked_for_wrongly_says_how(server: Running) -> None:
    put(server, "BY_PAGE", ("PAGE", "N"), [("/", 1)])
    number = compared(server, "by_page").id
    path = f"/v1/views/by_page/diff/{number}/rows"
    for parameters, message in (
        ({"kind": "same"}, "`kind` must be changed, only_old or only_new, got `same`"),
        ({"page": "/"}, "`page` is no filter"),
        ({"window": "0"}, "this view has no windows"),
        ({"key.page": "/", "prefix": "/"}, "`prefix` is of a key's column, and all of them are given"),
        ({"min_delta": "nan"}, "`min_delta` must be a number from 0 to inf, got `nan`"),
        ({"limit": "0"}, "`limit` must be a number from 1 to 1000, got `0`"),
    ):
        assert refusal(server.http.get(path, params=parameters)) == (400, message)
    for parameters, message in (
        ({"column": "x"}, "column `x` does not exist"),
        ({"key.x": "/"}, "key column `x` does not exist"),
    ):
        assert refusal(server.http.get(path, params=parameters)) == (404, message)
    assert refusal(server.http.get("/v1/views/by_page/diff/99")) == (404, "`by_page` has no difference 99")
    assert refusal(server.http.get(f"/v1/views/per_minute/diff/{number}"))[0] == 404
    assert refusal(server.http.get("/v1/views/by_page/diff/x/rows")) == (404, "`by_page` has no difference 0")
    assert refusal(server.http.post("/v1/views/by_page/diff", json={"old": 1, "new": 1})) == (
        409,
        "`by_page` has no two versions to compare",
    )
    assert refusal(server.http.post("/v1/views/by_page/diff", json={"old": 9}))[0] == 404
    assert refusal(server.http.post("/v1/views/by_page/diff", json={"older": 1}))[0] == 400
    server.http.post("/v1/views/by_page/forget")
    assert refusal(server.http.post("/v1/views/by_page/diff", json={})) == (
        409,
        "`by_page` has no two versions to compare",
    )
    assert server.http.get(path).status_code == 200, "what was found stays for a while"


def test_a_client_that_cannot_be_sent_all_of_it_notices(server: Running) -> None:
    put(server, "BY_PAGE", ("PAGE", "N"), [(f"/{n}" + "x" * 500, n) for n in range(20_000)])
    number = compared(server, "by_page").id

    def damage() -> None:
        for path in (server.services.project.data / "scratch").glob("*/rows.sqlite"):
            path.write_bytes(b"nothing of the kind")

    def take() -> None:
        with server.http.stream("GET", f"/v1/views/by_page/diff/{number}/export") as answer:
            for _ in answer.iter_bytes():
                damage()

    with pytest.raises(httpx.TransportError):
        take()

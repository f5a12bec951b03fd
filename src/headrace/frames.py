"""`headrace.sql("SELECT …")`: a question's answer as an Arrow table, from a running project or from a folder.

While a server runs the project it is asked, over HTTP in Arrow's format. While none does, the folder is opened here:
the views have what they had when it last ran, and nothing computes meanwhile.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import msgspec
import pyarrow as pa

from headrace.access.owner import own_key
from headrace.access.tls import trust_own
from headrace.client.arrow_rows import ARROW, ArrowReading
from headrace.clock import SystemClock
from headrace.config import Project, find_project, load_project
from headrace.coordinate.catalog import Catalog
from headrace.coordinate.local import holder
from headrace.deliver.ask.budget import Budget
from headrace.deliver.row_stream import open_rows
from headrace.deliver.tables import to_table
from headrace.errors import ConfigError, HeadraceError, NotRunning, Overloaded, UsageError, error_from_json
from headrace.log.base import Log
from headrace.log.open import open_log
from headrace.server.assemble import open_services
from headrace.server.query import plan_one
from headrace.server.services import Services
from headrace.sql.ask_plan import AskQuery
from headrace.sql.parser import parse
from headrace.sql.plan import PushQuery
from headrace.sql.planner import plan_as_question
from headrace.sql.statements import SelectStatement

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from headrace.process.kafka.place import KafkaPlace


def sql(
    text: str,
    *,
    project: Path | str | None = None,
    url: str | None = None,
    key: str | None = None,
    limit: int | None = None,
    timeout: float = 600.0,
) -> pa.Table:
    """Ask tables and streams with one SELECT, or run one other statement and get what it says.

    `project` is a folder, by default the nearest above the working directory; `url` (and `key`) a server instead.
    All rows of the answer come, unless `limit` says how many at most."""
    statements = parse(text)
    if len(statements) != 1:
        raise UsageError(f"one statement at a time, got {len(statements)}")
    [statement] = statements
    if isinstance(statement, SelectStatement) and statement.push:
        hint = "leave out EMIT to ask for what there is now; Client().feed(…) follows a table's changes"
        raise UsageError("a query with EMIT has no end, so no table", hint=hint)
    asks = isinstance(statement, SelectStatement)
    trust = None
    if url is None:
        found = _project(project)
        running = holder(found.data)
        if running is None:
            return _embedded(found, text, asks, limit, timeout)
        url, key, trust = running.url, key or own_key(found), trust_own(found)
    headers = {"authorization": f"Bearer {key}"} if key else {}
    with httpx.Client(
        base_url=url.rstrip("/"), headers=headers, timeout=timeout, trust_env=False, verify=trust or True
    ) as http:
        return _remote(http, text, asks, limit)


def spark_frame(spark: SparkSession, text: str, project: Path | str | None = None) -> DataFrame:
    """`headrace.spark.sql`: the same question as a DataFrame, over the log as it is now."""
    # Whoever asks a server needs no Spark.
    from headrace.process.ask.frame import ask_frame

    found = _project(project)
    log = open_log(found, SystemClock())
    try:
        return ask_frame(spark, _where(found, log), log, _question(text, Catalog(log)))
    finally:
        log.close()


def _question(text: str, catalog: Catalog) -> AskQuery:
    statements = parse(text)
    if len(statements) != 1 or not isinstance(statements[0], SelectStatement) or statements[0].push:
        raise UsageError("expected one SELECT without EMIT")
    return plan_as_question(statements[0], catalog)


def _where(project: Project, log: Log) -> Path | KafkaPlace:
    if project.settings.log.backend == "local":
        return project.log_folder
    from headrace.log.kafka import KafkaLog
    from headrace.process.kafka.place import KafkaPlace

    assert isinstance(log, KafkaLog)
    return KafkaPlace(log)


def _project(folder: Path | str | None) -> Project:
    found = Path(folder) if folder is not None else find_project(Path.cwd())
    if found is None:
        raise ConfigError(f"no headrace.toml in `{Path.cwd()}` or above", hint="name one with project= or url=")
    return load_project(found)


def _remote(http: httpx.Client, text: str, asks: bool, limit: int | None) -> pa.Table:
    url = str(http.base_url).rstrip("/")
    try:
        if not asks:
            answer = http.post("/v1/statements", json={"sql": text})
            return _said(_checked(answer).json()["results"][-1])
        body = {"sql": text, "stream": True} | ({} if limit is None else {"limit": limit})
        with http.stream("POST", "/v1/query", json=body, headers={"accept": ARROW}) as answer:
            if answer.status_code >= 400:
                answer.read()
                _checked(answer)
            reading = ArrowReading(answer.iter_bytes())
            return pa.Table.from_batches(reading.batches(), reading.schema)
    except httpx.ConnectError:
        raise NotRunning(f"nothing answers at `{url}`", hint="start it:  headrace up") from None
    except httpx.TransportError as error:
        raise HeadraceError(f"the connection to `{url}` broke: {error}") from None


def _checked(answer: httpx.Response) -> httpx.Response:
    if answer.status_code < 400:
        return answer
    try:
        body = answer.json()["error"]
    except (ValueError, KeyError, TypeError):
        raise HeadraceError(f"the server answered {answer.status_code}", detail=answer.text[:200] or None) from None
    raise error_from_json(body)


def _said(result: dict[str, Any]) -> pa.Table:
    """What a statement other than SELECT says: its rows, or its message."""
    if result.get("rows") is None:
        return pa.table({"message": [result.get("text") or result.get("message") or "done"]})
    names = [column["name"] if isinstance(column, dict) else column for column in result.get("columns") or []]
    columns = list(zip(*result["rows"], strict=True)) or [()] * len(names)
    texts = [[value if value is None or isinstance(value, str) else _json(value) for value in one] for one in columns]
    return pa.table({name: pa.array(one, pa.utf8()) for name, one in zip(names, texts, strict=True)})


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _embedded(project: Project, text: str, asks: bool, limit: int | None, timeout: float) -> pa.Table:
    with open_services(project, SystemClock()) as services:
        if not asks:
            results = services.statements.execute(text)
            return _said(msgspec.to_builtins(results[-1]))
        plan = plan_one(text, services.catalog)
        assert not isinstance(plan, PushQuery)
        _catch_up(services, timeout)
        budget = Budget(timeout, project.settings.server.query_bytes)
        with open_rows(services.delivery, plan, budget, limit) as stream:
            tables = [to_table(stream.columns, chunk) for chunk in stream.limited()]
        return pa.concat_tables([to_table(stream.columns, []), *tables])


def _catch_up(services: Services, seconds: float) -> None:
    """What was committed before the project stopped may not be in its views yet."""
    end = services.clock.monotonic() + seconds
    followers = services.followers
    while any(followers.lag(name) for name in followers.names()):
        if services.clock.monotonic() > end:
            raise Overloaded("the views are being filled", retry_after=5.0, hint="a larger timeout= waits longer")
        services.log.wait(services.log.snapshot().arrival, 0.01)

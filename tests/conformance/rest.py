"""REST cases: definitions and inputs as in other cases, then queries, answered as ksqlDB's API writes them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

from pyspark.sql import SparkSession

from headrace.clock import SystemClock
from headrace.deliver.base import Delivery, FeedEvent
from headrace.deliver.pull import pull
from headrace.deliver.push import push, push_from_topic
from headrace.errors import HeadraceError
from headrace.server.ksql.queries import _keys
from headrace.server.ksql.schemas import schema_text
from headrace.server.ksql.values import row_converter
from headrace.server.query import plan_one
from headrace.sql.ask_plan import AskQuery
from headrace.sql.plan import PullQuery, PushQuery
from headrace.store.follow import Followers
from headrace.store.memory import MemoryStore
from tests.conformance.case import CaseData, Json
from tests.conformance.compare import compare_topics, same_value
from tests.conformance.engine import Engine

SECONDS = 120.0
IDLE_SECONDS = 1.0
Answer = list[dict[str, Json]]


def rest_differences(case: CaseData, spark: SparkSession) -> list[str]:
    with Engine(spark) as engine:
        try:
            answers = _answers(case, engine)
        except HeadraceError as error:
            return [] if case.get("expected_error") else [str(error)]
        if case.get("expected_error"):
            return [f"it was accepted; expected: {case['expected_error'].get('message', '')}"]
        expected = [response["query"] for response in case["responses"] if "query" in response]
        found = [line for pair in zip(expected, answers, strict=False) for line in compare_answers(*pair)]
        topics = dict.fromkeys(record["topic"] for record in case["outputs"])
        actual = [record for topic in topics for record in engine.records(case, topic)]
        stream = {"kind": "STREAM", "mode": "sequence-per-key"}
        return found + compare_topics(case | {"compare": dict.fromkeys(topics, stream)}, actual)


def _answers(case: CaseData, engine: Engine) -> list[Answer]:
    statements = case["statements"]
    first = next((n for n, text in enumerate(statements) if text.lstrip().upper().startswith("SELECT")), None)
    for statement in statements[:first]:
        engine.executor.execute(statement)
    engine.append(case, case["inputs"])
    # Who listens to changes sees each of them.
    engine.compute(record_by_record=any("EMIT CHANGES" in text.upper() for text in statements))
    return [_ask(engine, sql, case["properties"]) for sql in statements[first:]] if first is not None else []


def _ask(engine: Engine, sql: str, properties: dict[str, Any]) -> Answer:
    query = plan_one(sql, engine.catalog)
    followers = Followers(engine.log, MemoryStore(), SystemClock())
    delivery = Delivery(engine.log, followers)
    try:
        followers.sync(engine.catalog.views(), engine.catalog.source)
        deadline = time.monotonic() + SECONDS
        while any(followers.lag(name) for name in followers.names()) and time.monotonic() < deadline:
            engine.log.wait(engine.log.snapshot().arrival, 0.01)
        if not isinstance(query, PushQuery):
            return _pulled(delivery, query)
        return asyncio.run(_pushed(engine, delivery, query, sql, properties))
    finally:
        delivery.close()
        followers.close()


def _pulled(delivery: Delivery, query: PullQuery | AskQuery) -> Answer:
    answer = pull(delivery, query)
    convert = row_converter(answer.columns)
    rows: Answer = [{"row": {"columns": convert(row)}} for row in answer.rows]
    end: Answer = [{"finalMessage": "Query Completed"}] if any(read.version is None for read in answer.reads) else []
    return [{"header": {"schema": schema_text(answer.columns, _keys(query))}}, *rows, *end]


async def _pushed(engine: Engine, delivery: Delivery, query: PushQuery, sql: str, properties: dict[str, Any]) -> Answer:
    """What there is now; a query with state runs in Spark first."""
    header: Answer = [{"header": {"schema": schema_text(query.root.columns, ())}}]
    if query.stateless:
        events = push(delivery, query, from_beginning=True, heartbeat_s=IDLE_SECONDS)
    else:
        definition = engine.executor.start_transient(query, sql)
        engine.compute(record_by_record=True)
        sink = engine.catalog.source(definition.sink)
        assert sink is not None
        events = push_from_topic(delivery, sink, query.root.columns, limit=query.limit, heartbeat_s=IDLE_SECONDS)
    return header + await _collected(events, row_converter(query.root.columns))


async def _collected(events: AsyncIterator[FeedEvent], convert: Callable[[list[Any]], list[Any]]) -> Answer:
    found: Answer = []
    async for event in events:
        if event.event == "row":
            tombstone = {"tombstone": True} if event.data.get("tombstone") else {}
            found.append({"row": {"columns": convert(event.data["row"])} | tombstone})
        elif event.event == "end":
            return [*found, {"finalMessage": "Limit Reached"}]
        elif event.event == "heartbeat":
            break
    return found


def compare_answers(expected: Answer, actual: Answer) -> list[str]:
    """The schema exactly, rows in any order; of a row the fields that the case names."""
    found = []
    [wanted, got] = [[part["header"]["schema"] for part in answer if "header" in part] for answer in (expected, actual)]
    if wanted and wanted != got:
        found.append(f"schema\n      expected {wanted}\n      got      {got}")
    rows, left = [[p["row"] for p in answer if "row" in p] for answer in (expected, actual)]
    for row in rows:
        place = next((n for n, one in enumerate(left) if _same_row(row, one)), None)
        if place is None:
            found.append(f"row\n      expected {row}\n      got      {left[:4] or 'nothing'}")
        else:
            del left[place]
    if left and not found:
        found.append(f"row\n      expected nothing\n      got      {left[:4]}")
    return found


def _same_row(wanted: dict[str, Json], got: dict[str, Json]) -> bool:
    return all(name in got and same_value(value, got[name]) for name, value in wanted.items())

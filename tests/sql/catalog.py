"""A small catalog, and short ways to plan against it."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.errors import SqlError
from headrace.sql.api import Draft, compile_expression, parse, parse_expression, validate
from headrace.sql.expressions import Expression
from headrace.sql.plan import PersistentQuery, PullQuery, PushQuery
from headrace.sql.resolve import resolve
from headrace.sql.scope import Scope
from headrace.sql.script import Script
from headrace.sql.source import Source
from headrace.sql.validate import check
from headrace.types import DataType

SHOP = """
CREATE STREAM pageviews (userid VARCHAR KEY, pageid VARCHAR, viewtime TIMESTAMP, seconds INT)
  WITH (KAFKA_TOPIC='pageviews', VALUE_FORMAT='JSON', TIMESTAMP='viewtime', PARTITIONS=2);
CREATE STREAM orders (
    id BIGINT KEY, customer VARCHAR, amount DECIMAL(10, 2), paid BOOLEAN, placed DATE, weight DOUBLE,
    tags ARRAY<VARCHAR>, counts MAP<VARCHAR, INT>, picture BYTES, at TIME,
    address STRUCT<street VARCHAR, city STRUCT<name VARCHAR, zip INT>>
  ) WITH (KAFKA_TOPIC='orders');
CREATE STREAM clicks (x INT, y INT) WITH (KAFKA_TOPIC='clicks');
CREATE STREAM words (word VARCHAR) WITH (KAFKA_TOPIC='words', VALUE_FORMAT='KAFKA');
CREATE TABLE users (id VARCHAR PRIMARY KEY, name VARCHAR, registered TIMESTAMP) WITH (KAFKA_TOPIC='users');
CREATE TABLE views_per_minute AS
  SELECT pageid, COUNT(*) AS views FROM pageviews WINDOW TUMBLING (SIZE 1 MINUTE) GROUP BY pageid;
"""


def shop() -> Draft:
    draft = Draft()
    for statement in parse(SHOP):
        check(statement, draft)
    return draft


def plan(sql: str) -> PersistentQuery:
    [(_, meaning)] = validate(sql, shop())
    assert isinstance(meaning, PersistentQuery)
    return meaning


def pull(sql: str) -> PullQuery:
    [(_, meaning)] = validate(sql, shop())
    assert isinstance(meaning, PullQuery)
    return meaning


def push(sql: str) -> PushQuery:
    [(_, meaning)] = validate(sql, shop())
    assert isinstance(meaning, PushQuery)
    return meaning


def declare(sql: str) -> Source:
    [(_, meaning)] = validate(sql, shop())
    assert isinstance(meaning, Source)
    return meaning


def refused(sql: str) -> SqlError:
    """The error a statement gets over the shop's catalog."""
    with pytest.raises(SqlError) as caught:
        validate(sql, shop())
    return caught.value


def resolved(text: str, **columns: DataType) -> Expression:
    return resolve(parse_expression(text), Scope(Script(text), columns))


def value(text: str, columns: dict[str, DataType] | None = None, **row: Any) -> Any:
    """The value of an expression over a row."""
    return compile_expression(resolved(text, **(columns or {})), lambda: 1_700_000_000_000)(row)

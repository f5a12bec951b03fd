"""The database that is followed, what happens in it at random, and what Headrace is to make of it."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from tests.chaos.debezium.postgres import Postgres

TABLES = (
    "CREATE TABLE customers (id int PRIMARY KEY, name text, city text, balance numeric(12,2), joined date,"
    " seen timestamptz(3), doc jsonb, tags text[], mark uuid);",
    # Rows of this one are large: only with the whole row before does PostgreSQL tell what stays as it is.
    "CREATE TABLE orders (region text, n int, total numeric, note text, PRIMARY KEY (region, n));",
    "ALTER TABLE orders REPLICA IDENTITY FULL;",
)
NEW_COLUMN = "ALTER TABLE customers ADD COLUMN extra text;"
PIPELINE = """
CREATE TABLE customers (id INTEGER PRIMARY KEY, name VARCHAR, city VARCHAR, balance DECIMAL(12,2), joined DATE,
    seen TIMESTAMP, doc VARCHAR, tags ARRAY<VARCHAR>, mark VARCHAR, extra VARCHAR)
  WITH (KAFKA_TOPIC='customers', VALUE_FORMAT='JSON', PARTITIONS=2);
CREATE TABLE orders (region VARCHAR PRIMARY KEY, n INTEGER PRIMARY KEY, total DECIMAL(20,4), note VARCHAR)
  WITH (KAFKA_TOPIC='orders', VALUE_FORMAT='JSON', PARTITIONS=2);
CREATE STREAM changes (op VARCHAR) WITH (KAFKA_TOPIC='changes', VALUE_FORMAT='JSON', PARTITIONS=1);
CREATE TABLE by_city AS SELECT city, COUNT(*) AS people, SUM(balance) AS balance FROM customers GROUP BY city;
"""
CHANGED = ("FROM customers GROUP", "FROM customers WHERE balance > 0 GROUP")
COLLECTOR = """
type = "debezium"
changes = "changes"

[tables]
"public.customers" = "customers"
"public.orders" = "orders"
"""
COMPARED = {
    "customers": ("id", "name", "city", "balance", "joined", "seen", "doc", "tags", "mark", "extra"),
    "orders": ("region", "n", "total", "note"),
}
CITIES = ("Bern", "Zürich", "Genève")
RowSet = set[tuple[Any, ...]]


@dataclass
class Shop:
    """Changes the tables, and counts the changes that Debezium must tell."""

    database: Postgres
    chance: random.Random
    told: int = 0
    customers: list[int] = field(default_factory=list)
    orders: list[tuple[str, int]] = field(default_factory=list)
    next: int = 1

    def change(self) -> None:
        """One transaction of a few changes; one in ten is rolled back, and never happened."""
        keep = self.chance.random() > 0.1
        before = (self.told, list(self.customers), list(self.orders))
        statements = [self._one() for _ in range(self.chance.randint(1, 4))]
        self.database.run("BEGIN;", *statements, "COMMIT;" if keep else "ROLLBACK;")
        if not keep:
            self.told, self.customers, self.orders = before

    def _one(self) -> str:
        return self._customer() if self.chance.random() < 0.7 else self._order()

    def _number(self) -> int:
        self.next += 1
        return self.next

    def _customer(self) -> str:
        self.told += 1
        what = self.chance.choice(("insert", "insert", "update", "update", "delete", "key")) if self.customers else ""
        if what in ("", "insert"):
            self.customers.append(self._number())
            return (
                f"INSERT INTO customers VALUES ({self.customers[-1]}, 'Ann ''{self.next}'' 😀', '{self._city()}',"
                f" {self._money()}, '19{self.next % 90 + 10}-02-28', now() - interval '{self.next} hours',"
                f""" '{{"n": {self.next}, "ü": [null, 1.50]}}', '{{a,NULL,"b c"}}', gen_random_uuid());"""
            )
        place = self.chance.randrange(len(self.customers))
        id_ = self.customers[place]
        if what == "update":
            return f"UPDATE customers SET city = '{self._city()}', balance = {self._money()} WHERE id = {id_};"
        if what == "delete":
            self.customers.pop(place)
            return f"DELETE FROM customers WHERE id = {id_};"
        self.told += 1  # the end of one row, the beginning of another
        self.customers[place] = self._number()
        return f"UPDATE customers SET id = {self.customers[place]} WHERE id = {id_};"

    def _order(self) -> str:
        self.told += 1
        what = self.chance.choice(("insert", "update", "delete")) if self.orders else "insert"
        if what == "insert":
            self.orders.append((self._city(), self._number()))
            region, n = self.orders[-1]
            note = "(SELECT string_agg(md5(i::text), '') FROM generate_series(1, 300) i)"
            return f"INSERT INTO orders VALUES ('{region}', {n}, {self._money()}, {note});"
        place = self.chance.randrange(len(self.orders))
        region, n = self.orders[place]
        where = f"WHERE region = '{region}' AND n = {n};"
        if what == "update":
            return f"UPDATE orders SET total = {self._money()} {where}"
        self.orders.pop(place)
        return f"DELETE FROM orders {where}"

    def _city(self) -> str:
        return self.chance.choice(CITIES)

    def _money(self) -> str:
        return f"{self.chance.randrange(-1000, 100_000)}.{self.chance.randrange(100):02d}"

    def rows(self, table: str) -> RowSet:
        names = [f"{name}::text" if name == "doc" else name for name in COMPARED[table]]
        text = self.database.run(f"SELECT coalesce(json_agg(json_build_array({', '.join(names)})), '[]') FROM {table};")
        return comparable(json.loads(text, parse_float=Decimal))

    def by_city(self, where: str = "") -> RowSet:
        rows = f"SELECT city, count(*) AS people, sum(balance) AS balance FROM customers {where} GROUP BY city"
        text = self.database.run(
            f"SELECT coalesce(json_agg(json_build_array(city, people, balance)), '[]') FROM ({rows}) q;"
        )
        return comparable(json.loads(text, parse_float=Decimal))


def comparable(rows: list[list[Any]]) -> RowSet:
    return {tuple(_plain(value) for value in row) for row in rows}


def _plain(value: Any) -> Any:
    """Numbers by what they are, times without the ways to write them."""
    if isinstance(value, list):
        return tuple(value)
    if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        return Decimal(str(value)).normalize()
    if isinstance(value, str) and len(value) > 19 and value[10] == "T" and value[4] == "-":
        whole, _, fraction = value.removesuffix("+00:00").removesuffix("Z").partition(".")
        return f"{whole}.{fraction:0<3}"
    return value

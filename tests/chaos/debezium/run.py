"""One run: changes under kills, then the tables compared, then a view over them changed and changed back."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from tests.chaos.crash import Installation
from tests.chaos.debezium.postgres import postgres
from tests.chaos.debezium.sender import Debezium
from tests.chaos.debezium.shop import (
    CHANGED,
    COLLECTOR,
    COMPARED,
    NEW_COLUMN,
    PIPELINE,
    TABLES,
    RowSet,
    Shop,
    comparable,
)
from tests.support import let_pass, wait_for

VICTIMS = ("debezium", "server", "debezium", "everything")
PATIENCE_S = 60.0
SIGNS = {"provide.transaction.metadata": "true", "heartbeat.interval.ms": "500"}


@dataclass
class Outcome:
    kills: Counter[str] = field(default_factory=Counter)
    told: int = 0
    wrong: list[str] = field(default_factory=list)


class Headrace(Installation):
    def rows(self, table: str, columns: tuple[str, ...]) -> RowSet:
        sql = {"sql": f"SELECT {', '.join(columns)} FROM {table};", "limit": 100_000}
        answer = httpx.post(f"{self.url}/v1/query", json=sql, timeout=60).raise_for_status()
        return comparable(json.loads(answer.content, parse_float=Decimal)["rows"])

    def records(self, topic: str) -> int:
        count: int = self.get(f"/v1/topics/{topic}")["records"]
        return count

    def letters(self, topic: str) -> list[str]:
        return [letter["reason"] for letter in self.get(f"/v1/topics/{topic}/dead-letters")["dead_letters"]]

    def command(self, *words: str) -> dict[str, Any]:
        command = [sys.executable, "-m", "headrace.cli.main", *words, "--project", str(self.folder), "--json"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode not in (0, 2):
            raise RuntimeError(f"headrace {' '.join(words)}: {done.stdout}{done.stderr}")
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer


def run(folder: Path, changes: int, kills: int, seed: int, form: str, say: Callable[[str], object] = print) -> Outcome:
    chance, outcome = random.Random(seed), Outcome()
    with ExitStack() as closing:
        database = closing.enter_context(postgres(folder / "postgres"))
        shop = Shop(database, chance)
        database.run(*TABLES)
        for _ in range(20):
            shop.change()
        # What is there before Debezium comes, it reads; what was before that, nobody tells.
        shop.told = len(shop.customers) + len(shop.orders)
        headrace = Headrace(folder / "headrace", PIPELINE)
        (headrace.folder / "collectors").mkdir()
        (headrace.folder / "collectors" / "shop.toml").write_text(COLLECTOR)
        closing.callback(headrace.down)
        headrace.up()
        debezium = Debezium(folder / "debezium", database, f"{headrace.url}/v1/collect/shop", form, SIGNS)
        closing.callback(debezium.kill)
        # A snapshot that is begun anew forgets the rows that were deleted meanwhile, so nothing is killed in it.
        wait_for(lambda: headrace.records("changes") >= shop.told, PATIENCE_S, "the snapshot")
        say(f"{shop.told} rows read before the first change")
        killed = 0
        for number in range(changes):
            shop.change()
            if number == changes // 2:
                database.run(NEW_COLUMN)
                database.run("UPDATE customers SET extra = 'new';")
                shop.told += len(shop.customers)
            if killed < kills and number >= (killed + 1) * changes // (kills + 1):
                victim = VICTIMS[killed % len(VICTIMS)]
                let_pass(chance.uniform(0.0, 1.0))
                _kill(victim, headrace, debezium)
                outcome.kills[victim] += 1
                killed += 1
                say(f"kill {killed}: {victim}, after {shop.told} changes")
        outcome.told = shop.told
        _compare(headrace, shop, outcome)
        if not outcome.wrong:
            say("the tables are the same; the view over them is changed and changed back")
            _change_the_view(headrace, shop, outcome)
    return outcome


def _kill(victim: str, headrace: Headrace, debezium: Debezium) -> None:
    if victim == "debezium":
        debezium.kill()
        debezium.start()
    else:
        headrace.kill(victim)
        headrace.ensure_up()


def _compare(headrace: Headrace, shop: Shop, outcome: Outcome) -> None:
    for table, columns in COMPARED.items():
        _eventually(f"table {table}", partial(headrace.rows, table, columns), shop.rows(table), outcome)
    if (found := headrace.records("changes")) != shop.told:
        outcome.wrong.append(f"{found} changes, {shop.told} happened")
    for topic in (*COMPARED, "changes"):
        outcome.wrong += [f"dead letter of {topic}: {reason}" for reason in headrace.letters(topic)[:10]]


def _eventually(what: str, found: Callable[[], RowSet], expected: RowSet, outcome: Outcome) -> None:
    try:
        wait_for(lambda: found() == expected, PATIENCE_S, what)
    except TimeoutError:
        rows = found()
        missing, more = sorted(expected - rows, key=str), sorted(rows - expected, key=str)
        outcome.wrong.append(f"{what}: {len(missing)} missing, {len(more)} too much: {missing[:2]} {more[:2]}"[:1000])


def _change_the_view(headrace: Headrace, shop: Shop, outcome: Outcome) -> None:
    def rows() -> RowSet:
        columns = ("city", "people", "balance")
        return {row for row in headrace.rows("by_city", columns) if row[1] > 0}

    _eventually("by_city", rows, shop.by_city(), outcome)
    file = headrace.folder / "pipelines" / "pipeline.sql"
    file.write_text(PIPELINE.replace(*CHANGED))
    plan = headrace.command("plan")
    verdicts = {change["name"].lower(): change["verdict"] for change in plan["changes"]}
    if verdicts.get("by_city") != "rebuilds":
        outcome.wrong.append(f"the plan says {verdicts}")
    headrace.command("deploy", "--approve")
    _eventually("by_city, changed", rows, shop.by_city("WHERE balance > 0"), outcome)
    for _ in range(20):
        shop.change()
    _eventually("by_city, changed, with more", rows, shop.by_city("WHERE balance > 0"), outcome)
    headrace.command("view", "rollback", "by_city")
    _eventually("by_city, changed back", rows, shop.by_city(), outcome)

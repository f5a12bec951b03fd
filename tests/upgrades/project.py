"""The project of the upgrade fixtures: its files, a driver for `headrace` as a process, and what it is asked."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx

from headrace.client import Client
from tests.support import free_port, wait_for

FIXTURES = Path(__file__).parents[1] / "fixtures" / "upgrades"
PATIENCE_S = 300

FILES = {
    "headrace.toml": """
[log]
retention_hours = 0
[log.archive]
folder = "archive"
after_hours = 1000000.0
[spark]
master = "local[2]"
memory = "1g"
[views]
keep_hours = 1000000.0
check_every_seconds = 0.0
""",
    "pipelines/1_sources.sql": """
CREATE STREAM clicks (userid VARCHAR KEY, page VARCHAR, amount DOUBLE, at TIMESTAMP)
  WITH (KAFKA_TOPIC='clicks', VALUE_FORMAT='JSON', PARTITIONS=2, TIMESTAMP='at');
CREATE TABLE users (userid VARCHAR PRIMARY KEY, country VARCHAR)
  WITH (KAFKA_TOPIC='users', VALUE_FORMAT='JSON', PARTITIONS=1);
CREATE STREAM outbox (recipient VARCHAR KEY, subject VARCHAR)
  WITH (KAFKA_TOPIC='outbox', VALUE_FORMAT='JSON', PARTITIONS=1);
CREATE STREAM imported (id BIGINT KEY, note VARCHAR)
  WITH (KAFKA_TOPIC='imported', VALUE_FORMAT='JSON', PARTITIONS=1);
CREATE STREAM polled (id VARCHAR KEY) WITH (KAFKA_TOPIC='polled', VALUE_FORMAT='JSON', PARTITIONS=1);
""",
    "pipelines/2_views.sql": """
CREATE STREAM paid AS SELECT userid, WITH_TAX(amount) AS total FROM clicks WHERE amount > 0;
CREATE TABLE by_page AS SELECT page, COUNT(*) AS views FROM clicks GROUP BY page;
CREATE TABLE per_minute AS SELECT page, COUNT(*) AS views FROM clicks
  WINDOW TUMBLING (SIZE 1 MINUTE, GRACE PERIOD 10 SECONDS) GROUP BY page;
CREATE TABLE by_country AS SELECT u.country AS country, COUNT(*) AS views, SUM(c.amount) AS amount
  FROM clicks c JOIN users u ON c.userid = u.userid GROUP BY u.country;
""",
    "functions/tax.py": '''
from headrace import function, on_topic


@function
def with_tax(amount: float) -> float:
    """The amount with tax."""
    return amount * 1.25


@on_topic("users", to="imported", start="earliest")
def note_user(records):
    """One note for each user."""
    return [{"id": 1000 + len(record.key), "note": record.key} for record in records]
''',
    "collectors/elsewhere.toml": """
type = "poll"
topic = "polled"
url = "http://127.0.0.1:9/items"
items = "items"
cursor = "next"
parameter = "at"
every_seconds = 3600.0
""",
    "jobs/history.toml": """
[[job]]
name = "history"
run = "import"
topic = "imported"
files = ["history/*.jsonl"]
""",
    "history/old.jsonl": "".join(json.dumps({"id": n, "note": f"old {n}"}) + "\n" for n in range(5)),
}
LAMBDA = "CREATE TABLE totals AS SELECT page, COUNT(*) AS views, AVG(amount) AS mean FROM clicks GROUP BY page;\n"
CHANGED = (
    "SELECT page, COUNT(*) AS views FROM clicks GROUP BY",
    "SELECT page, COUNT(*) * 10 AS views FROM clicks GROUP BY",
)

QUESTIONS = (
    "SELECT userid, page, amount FROM clicks ORDER BY userid, page;",
    "SELECT userid, total FROM paid;",
    "SELECT userid, country FROM users;",
    "SELECT page, views FROM by_page;",
    "SELECT page, windowstart, views FROM per_minute;",
    "SELECT country, views, amount FROM by_country;",
    "SELECT page, views, mean FROM totals;",
    "SELECT id, note FROM imported;",
)


def click(number: int, at: str, amount: float | None = None) -> dict[str, Any]:
    return {"userid": f"u{number % 3}", "page": f"/{number % 4}", "amount": amount or float(number), "at": at}


class Driven:
    """A project folder with `headrace` run as a process on it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        self.client = Client(f"http://127.0.0.1:{self.port}", patience=PATIENCE_S)

    def run(self, *arguments: str, code: int | None = 0) -> str:
        """`code`: how it must end; None: whatever it says."""
        command = [sys.executable, "-m", "headrace.cli.main", *arguments]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=PATIENCE_S * 4)
        if code is not None and done.returncode != code:
            logs = [file.read_text()[-4000:] for file in (self.folder / ".headrace").rglob("*.log")]
            raise AssertionError(f"{arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}\n" + "\n".join(logs))
        return done.stdout

    def json(self, *arguments: str, code: int = 0) -> Any:
        return json.loads(self.run(*arguments, "--json", code=code))

    def up(self) -> None:
        """Start it, and wait until it is ready: also while views are computed again."""
        self.run("up", "--detach", "--port", str(self.port), code=None)
        wait_for(lambda: self.get("/readyz", any_status=True).status_code == 200, PATIENCE_S, "a ready project")

    def down(self) -> None:
        self.run("down", code=None)

    def get(self, path: str, any_status: bool = False) -> httpx.Response:
        answer = httpx.get(f"http://127.0.0.1:{self.port}{path}", timeout=60, trust_env=False)
        return answer if any_status else answer.raise_for_status()

    def firehose(self, action: str, body: dict[str, Any]) -> None:
        headers = {
            "x-amz-target": f"Firehose_20150804.{action}",
            "content-type": "application/x-amz-json-1.1",
            "authorization": "AWS4-HMAC-SHA256 Credential=any/20260101/us-east-1/firehose/aws4_request, "
            "SignedHeaders=host, Signature=any",
        }
        url = f"http://127.0.0.1:{self.port}/"
        httpx.post(url, json=body, headers=headers, timeout=60, trust_env=False).raise_for_status()

    def put_delivery(self, stream: str, text: str) -> None:
        self.firehose(
            "PutRecord", {"DeliveryStreamName": stream, "Record": {"Data": base64.b64encode(text.encode()).decode()}}
        )

    def ask(self, sql: str) -> list[list[Any]]:
        return sorted(self.client.query(sql).rows, key=repr)

    def caught_up(self) -> bool:
        queries = self.get("/v1/queries").json()["queries"]
        return all(query["state"] == "running" and not query["lag"] for query in queries)

    def delivered(self) -> list[str]:
        files = (self.folder / ".headrace" / "buckets" / "lake").rglob("*")
        return sorted(line for file in files if file.is_file() for line in file.read_text().split())

    def answers(self) -> dict[str, Any]:
        """Everything the project says about itself that must be the same after an upgrade."""
        group = self.get("/v1/groups/readers").json()
        queue = self.get("/v1/queues/mails").json()
        deployments = self.get("/v1/deployments?limit=20").json()["deployments"]
        late = {query["sink"]: query["late_rows"] for query in self.get("/v1/queries").json()["queries"]}
        return {
            "queries": {sql: self.ask(sql) for sql in QUESTIONS},
            "compacted": {r.key["k"]: r.fields["v"] for r in self.client.consume("compacted", follow=False)},
            "raw": sorted(([r.key, r.value] for r in self.client.consume("raw", follow=False)), key=repr),
            "group": sorted([o["topic"], o["partition"], o["committed"]] for o in group["offsets"]),
            "queue": {name: queue[name] for name in ("topic", "order", "ready", "dead")},
            "deployments": [[d["id"], d["stage"]] for d in deployments],
            "late": late,
            "dead_letters": self.get("/v1/topics/clicks/dead-letters").json()["total"],
            "subjects": self.get("/registry/subjects").json(),
            "cursor": [r.value for r in self.client.consume("_cursors", follow=False)][-1],
            "jobs": [[run["state"], run["number"]] for run in self.get("/v1/jobs/history").json()["runs"]],
            "versions": [v["version"] for v in self.get("/v1/views/by_page/versions").json()["versions"]],
            "delivered": self.delivered(),
        }

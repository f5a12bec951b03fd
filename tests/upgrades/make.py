"""Make an upgrade fixture with the code that is checked out.

    python -m tests.upgrades.make 0.1.0-e8de351

runs a small project with something of everything, stops it, and writes `tests/fixtures/upgrades/NAME/`: the project's
folder (`project.tar.xz`) and its answers (`answers.json`). Fixtures are never changed afterwards: a new format gets a
new one.
"""

from __future__ import annotations

import json
import sys
import tarfile
import tempfile
from pathlib import Path

from headrace.client.values import NewRecord
from tests.support import wait_for
from tests.upgrades.project import CHANGED, FILES, FIXTURES, LAMBDA, PATIENCE_S, Driven, click

LEFT_OUT = (".lock", ".sock", ".pid", ".log")


def make(folder: Path) -> dict[str, object]:
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    project = Driven(folder)
    try:
        project.up()
        fill(project)
        return project.answers()
    finally:
        project.down()


def fill(project: Driven) -> None:
    client = project.client
    client.create_topic("compacted", "k VARCHAR KEY, v BIGINT", compacted=True)
    client.create_topic("raw", raw=True)
    client.produce("compacted", [{"k": f"k{n % 3}", "v": n} for n in range(9)])
    client.produce("raw", [NewRecord(key="YQ==", value="AAH/")])
    client.produce("users", [{"userid": f"u{n}", "country": "CH" if n else "DE"} for n in range(3)])
    client.produce("clicks", [click(n, f"2026-11-15T12:00:{n:02}Z") for n in range(20)], key="first")
    client.produce("clicks", [click(20, "2026-11-15T12:05:00Z")], key="later")
    client.produce("clicks", [click(21, "2026-11-15T12:00:30Z")], key="late")
    client.produce("clicks", [{"userid": 7, "page": [1]}], key="wrong")
    client.create_queue("mails", "outbox", lease_s=1, max_deliveries=3)
    client.produce("outbox", [{"recipient": f"r{n}", "subject": "Hello"} for n in range(4)])
    for message in client.receive("mails", limit=1, wait=30):
        client.ack("mails", message)
    with client.consumer("readers", "clicks") as consumer:
        read = 0
        while read < 22:
            read += len(consumer.poll(wait=20))
        consumer.commit()
    (project.folder / "order.avsc").write_text(
        json.dumps({"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]})
    )
    project.run("schema", "register", "orders-value", "order.avsc")
    project.run("collector", "reset", "elsewhere", "--to", "cursor:page-41", "--yes")
    project.run("run", "history")
    destination = {
        "RoleARN": "arn:aws:iam::000000000000:role/any",
        "BucketARN": "arn:aws:s3:::lake",
        "Prefix": "visits/",
        "BufferingHints": {"SizeInMBs": 1, "IntervalInSeconds": 1},
        "ProcessingConfiguration": {"Enabled": True, "Processors": [{"Type": "AppendDelimiterToRecord"}]},
    }
    project.firehose(
        "CreateDeliveryStream", {"DeliveryStreamName": "visits", "ExtendedS3DestinationConfiguration": destination}
    )
    project.put_delivery("visits", '{"visit":1}')
    wait_for(lambda: project.delivered() == ['{"visit":1}'], PATIENCE_S, "the delivery stream's file")
    (project.folder / "pipelines" / "3_lambda.sql").write_text(LAMBDA)
    project.run("deploy", "--strategy", "lambda", "--approve")
    project.run("log", "archive", "--seal")
    client.produce("clicks", [click(22, "2026-11-15T12:05:30Z")], key="after the archive")
    views = project.folder / "pipelines" / "2_views.sql"
    views.write_text(views.read_text().replace(*CHANGED))
    project.run("deploy", code=2)
    wait_for(project.caught_up, PATIENCE_S, "all queries")
    wait_for(lambda: len(project.ask("SELECT id, note FROM imported;")) == 8, PATIENCE_S, "the function on a topic")
    wait_for(lambda: client.queue("mails").ready == 3, PATIENCE_S, "the queue")


def pack(folder: Path, to: Path, answers: dict[str, object]) -> None:
    to.mkdir(parents=True)
    (to / "answers.json").write_text(json.dumps(answers, indent=1, sort_keys=True) + "\n")
    with tarfile.open(to / "project.tar.xz", "w:xz", preset=9) as archive:
        for file in sorted(folder.rglob("*")):
            if (file.is_file() or file.is_dir()) and file.suffix not in LEFT_OUT:
                archive.add(file, file.relative_to(folder), recursive=False)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        made = make(Path(scratch))
        pack(Path(scratch), FIXTURES / sys.argv[1], made)

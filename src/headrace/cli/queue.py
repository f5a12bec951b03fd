"""`headrace queue`: topics as queues. Also works while the project is not running."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from headrace.cli.backend import open_backend
from headrace.cli.options import JsonOption, KeyOption, ProjectOption, UrlOption
from headrace.cli.output import print_json, print_pairs, print_table
from headrace.cli.topic_records import line
from headrace.errors import UsageError

app = typer.Typer(name="queue", help="Queues: each message to one receiver, acknowledged.", no_args_is_help=True)
QueueArgument = Annotated[str, typer.Argument(metavar="QUEUE", help="A queue's name.")]
Receipts = Annotated[list[str], typer.Argument(metavar="RECEIPT…", help="As `receive` printed them.")]


@app.command("list", epilog="Example:  headrace queue list")
def list_queues(
    project: ProjectOption = None, url: UrlOption = None, key: KeyOption = None, as_json: JsonOption = False
) -> None:
    """All queues."""
    with open_backend(project, url, key) as backend:
        found = backend.queues()
    if as_json:
        print_json({"queues": found})
        return
    print_table(
        ["queue", "topic", "ready", "leased", "delayed", "dead"],
        [[q["name"], q["topic"], q["ready"], q["leased"], q["delayed"], q["dead"]] for q in found],
        empty="no queues; make one:  headrace queue create NAME --topic TOPIC",
    )


@app.command("show", epilog="Example:  headrace queue show jobs")
def show_queue(
    queue: QueueArgument,
    project: ProjectOption = None,
    url: UrlOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """One queue: how it is set, and how many messages wait, are out, or were given up."""
    with open_backend(project, url, key) as backend:
        found = backend.queue(queue)
    if as_json:
        print_json(found)
    else:
        print_pairs([(name.replace("_", " "), value) for name, value in found.items() if value is not None])


@app.command("create", epilog="Example:  headrace queue create jobs --topic orders --max-deliveries 3")
def create_queue(
    queue: QueueArgument,
    topic: Annotated[str, typer.Option(help="The topic it reads.", metavar="TOPIC")],
    lease: Annotated[float, typer.Option(help="Seconds a receiver has a message.", min=0.001)] = 30.0,
    max_deliveries: Annotated[int, typer.Option(help="Then it is a dead letter; 0: never.", min=0)] = 5,
    by_key: Annotated[bool, typer.Option("--by-key", help="Keep the order of messages of one key.")] = False,
    latest: Annotated[bool, typer.Option("--latest", help="Begin with what arrives from now on.")] = False,
    project: ProjectOption = None,
    url: UrlOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make a queue over a topic. The topic stays what it is; others may read it too."""
    body: dict[str, Any] = {
        "name": queue,
        "topic": topic,
        "lease_s": lease,
        "max_deliveries": max_deliveries,
        "order": "key" if by_key else "none",
        "start": "latest" if latest else "earliest",
    }
    with open_backend(project, url, key) as backend:
        made = backend.create_queue(body)
    if as_json:
        print_json(made)
    else:
        print(f"queue `{made['name']}` has {made['ready']:,} messages")


@app.command("delete", epilog="Example:  headrace queue delete jobs --yes")
def delete_queue(
    queue: QueueArgument,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    project: ProjectOption = None,
    url: UrlOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Forget a queue, and what was acknowledged. Its topic stays."""
    with open_backend(project, url, key) as backend:
        found = backend.queue(queue)
        if not yes:
            typer.confirm(f"forget `{queue}` with {found['ready'] + found['leased']:,} open messages?", abort=True)
        backend.delete_queue(queue)
    if as_json:
        print_json({"deleted": queue})
    else:
        print(f"deleted `{queue}`")


@app.command("receive", epilog="Example:  headrace queue receive jobs --limit 5 --wait 10 --ack")
def receive(
    queue: QueueArgument,
    limit: Annotated[int, typer.Option("--limit", "-n", help="At most this many.", min=1, max=1000)] = 1,
    wait: Annotated[float, typer.Option(help="Seconds to wait for the first.", min=0, max=60)] = 0.0,
    lease: Annotated[float | None, typer.Option(help="Seconds, instead of the queue's.", min=0.001)] = None,
    ack: Annotated[bool, typer.Option("--ack", help="Acknowledge them once they are printed.")] = False,
    project: ProjectOption = None,
    url: UrlOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Take messages and print them, with the receipts to settle them with."""
    with open_backend(project, url, key) as backend:
        messages = backend.receive(queue, limit, wait, lease)
        if as_json:
            print_json({"messages": messages})
        else:
            for message in messages:
                print(f"{message['receipt']:<24} {message['deliveries']}×  {line(message['record'])}", flush=True)
            if not messages:
                print("no messages now")
        if ack and messages:
            backend.settle(queue, "ack", {"receipts": [message["receipt"] for message in messages]})


@app.command("ack", epilog="Example:  headrace queue ack jobs 5f0c3a21.0.17.1")
def ack(
    queue: QueueArgument,
    receipts: Receipts,
    project: ProjectOption = None,
    url: UrlOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Messages are done."""
    with open_backend(project, url, key) as backend:
        _settled(backend.settle(queue, "ack", {"receipts": receipts}), as_json)


@app.command("nack", epilog="Example:  headrace queue nack jobs 5f0c3a21.0.17.1 --delay 60 --reason 'no stock'")
def nack(
    queue: QueueArgument,
    receipts: Receipts,
    delay: Annotated[float, typer.Option(help="Seconds before they come again.", min=0)] = 0.0,
    reason: Annotated[str | None, typer.Option(help="Why, for the dead letter.", metavar="TEXT")] = None,
    project: ProjectOption = None,
    url: UrlOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Messages could not be done: they come again, or become dead letters."""
    with open_backend(project, url, key) as backend:
        _settled(backend.settle(queue, "nack", {"receipts": receipts, "delay_s": delay, "reason": reason}), as_json)


@app.command("extend", epilog="Example:  headrace queue extend jobs 5f0c3a21.0.17.1 --lease 120")
def extend(
    queue: QueueArgument,
    receipts: Receipts,
    lease: Annotated[float | None, typer.Option(help="Seconds from now.", min=0.001)] = None,
    project: ProjectOption = None,
    url: UrlOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Keep messages for another lease."""
    with open_backend(project, url, key) as backend:
        _settled(backend.settle(queue, "extend", {"receipts": receipts, "lease_s": lease}), as_json)


def _settled(answer: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(answer)
    else:
        print(f"{answer['done']:,} done")
    if answer["lost"]:
        raise UsageError(
            f"{len(answer['lost'])} are somebody else's by now, or dead letters: {', '.join(answer['lost'][:5])}",
            hint="a lease that ended gives the message to the next receiver",
        )

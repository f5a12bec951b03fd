"""`headrace dlq`: what was not accepted, why, and sending it again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.options import JsonOption, KeyOption, ProjectOption, TopicArgument, UrlOption, open_api
from headrace.cli.output import local_time, print_json, print_rows, print_table
from headrace.errors import UsageError

if TYPE_CHECKING:
    from headrace.cli.api import Api

app = typer.Typer(name="dlq", help="Dead letters: events that were not accepted, with reason.", no_args_is_help=True)


@app.callback()
def dlq() -> None:
    """Dead letters: events that were not accepted, with reason and original bytes."""


@app.command("list", epilog="Example:  headrace dlq list pageviews --limit 10")
def list_dead_letters(
    topic: Annotated[str | None, typer.Argument(help="Only of this topic; all by default.")] = None,
    limit: Annotated[int, typer.Option(help="At most this many, newest first.", min=1)] = 20,
    project: ProjectOption = None,
    url: UrlOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """The newest dead letters."""
    with open_api(project, url, key) as api:
        names = [topic] if topic else _with_letters(api)
        answers = [api.get(f"/v1/topics/{name}/dead-letters", limit=limit) for name in names]
    letters: list[dict[str, Any]] = [letter for answer in answers for letter in answer["dead_letters"]]
    letters.sort(key=lambda letter: letter["offset"], reverse=True)
    total = sum(answer["total"] for answer in answers)
    if as_json:
        print_json({"dead_letters": letters[:limit], "total": total})
        return
    print_table(
        ["letter", "time", "topic", "attempts", "reason", "original"],
        [
            [_number(x), local_time(x["time_ms"]), x["topic"], x["attempts"], x["reason"], _original(x)]
            for x in letters[:limit]
        ],
        empty="no dead letters",
    )
    if any(letter.get("redriven") for letter in letters[:limit]):
        print("✓ was sent again")
    if total > limit:
        print(f"… {total - limit:,} more; --limit shows them, headrace dlq query counts them")


@app.command("show", epilog="Example:  headrace dlq show 912")
def show_dead_letter(
    letter: Annotated[int, typer.Argument(metavar="LETTER", help="Its number, as `dlq list` has it.", min=0)],
    project: ProjectOption = None,
    url: UrlOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """One dead letter: where it was to go, from where it came, why not, and its bytes."""
    with open_api(project, url, key) as api:
        body = api.get(f"/v1/dead-letters/{letter}")
    if as_json:
        print_json(body)
        return
    print(f"letter {letter}, {local_time(body['time_ms'])}, to {body['topic']} from {body['source'] or 'nobody knows'}")
    print(f"  reason    {body['reason']}")
    print(f"  attempts  {body['attempts']}")
    if body["id"]:
        print(f"  event id  {body['id']}")
    if body.get("redriven"):
        print("  it was sent again")
    print(body.get("text") or f"base64:{body['bytes']}")


@app.command(
    "query", epilog='Example:  headrace dlq query "SELECT reason, COUNT(*) FROM dead_letters GROUP BY reason;"'
)
def query_dead_letters(
    sql: Annotated[str, typer.Argument(metavar="SQL", help="A SELECT over `dead_letters`.")],
    project: ProjectOption = None,
    url: UrlOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Ask about dead letters in SQL. Columns: topic, reason, source, event_id, payload, attempts, ROWTIME,
    ROWOFFSET."""
    with open_api(project, url, key) as api:
        body = api.post("/v1/query", {"sql": sql if sql.rstrip().endswith(";") else sql + ";"})
    if as_json:
        print_json(body)
    else:
        print_rows(body["columns"], body["rows"])


@app.command(
    "redrive",
    epilog="Example:  headrace dlq redrive pageviews --where \"reason LIKE '%timestamp%'\" "
    '--set "viewtime = ROWTIME" --preview',
)
def redrive(
    topic: TopicArgument,
    where: Annotated[
        str | None, typer.Option(help="Only letters this SQL condition holds for.", metavar="CONDITION")
    ] = None,
    values: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help='"COLUMN = expression", or "payload = …" for the whole event.', metavar="ASSIGNMENT"
        ),
    ] = None,
    preview: Annotated[bool, typer.Option("--preview", help="Only show what would be sent.")] = False,
    limit: Annotated[int | None, typer.Option(help="At most this many letters, oldest first.", min=1)] = None,
    project: ProjectOption = None,
    url: UrlOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Send dead letters again, mended, each once and under its own id. What does not fit again stays a letter.

    A record that a function or a delivery stream failed for goes through it again, as it is now; with --preview it is
    called, and nothing is written. The letters of a delivery stream NAME are those of the topic _firehose.NAME.

    Conditions and values see the letter (reason, source, event_id, payload, attempts, ROWTIME) and each column of the
    topic, as the text that its field had."""
    order = {"where": where, "set": _assignments(values or []), "preview": preview, "limit": limit}
    with open_api(project, url, key) as api:
        body = api.post(f"/v1/topics/{topic}/dead-letters/redrive", order)
    if as_json:
        print_json(body)
    else:
        _print_redriven(body, preview)
    if body["rejected"]:
        raise typer.Exit(1)


def _with_letters(api: Api) -> list[str]:
    """Headrace's own topics too: a delivery stream's letters are those of its buffer."""
    return [topic["name"] for topic in api.get("/v1/topics", internal=True)["topics"] if topic["dead_letters"]]


def _assignments(texts: list[str]) -> dict[str, str]:
    """`["viewtime = ROWTIME"]` → `{"viewtime": "ROWTIME"}`."""
    found = {}
    for text in texts:
        name, _, value = text.partition("=")
        if not (name.strip() and value.strip()):
            raise UsageError(f"`{text[:100]}` sets nothing", hint='such as  --set "viewtime = ROWTIME"')
        found[name.strip().strip('`"')] = value.strip()
    return found


def _print_redriven(body: dict[str, Any], preview: bool) -> None:
    if not body["matched"]:
        print("no letter fits: nothing to send again")
        return
    does = "would now be accepted" if preview else "accepted"
    print(f"{body['accepted']:,} of {body['matched']:,} {does}")
    if body["duplicates"]:
        print(f"{body['duplicates']:,} had come meanwhile, under the same id: not doubled")
    if body["rejected"]:
        print(f"{'would not fit' if preview else 'not fitting, kept as letters'}: {body['rejected']:,}")
    for sample in body["samples"][:20]:
        mark = "✗" if sample["outcome"] == "rejected" else "✓"
        reason = f"   {sample['reason']}" if sample["reason"] else ""
        print(
            f"  {mark} {sample['letter']['offset']}  {_short(sample['event'] or _original(sample['letter']))}{reason}"
        )
    if preview and body["accepted"]:
        print("send them:  the same command without --preview")


def _number(letter: dict[str, Any]) -> str:
    return f"{letter['offset']}{' ✓' if letter.get('redriven') else ''}"


def _original(letter: dict[str, Any]) -> str:
    return _short(letter.get("text") or f"base64:{letter['bytes']}")


def _short(text: str) -> str:
    return text if len(text) <= 120 else text[:119] + "…"

"""`headrace dlq`: what was not accepted, and why."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from headrace.cli.options import JsonOption, KeyOption, ProjectOption, UrlOption, open_api
from headrace.cli.output import local_time, print_json, print_table

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
        names = [topic] if topic else [t["name"] for t in api.get("/v1/topics")["topics"] if t["dead_letters"]]
        answers = [api.get(f"/v1/topics/{name}/dead-letters", limit=limit) for name in names]
    letters: list[dict[str, Any]] = [letter for answer in answers for letter in answer["dead_letters"]]
    letters.sort(key=lambda letter: letter["offset"], reverse=True)
    total = sum(answer["total"] for answer in answers)
    if as_json:
        print_json({"dead_letters": letters[:limit], "total": total})
        return
    print_table(
        ["time", "topic", "reason", "original"],
        [[local_time(x["time_ms"]), x["topic"], x["reason"], _original(x)] for x in letters[:limit]],
        empty="no dead letters",
    )
    if total > limit:
        print(f"… {total - limit:,} more; --limit shows them, SELECT … FROM dead_letters counts them")


def _original(letter: dict[str, Any]) -> str:
    text = letter.get("text") or f"base64:{letter['bytes']}"
    return text if len(text) <= 120 else text[:119] + "…"

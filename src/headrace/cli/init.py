"""`headrace init`: a project to start from."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.options import JsonOption
from headrace.cli.output import print_json
from headrace.config import PROJECT_FILE
from headrace.errors import Conflict, UsageError

FILES = {
    PROJECT_FILE: "headrace.toml",
    "pipelines/pageviews.sql": "pageviews.sql",
    "collectors/pageviews.toml": "pageviews_collector.toml",
    "functions/pages.py": "pages_function.txt",
    "tests/pageviews.toml": "pageviews_test.toml",
    ".gitignore": "gitignore",
    "README.md": "README.md",
}


def register(app: typer.Typer) -> None:
    app.command(epilog="Example:  headrace init shop && cd shop && headrace up")(init)


def init(
    name: Annotated[str, typer.Argument(help="The folder to make; its name is the project's.")],
    as_json: JsonOption = False,
) -> None:
    """Make a project: commented settings, one pipeline, one collector, one function in Python, one test."""
    folder = Path(name)
    if not re.fullmatch(r"[\w .-]+", folder.resolve().name):
        raise UsageError(f"`{name}` is not a good name for a project", hint="letters, digits, `.`, `_` and `-`")
    if (folder / PROJECT_FILE).exists():
        raise Conflict(f"`{folder}` is a project already", hint=f"cd {folder} && headrace up")
    written = [write(folder, target, template) for target, template in FILES.items()]
    if as_json:
        print_json({"project": str(folder.resolve()), "files": [str(file) for file in written if file]})
        return
    print(f"made {folder}/")
    for file in written:
        if file:
            print(f"  {file.relative_to(folder)}")
    print(f"next:  cd {folder} && headrace up")


def write(folder: Path, target: str, template: str) -> Path | None:
    """Write one file of the project, unless there is one: what a user wrote is never overwritten."""
    file = folder / target
    if file.exists():
        return None
    file.parent.mkdir(parents=True, exist_ok=True)
    text = (resources.files("headrace.cli") / "template" / template).read_text(encoding="utf-8")
    file.write_text(text.replace("{{name}}", folder.resolve().name), encoding="utf-8")
    return file

"""Options that many commands share, and how a command finds its project and its server."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote

import typer

from headrace.access.owner import own_key
from headrace.access.tls import trust_file, trust_own
from headrace.config import Project, find_project, load_project
from headrace.coordinate.local import holder
from headrace.errors import ConfigError, NotRunning, UsageError

if TYPE_CHECKING:
    from headrace.cli.api import Api

ProjectOption = Annotated[
    Path | None,
    typer.Option("--project", help="The project's folder; by default the nearest one above here.", metavar="DIR"),
]
UrlOption = Annotated[
    str | None,
    typer.Option("--url", envvar="HEADRACE_URL", help="The server's address; by default the project's.", metavar="URL"),
]
KeyOption = Annotated[
    str | None,
    typer.Option(
        "--key", envvar="HEADRACE_KEY", help="API key; by default the project's first that may.", metavar="KEY"
    ),
]
TopicArgument = Annotated[str, typer.Argument(metavar="TOPIC", help="A topic's name, in its own case.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]


def open_project(folder: Path | None) -> Project:
    if folder is not None:
        return load_project(folder)
    found = find_project(Path.cwd())
    if found is None:
        raise ConfigError(
            f"no headrace.toml in `{Path.cwd()}` or above",
            hint="make a project:  headrace init NAME      or name one:  --project DIR",
        )
    return load_project(found)


def open_api(project: Path | None, url: str | None, key: str | None, timeout: float = 30.0) -> Api:
    """A client of the server that is named, or that runs the project. `NotRunning` if none does."""
    from headrace.cli.api import Api

    if url is not None:
        authority = os.environ.get("HEADRACE_CA")
        return Api(_checked(url), key, timeout, trust_file(authority) if authority else None)
    found = open_project(project)
    running = holder(found.data)
    if running is None:
        raise NotRunning(
            f"project `{found.name}` is not running",
            hint=f"start it:  headrace up{_named(project)}",
        )
    return Api(running.url, key or own_key(found), timeout, trust_own(found))


def _checked(url: str) -> str:
    if not url.startswith(("http://", "https://")):
        raise UsageError(f"`{url}` is not an address", hint="such as http://127.0.0.1:8080")
    return url.rstrip("/")


def _named(project: Path | None) -> str:
    return f" --project {project}" if project else ""


def in_terminal() -> bool:
    return os.isatty(1)


def view_path(view: str) -> str:
    """Where a view is, whatever it is called.

    >>> view_path("by day, 100%")
    '/v1/views/by%20day%2C%20100%25'
    """
    return f"/v1/views/{quote(view, safe='')}"


def columns_given(columns: dict[str, str], *ours: str) -> dict[str, str]:
    """Columns as parameters of a request: one that is called like a parameter of ours is told from it by its case.

    >>> columns_given({"limit": "3", "page": "/"}, "limit", "order")
    {'LIMIT': '3', 'page': '/'}
    """
    return {name.upper() if name in ours else name: value for name, value in columns.items()}

"""`headrace key`: keys for others, and the owner's own."""

from __future__ import annotations

from typing import Annotated

import typer

from headrace.access.keys import hash_key, make_key
from headrace.access.owner import find_owner_key
from headrace.cli.options import JsonOption, ProjectOption, open_project
from headrace.cli.output import print_json
from headrace.errors import NotFound, UsageError

ROLES = ("read", "write", "admin")

app = typer.Typer(name="key", help="Keys: a new one for somebody, and the owner's.", no_args_is_help=True)


@app.command("new", epilog="Example:  headrace key new --role write --name 'web shop'")
def new_key(
    role: Annotated[str, typer.Option(help="What it may: read, write or admin.", metavar="ROLE")] = "read",
    name: Annotated[str, typer.Option(help="Whose it is, for the audit.", metavar="NAME")] = "",
    as_json: JsonOption = False,
) -> None:
    """Make a key: shown once, with what headrace.toml is to hold instead of it."""
    if role not in ROLES:
        raise UsageError(f"`{role}` is not a role", hint="read, write or admin")
    key = make_key()
    if as_json:
        print_json({"key": key, "hash": hash_key(key), "role": role, "name": name})
        return
    print(f"the key, for whoever uses it; it cannot be shown again:\n\n  {key}\n\nfor headrace.toml:\n")
    print(f'  [[auth.keys]]\n  key = "{hash_key(key)}"\n  role = "{role}"')
    if name:
        print(f'  name = "{name}"')


@app.command("owner", epilog="Example:  headrace key owner")
def owner_key(project: ProjectOption = None, as_json: JsonOption = False) -> None:
    """Print the owner's key, which may do everything: for clients that the server cannot tell by their user."""
    found = open_project(project)
    key = find_owner_key(found)
    if key is None:
        raise NotFound(
            f"project `{found.name}` has no key of its owner that you may read", hint="`headrace up` makes it"
        )
    if as_json:
        print_json({"key": key})
    else:
        print(key)

"""Writes docs/reference/cli.md, settings.md and collectors.md from the code, so that they cannot say anything else.

python tests/cli/reference.py      after a command or a setting changed
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import typer.main

from headrace import config
from headrace.cli.main import app
from headrace.collect import definitions
from headrace.collect.agents import catalogue, interceptors, processors, selectors
from headrace.collect.agents.options import Option
from headrace.collect.kinds import KINDS, load
from headrace.collect.rules import settings as rules

DOCS = Path(__file__).parents[2] / "docs" / "reference"

CLI_INTRO = """# The `headrace` command

Made from the commands themselves by `tests/cli/reference.py`; a test fails when they differ.

- A command works on the project whose `headrace.toml` is nearest above the current folder, or on the one `--project`
  names. It talks to the server that runs the project, or to the one `--url` (or `HEADRACE_URL`) names.
- It sends the owner's key of the project, or the one of `--key` or `HEADRACE_KEY`. `HEADRACE_CA` names a file with the
  certificates that sign those of the server `--url` names, where the system does not know them.
- `topic`, `group` and `queue` also work while the project is not running: the command then opens the log itself, and is
  its owner for as long as it runs.
- Exit codes: 0 done, 1 failed, 3 not running, 64 wrong usage; 2 if `headrace plan` has changes, or `headrace
  deploy` waits for you.
- `--json` prints one JSON object (commands that go on print one a line). Times are in your zone, in JSON both as
  milliseconds and ISO 8601 in UTC. Errors go to standard error, with `--json` as `{"error": …}`.
- Colour and progress appear only on a terminal.
"""

SETTINGS_INTRO = """# Settings

`headrace.toml`, in the project's folder. Everything has a default, so the file may be empty; `headrace init` writes one
with every setting in comments. An unknown setting is an error. `SHOW PROPERTIES;` lists what is in force.

Made from `src/headrace/config.py` by `tests/cli/reference.py`; a test fails when they differ.
"""

SECTIONS: tuple[tuple[str, type[msgspec.Struct]], ...] = (
    ("", config.ProjectSettings),
    ("server", config.ServerSettings),
    ("log", config.LogSettings),
    ("log.archive", config.ArchiveSettings),
    ("log.kafka", config.KafkaSettings),
    ("collect", config.CollectSettings),
    ("kinesis", config.KinesisSettings),
    ("functions", config.FunctionSettings),
    ("spark", config.SparkSettings),
    ("store", config.StoreSettings),
    ("views", config.ViewsSettings),
    ("auth", config.AuthSettings),
    ("auth.keys", config.Key),
)


COLLECTORS_INTRO = """# Collectors

`collectors/NAME.toml`, one file a collector; [Collectors](../howto/collectors.md) says how to use them. An unknown
setting is an error, a changed file is read again at once, and a broken one keeps what runs: `headrace collector check`
names file and line. A field is named by its path, `user.email`: through objects, and through each element of an array;
upper and lower case are one.

Made from the code by `tests/cli/reference.py`; a test fails when they differ.
"""


def tables() -> Iterator[tuple[str, type[msgspec.Struct]]]:
    """The tables that every collector's file may have."""
    for field in msgspec.structs.fields(definitions.CollectorSettings):
        if isinstance(field.default, msgspec.Struct):
            yield field.name, type(field.default)
            if field.name == "validate":
                yield "validate.fields.NAME", rules.FieldRule


def collectors_page() -> str:
    common = definitions.CollectorSettings
    parts = [COLLECTORS_INTRO, f"## Of all types\n\n{_table(common, tables=False)}"]
    parts += [f"## `[{name}]`\n\n{_table(settings)}" for name, settings in tables()]
    known = {field.name for field in msgspec.structs.fields(common)}
    for kind in KINDS.values():
        written = (DOCS.parent / "howto" / f"{kind.page}.md").exists()
        page = f" [How to use it](../howto/{kind.page}.md)." if written else ""
        own = _table(load(kind.settings), skip=known)
        where = {
            "http": "over the server's port",
            "listen": "on a port of its own",
            "pull": "it is the client",
        }[kind.where]
        parts.append(f'## `type = "{kind.name}"`\n\n{kind.summary}; {where}.{page}\n\n{own}')
    return "\n".join(parts)


def _table(settings: type[msgspec.Struct], skip: Collection[str] = (), tables: bool = True) -> str:
    """Its fields with their docstrings; those of the structs it extends, too."""
    described: dict[str, str] = {}
    for base in reversed(settings.__mro__):
        if base.__module__.startswith("headrace."):
            described |= _descriptions(sys.modules[base.__module__].__file__ or "").get(base.__name__, {})
    rows = [
        f"| `{field.name}` | {_default(field)} | {described[field.name]} |"
        for field in msgspec.structs.fields(settings)
        if field.name not in skip and (tables or not isinstance(field.default, msgspec.Struct))
    ]
    if not rows:
        return "No settings of its own.\n"
    return "\n".join(["| setting | default | meaning |", "|---|---|---|", *rows]) + "\n"


def settings_page() -> str:
    descriptions = _descriptions()
    parts = [SETTINGS_INTRO]
    for section, settings in SECTIONS:
        title = {"": "At the top", "auth.keys": "`[[auth.keys]]`, once per key"}.get(section, f"`[{section}]`")
        parts.append(f"## {title}\n\n| setting | default | meaning |\n|---|---|---|")
        parts[-1] += "".join(
            f"\n| `{field.name}` | {_default(field)} | {descriptions[settings.__name__][field.name]} |"
            for field in msgspec.structs.fields(settings)
            if field.name in descriptions[settings.__name__]
        )
        parts[-1] += "\n"
    return "\n".join(parts)


def _default(field: Any) -> str:
    if field.default is not msgspec.NODEFAULT:
        value = field.default
    elif field.default_factory is not msgspec.NODEFAULT:
        value = field.default_factory()
    else:
        return "required"
    return f"`{msgspec.json.encode(value).decode()}`"


def _descriptions(file: str = config.__file__) -> dict[str, dict[str, str]]:
    """Class → field → the docstring below it."""
    found: dict[str, dict[str, str]] = {}
    for node in ast.parse(Path(file).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef):
            found[node.name] = dict(_field_docs(node))
    return found


def _field_docs(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for field, after in zip(node.body, node.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            match after:
                case ast.Expr(ast.Constant(str() as text)):
                    yield field.target.id, " ".join(text.split())


def cli_page() -> str:
    return "\n".join([CLI_INTRO, *(_command_part(path, command) for path, command in commands())])


def commands() -> Iterator[tuple[str, Any]]:
    """Every command by its full name."""

    def walk(path: str, command: Any) -> Iterator[tuple[str, Any]]:
        inner = getattr(command, "commands", None)
        if inner is None:
            yield path, command
            return
        for name, child in inner.items():
            yield from walk(f"{path} {name}", child)

    yield from walk("headrace", typer.main.get_command(app))


def _command_part(path: str, command: Any) -> str:
    parameters = [p for p in command.params if p.name != "help"]
    arguments = "".join(f" {_argument(p)}" for p in parameters if p.param_type_name == "argument")
    lines = [f"## `{path}{arguments}`", "", " ".join(command.help.split()), ""]
    example = command.epilog.removeprefix("Example:").strip()
    lines += ["```", f"$ {example}", "```", ""]
    rows = [_parameter_row(p) for p in parameters if p.name not in ("project", "url", "key", "as_json")]
    if rows:
        lines += ["| | |", "|---|---|", *rows, ""]
    common = [f"`{max(p.opts, key=len)}`" for p in parameters if p.name in ("project", "url", "key", "as_json")]
    lines += [f"And {', '.join(common)}.", ""]
    return "\n".join(lines)


def _argument(parameter: Any) -> str:
    name = parameter.metavar or parameter.name.upper()
    return name if parameter.required or name.startswith("[") else f"[{name}]"


def _parameter_row(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        name = _argument(parameter)
    else:
        name = ", ".join([*parameter.opts, *parameter.secondary_opts])
        if not parameter.is_flag:
            name += f" {parameter.metavar or 'N'}"
    default = parameter.default
    shown = f" Default: {default}." if default not in (None, False, (), []) and not callable(default) else ""
    return f"| `{name}` | {parameter.help}{shown} |"


AGENTS_INTRO = """# Components of agents

What `headrace agent components` lists: the types that a Flume agent may have, by Flume's own names, and what each
can be told. [Run a Flume agent](../howto/flume.md) says how they play together.

Made from `src/headrace/collect/agents` by `tests/cli/reference.py`; a test fails when they differ.
"""


def agents_page() -> str:
    parts = [AGENTS_INTRO]
    for role in ("source", "channel", "sink"):
        parts.append(f"## {role.capitalize()}s\n")
        parts += [_component(kind.names, kind.summary, kind.options) for kind in catalogue.KINDS if kind.role == role]
    for title, kinds in (
        ("Interceptors: `SOURCE.interceptors.NAME`", interceptors.INTERCEPTORS),
        ("Channel selectors: `SOURCE.selector`", selectors.SELECTORS),
        ("Sink processors: `SINKGROUP.processor`", processors.PROCESSORS),
    ):
        parts.append(f"## {title}\n")
        parts += [_component(kind.names, kind.summary, kind.options) for kind in kinds]
    return "\n".join(parts)


def _component(names: Sequence[str], summary: str, options: Sequence[Option]) -> str:
    also = f" Also `{'`, `'.join(names[1:])}`." if len(names) > 1 else ""
    rows = "".join(f"| {_option_names(one)} | {_option_default(one)} | {one.meaning} |\n" for one in options)
    table = f"\n| property | default | meaning |\n|---|---|---|\n{rows}" if rows else ""
    return f"### `{names[0]}`\n\n{summary}{also}\n{table}"


def _option_names(option: Option) -> str:
    return ", ".join(f"`{name}`" for name in (option.name, *option.also))


def _option_default(option: Option) -> str:
    if option.required:
        return "required"
    value = str(option.default).lower() if isinstance(option.default, bool) else option.default
    return "" if value in (None, "", ()) else f"`{str(value).replace('|', chr(92) + '|')}`"


PAGES = {
    "cli.md": cli_page,
    "settings.md": settings_page,
    "collectors.md": collectors_page,
    "agents.md": agents_page,
}

if __name__ == "__main__":
    for name, page in PAGES.items():
        (DOCS / name).write_text(page(), encoding="utf-8")

"""`headrace agent`: Flume's agents."""

from __future__ import annotations

import logging
import signal
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.options import JsonOption, KeyOption, ProjectOption, UrlOption, open_api, open_project
from headrace.cli.output import print_json, print_table
from headrace.config import find_project
from headrace.errors import ConfigError, NotFound, UsageError

if TYPE_CHECKING:
    from headrace.collect.agents.options import ComponentKind, Option
    from headrace.collect.agents.ports import Ports
    from headrace.collect.agents.running import Agent

app = typer.Typer(name="agent", help="Flume's agents: sources, channels, sinks.", no_args_is_help=True)

BROKERS = ("auto", "kafka", "log")


@app.callback()
def agent() -> None:
    """Flume's agents: sources, channels and sinks, from a .properties file as it stands, or from TOML."""


@app.command("run", epilog="Example:  headrace agent run --name a1 --conf flume.properties")
def run_agent(
    conf: Annotated[
        Path,
        typer.Option("--conf", "--conf-file", "-f", help="The agent's file, .properties or .toml.", metavar="FILE"),
    ],
    name: Annotated[
        str | None,
        typer.Option("--name", "-n", help="Which agent of the file; the only one by default.", metavar="NAME"),
    ] = None,
    brokers: Annotated[
        str,
        typer.Option(
            help="Where Kafka sinks write: `kafka`, the `log`, or `auto`: the log where no broker answers.",
            metavar="WHERE",
        ),
    ] = "auto",
    metrics_port: Annotated[
        int | None,
        typer.Option("--metrics-port", help="Serve counters at this port's /metrics.", min=0, metavar="PORT"),
    ] = None,
    until_done: Annotated[
        bool, typer.Option("--until-done", help="End when all sources have ended and all is delivered.")
    ] = False,
    project: ProjectOption = None,
    url: UrlOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run an agent until Ctrl-C; then print what its components counted."""
    from headrace.collect.agents.metrics import MetricsServer
    from headrace.collect.agents.reading import agent_of
    from headrace.collect.agents.running import Agent
    from headrace.lean import without_pandas
    from headrace.logs import start_logging

    without_pandas()
    if brokers not in BROKERS:
        raise UsageError(f"`--brokers` cannot be `{brokers}`", hint="one of " + ", ".join(BROKERS))
    start_logging()
    definition = agent_of(conf, name)
    for problem in definition.problems:
        logging.getLogger("headrace.agent").warning("%s line %d: %s", conf, problem.line, problem.message)
    stop = threading.Event()
    with ExitStack() as closing:
        for number in (signal.SIGINT, signal.SIGTERM):
            closing.callback(signal.signal, number, signal.signal(number, lambda *_: stop.set()))
        running = Agent(definition, _ports(closing, definition.name, project, url, key, brokers))
        if metrics_port is not None:
            server = MetricsServer(running, metrics_port)
            closing.callback(server.close)
            logging.getLogger("headrace.agent").info("counters at http://127.0.0.1:%d/metrics", server.port)
        running.start()
        try:
            while not stop.wait(0.2) and not (until_done and running.finished()):
                pass
        finally:
            running.stop()
    _print_counters(running, as_json)


def _ports(
    closing: ExitStack, agent: str, project: Path | None, url: str | None, key: str | None, brokers: str
) -> Ports:
    """Where the agent keeps things, and its way to the log: a server's, a project's, or none."""
    from headrace.cli.agent_log import HttpWriter, project_writer
    from headrace.collect.agents.ports import Ports
    from headrace.collect.agents.writers import Shared

    which: Any = brokers
    if url is not None:
        shared = Shared(lambda: HttpWriter(open_api(project, url, key), f"agent {agent}"))
        closing.callback(shared.close_all)
        return Ports(open_log=shared.open, brokers=which)
    if project is None and find_project(Path.cwd()) is None:
        if brokers == "log":
            raise ConfigError("there is no log here", hint="name one:  --project DIR  or  --url URL")
        return Ports(brokers=which)
    found = open_project(project)
    shared = Shared(lambda: project_writer(found, f"agent {agent}"))
    closing.callback(shared.close_all)
    return Ports(folder=found.data / "agents", open_log=shared.open, brokers=which)


def _print_counters(running: Agent, as_json: bool) -> None:
    from headrace.collect.agents.running import metrics

    if as_json:
        print_json(metrics(running))
        return
    rows = [
        [f"{role} {name}", counter, value]
        for (role, name), counters in running.counters.items()
        for counter, value in counters.read().items()
        if value
    ]
    print_table(["component", "counter", "value"], rows, empty="nothing happened")


@app.command("check", epilog="Example:  headrace agent check flume.properties")
def check_agent(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="An agent's file, .properties or .toml.")],
    as_json: JsonOption = False,
) -> None:
    """Explain a file: what its agents do, and what is wrong with it, by line."""
    from headrace.collect.agents.definition import explain
    from headrace.collect.agents.reading import agents_of

    agents = agents_of(file)
    if not agents:
        raise ConfigError(f"`{file}` has no agents", hint="name the components:  a1.sources = r1")
    problems = sorted((one for agent in agents for one in agent.problems), key=lambda one: one.line)
    failed = any(problem.severity == "error" for problem in problems)
    if as_json:
        said = [
            {"line": one.line, "severity": one.severity, "message": one.message, "hint": one.hint} for one in problems
        ]
        print_json({"agents": {one.name: explain(one)[1:] for one in agents}, "problems": said, "fine": not failed})
    else:
        for agent in agents:
            print("\n".join(explain(agent)))
        for problem in problems:
            print(f"{file}:{problem.line}: {problem.severity}: {problem.message}")
            if problem.hint:
                print(f"  {problem.hint}")
        if not problems:
            print("nothing to complain about")
    if failed:
        raise typer.Exit(1)


@app.command("components", epilog="Example:  headrace agent components TAILDIR")
def list_components(
    kind: Annotated[str | None, typer.Argument(metavar="[TYPE]", help="One type, with its properties.")] = None,
    as_json: JsonOption = False,
) -> None:
    """The types of sources, channels, sinks and interceptors, and what each can be told."""
    from headrace.collect.agents.catalogue import KINDS

    found = [one for one in KINDS if kind is None or kind.lower() in {name.lower() for name in one.names}]
    if not found:
        raise NotFound(f"there is no component `{kind}`", hint="headrace agent components lists them")
    if as_json:
        print_json({"components": [_described(one) for one in found]})
    elif kind is None:
        print_table(["role", "type", "what it does"], [[one.role, one.name, one.summary] for one in found])
    else:
        for one in found:
            print(f"{one.role} {', '.join(one.names)}\n  {one.summary}")
            print_table(["property", "default", "meaning"], [_option_row(option) for option in one.options])


def _described(kind: ComponentKind) -> dict[str, Any]:
    options = [
        {"name": one.name, "default": one.default, "required": one.required, "meaning": one.meaning}
        for one in kind.options
    ]
    return {"role": kind.role, "names": list(kind.names), "summary": kind.summary, "properties": options}


def _option_row(option: Option) -> list[Any]:
    default = "required" if option.required else "" if option.default is None else str(option.default)
    return [option.name, default, option.meaning]

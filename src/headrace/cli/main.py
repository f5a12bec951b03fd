"""The `headrace` command. Errors become exit codes: 0 done, 1 failed, 3 not running, 64 wrong usage. 2 is for
`plan` (there are changes) and `deploy` (it waits), so that a script can tell that from an option it mistyped."""

from __future__ import annotations

import os
import sys
from typing import Annotated, Any

import typer

from headrace import __version__
from headrace.cli import (
    agent,
    alert,
    backup,
    bench,
    collector,
    delivery,
    deploy,
    dlq,
    doctor,
    function,
    group,
    import_files,
    init,
    key,
    log,
    plan,
    query,
    queue,
    run_jobs,
    schema,
    sql,
    test,
    topic,
    trust,
    up,
    view,
    view_diff,
)
from headrace.cli.output import exit_code, print_error
from headrace.errors import HeadraceError

EXIT_USAGE = 64
"""EX_USAGE of sysexits.h."""

app = typer.Typer(
    name="headrace",
    no_args_is_help=True,
    add_completion=False,
    # Plain help: fast, and the same in a pipe as on a terminal.
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Start with:  headrace init NAME && cd NAME && headrace up",
)

for module in (init, up, sql, plan, deploy, test, doctor, bench, import_files, run_jobs, backup):
    module.register(app)
trust.register(view.app)
view_diff.register(view.app)
for commands in (topic, collector, alert, function, delivery, group, queue, log, schema, query, view, dlq, agent, key):
    app.add_typer(commands.app)


def usage_error() -> type[Any]:
    """Return the base of the errors for wrong usage, of the click that typer uses."""
    return next(base for base in typer.BadParameter.__mro__ if base.__name__ == "UsageError")


def _version(wanted: bool) -> None:
    if wanted:
        print(f"headrace {__version__}")
        raise typer.Exit


@app.callback()
def headrace(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Events in, live tables out."""


def main() -> None:
    # All of click's usage errors: an option, an argument or a command that does not exist, or a value that is none.
    usage_error().exit_code = EXIT_USAGE
    try:
        app()
    except HeadraceError as error:
        print_error(error, as_json="--json" in sys.argv)
        sys.exit(exit_code(error))
    except BrokenPipeError:
        # Whoever read our output has seen enough; Python must not complain about it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        print(f"{(error.strerror or str(error)).lower()}: `{error.filename or '?'}`", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()

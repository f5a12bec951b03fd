"""The prompt of `headrace sql`: history, completion, several lines until `;`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prompt_toolkit import PromptSession
from prompt_toolkit.auto_suggest import AutoSuggestFromHistory
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.lexers import PygmentsLexer
from pygments.lexers.sql import SqlLexer

from headrace.cli.formats import Format
from headrace.cli.output import print_error
from headrace.errors import HeadraceError
from headrace.sql.api import split

if TYPE_CHECKING:
    from headrace.cli.sql import SqlSession

PROMPT, MORE = "headrace> ", "        > "
HELP = """Statements end with `;` and may have several lines. Tab completes, → takes what history suggests, ↑ goes
back in it. Ctrl-C clears the line or ends a running query, Ctrl-D leaves.
  SHOW STREAMS;  SHOW TABLES;  SHOW QUERIES;  SHOW TOPICS;  SHOW FUNCTIONS;
  DESCRIBE name;  EXPLAIN SELECT …;  SELECT … FROM name;  SELECT … FROM name EMIT CHANGES;
  SET 'auto.offset.reset' = 'earliest';   lets EMIT CHANGES and PRINT begin with the oldest record
  PRINT topic [FROM BEGINNING] [LIMIT n];  RUN SCRIPT 'file.sql';  DEFINE name = 'value';  then ${name}
  format vertical   shows rows below each other; also table, json, csv"""
COMMANDS = ("", "exit", "quit", "help")
NAMES_FOLLOW = re.compile(r"\b(FROM|JOIN|INTO|DESCRIBE|DROP\s+(STREAM|TABLE))\s+$", re.IGNORECASE)
"""After these there can only be a stream or a table."""


def repl(session: SqlSession) -> None:
    prompt: PromptSession[str] = PromptSession(
        PROMPT,
        history=_history(),
        completer=SqlCompleter(session),
        auto_suggest=AutoSuggestFromHistory(),
        lexer=PygmentsLexer(SqlLexer),
        complete_while_typing=False,
        multiline=True,
        prompt_continuation=lambda width, number, wrapped: MORE,
        key_bindings=_keys(),
    )
    print(f"connected to {session.api.url}; `help` says what can be typed")
    while True:
        try:
            text = prompt.prompt().strip()
        except KeyboardInterrupt:
            continue
        except EOFError:
            return
        if text.lower().rstrip(";") in ("exit", "quit"):
            return
        if text.lower().rstrip(";") == "help":
            print(HELP)
        elif wanted := format_command(text):
            choose_format(session, wanted)
        elif text:
            run(session, text)


def run(session: SqlSession, text: str) -> None:
    """Run what was typed; an error is shown, not fatal."""
    try:
        session.run(text)
    except HeadraceError as error:
        print_error(error)
    except KeyboardInterrupt:
        print("^C")


def format_command(text: str) -> str | None:
    """
    >>> format_command("format csv;"), format_command("format"), format_command("SHOW TABLES;")
    ('csv', '?', None)
    """
    first, *rest = text.rstrip("; ").split() or [""]
    return None if first.lower() != "format" or len(rest) > 1 else rest[0].lower() if rest else "?"


def choose_format(session: SqlSession, wanted: str) -> None:
    formats = [format_.value for format_ in Format if format_ != Format.arrow]
    if wanted in formats:
        session.format = Format(wanted)
    else:
        print(f"rows are shown as {session.format}; format {' | '.join(formats)}")


def complete_statement(text: str) -> bool:
    """Whether Enter should run this, and not begin another line.

    >>> [complete_statement(text) for text in ("SHOW", "SELECT ';", "SELECT ';';", "SHOW TABLES; SHOW", "exit")]
    [False, False, True, False, True]
    """
    if text.strip().lower() in COMMANDS or format_command(text):
        return True
    return all(piece.complete for piece in split(text))


def _keys() -> KeyBindings:
    keys = KeyBindings()

    @keys.add("enter")
    def _enter(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if complete_statement(buffer.text):
            buffer.validate_and_handle()
        else:
            buffer.insert_text("\n")

    return keys


def _history() -> History:
    file = Path.home() / ".headrace_history"
    try:
        file.touch(mode=0o600)
    except OSError:
        return InMemoryHistory()
    return FileHistory(str(file))


class SqlCompleter(Completer):
    """Keywords, functions, streams, tables and columns, asked of the server when Tab is pressed."""

    def __init__(self, session: SqlSession) -> None:
        self._session = session

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        word = document.get_word_before_cursor(pattern=re.compile(r"[A-Za-z_][\w]*"))
        before = document.text_before_cursor.removesuffix(word)
        if not word and not NAMES_FOLLOW.search(before):
            return
        try:
            known = self._session.api.get("/v1/completions")
        except HeadraceError:
            return
        found = sources(known) if NAMES_FOLLOW.search(before) else candidates(known, document.text)
        for text, kind in found:
            if text.lower().startswith(word.lower()) and text.lower() != word.lower():
                yield Completion(text, start_position=-len(word), display_meta=kind)


def sources(known: dict[str, Any]) -> list[tuple[str, str]]:
    return [(source["name"], source["kind"]) for source in known["sources"]]


def candidates(known: dict[str, Any], text: str) -> list[tuple[str, str]]:
    """What may be meant, likeliest first: columns of the sources the text names, then sources, functions, keywords."""
    words = {word.lower() for word in re.findall(r"\w+", text)}
    columns = {
        column["name"]: source["name"]
        for source in known["sources"]
        if source["name"].lower() in words
        for column in source["columns"]
    }
    return [
        *((name, f"column of {source}") for name, source in columns.items()),
        *sources(known),
        *((function["name"], function.get("signature") or "function") for function in known["functions"]),
        *((keyword, "keyword") for keyword in known["keywords"]),
    ]

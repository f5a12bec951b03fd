"""Let a puller begin elsewhere: at what its source has first or last, or where somebody says.

The cursor is written as the collector itself would write it, under its name. So whatever process runs it has written
its last, and goes on at the new place when it is started again.
"""

from __future__ import annotations

import re
import threading
from typing import Any

import msgspec

from headrace.collect.definitions import Definition
from headrace.collect.kinds import load
from headrace.collect.outlet import Outlet, Stopped
from headrace.errors import HeadraceError, UsageError
from headrace.log.base import Log

BEGINNING, END = "beginning", "end"
CURSOR = "cursor:"
RESETS_FILE = "resets.json"
"""In the project's data folder: collector → its last reset, so that the process that runs it starts it again at once,
though it may wait for something else."""


def reset_collector(log: Log, definition: Definition, to: str) -> Any:
    """Its new cursor."""
    if not definition.kind.place:
        raise UsageError(
            f"collector `{definition.name}` has no place to begin at",
            hint=f"it is of type `{definition.kind.name}`; those that pull by a cursor have one",
        )
    cursor = load(definition.kind.place)(definition.settings, to)
    # Already set: whatever does not go at once is an error, and nobody waits.
    stopping = threading.Event()
    stopping.set()
    outlet = Outlet(log, definition.name, stopping, lambda why: None)
    try:
        outlet.open()
        outlet.advance(cursor)
        outlet.settle()
    except Stopped as stopped:
        raise stopped.__cause__ if isinstance(stopped.__cause__, HeadraceError) else stopped from None
    finally:
        outlet.close()
    return cursor


def no_such_place(to: str, *places: str) -> UsageError:
    return UsageError(f"`{to[:60]}` is no place to begin at", hint=f"one of {', '.join(places)}")


def place_in_offsets(source: str, to: str, wanted: str = "0:48211,1:7") -> Any:
    """A cursor of a puller that counts offsets; `at` is what the text says, by partition."""
    if to in (BEGINNING, END):
        return {"of": source, "at": None, "start": "earliest" if to == BEGINNING else "latest"}
    if not re.fullmatch(r"\d{1,6}:\d{1,18}(,\d{1,6}:\d{1,18})*", to, re.ASCII):
        raise no_such_place(to, BEGINNING, END, f"PARTITION:OFFSET,… such as {wanted}")
    return {"of": source, "at": dict(pair.split(":") for pair in to.split(","))}


def place_of_cursor(source: str, to: str) -> Any:
    """A cursor of a puller whose source says what cursors are: nobody but it knows its end."""
    if to == BEGINNING:
        return {"of": source, "at": None}
    if not to.startswith(CURSOR) or to == CURSOR:
        raise no_such_place(to, BEGINNING, f"{CURSOR}VALUE, as the source understands it")
    value = to.removeprefix(CURSOR)
    try:
        found = msgspec.json.decode(value)
    except msgspec.DecodeError:
        found = value
    return {"of": source, "at": found if type(found) in (int, float) else value}

"""What became of a request: a result that is kept, or that it must be tried again."""

from __future__ import annotations

import logging
from concurrent.futures import CancelledError, Future
from typing import NamedTuple

from headrace.collect.base import Outcome
from headrace.collect.tickets.records import Callback, Rejected, Result, State, Wanted
from headrace.errors import DiskFull, HeadraceError, LogError, NotRunning, Overloaded

logger = logging.getLogger("headrace.tickets")

TOLD = 1000
"""How many rejections a result lists; it counts them all, and each is a dead letter."""
PASSING = (Overloaded, DiskFull, NotRunning, LogError, CancelledError)
"""What may be better the next time: the request waits, and so do those behind it in its lane."""
INTERNAL = {"code": "internal", "message": "something went wrong in the server", "hint": "see headrace logs"}


class Started(NamedTuple):
    ticket: str
    wanted: Wanted | None
    outcome: Future[Outcome] | Exception


class Again(NamedTuple):
    at_least: float
    """Seconds."""


def result_of(started: Started, repeated: bool) -> tuple[State, Result] | Again:
    """Waits for it. An error that nobody thought of is a result too: the request would fail the same way for ever."""
    ticket, wanted, outcome = started
    callback = None if wanted is None or wanted.callback is None else Callback(wanted.callback)
    try:
        if isinstance(outcome, Exception):
            raise outcome
        found = outcome.result()
    except PASSING as error:
        logger.warning("ticket `%s` waits: %s", ticket, error)
        return Again(error.retry_after if isinstance(error, Overloaded) else 0.0)
    except HeadraceError as error:
        return "failed", Result(error=error.to_json(), callback=callback)
    except Exception:
        logger.exception("ticket `%s` has failed, and nobody knows why", ticket)
        return "failed", Result(error=INTERNAL, callback=callback)
    return "done", Result(
        accepted=found.accepted,
        duplicates=found.duplicates,
        shed=found.shed,
        rejected=[Rejected(one.index, one.reason, one.dead_letter) for one in found.rejected[:TOLD]],
        rejections=len(found.rejected),
        positions=list(found.positions),
        repeated=repeated,
        callback=callback,
    )
